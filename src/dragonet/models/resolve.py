"""A name to a folder on this machine: bundled name, local folder, or a finished run.

Looks at files only; loads no weights and no torch.
"""

from __future__ import annotations

from pathlib import Path

from dragonet.errors import ModelError, did_you_mean
from dragonet.models.ref import ModelRef
from dragonet.models.tiny import TINY_NAME, tiny_folder

__all__ = ["resolve"]


def resolve(model: str, *, revision: str | None = None, runs_dir: Path | None = None) -> ModelRef:
    """Return where the files of `model` are. Raises ModelError when they cannot be found or are incomplete."""
    if model == TINY_NAME:
        return ModelRef(TINY_NAME, tiny_folder(), kind="tiny")
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        return ModelRef(model, folder.absolute())
    raise ModelError(f"unknown model {model!r}{did_you_mean(model, [TINY_NAME])}")
