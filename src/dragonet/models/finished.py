"""A finished run, or a bare PEFT adapter, as a model: which base it was trained on and which adapters to fold in.

Reads three things in a run folder: config.yaml (`model`), lineage.json (`base` and `adapters`, paths relative to the
run, when it keeps copies of the adapters it started from) and adapter/. Writes nothing and resolves no names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dragonet.errors import ModelError
from dragonet.models.folder import listing
from dragonet.models.support import first_line, read_json

__all__ = ["Origin", "is_adapter", "is_run", "read_adapter", "read_run"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The model an adapter belongs to, as the user named it, and the adapters to fold into it, in order."""

    base: str
    revision: str | None
    adapters: tuple[Path, ...]


def is_run(folder: Path) -> bool:
    """Return whether a folder looks like a run's."""
    return (folder / "config.yaml").is_file() and not (folder / "config.json").is_file()


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds a PEFT adapter and no model."""
    return (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file()


def read_run(folder: Path) -> Origin:
    """Return where a finished run comes from. Raises ModelError for a run without an adapter or a readable config."""
    adapter = folder / "adapter"
    _check_adapter(adapter, f"run {folder.name} has no finished adapter to continue from")
    lineage = read_json(folder / "lineage.json")
    earlier = tuple(folder / str(path) for path in lineage.get("adapters") or ())
    for path in earlier:
        _check_adapter(path, f"run {folder.name} names an earlier adapter in lineage.json that is not there")
    named = (lineage.get("base") if earlier else None) or _config_model(folder)
    base, revision = _model_name(named)
    if base is None:
        raise ModelError(
            f"run {folder.name}: its config.yaml names no model; expected model: NAME or model: {{id: NAME}}"
        )
    return Origin(base, revision, (*earlier, adapter))


def read_adapter(folder: Path) -> Origin:
    """Return the base a PEFT adapter names. Raises ModelError when it names none."""
    _check_adapter(folder, f"{folder} is not a whole adapter")
    config = read_json(folder / "adapter_config.json")
    base, revision = _model_name({"id": config.get("base_model_name_or_path"), "revision": config.get("revision")})
    if base is None:
        raise ModelError(
            f"the adapter in {folder} names no base: set base_model_name_or_path in its adapter_config.json"
        )
    return Origin(base, revision, (folder,))


def _config_model(folder: Path) -> Any:
    path = folder / "config.yaml"
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ModelError(f"{path} cannot be read: {first_line(error)}") from error
    return config.get("model") if isinstance(config, Mapping) else None


def _model_name(value: Any) -> tuple[str | None, str | None]:
    if isinstance(value, str) and value:
        return value, None
    if isinstance(value, Mapping) and isinstance(value.get("id"), str) and value["id"]:
        revision = value.get("revision")
        return value["id"], str(revision) if revision else None
    return None, None


def _check_adapter(folder: Path, what: str) -> None:
    weights = [folder / "adapter_model.safetensors", folder / "adapter_model.bin"]
    if not (folder / "adapter_config.json").is_file() or not any(path.is_file() for path in weights):
        raise ModelError(
            f"{what}: {folder} needs adapter_config.json and adapter_model.safetensors and holds {listing(folder)}; "
            "let the run finish, or resume it"
        )
