"""`load_dataset`: from whatever the user has to a Dataset.

Decides between a file, a bundled table and an object in memory, and has the values cleaned. How each is read stands
in files.py and memory.py, what a cell means in values.py.
"""

from __future__ import annotations

import difflib
import json
import os
from importlib import resources
from pathlib import Path
from typing import Any

from dragonet.data.dataset import Dataset
from dragonet.data.files import parse_csv, read_file
from dragonet.data.mapping import row_numbers
from dragonet.data.memory import RawTable, from_object
from dragonet.data.values import clean_rows
from dragonet.errors import DataError, did_you_mean

__all__ = ["BUNDLED", "load_dataset"]

BUNDLED = "bundled:"


def load_dataset(source: Any) -> Dataset:
    """Load a table: a csv, tsv, json, jsonl or parquet file, `bundled:NAME`, or a table in memory.

    In memory: a list of mappings, a mapping of columns, or a pandas, polars, pyarrow or datasets table. Raises
    DataError, and MissingExtra for parquet without pyarrow.
    """
    if isinstance(source, Dataset):
        return source
    if isinstance(source, str) and source.startswith(BUNDLED):
        return _dataset(_bundled(source), source, repr(source))
    if isinstance(source, str | os.PathLike):
        name = os.fsdecode(source)
        return _dataset(read_file(_existing(name)), name, repr(name))
    table, kind = from_object(source)
    return _dataset(table, f"the {kind}", f"<{kind}>")


def _dataset(table: RawTable, where: str, source: str) -> Dataset:
    rows = clean_rows(table.rows, where)
    notices = [*table.notices]
    seen: dict[str, int] = {}
    repeated = [
        index for index, row in enumerate(rows) if seen.setdefault(json.dumps(row, sort_keys=True), index) != index
    ]
    if repeated:
        verb = "row repeats an earlier one; it is" if len(repeated) == 1 else "rows repeat earlier ones; they are"
        notices.append(f"{where}: {len(repeated)} {verb} kept (rows {row_numbers(repeated)})")
    return Dataset(source, table.columns, tuple(rows), tuple(notices))


def _bundled(source: str) -> RawTable:
    name = source.removeprefix(BUNDLED)
    folder = resources.files("dragonet.data") / "tables"
    known = {item.name.removesuffix(".csv"): item for item in folder.iterdir() if item.name.endswith(".csv")}
    if name not in known:
        raise DataError(f"no bundled table is called {name!r}{did_you_mean(name, known)}")
    return parse_csv(known[name].read_text(encoding="utf-8"), source)


def _existing(name: str) -> Path:
    """Return the path of a file that exists; the error names what lies near."""
    if "://" in name:
        raise DataError(f"{name} is an address; download it first and pass the file")
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise DataError(f"{path.absolute()} is a folder; name a file in it{_files_in(path)}")
    folder = path.parent
    if not folder.is_dir():
        raise DataError(f"{path.absolute()} does not exist, nor does its folder {folder.absolute()}")
    files = [item.name for item in folder.iterdir() if item.is_file()]
    near = difflib.get_close_matches(path.name, files, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else _files_in(folder)
    raise DataError(f"{path.absolute()} does not exist{hint}")


def _files_in(folder: Path) -> str:
    files = sorted(item.name for item in folder.iterdir() if item.is_file())
    if not files:
        return "; the folder holds no files"
    return f"; the folder holds {', '.join(files[:8])}{', ...' if len(files) > 8 else ''}"
