"""`when: column == 'value'`: for which rows a reward has something to say.

A condition is read, never run: one column, == or !=, one literal. Both sides are compared as text; a column that a row
lacks (a blank cell) counts as empty text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dragonet.errors import ConfigError

__all__ = ["Condition"]

_SHAPE = re.compile(r"\s*(?P<column>'[^']*'|\"[^\"]*\"|[^'\"=!<>]+?)\s*(?P<op>==|!=)\s*(?P<value>.+?)\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of one column with one value."""

    column: str
    value: str
    negated: bool = False

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read `column == 'value'`. Raises ConfigError for anything else."""
        shape = _SHAPE.match(text)
        if shape is None:
            raise ConfigError(f"when: expected column == 'value' or column != 'value', got {text!r}")
        column, value = shape["column"], shape["value"]
        try:
            literal = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            literal = None
        if isinstance(literal, str):
            value = literal
        elif not isinstance(literal, bool | int | float):
            raise ConfigError(f"when: {value} is neither text in quotes nor a number; write {column} == {value!r}")
        return cls(column.strip("'\""), value, shape["op"] == "!=")

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether the reward applies to a row."""
        return (str(row.get(self.column, "")) == self.value) != self.negated
