"""Commands about runs that exist: runs, status, watch, logs, wait, cancel. They load no torch."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragonet.cli.output import JsonFlag, RunRef, RunsDir, cell, emit_json, reward_line, table

if TYPE_CHECKING:
    from dragonet.runs import Status


def list_all(runs_dir: RunsDir = None, as_json: JsonFlag = False) -> None:
    """List the runs, newest first.

    Example: dragonet runs --json
    """
    from dragonet import runs

    found = [dataclasses.asdict(summary) for summary in runs.list_runs(runs_dir)]
    if as_json:
        emit_json(found)
    elif not found:
        typer.echo(f"no runs in {runs.default_runs_dir(runs_dir)}; start one with: dragonet demo")
    else:
        table(["id", "state", "model", "step", "reward_before", "reward_after", "note"], found)


def status(run: RunRef, as_json: JsonFlag = False) -> None:
    """Say where a run stands.

    Example: dragonet status last
    """
    from dragonet import runs
    from dragonet.errors import RunError

    folder = runs.find_run(run)
    found = runs.read_status(folder)
    latest: dict[str, Any] = {}
    notes = list(found.notes)
    try:
        latest = next(reversed(runs.read_metrics(folder)), {})
    except RunError as error:  # a damaged file must not hide the state
        notes.append(str(error))
    if as_json:
        emit_json({"run": folder.id, "folder": str(folder), **found.as_dict(), "notes": notes, "metrics": latest})
        return
    total = f" of {found.total_steps}" if found.total_steps else ""
    typer.echo(f"{folder.id}: {found.state}, step {found.step}{total}")
    for line in (found.error, found.reason, *notes):
        if line:
            typer.echo(f"  {line}")
    if found.reward:
        typer.echo(f"  {reward_line(found.reward)}")
    shown = ("reward", "reward_std", "flat", "loss", "kl", "grad_norm", "entropy", "completion_len", "lr", "eta_s")
    if latest:
        known = [name for name in shown if name in latest and not (name == "eta_s" and found.final)]
        typer.echo("  " + "  ".join(f"{name} {cell(latest[name])}" for name in known))
    typer.echo(f"  folder {folder}")


def watch(
    run: RunRef,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each step and then the status, one JSON a line.")
    ] = False,
) -> None:
    """Follow a run until it ends; Ctrl-C stops watching, not the run.

    Example: dragonet watch last
    """
    from dragonet import runs

    folder = runs.find_run(run)
    console = runs.ConsoleTracker(sys.stdout, total_steps=runs.read_status(folder).total_steps)
    shown = 0

    def show(found: runs.Status) -> None:
        nonlocal shown
        rows = runs.read_metrics(folder)
        for row in rows[shown:]:
            emit_json(row) if as_json else console.log(int(row["step"]), row)
        shown = len(rows)

    if not as_json:
        console.start({})
    try:
        found = runs.wait(folder, tick=show, poll_s=0.5)
        show(found)
    finally:
        console.finish("")
    if as_json:
        emit_json({"run": folder.id, **found.as_dict()})
        return
    typer.echo(_ending(found))
    if found.reward:
        typer.echo(reward_line(found.reward))


def logs(
    run: RunRef,
    n: Annotated[int, typer.Option("-n", help="How many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until the run ends.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the last lines of a run's log.

    Example: dragonet logs last -f
    """
    from dragonet import runs

    folder = runs.find_run(run)
    if as_json:
        emit_json({"run": folder.id, "lines": runs.tail(folder, n)})
        return
    lines = runs.follow(folder, n=n, ended=lambda: runs.read_status(folder).final) if follow else runs.tail(folder, n)
    for line in lines:
        typer.echo(line)


def wait(
    run: RunRef,
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait at most.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Wait until a run has ended; the exit code is 0 only if it succeeded.

    Example: dragonet wait last --timeout 600
    """
    from dragonet import runs

    folder = runs.find_run(run)
    found = runs.wait(folder, timeout_s=timeout)
    if as_json:
        emit_json({"run": folder.id, **found.as_dict()})
    else:
        typer.echo(f"{folder.id}: {_ending(found)}")
    if found.state != "succeeded":
        raise typer.Exit(1)


def cancel(
    run: RunRef,
    timeout: Annotated[float, typer.Option(help="Seconds until it is killed instead.")] = 120.0,
    as_json: JsonFlag = False,
) -> None:
    """Let a run finish its step, save a checkpoint and end.

    Example: dragonet cancel last
    """
    from dragonet import runs

    folder = runs.find_run(run)
    found = runs.cancel(folder, timeout_s=timeout)
    if as_json:
        emit_json({"run": folder.id, **found.as_dict()})
    else:
        typer.echo(f"{folder.id}: {found.state}; go on with it by: dragonet resume {folder.id}")


def _ending(found: Status) -> str:
    why = found.error or found.reason
    return f"{found.state}: {why}" if why else found.state
