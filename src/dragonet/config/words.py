"""How values, keys and paths stand in a message: short, printable, whatever they hold. Knows no key by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

KeyPath = tuple[str | int, ...]

MAX_BITS = 1024
"""Of a whole number in a config: what a float holds. Python refuses to print far longer ones."""

_SHOWN = 60  # characters of a text that a message repeats


def dotted(path: KeyPath) -> str:
    """Return a path as it is written, with long keys cut and unprintable ones escaped."""
    return ".".join(p if len(p) <= _SHOWN and p.isprintable() else brief(p) for p in map(name_of, path))


def brief(text: str) -> str:
    """Quote a text for a message, its beginning where it is long."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


def name_of(key: Any) -> str:
    """Return a key as text."""
    return show(key) if isinstance(key, int) and key.bit_length() > MAX_BITS else str(key)


def show(value: Any) -> str:
    """Name a value for an error message."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return f"a number of about {round(value.bit_length() * math.log10(2))} digits"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"text {brief(value)}"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    return f"an object of type {type(value).__name__}"
