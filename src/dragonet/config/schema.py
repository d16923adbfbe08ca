"""Find keys in the schema by their path, and name the nearest one for a key that is not there."""

from __future__ import annotations

import difflib

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dragonet.config.run import RunConfig
from dragonet.config.values import section_of
from dragonet.config.words import KeyPath
from dragonet.errors import did_you_mean

_LONGEST = 100  # of a name that is compared with the known ones


def field_at(path: KeyPath) -> FieldInfo | None:
    """Return the field a path ends at, or None where the schema has none."""
    known, field = known_part(path)
    return field if known == path else None


def known_part(path: KeyPath) -> tuple[KeyPath, FieldInfo | None]:
    """Return the longest part of a path that the schema knows, and the field it ends at."""
    model: type[BaseModel] | None = RunConfig
    field: FieldInfo | None = None
    for n, key in enumerate(path):
        if model is None or not isinstance(key, str) or key not in model.model_fields:
            return path[:n], field
        field = model.model_fields[key]
        model = section_of(field)
    return path, field


def unknown_key(path: KeyPath) -> str:
    """Say that a key is unknown, and which one was probably meant: the same name elsewhere, or the nearest here."""
    name = str(path[-1])[:_LONGEST]
    elsewhere = [f"{section}.{name}" for section, keys in _sections().items() if name in keys]
    if len(path) == 2 and name in RunConfig.model_fields:
        elsewhere.append(name)
    if elsewhere:
        return f"unknown key here; it is {' or '.join(elsewhere)}"
    _, parent = known_part(path[:-1])
    section = section_of(parent) if parent is not None else RunConfig
    keys = list(section.model_fields) if section is not None else []
    if len(path) == 1 and not difflib.get_close_matches(name, keys):
        homes = {key: f"{home}.{key}" for home, inner in _sections().items() for key in inner}
        for near in difflib.get_close_matches(name, homes, n=1):
            return f"unknown key; did you mean {homes[near]!r}?"
    return f"unknown key{did_you_mean(name, keys)}"


def _sections() -> dict[str, list[str]]:
    found = ((name, section_of(field)) for name, field in RunConfig.model_fields.items())
    return {name: list(section.model_fields) for name, section in found if section is not None}
