"""The `rewards` section: a list of mappings with a `type`; which types and keys exist is for the rewards room.

Short forms: one mapping instead of a list, and a bare type name instead of a mapping.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

_ENTRY = "a type name or a mapping with a type"


def listed(value: Any) -> Any:
    """Turn the short forms into a list of mappings; what is neither is left for the schema to refuse."""
    entries = [value] if isinstance(value, str | dict) else value
    if not isinstance(entries, list | tuple):
        return entries
    return [{"type": entry} if isinstance(entry, str) else entry for entry in entries]


def _has_type(entry: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(entry.get("type"), str) or not entry["type"].strip():
        raise PydanticCustomError("no_type", "a reward needs a type, such as {type: numeric}")
    return entry


Rewards = Annotated[
    tuple[Annotated[dict[str, Any], Field(description=_ENTRY), AfterValidator(_has_type)], ...],
    Field(strict=False, description=f"a list of rewards, each {_ENTRY}"),
    BeforeValidator(listed),
]
