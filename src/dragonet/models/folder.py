"""Whether a folder holds a whole model: config, and every file of weights its index names. Opens no weights."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dragonet.models.support import read_json

__all__ = ["listing", "weights_problem"]

_SINGLE: Final = ("model.safetensors", "pytorch_model.bin")
_INDEX: Final = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_POINTER: Final = b"version https://git-lfs"


def weights_problem(folder: Path) -> str | None:
    """Return what keeps `folder` from being loaded as a model and what to do, or None when all is there."""
    if not (folder / "config.json").is_file():
        return f"it has no config.json; it holds {listing(folder)}{_gguf_hint(folder)}"
    for name in _SINGLE:
        if (folder / name).is_file():
            return _pointer(folder / name)
    for name in _INDEX:
        if (folder / name).is_file():
            return _shards(folder, name)
    return (
        f"it has no weights; it holds {listing(folder)}; put model.safetensors there "
        f"(or its parts with {_INDEX[0]}){_gguf_hint(folder)}"
    )


def listing(folder: Path, limit: int = 12) -> str:
    """Return the names of the files in a folder, cut after `limit`."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return "nothing that can be read"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return (", ".join(names[:limit]) or "nothing") + more


def _shards(folder: Path, index: str) -> str | None:
    mapping = read_json(folder / index).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        return f"its {index} names no files; download it again"
    names = sorted({str(name) for name in mapping.values()})
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        return f"{len(absent)} of {len(names)} files of weights are missing (first: {absent[0]}); download it again"
    return next((problem for name in names if (problem := _pointer(folder / name))), None)


def _pointer(file: Path) -> str | None:
    if file.stat().st_size > 1024:
        return None
    with file.open("rb") as stream:
        if stream.read(len(_POINTER)) == _POINTER:
            return f"its {file.name} is only a git-lfs pointer; run `git lfs pull` in the folder"
    return None


def _gguf_hint(folder: Path) -> str:
    found = sorted(folder.glob("*.gguf")) if folder.is_dir() else []
    return f"; to use the GGUF file, give its path: {found[0]}" if found else ""
