"""From objects in memory to raw rows: lists of mappings, mappings of columns, and tables of other libraries.

pandas, polars, datasets and pyarrow are never imported: an object is known by the methods it has. Refuses to know
what a cell means; that is values.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dragonet.errors import DataError

__all__ = ["RawTable", "check_names", "from_arrow", "from_columns", "from_object", "from_records"]


@dataclass(frozen=True, slots=True)
class RawTable:
    """Rows as they were found, before blanks and numbers are settled."""

    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, Any]]
    notices: tuple[str, ...] = ()


def from_object(source: Any) -> tuple[RawTable, str]:
    """Return the rows of an object in memory, and what to call it in messages."""
    if isinstance(source, Mapping):
        _refuse_splits(source)
        return from_columns(source, "the mapping of columns"), "columns"
    if isinstance(source, list | tuple):
        return from_records(source, "the list of rows"), "rows"
    kind = f"{type(source).__module__.split('.')[0]}.{type(source).__name__}"
    where = f"the {kind}"
    if _has(source, "collect", "collect_schema"):  # polars.LazyFrame
        source = source.collect()
    if _has(source, "to_pylist", "column_names"):  # pyarrow.Table
        return from_arrow(source, where), kind
    if _has(source, "column_names", "features"):  # datasets.Dataset
        return _from_datasets(source, where), kind
    if _has(source, "get_columns", "to_dicts"):  # polars.DataFrame
        return from_columns({series.name: series.to_list() for series in source.get_columns()}, where), kind
    if _has(source, "iloc", "columns"):  # pandas.DataFrame
        names = check_names(list(source.columns), where)
        columns = {name: source.iloc[:, position].tolist() for position, name in enumerate(names)}
        return from_columns(columns, where), kind
    raise DataError(
        f"a table cannot be read from {kind}; expected a file name, 'bundled:NAME', a list of mappings, a mapping of "
        "columns, or a pandas, polars, pyarrow or datasets table"
    )


def from_records(records: Iterable[Any], where: str) -> RawTable:
    """Take a list of mappings; columns stand in the order in which they first appear."""
    rows = list(records)
    names: dict[Any, None] = {}
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            hint = "; write {'prompt': text} for each" if isinstance(row, str) else ""
            raise DataError(f"{where}, row {index + 1}: expected a mapping, got {type(row).__name__}{hint}")
        names.update(dict.fromkeys(row))
    return _filled(RawTable(check_names(list(names), where), rows), where)


def from_columns(columns: Mapping[Any, Any], where: str) -> RawTable:
    """Take a mapping of column names to equally long lists of values."""
    names = check_names(list(columns), where)
    values = [_values(name, columns[name], where) for name in names]
    lengths = {name: len(column) for name, column in zip(names, values, strict=True)}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(f"{where}: the columns differ in length ({listed})")
    rows = [dict(zip(names, cells, strict=True)) for cells in zip(*values, strict=True)]
    return _filled(RawTable(names, rows), where)


def from_arrow(table: Any, where: str) -> RawTable:
    """Take a pyarrow table."""
    names = check_names(list(table.column_names), where)
    return from_columns({name: table.column(index).to_pylist() for index, name in enumerate(names)}, where)


def check_names(names: list[Any], where: str) -> tuple[str, ...]:
    """Return the column names; raises DataError when one is not text or stands twice."""
    first: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"{where}: the column name {name!r} is not text; rename the column")
        if name in first:
            raise DataError(
                f"{where}: columns {first[name]} and {position} are both called {name!r}; rename one of them"
            )
        first[name] = position
    return tuple(names)


def _from_datasets(dataset: Any, where: str) -> RawTable:
    if not _has(dataset, "__len__"):
        raise DataError(f"{where} is a stream; pass list(dataset.take(1000)), or load it without streaming=True")
    names = check_names(list(dataset.column_names or ()), where)
    return _filled(RawTable(names, list(dataset.with_format(None))), where)


def _values(name: str, column: Any, where: str) -> list[Any]:
    if isinstance(column, Mapping):  # what pandas writes by default: {"0": first, "1": second}
        return list(column.values())
    if isinstance(column, str | bytes) or not isinstance(column, Iterable):
        raise DataError(
            f"{where}: column {name!r} is one {type(column).__name__}; expected a list with a value for each row. "
            "A table is a list of mappings or a mapping of lists"
        )
    return list(column)


def _filled(table: RawTable, where: str) -> RawTable:
    if not table.rows:
        raise DataError(f"{where} has no rows")
    if not table.columns:
        raise DataError(f"{where} has no columns")
    return table


def _refuse_splits(source: Mapping[Any, Any]) -> None:
    splits = [str(name) for name, value in source.items() if hasattr(value, "column_names")]
    if splits:
        raise DataError(
            f"the mapping holds several tables ({', '.join(splits)}); pass one of them: data[{splits[0]!r}]"
        )


def _has(source: Any, *names: str) -> bool:
    return all(hasattr(source, name) for name in names)
