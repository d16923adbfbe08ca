"""metrics.jsonl: one row per optimizer step, in order.

Owns appending, reading and cutting back the rows, and the list of columns that depend on the clock and therefore
differ between two runs that are otherwise equal. It refuses to know what the other columns mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dragonet.errors import did_you_mean
from dragonet.runs import failpoints, files, jsontext
from dragonet.runs.files import Where
from dragonet.runs.folder import RunFolder

__all__ = ["WALL_CLOCK", "append_metrics", "is_wall_clock", "read_metrics", "truncate_metrics"]

WALL_CLOCK: Final = frozenset(
    {"elapsed_s", "eta_s", "tokens_per_s", "step_s", "timestamp"}
    | {
        f"time_{phase}"  # shares of a round's time, 0 to 1
        for phase in ("sample", "score", "update", "sync", "save")
    }
)
"""Columns that say how long something took or when it happened."""


def is_wall_clock(column: str) -> bool:
    """Tell whether a column depends on the clock."""
    return column in WALL_CLOCK


def append_metrics(folder: Where, row: Mapping[str, Any]) -> None:
    """Append the row of one step, which needs `step`; it is on the disk when this returns.

    A column named `time_...` must be one of WALL_CLOCK, so that comparing two runs stays a matter of leaving those out.
    """
    if not isinstance(row.get("step"), int):
        raise ValueError(f"a row of metrics needs a whole number in `step`, got {row.get('step')!r}")
    for column in row:
        if column.startswith("time_") and column not in WALL_CLOCK:
            raise ValueError(f"column {column!r} is not in WALL_CLOCK{did_you_mean(column, WALL_CLOCK)}")
    path, line = RunFolder(folder).metrics, jsontext.row(row)
    failpoints.hit("metrics.before_append")
    failpoints.hit("metrics.half_row", lambda: files.append_bytes(path, line[: len(line) // 2]))
    files.append_bytes(path, line)
    failpoints.hit("metrics.after_append")


def read_metrics(folder: Where) -> list[dict[str, Any]]:
    """Return the rows in order; a half last row, still being written, is left out."""
    return files.read_rows(RunFolder(folder).metrics)


def truncate_metrics(folder: Where, step: int) -> None:
    """Drop the rows of later steps."""
    files.keep_rows(RunFolder(folder).metrics, lambda row: not isinstance(row.get("step"), int) or row["step"] <= step)
