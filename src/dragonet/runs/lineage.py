"""Where a run comes from: lineage.json.

Owns the record of the base model, the runs and adapters it stands on, and the checksums of its data and reward
files, so that a result can be traced after the originals moved. It refuses to judge what it records.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dragonet import __version__
from dragonet.errors import RunError

__all__ = ["lineage", "sha256_of"]


def sha256_of(content: bytes | str | os.PathLike[str]) -> str:
    """Return the SHA-256 of some bytes, of a text in UTF-8, or of the file at a path."""
    if isinstance(content, bytes | str):
        return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
    try:
        with open(content, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"cannot read {os.fspath(content)}: {error.strerror or error}") from error


def lineage(
    *,
    model: Any = None,
    parents: Sequence[str] = (),
    adapters: Sequence[str | os.PathLike[str]] = (),
    data: Mapping[str, bytes | str | Path] | None = None,
    rewards: Mapping[str, bytes | str | Path] | None = None,
) -> dict[str, Any]:
    """Return the content of lineage.json.

    `model` names the base model as resolved; `parents` are ids of runs, oldest first, and `adapters` what is applied
    on top of the base, in order. `data` and `rewards` map a name to its content, or to a Path that is read.
    """
    return {
        "dragonet": __version__,
        "model": model,
        "parents": list(parents),
        "adapters": [os.fspath(adapter) for adapter in adapters],
        "data": {name: {"sha256": sha256_of(content)} for name, content in (data or {}).items()},
        "rewards": {name: {"sha256": sha256_of(content)} for name, content in (rewards or {}).items()},
    }
