"""What this machine offers a run, and what stands in the way; one finding per line."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from dragonet import models, runs

NEEDED_DISK_GB = 2.0
NEEDED_MEMORY_GB = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact; `next` says what to do about it when it is not `ok`."""

    name: str
    ok: bool
    value: str
    next: str = ""


def examine(runs_dir: str | None = None) -> list[Finding]:
    """Look at interpreter, packages, device, memory, disk, model and runs folder."""
    return [_python(), _packages(), _device(), _memory(), *_models(), _runs_dir(runs_dir)]


def _python() -> Finding:
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding(
        "python", sys.version_info >= (3, 11), text, "" if sys.version_info >= (3, 11) else "use 3.11 or newer"
    )


def _packages() -> Finding:
    found, missing = [], []
    for name in ("dragonet", "torch", "transformers", "peft", "numpy"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    hint = f"install: pip install {' '.join(missing)}" if missing else ""
    return Finding("packages", not missing, ", ".join(found), hint)


def _device() -> Finding:
    import torch

    device = models.pick_device("auto")
    dtype = str(models.pick_dtype("auto", device)).removeprefix("torch.")
    text = f"{device} in {dtype}, {torch.get_num_threads()} threads on {os.cpu_count()} cores"
    why = ""
    if device.type == "cpu":
        why = _why_cpu(torch.version.cuda, torch.backends.mps.is_built())
    return Finding("device", True, text, why)


def _why_cpu(cuda: str | None, mps_built: bool) -> str:
    if cuda is None and not mps_built:
        return "this torch was built for CPUs; for a GPU install a build from pytorch.org"
    if cuda is not None:
        return f"this torch was built for CUDA {cuda} but sees no GPU; check the driver with nvidia-smi"
    return "no GPU was found"


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    free = memory.available / 1e9
    hint = (
        ""
        if free >= NEEDED_MEMORY_GB
        else f"the bundled model trains in about {NEEDED_MEMORY_GB:.0f} GB; close programs"
    )
    return Finding("memory", free >= NEEDED_MEMORY_GB, f"{free:.1f} of {memory.total / 1e9:.1f} GB free", hint)


def _models() -> list[Finding]:
    out = []
    for row in models.list_bundled():
        ready = row["state"] != "missing"
        hint = "" if ready else f"fetch it: dragonet models pull {row['name']}"
        out.append(Finding(f"model {row['name']}", ready, str(row["state"]), hint))
    return out


def _runs_dir(runs_dir: str | None) -> Finding:
    place = runs.default_runs_dir(runs_dir)
    existing = next(path for path in (place, *place.parents) if path.is_dir())
    free = shutil.disk_usage(existing).free / 1e9
    text = f"{place}, {free:.1f} GB free"
    try:
        with tempfile.TemporaryFile(dir=Path(existing)):
            pass
    except OSError as error:
        return Finding(
            "runs folder",
            False,
            f"{text}; not writable ({error.strerror})",
            "pass --runs-dir or set $DRAGONET_RUNS_DIR",
        )
    hint = "" if free >= NEEDED_DISK_GB else "free some disk, or pass --runs-dir"
    return Finding("runs folder", free >= NEEDED_DISK_GB, text, hint)
