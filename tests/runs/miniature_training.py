"""A training of six steps without a model, that uses the run folder as a real one does; and the walk over its deaths.

The weights are one integer and the optimizer another, so every step depends on all steps before it. `walk` forks a
child for each moment of death, looks at what is left, resumes it, and prints as JSON how it ended.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from dragonet.errors import RunNotFound
from dragonet.runs import (
    RunFolder,
    acquire,
    append_metrics,
    append_samples,
    create_run,
    failpoints,
    find_run,
    finish,
    list_runs,
    load_checkpoint,
    prepare_resume,
    prune_checkpoints,
    publish_adapter,
    read_config,
    read_json,
    read_metrics,
    read_rollouts,
    read_samples,
    read_status,
    rewind,
    save_checkpoint,
    start,
    update_status,
    write_json,
    write_rollouts,
)
from dragonet.runs.checkpoint import checkpoint_steps
from dragonet.runs.metrics import WALL_CLOCK

STEPS, SAVE_EVERY = 6, 2


def train(folder: RunFolder) -> None:
    """Run from the last checkpoint, or from the beginning, to the end."""
    with acquire(folder):
        start(folder, total_steps=STEPS)
        checkpoint = load_checkpoint(folder)
        done, weights, momentum = 0, 1, 1
        if checkpoint is not None:
            done = checkpoint.step
            weights = int(checkpoint.file("adapter/weights.txt").read_text())
            momentum = int(checkpoint.file("optimizer.txt").read_text())
            assert checkpoint.state == {"round": done, "best": float("-inf")}
        rewind(folder, done, done)
        prune_checkpoints(folder, keep=2)
        for step in range(done + 1, STEPS + 1):
            momentum = (momentum * 31 + step) % 1_000_003
            weights = (weights * 17 + momentum) % 1_000_003
            write_rollouts(folder, step, [{"step": step, "token_ids": [weights, i]} for i in range(2)])
            append_samples(folder, [{"step": step, "completion": f"{weights}\u2028é"}])
            history = read_json(folder, "eval.json")["history"] if folder.eval.exists() else []
            write_json(folder, "eval.json", {"history": [*history, {"step": step, "reward": weights}]})
            append_metrics(folder, {"step": step, "loss": weights / 7, "kl": float("nan"), "elapsed_s": time.time()})
            update_status(folder, step=step)
            if step % SAVE_EVERY == 0:
                save(folder, step, weights, momentum)
        publish_adapter(folder, load_checkpoint(folder).path / "adapter")  # type: ignore[union-attr]
        finish(folder, "succeeded", step=STEPS)


def save(folder: RunFolder, step: int, weights: int, momentum: int) -> None:
    """Write a checkpoint of two files, the second in a folder, and drop all but two."""

    def adapter(path: Path) -> None:
        path.mkdir()
        (path / "weights.txt").write_text(str(weights))

    writers = {"optimizer.txt": str(momentum).encode(), "adapter": adapter}
    save_checkpoint(folder, step, writers, {"round": step, "best": float("-inf")})
    prune_checkpoints(folder, keep=2)


def fresh(runs_dir: Path) -> RunFolder:
    """Create the run that is trained."""
    return create_run(runs_dir, name="tiny", stage="reinforce", config={"model": "tiny-random", "seed": 1})


def outcome(folder: RunFolder) -> dict[str, Any]:
    """Return what must be equal however often the run died."""
    rows = [{k: v for k, v in row.items() if k not in WALL_CLOCK} for row in read_metrics(folder)]
    return {
        "state": read_status(folder).state,
        "adapter": (folder.adapter / "weights.txt").read_text(),
        "metrics": rows,
        "samples": folder.samples.read_text(),
        "rollouts": [read_rollouts(folder, n) for n in range(1, STEPS + 1)],
        "eval": read_json(folder, "eval.json"),
        "checkpoints": checkpoint_steps(folder),
        "names": sorted(p.name for p in [*folder.path.iterdir(), *folder.checkpoints.iterdir()]),
    }


def is_whole(runs_dir: Path) -> None:
    """Fail unless everything in the folder of a dead run can be read."""
    for summary in list_runs(runs_dir):
        folder = find_run(summary.path)
        assert summary.state in ("failed", "succeeded"), summary
        assert read_config(folder)["seed"] == 1
        assert [row["step"] for row in read_metrics(folder)] == list(range(1, len(read_metrics(folder)) + 1))
        assert all(row["completion"].endswith("\u2028é") for row in read_samples(folder))
        checkpoint = load_checkpoint(folder)
        assert checkpoint is None or not checkpoint.notices, checkpoint
        if folder.adapter.exists():
            assert (folder.adapter / "weights.txt").read_text().isdecimal()


def die(runs_dir: Path, failpoint: str | None, after_s: float | None = None) -> int:
    """Train, or resume, in a child that dies at a failpoint or after some seconds; return its signal, 0 if it lived."""
    pid = os.fork()
    if pid == 0:
        try:
            if failpoint is not None:
                os.environ[failpoints.VARIABLE] = failpoint
            train(find_run("last", runs_dir) if list_runs(runs_dir) else fresh(runs_dir))
        finally:
            os._exit(0)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def survive(runs_dir: Path) -> dict[str, Any]:
    """Look at what a death left, resume it, or start anew when no run came to be; return the outcome."""
    is_whole(runs_dir)
    try:
        folder = find_run("last", runs_dir)
    except RunNotFound:
        folder = fresh(runs_dir)
    if read_status(folder).state != "succeeded":
        prepare_resume(folder)
        train(folder)
    assert [p.name for p in runs_dir.iterdir()] == [folder.id], "leftovers beside the run"
    return outcome(folder)


def walk(place: Path, hits: int, kills: int) -> dict[str, Any]:
    """Die at the first hits of every failpoint, while training and while resuming, and `kills` times at random.

    Maps each death to its outcome, and "alone" to that of a run without one.
    """
    began = time.monotonic()
    folder = fresh(place / "alone")
    train(folder)
    whole_s = time.monotonic() - began
    results: dict[str, Any] = {"alone": outcome(folder)}

    def record(label: str, first: str | None, second: str | None = None, after_s: float | None = None) -> bool:
        here = place / label
        killed = die(here, first, after_s)
        if second is not None:
            killed = die(here, second)
        result = survive(here)
        shutil.rmtree(here)
        if killed or after_s is not None:
            results[label] = result
        return killed == signal.SIGKILL

    for name in failpoints.NAMES:
        for nth in range(1, hits + 1):
            if not record(f"{name}:{nth}", f"{name}:{nth}"):
                break
        for nth in range(
            1, (hits if name.startswith("rewind") else hits // 3) + 1
        ):  # the first death comes after step 5, so step 4 is resumed and 5 is cut back
            if not record(f"resume {name}:{nth}", "metrics.after_append:5", f"{name}:{nth}"):
                break
    for number in range(kills):
        record(f"random:{number}", None, after_s=random.Random(number).uniform(0, whole_s))
    return results


if __name__ == "__main__":
    print(json.dumps(walk(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
