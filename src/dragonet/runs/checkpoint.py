"""Checkpoints: complete or absent, checked when they are read.

Owns `checkpoints/step-NNNNNN/` (whatever files the caller writes, `state.json`, and `manifest.json` with the size and
SHA-256 of each), and the publication of `adapter/`. A checkpoint is filled in a hidden folder, brought to the disk and
renamed; a damaged one is passed over for the one before. It refuses to know what the files hold.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dragonet.errors import DragonetError, RunError
from dragonet.runs import failpoints, files, jsontext
from dragonet.runs.files import Where
from dragonet.runs.folder import RunFolder
from dragonet.runs.lineage import sha256_of

__all__ = [
    "Checkpoint",
    "Writer",
    "checkpoint_steps",
    "latest_checkpoint",
    "load_checkpoint",
    "prune_checkpoints",
    "publish_adapter",
    "save_checkpoint",
]

Writer = Callable[[Path], None] | bytes
"""Writes one file, or one folder of files, at the path it is given; or the bytes themselves."""

_STATE: Final = "state.json"
_MANIFEST: Final = "manifest.json"
_NAME: Final = re.compile(r"step-(\d+)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint whose files were checked. `notices` say which later ones were passed over and why."""

    path: Path
    step: int
    state: Mapping[str, Any]
    notices: tuple[str, ...] = ()

    def file(self, name: str) -> Path:
        """Return the path of one of its files; RunError when the checkpoint has none of this name."""
        path = self.path / name
        if not path.exists():
            raise RunError(f"the checkpoint {self.path} holds no {name}; it was written by another stage or version")
        return path


def save_checkpoint(folder: Where, step: int, writers: Mapping[str, Writer], state: Mapping[str, Any]) -> Path:
    """Write a checkpoint and return its folder; when this returns it is on the disk.

    `writers` are called in order. `state` is kept as JSON: tuples come back as lists and keys as text, while NaN and
    infinities survive. An existing checkpoint of the same step is replaced. RunError when the disk does not take it;
    the checkpoints before are untouched then.
    """
    run = RunFolder(folder)
    target = run.checkpoint_of(step)
    hidden = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    reserved = {_STATE, _MANIFEST} & writers.keys()
    if reserved:
        raise ValueError(f"{sorted(reserved)} are written by save_checkpoint itself")
    with files.writing(target):
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir(parents=True)
    everything = {**writers, _STATE: jsontext.document({"step": step, "state": state}, exact=True)}
    try:
        for position, (name, writer) in enumerate(everything.items()):
            if position:
                failpoints.hit("checkpoint.between_files")
            failpoints.hit("checkpoint.before_file")
            _write(hidden / name, writer)
            failpoints.hit("checkpoint.after_file")
            with files.writing(target / name):
                files.sync_tree(hidden / name)
        failpoints.hit("checkpoint.before_manifest")
        files.write_json(hidden / _MANIFEST, {"step": step, "files": _inventory(hidden)})
        failpoints.hit("checkpoint.before_rename")
        with files.writing(target):
            files.sync(hidden)
            files.swap_folder(hidden, target)
        failpoints.hit("checkpoint.after_rename")
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return target


def checkpoint_steps(folder: Where) -> list[int]:
    """Return the steps of all complete checkpoints, ascending, damaged ones included."""
    try:
        names = os.listdir(RunFolder(folder).checkpoints)
    except OSError:
        return []
    return sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)


def latest_checkpoint(folder: Where) -> Path | None:
    """Return the folder of the latest checkpoint, unchecked; None when there is none."""
    steps = checkpoint_steps(folder)
    return RunFolder(folder).checkpoint_of(steps[-1]) if steps else None


def load_checkpoint(folder: Where, step: int | None = None) -> Checkpoint | None:
    """Check and return the checkpoint of `step`, or the latest that is whole; None when the run has none at all.

    Raises RunError when the one that was asked for is missing or damaged, or when all are damaged.
    """
    run = RunFolder(folder)
    steps = checkpoint_steps(run)
    if step is not None and step not in steps:
        there = ", ".join(map(str, steps)) or "none"
        raise RunError(f"run {run.id} has no checkpoint of step {step}; there are: {there}")
    notices: list[str] = []
    for candidate in [step] if step is not None else reversed(steps):
        path = run.checkpoint_of(candidate)
        damage = _damage(path)
        if damage is None:
            state = jsontext.restore(files.read_json(path / _STATE)["state"])
            return Checkpoint(path, candidate, state, tuple(notices))
        notices.append(f"the checkpoint {path} is damaged ({damage}) and is passed over")
    if not steps:
        return None
    if step is not None:
        others = ", ".join(str(other) for other in steps if other != step) or "none"
        raise RunError(f"{notices[0].removesuffix(' and is passed over')}; other checkpoints of the run: {others}")
    raise RunError(
        f"run {run.id} has no checkpoint that is whole: {'; '.join(notices)}. Restore one from a backup, or delete "
        f"{run.checkpoints} to start over from step 0"
    )


def prune_checkpoints(folder: Where, keep: int = 2, protect: Collection[int] = ()) -> list[int]:
    """Delete all but the latest `keep` checkpoints and those of the steps in `protect`; return the deleted steps."""
    if keep < 1:
        raise ValueError("at least one checkpoint is kept")
    run = RunFolder(folder)
    doomed = [step for step in checkpoint_steps(run)[:-keep] if step not in protect]
    with files.writing(run.checkpoints):
        for step in doomed:
            files.remove_folder(run.checkpoint_of(step), lambda: failpoints.hit("checkpoint.prune"))
    return doomed


def publish_adapter(folder: Where, source: Where | Mapping[str, Writer]) -> Path:
    """Replace `adapter/` by a copy of a folder, or by what writers produce; no reader sees half of one."""
    run = RunFolder(folder)
    hidden = run.adapter.with_name(f".adapter.{os.getpid()}.tmp")
    with files.writing(run.adapter):
        shutil.rmtree(hidden, ignore_errors=True)
        if not isinstance(source, Mapping):
            shutil.copytree(source, hidden)
        else:
            hidden.mkdir()
    try:
        if isinstance(source, Mapping):
            for name, writer in source.items():
                _write(hidden / name, writer)
        with files.writing(run.adapter):
            files.sync_tree(hidden)
            failpoints.hit("adapter.before_publish")
            files.swap_folder(hidden, run.adapter, lambda: failpoints.hit("adapter.between_renames"))
        failpoints.hit("adapter.after_publish")
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return run.adapter


def _write(path: Path, writer: Writer) -> None:
    with files.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(writer, bytes):
            path.write_bytes(writer)
            return
        try:
            writer(path)
        except (OSError, DragonetError):
            raise
        except Exception as error:
            # writers in native code report a full disk by exceptions of their own
            if re.search(r"no space left|os error 28|storagefull", str(error), re.IGNORECASE) or _no_space(path.parent):
                raise OSError(errno.ENOSPC, str(error).strip() or os.strerror(errno.ENOSPC)) from error
            raise
        if not path.exists():
            raise ValueError(f"the writer of {path.name} wrote nothing at {path}")


def _no_space(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < 65536


def _inventory(folder: Path) -> dict[str, dict[str, Any]]:
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _MANIFEST)
    return {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": sha256_of(path)} for path in found
    }


def _damage(folder: Path) -> str | None:
    """Say what is wrong with a checkpoint, or None."""
    with contextlib.suppress(OSError):
        try:
            listed = files.read_json(folder / _MANIFEST)["files"]
            for name, entry in listed.items():
                path = folder / name
                if not path.is_file():
                    return f"{name} is missing"
                if path.stat().st_size != entry["size"]:
                    return f"{name} has {path.stat().st_size} bytes instead of {entry['size']}"
                if sha256_of(path) != entry["sha256"]:
                    return f"the checksum of {name} differs"
            return None if _STATE in listed else f"{_STATE} is missing"
        except RunError as error:
            return str(error)
        except (KeyError, TypeError, AttributeError):
            return f"{_MANIFEST} is no list of files"
    return "it cannot be read"
