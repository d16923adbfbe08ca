"""From a file's bytes to raw rows: csv, tsv, json, jsonl and parquet.

Owns encodings and the place of a syntax error: each message names the file and the line, column or byte. Refuses to
know what a cell means; blanks and numbers are the business of values.py. Numbers in csv stay text; numbers in json
remember theirs.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dragonet.data.memory import RawTable, check_names, from_arrow, from_columns, from_records
from dragonet.data.values import LiteralFloat
from dragonet.errors import DataError, MissingExtra

__all__ = ["SUFFIXES", "parse_csv", "read_file"]

_BOMS = (  # longest first: the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def read_file(path: Path) -> RawTable:
    """Read a table by the suffix of its name; raises DataError that says what is wrong and where."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path}: files of type {path.suffix or '(no suffix)'!r} are not read; known: {', '.join(SUFFIXES)}. "
            "Load it with pandas, polars or datasets and pass the object instead"
        )
    return reader(path)


def decode(path: Path) -> str:
    """Return a file's text: UTF-8, or what its byte order mark says."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    mark, encoding = next(((m, e) for m, e in _BOMS if data.startswith(m)), (b"", "utf-8"))
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        offset = error.start + len(mark)
        line = data[:offset].count(b"\n") + 1
        raise DataError(
            f"{path} is not {encoding.upper()}: byte 0x{data[offset]:02x} at offset {offset} (line {line}) cannot be "
            f"decoded. Save it as UTF-8, or read it with pandas (encoding='latin-1', for example) and pass the frame"
        ) from None
    if "\0" in text:
        raise DataError(
            f"{path} holds a zero byte at character {text.index(chr(0))}: it is binary, or UTF-16 without a byte order "
            "mark. Save it as UTF-8"
        )
    if not text.strip():
        raise DataError(f"{path} is empty; a table needs a header or keys, and at least one row")
    return text


def parse_csv(text: str, where: str, delimiter: str = ",") -> RawTable:
    """Read comma- or tab-separated text; line breaks inside quoted cells are kept as `\\n`."""
    text = text.replace("\r\n", "\n")  # a file's line ends are no part of its cells
    notices = []
    header_line = text.lstrip("\n").split("\n", 1)[0]
    if delimiter == "," and "," not in header_line:
        other = next((mark for mark in ("\t", ";") if mark in header_line), None)
        if other is not None:
            delimiter = other
            notices.append(f"{where}: columns are separated by {other!r}, not by a comma")
    lines = _csv_records(text, where, delimiter)
    if not lines:
        raise DataError(f"{where} is empty; a table needs a header and at least one row")
    columns, renamed = _header(lines[0][1], where)
    records = []
    for line, cells in lines[1:]:
        if len(cells) != len(columns):
            raise DataError(
                f"{where}, line {line}: {len(cells)} cells, but the header has {len(columns)} ({', '.join(columns)}). "
                f"Put cells that contain {delimiter!r} or a line break in double quotes"
            )
        records.append(dict(zip(columns, cells, strict=True)))
    if not records:
        raise DataError(f"{where} has a header and no rows; write at least one below it")
    return RawTable(columns, records, (*notices, *renamed))


def _csv_records(text: str, where: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """Return (first line, cells) of each record; lines without anything are skipped."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    records = []
    line = 1
    limit = csv.field_size_limit(2**31 - 1)  # the default refuses cells above 128 KiB
    try:
        for cells in reader:
            if cells:
                records.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        hint = "a double quote is never closed" if "end of data" in str(error) else str(error)
        raise DataError(
            f"{where}, line {line}: {hint}. Write a double quote inside a quoted cell as two double quotes"
        ) from None
    finally:
        csv.field_size_limit(limit)
    return records


def _header(cells: list[str], where: str) -> tuple[tuple[str, ...], list[str]]:
    names = [cell.strip() for cell in cells]
    notices = []
    for position, name in enumerate(names):
        if not name:
            names[position] = f"column_{position + 1}"
            notices.append(f"{where}: column {position + 1} has no name; it is called {names[position]!r}")
    return check_names(names, where), notices


def _read_csv(path: Path) -> RawTable:
    return parse_csv(decode(path), str(path))


def _read_tsv(path: Path) -> RawTable:
    return parse_csv(decode(path), str(path), delimiter="\t")


def _read_json(path: Path) -> RawTable:
    try:
        data = _parse_json(decode(path))
    except json.JSONDecodeError as error:
        hint = ". If each line is an object of its own, call the file .jsonl" if error.msg == "Extra data" else ""
        raise DataError(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}{hint}") from None
    except _BadObject as error:
        raise DataError(f"{path}: {error}") from None
    if isinstance(data, list):
        return from_records(data, str(path))
    if isinstance(data, dict):
        return from_columns(data, str(path))
    raise DataError(f"{path} holds one {type(data).__name__}; expected an array of objects or an object of columns")


def _read_jsonl(path: Path) -> RawTable:
    records: list[Any] = []
    # split at line feeds alone: JSON text may hold other characters that Python counts as line ends
    for number, line in enumerate(decode(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = _parse_json(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path}, line {number}, column {error.colno}: {error.msg}; each line is one object"
            ) from None
        except _BadObject as error:
            raise DataError(f"{path}, line {number}: {error}") from None
        if not isinstance(value, dict):
            raise DataError(f"{path}, line {number}: expected an object, got {type(value).__name__}")
        records.append(value)
    return from_records(records, str(path))


def _read_parquet(path: Path) -> RawTable:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "data", f"Reading {path}") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:  # not read_table, which makes columns out of folder names
            table = file.read()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from None
    return from_arrow(table, str(path))


class _BadObject(Exception):
    """A JSON object that would lose something when read."""


def _parse_json(text: str) -> Any:
    try:
        return json.loads(
            text,
            parse_float=LiteralFloat,
            parse_int=_integer,
            parse_constant=lambda name: None if name == "NaN" else LiteralFloat(name),
            object_pairs_hook=_object,
        )
    except RecursionError:
        raise _BadObject("the nesting is too deep to be read") from None


def _integer(text: str) -> Any:
    try:
        number = int(text)
        return number if str(number) == text else LiteralFloat(text)  # -0
    except ValueError:  # more digits than Python converts
        return LiteralFloat(text)


def _object(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _BadObject(f"an object holds the key {twice!r} twice; rename one of them")
    return result


_READERS: dict[str, Callable[[Path], RawTable]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".parquet": _read_parquet,
}
SUFFIXES = tuple(_READERS)
