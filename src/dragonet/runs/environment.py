"""What a run ran on: environment.json.

Owns the list of facts that explain why two machines give different numbers: versions, processor, thread counts. No
environment variables beyond the thread counts are read, so that no secret reaches a run. It loads none of the
packages it lists.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import psutil

from dragonet import __version__

__all__ = ["environment"]

_PACKAGES: Final = (
    *("torch", "transformers", "peft", "tokenizers", "safetensors", "accelerate", "numpy", "gguf"),
    *("pydantic", "PyYAML", "psutil", "rich", "typer", "jinja2"),
)
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def environment(**more: Any) -> dict[str, Any]:
    """Return the facts about this machine and interpreter, and `more`, which only the caller knows.

    The number of torch threads belongs there: a bit-exact resume depends on it.
    """
    packages = {}
    for package in _PACKAGES:
        try:
            packages[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "dragonet": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "host": platform.node(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_usable": usable,
        "memory_bytes": psutil.virtual_memory().total,
        "threads": {name: os.environ.get(name) for name in _THREADS},
        "packages": packages,
        **more,
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() in ("model name", "hardware", "cpu model"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
