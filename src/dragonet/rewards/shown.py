"""How a value of the user stands in a message: short, whatever it is. Knows no reward."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["shown"]

_LONGEST = 80


def shown(value: Any) -> str:
    """Return the repr of a value, or the beginning of it; what cannot be written is named by its kind."""
    try:
        text = repr(value[:_LONGEST] if isinstance(value, str) else value)
    except Exception:  # a whole number of more than 4300 digits, or a __repr__ of the user's that raises
        digits = f" of about {round(value.bit_length() * math.log10(2))} digits" if isinstance(value, int) else ""
        return f"a value of type {type(value).__name__}{digits}"
    cut = len(text) > _LONGEST or (isinstance(value, str) and len(value) > _LONGEST)
    return f"{text[:_LONGEST]}..." if cut else text
