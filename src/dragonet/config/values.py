"""Field types that the sections share, and how to say in words what a field expects.

Owns the strictness of the schema: no unknown keys, no silent conversion of types, no NaN or infinity, frozen
sections. Knows nothing of files, lines or the command line.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types as limits
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def _read_exponent(value: Any) -> Any:
    """Read `1e-5` given as text: many YAML readers take an exponent without a dot for text."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


Real = Annotated[float, BeforeValidator(_read_exponent)]
Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], Field(strict=False)]  # a YAML list is a list, and the section holds a tuple
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]  # no run is larger, and none may be without end


@dataclass(frozen=True, slots=True)
class Conflict:
    """Keys of one section that cannot stand together; the first key is the one to look at."""

    keys: tuple[str, ...]
    text: str


def refuse(conflicts: Iterable[Conflict]) -> None:
    """Raise what a pydantic validator raises, with every conflict in its context, if there is one."""
    found = tuple(conflicts)
    if found:
        text = "; ".join(f"{c.keys[0]}: {c.text}" for c in found)
        raise PydanticCustomError("conflict", text, {"conflicts": found})


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the section a field holds, or None for a plain value."""
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def is_text(field: FieldInfo) -> bool:
    """Whether a field takes any text (or null) and nothing else."""
    return _alternatives(field.annotation) == [str]


def choices(field: FieldInfo) -> tuple[str, ...]:
    """Return the words a field is limited to, or nothing where it takes other values too."""
    parts = _alternatives(field.annotation)
    if not all(get_origin(p) is Literal and _all_text(p) for p in parts):
        return ()
    return tuple(word for p in parts for word in get_args(p))


def expected(field: FieldInfo) -> str:
    """Say what a field takes: `a number from 0.05 to 3`."""
    if field.description:
        return field.description
    if section_of(field) is not None:
        return "a section with keys"
    return _describe(field.annotation, tuple(field.metadata))


def expected_entry(field: FieldInfo, index: int) -> str:
    """Say what one entry of a list field takes."""
    for part in _alternatives(field.annotation):
        if get_origin(part) is tuple:
            items = [item for item in get_args(part) if item is not Ellipsis]
            return _describe(items[min(index, len(items) - 1)])
    return expected(field)


def _alternatives(annotation: Any) -> list[Any]:
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return [_bare(p) for p in parts if p is not type(None)]


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _all_text(literal: Any) -> bool:
    return all(isinstance(word, str) for word in get_args(literal))


def _describe(annotation: Any, metadata: tuple[Any, ...] = ()) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        base, *more = get_args(annotation)
        return _describe(base, (*metadata, *more))
    if origin in (Union, types.UnionType):
        return ", or ".join(_describe(part) for part in get_args(annotation))
    if origin is Literal:
        words = [str(word) for word in get_args(annotation)]
        return words[0] if len(words) == 1 else f"one of {', '.join(words)}"
    if origin is tuple:
        items = get_args(annotation)
        return "a list of texts" if items[-1] is Ellipsis else f"a list of {len(items)} numbers"
    described = next((m.description for m in metadata if isinstance(m, FieldInfo) and m.description), None)
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
    return described or names.get(annotation, "a plain value") + _range(metadata)


def _range(metadata: tuple[Any, ...]) -> str:
    def said(bound: Any) -> str:
        return str(bound) if isinstance(bound, int) else f"{bound:g}"

    flat = [m for entry in metadata for m in (entry.metadata if isinstance(entry, FieldInfo) else (entry,))]
    low = next((f"from {said(m.ge)}" for m in flat if isinstance(m, limits.Ge)), "")
    low = next((f"above {said(m.gt)}" for m in flat if isinstance(m, limits.Gt)), low)
    high = next((f"to {said(m.le)}" for m in flat if isinstance(m, limits.Le)), "")
    high = next((f"below {said(m.lt)}" for m in flat if isinstance(m, limits.Lt)), high)
    if low.startswith("from") and not high:
        low = low.replace("from", "of at least")
    if any(isinstance(m, limits.MinLen) for m in flat):
        return " that is not empty"
    joint = " and " if low.startswith("above") or high.startswith("below") else " "
    return f" {low}{joint}{high}" if low and high else f" {low or high}".rstrip()
