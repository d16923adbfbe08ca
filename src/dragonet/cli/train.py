"""Commands that train or measure: demo, reinforce, resume, evaluate."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dragonet.cli.output import JsonFlag, Overrides, RunRef, RunsDir, emit_json, reward_line

if TYPE_CHECKING:
    from dragonet.runs import RunFolder

Detach = Annotated[bool, typer.Option("--detach", help="Train in a background process that outlives this terminal.")]


def reinforce(
    config: Annotated[str, typer.Argument(help="A YAML or TOML file.")],
    overrides: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, print what would run, stop.")] = False,
    detach: Detach = False,
    as_json: JsonFlag = False,
) -> None:
    """Train a LoRA adapter from rewards that can be checked.

    Example: dragonet reinforce examples/arithmetic.yaml train.max_steps=4
    """
    from dragonet.assemble import create, prepare
    from dragonet.config import load_config

    prepared = prepare(load_config(config, overrides or []), on_notice=_say)
    for notice in prepared.notices:
        _say(notice)
    if dry_run:
        from dragonet.assemble.preview import dry_run_report

        report = dry_run_report(prepared)
        emit_json(report.to_json()) if as_json else typer.echo(report.text())
        return
    _train(create(prepared), [], detach, as_json)


def resume(
    run: RunRef,
    overrides: Overrides = None,
    detach: Detach = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Write to the run's log only.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Go on with a run from its last checkpoint; key=value extends a finished one.

    Example: dragonet resume last train.max_steps=48
    """
    from dragonet import runs

    folder = runs.find_run(run)
    runs.prepare_resume(folder, overrides=bool(overrides))
    _train(folder, overrides or [], detach, as_json, quiet)


def evaluate(run: RunRef, as_json: JsonFlag = False) -> None:
    """Score a run's adapter on its held-out prompts again, with the interval of the gain.

    Example: dragonet evaluate last --json
    """
    from dragonet import runs
    from dragonet.assemble import evaluate_run

    found = evaluate_run(runs.find_run(run), tell=_say)
    if as_json:
        emit_json(found)
        return
    typer.echo(reward_line(found["reward"]))
    for name, reward in found["per_reward"].items():
        typer.echo(f"  {name}: {reward_line(reward)}")


def demo(
    seed: Annotated[int, typer.Option(help="Seed of the adapter, the order of prompts and the sampling.")] = 42,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps; the default takes a few minutes.")] = None,
    runs_dir: RunsDir = None,
    as_json: JsonFlag = False,
) -> None:
    """Train the bundled model on two-digit additions and show what was gained.

    Example: dragonet demo --seed 7
    """
    from dragonet.cli.demo import run_demo

    run_demo(seed=seed, steps=steps, runs_dir=runs_dir, as_json=as_json)


def _train(run: RunFolder, overrides: list[str], detach: bool, as_json: bool, quiet: bool = False) -> None:
    from dragonet import runs
    from dragonet.assemble.changes import changed_config
    from dragonet.assemble.execute import attempt
    from dragonet.assemble.stages import background_command

    if detach:
        changed_config(run, overrides)
        pid = runs.launch_detached(run, background_command(run))
        if as_json:
            emit_json({"run": run.id, "state": "queued", "pid": pid, "folder": str(run)})
        else:
            typer.echo(f"run {run.id} trains in the background as process {pid}; see it with: dragonet watch {run.id}")
        return
    stream = None if quiet else sys.stderr if as_json else sys.stdout
    outcome = attempt(run, overrides=overrides, stream=stream)
    if as_json:
        emit_json(outcome.to_json())
    if outcome.error is not None:
        if not quiet:
            _say(f"dragonet: {type(outcome.error).__name__}: {outcome.error}")
        raise typer.Exit(1)
    if as_json or quiet:
        return
    typer.echo(f"{outcome.state} after {outcome.steps} steps" + (f" ({outcome.reason})" if outcome.reason else ""))
    typer.echo(reward_line(outcome.reward))
    typer.echo(f"folder {run.path}")
    if outcome.state == "cancelled":
        typer.echo(f"next: dragonet resume {run.id}")
        return
    typer.echo(f"next: dragonet resume {run.id} train.max_steps={2 * max(outcome.steps, 1)}, to train it further")
    typer.echo(f"      dragonet reinforce CONFIG model={run.id}, to build on it; its adapter is in {run.adapter}")


def _say(text: str) -> None:
    typer.echo(text, err=True)
