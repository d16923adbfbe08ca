"""How commands print: one JSON document, or a plain table that survives pipes and narrow terminals."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
RunsDir = Annotated[str | None, typer.Option(help="Folder of the runs; default $DRAGONET_RUNS_DIR or ./dragonet_runs.")]
RunRef = Annotated[str, typer.Argument(help="A run's folder, id, unique prefix, or `last`.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="Changes as key=value, such as train.max_steps=40.")]


def emit_json(document: Any) -> None:
    """Print a document as one line of strict JSON."""
    typer.echo(json.dumps(strict(document), ensure_ascii=False))


def strict(value: Any) -> Any:
    """Replace what JSON cannot hold: NaN and infinities become null, paths become text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [strict(v) for v in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows in aligned columns; an absent value shows as -."""
    cells = [[cell(row.get(c)) for c in columns] for row in rows]
    widths = [max(len(c), *(len(line[i]) for line in cells)) if cells else len(c) for i, c in enumerate(columns)]
    for line in [list(columns), *cells]:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def cell(value: Any) -> str:
    """Show one value in a table."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def reward_line(reward: Mapping[str, Any]) -> str:
    """Say what was gained on the held-out prompts, with its interval."""
    before, after, ci95 = reward.get("before"), reward.get("after"), reward.get("ci95")
    if before is None:
        return "no held-out reward was measured"
    if after is None:
        return f"held-out reward {before:.3f} on {reward['n']} prompts before the first step; not evaluated since"
    text = f"held-out reward {before:.3f} -> {after:.3f} on {reward['n']} prompts"
    if not ci95:
        return text
    verdict = "" if ci95[0] > 0 or ci95[1] < 0 else "; the interval includes 0: no gain is shown"
    return f"{text}, gain {after - before:+.3f} (95 % interval {ci95[0]:+.3f} to {ci95[1]:+.3f}{verdict})"
