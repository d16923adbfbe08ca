"""A finished run, or a bare PEFT adapter, as a model: which base it was trained on and which adapters to fold in.

Reads three things in a run folder: adapter/, lineage.json (`model` and `adapters`: the base and what was folded into
it, while those adapters are still there) and else config.yaml (`model`). Writes nothing and resolves no names.
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

_WITHOUT_ADAPTERS = ("bundled", "tiny", "folder", "gguf", "hub")

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
    traced = _traced(folder)
    if traced is not None:
        return Origin(traced.base, traced.revision, (*traced.adapters, adapter))
    base, revision = _model_name(_config_model(folder))
    if base is None:
        raise ModelError(
            f"run {folder.name}: its config.yaml names no model; expected model: NAME or model: {{id: NAME}}"
        )
    return Origin(base, revision, (adapter,))


def _traced(folder: Path) -> Origin | None:
    """The base as it was resolved when the run began, from lineage.json, while it and its adapters are still there.

    Better than the config's name: it holds the hub's commit, and full paths where the user gave relative ones.
    """
    lineage = read_json(folder / "lineage.json")
    model = lineage.get("model")
    earlier = tuple(folder / str(path) for path in lineage.get("adapters") or ())
    base, revision = _model_name(model)
    kind = model.get("kind") if isinstance(model, Mapping) else None
    if base is None or not all(_is_whole(path) for path in earlier):
        return None
    if not earlier and kind not in _WITHOUT_ADAPTERS:
        return None
    if Path(base).is_absolute() and not Path(base).exists():
        return None
    return Origin(base, revision, earlier)


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
    """Name and revision out of a bare name, a config's `{id, revision}` or a lineage's `{name, revision}`."""
    if isinstance(value, str) and value:
        return value, None
    if isinstance(value, Mapping):
        name, revision = value.get("id") or value.get("name"), value.get("revision")
        if isinstance(name, str) and name:
            return name, str(revision) if revision else None
    return None, None


def _is_whole(folder: Path) -> bool:
    weights = (folder / "adapter_model.safetensors", folder / "adapter_model.bin")
    return (folder / "adapter_config.json").is_file() and any(path.is_file() for path in weights)


def _check_adapter(folder: Path, what: str) -> None:
    if not _is_whole(folder):
        raise ModelError(
            f"{what}: {folder} needs adapter_config.json and adapter_model.safetensors and holds {listing(folder)}; "
            "let the run finish, or resume it"
        )
