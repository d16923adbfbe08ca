"""From a row to text: a column name, or text with `{column}` in it.

`{{` and `}}` are literal braces. Nothing else happens between braces: no formats, no attributes, no expressions.
Refuses to know roles and messages; mapping.py decides what a blank means for each.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dragonet.data.values import as_text
from dragonet.errors import DataError, did_you_mean

__all__ = ["Column", "Template", "constant", "near_column", "parse_template"]

_BRACES = re.compile(r"\{\{|\}\}|\{|\}")


@dataclass(frozen=True, slots=True)
class Column:
    """A place where a column's value goes."""

    name: str


@dataclass(frozen=True, slots=True)
class Template:
    """Literal text and columns, in order."""

    parts: tuple[str | Column, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it names, each once, in order."""
        return tuple(dict.fromkeys(part.name for part in self.parts if isinstance(part, Column)))

    @property
    def column(self) -> str | None:
        """The column's name when the template is one column and nothing else."""
        only = self.parts[0] if len(self.parts) == 1 else None
        return only.name if isinstance(only, Column) else None

    def render(self, row: Mapping[str, Any]) -> str:
        """Return the text of one row; blank cells leave nothing, and when all named cells are blank so is the text."""
        if self.columns and not any(name in row for name in self.columns):
            return ""
        return "".join(
            part if isinstance(part, str) else as_text(row[part.name]) if part.name in row else ""
            for part in self.parts
        )


def constant(text: str) -> Template:
    """Return a template that says the same for each row."""
    return Template((text,))


def near_column(name: str, columns: Collection[str]) -> str | None:
    """Return the column that `name` is probably a misspelling of."""
    near = difflib.get_close_matches(name, columns, n=1, cutoff=0.75)
    return near[0] if near else None


def parse_template(text: str, columns: Collection[str], role: str) -> Template:
    """Read a column name or a template; a name of a column wins over everything else.

    Raises DataError naming the position for braces that do not match, and the near column for an unknown one.
    """
    if text in columns:
        return Template((Column(text),))
    if "{" not in text and "}" not in text:
        raise DataError(
            f"{role} {text!r} is neither a column nor text with a column in braces, such as "
            f"'{{{next(iter(columns), 'column')}}}'{did_you_mean(text, columns)}"
        )
    return Template(_parts(text, columns, role))


def _parts(text: str, columns: Collection[str], role: str) -> tuple[str | Column, ...]:
    parts: list[str | Column] = []
    literal = ""
    position = 0
    while (match := _BRACES.search(text, position)) is not None:
        literal += text[position : match.start()]
        position = match.end()
        if match[0] in ("{{", "}}"):
            literal += match[0][0]
            continue
        if match[0] == "}":
            raise DataError(f"{role}: {_at(text, match.start())} closes nothing; write }}}} for a literal brace")
        end = next((i for i in range(position, len(text)) if text[i] in "{}"), len(text))
        if end == len(text) or text[end] == "{":
            raise DataError(f"{role}: {_at(text, match.start())} is never closed; write {{{{ for a literal brace")
        if literal:
            parts.append(literal)
        parts.append(_column(text[position:end], columns, f"{role}: {_at(text, match.start())}"))
        literal = ""
        position = end + 1
    literal += text[position:]
    return (*parts, literal) if literal else tuple(parts)


def _column(name: str, columns: Collection[str], place: str) -> Column:
    known = next((candidate for candidate in (name, name.strip()) if candidate in columns), None)
    if known is None:
        what = f"names the unknown column {name!r}" if name.strip() else "names no column"
        literal = "" if name.strip().isidentifier() else "; for literal braces write {{ and }}"
        raise DataError(f"{place} {what}{did_you_mean(name.strip(), columns)}{literal}")
    return Column(known)


def _at(text: str, index: int) -> str:
    return f"the brace at character {index + 1} (in {text[max(0, index - 12) : index + 20]!r})"
