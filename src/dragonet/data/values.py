"""What a cell is: blanks, numbers that keep their text, and how a value is written into a prompt.

Every loaded value is one that JSON can hold (text, number, boolean, list, mapping), so that a run can write its rows
down and read them back equal. Knows neither files nor templates, and imports no table library: numpy scalars, tensors
and missing values of pandas are known by how they behave.
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dragonet.errors import DataError

__all__ = ["LiteralFloat", "as_text", "clean_cell", "clean_rows", "number_text"]

_DEPTH = 64  # far below Python's recursion limit, so that every later walk over the value ends well


class LiteralFloat(float):
    """A float that remembers how the file wrote it: `LiteralFloat("1.10")` equals 1.1 and prints 1.10."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> LiteralFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[LiteralFloat], tuple[str]]:
        return (LiteralFloat, (self.text,))


def clean_rows(table: Iterable[Mapping[str, Any]], where: str) -> list[dict[str, Any]]:
    """Return the rows with plain values and without blank cells; raises DataError naming row and column.

    A column of whole floats with blanks becomes whole numbers: this is how pandas stores integers once a cell is
    missing, and 7 must not turn into 7.0 by a gap elsewhere.
    """
    rows: list[dict[str, Any]] = []
    gaps: set[str] = set()
    fractional: set[str] = set()  # columns that hold anything but plain whole floats
    for index, raw in enumerate(table):
        row: dict[str, Any] = {}
        for column, value in raw.items():
            try:
                cell = clean_cell(value)
            except DataError as error:
                raise DataError(f"{where}, row {index + 1}, column {column!r}: {error}") from None
            if cell is None:
                gaps.add(column)
                continue
            row[column] = cell
            if type(cell) is not float or not cell.is_integer():
                fractional.add(column)
        rows.append(row)
    for column in gaps - fractional:
        for row in rows:
            if column in row:
                row[column] = int(row[column])
    return rows


def clean_cell(value: Any) -> Any:
    """Return the value as plain Python, or None for a blank: None, NaN, NaT, NA, or text that is only white space."""
    plain = _plain(value)
    if isinstance(plain, str) and not plain.strip():
        return None
    return plain


def as_text(value: Any) -> str:
    """Return how a value reads in a prompt: text and numbers as they stand, lists and mappings as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value)
    return _json_text(value)


def number_text(number: float) -> str:
    """Return a float's text, as the file wrote it or without an exponent: 100000.0, never 1e+05."""
    if isinstance(number, LiteralFloat):
        return number.text
    text = repr(number)
    return format(decimal.Decimal(text), "f") if "e" in text else text


def _json_text(value: Any) -> str:
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key, ensure_ascii=False)}: {_json_text(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(_json_text(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any, depth: int = 0) -> Any:
    if depth > _DEPTH:
        raise DataError(f"the value is nested deeper than {_DEPTH} levels; flatten it")
    if value is None or isinstance(value, bool | LiteralFloat):
        return value
    if isinstance(value, str):
        return _checked(str(value))
    if type(value).__name__ in ("NAType", "NaTType"):  # pandas.NA and pandas.NaT, which compare to nothing
        return None
    if callable(getattr(value, "tolist", None)):  # numpy scalars and arrays, tensors, series
        if getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m") and not getattr(value, "shape", ()):
            return None if str(value) == "NaT" else str(value)  # a datetime64 in nanoseconds would turn into a number
        return _plain(value.tolist(), depth)
    if isinstance(value, int):
        return _from_int(int(value))
    if isinstance(value, float):
        return None if value != value else float(value)
    if isinstance(value, decimal.Decimal):
        return _from_decimal(value)
    if isinstance(value, bytes | bytearray):
        return _from_bytes(bytes(value))
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta | uuid.UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {
            _checked(str(_from_int(key) if isinstance(key, int) else key)): _plain(item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, Sequence):
        return [_plain(item, depth + 1) for item in value]
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise DataError(f"a value of type {kind} is no text, number, list or mapping; convert the column or leave it out")


def _checked(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        raise DataError(
            f"the text holds half a character ({half}) at position {error.start}; repair the cell"
        ) from None
    return text


def _from_int(value: int) -> int | LiteralFloat:
    """Return a number that can be written; Python itself writes no whole number of more than 4300 digits."""
    try:
        str(value)
    except ValueError:
        return LiteralFloat(format(decimal.Decimal(value), "f"))
    return value


def _from_decimal(value: decimal.Decimal) -> Any:
    if value.is_nan():
        return None
    text = format(value, "f")
    return _from_int(int(value)) if text.lstrip("-").isdigit() and text != "-0" else LiteralFloat(text)


def _from_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise DataError(
            f"{len(value)} bytes that are no UTF-8 text; convert the column to text or leave it out"
        ) from None
