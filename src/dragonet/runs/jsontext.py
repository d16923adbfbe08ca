"""Values to strict JSON text and back: what every file of a run is written with.

Owns the schema version that stands in each file and the rule for numbers that JSON lacks: NaN and infinities become
null, or, where losing them would change a resumed run, a tagged object that reads back as the same number.
It refuses to know files.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["SCHEMA", "TooNew", "document", "dumps", "plain", "restore", "row", "stripped"]

SCHEMA: Final = 1
_TAG: Final = "$float"

# characters that are legal inside JSON text and that str.splitlines, which many readers use, takes for line ends
_LINE_ENDS: Final = {"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"}


class TooNew(ValueError):
    """The text was written by a later version of dragonet."""


def dumps(value: object, *, indent: int | None = None, exact: bool = False) -> bytes:
    """Return strict JSON in UTF-8; with `exact`, NaN and infinities survive `restore`, else they become null."""
    tree = plain(value, exact, "value")
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False, indent=indent)
    for character, escape in _LINE_ENDS.items():
        text = text.replace(character, escape)
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates: keep them as escapes, which every reader takes
        return json.dumps(tree, allow_nan=False, indent=indent).encode()


def document(value: Mapping[str, Any], *, exact: bool = False) -> bytes:
    """Return the text of a whole JSON file, its schema version first."""
    return dumps({"schema": SCHEMA, **value}, indent=2, exact=exact) + b"\n"


def row(value: Mapping[str, Any]) -> bytes:
    """Return one line of a JSONL file, its schema version first, with the line end."""
    return dumps({"schema": SCHEMA, **value}) + b"\n"


def stripped(text: bytes) -> dict[str, Any]:
    """Parse a document or row and take the schema version off; ValueError when it is no object, TooNew when newer."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    schema = value.pop("schema", SCHEMA)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise TooNew(f"it was written by a newer dragonet (schema {schema}, this one reads up to {SCHEMA})")
    return value


def restore(value: Any) -> Any:
    """Turn what `exact` tagged back into numbers."""
    if isinstance(value, dict):
        if value.keys() == {_TAG}:
            return float(value[_TAG])
        return {key: restore(item) for key, item in value.items()}
    return [restore(item) for item in value] if isinstance(value, list) else value


def plain(value: Any, exact: bool = False, where: str = "value") -> Any:
    """Return `value` in the types JSON knows; TypeError names what has no place there."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):  # int and str bring enum members down to what they stand for
        return int(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return {_TAG: str(float(value))} if exact else None
    if isinstance(value, Mapping):
        return {str(key): plain(item, exact, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, exact, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # numpy scalars, tensors of one number
        return plain(value.item(), exact, where)
    raise TypeError(f"{where} is a {type(value).__name__}, which has no place in a JSON file")
