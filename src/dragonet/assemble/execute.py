"""Run what a run folder describes, from wherever it stands: the first start, a resume and a background start are one.

Owns the order of acts around the loop: ownership, status, threads, restore, train, publish, report. What ends a run,
well or badly, ends in its status and its log. Prints only through the console tracker's stream.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TextIO

from dragonet import data, models, runs
from dragonet.assemble.build import Built, Scorer, build, describe
from dragonet.assemble.changes import changed_config, run_config
from dragonet.assemble.prepare import model_of
from dragonet.config import RunConfig
from dragonet.errors import DragonetError, RewardError, RunError
from dragonet.learn.evaluate import Evaluation, compare, gain
from dragonet.learn.journal import RunJournal, read_history, restore
from dragonet.learn.loop import MAX_MINUTES, Parts, train
from dragonet.rewards import RewardSet, as_rewards
from dragonet.runs import RunFolder
from dragonet.types import Prompt


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: its last state, the steps it made, the held-out reward before and after, and what failed it."""

    run: str
    state: str
    steps: int
    reward: Mapping[str, Any]
    reason: str | None = None
    error: DragonetError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {"run": self.run, "state": self.state, "steps": self.steps, "reward": dict(self.reward)}


def execute(folder: RunFolder, *, overrides: Sequence[str] = (), stream: TextIO | None = None) -> Outcome:
    """Train a run to its end as `attempt` does, but raise what failed it."""
    outcome = attempt(folder, overrides=overrides, stream=stream)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def attempt(folder: RunFolder, *, overrides: Sequence[str] = (), stream: TextIO | None = None) -> Outcome:
    """Train a run to its end, from its latest checkpoint where there is one.

    Ctrl-C, SIGTERM or a request to cancel end it after the step with a checkpoint and the state cancelled. A
    DragonetError that fails the run is recorded and returned. Raises one, and leaves the run as it was, when it cannot
    go on at all: it is busy, done, or was asked for a change that it must not make.
    """
    runs.prepare_resume(folder, overrides=bool(overrides))
    with runs.acquire(folder), runs.StopSignal(folder, notify=_announce if stream is not None else None) as stop:
        config = changed_config(folder, overrides)
        log = runs.RunLog(folder)
        try:
            runs.start(folder)
            return _run(folder, config, stop, log, stream)
        except KeyboardInterrupt as error:
            runs.finish(folder, "cancelled", reason=str(error) or "stopped at once")
            raise
        except DragonetError as error:
            return _failed(folder, error, log)
        except BaseException as error:
            log(f"failed: {traceback.format_exc()}")
            runs.finish(folder, "failed", error=f"{type(error).__name__}: {error}")
            raise


def _failed(folder: RunFolder, error: DragonetError, log: runs.RunLog) -> Outcome:
    """Record what failed a run, as far as its disk takes it."""
    copies = sorted(folder.rewards.rglob("*.py"))
    if isinstance(error, RewardError) and copies:
        listed = "\n  ".join(map(str, copies))
        error.args = (f"{error}\nThe run has its own copy of the reward; mend that one before you resume:\n  {listed}",)
    text = f"{type(error).__name__}: {error}"
    with contextlib.suppress(RunError):  # a full disk may take no last word; readers then judge by the process
        log(f"failed: {text}")
    with contextlib.suppress(RunError):
        runs.finish(folder, "failed", error=text)
    found = runs.read_status(folder)
    return Outcome(folder.id, "failed", found.step, found.reward or gain([])["reward"], error=error)


def _announce(name: str) -> None:
    # called from a signal handler: no buffered stream
    os.write(2, f"\n{name}: finishing this step, then saving; a second one stops at once\n".encode())


def _run(
    folder: RunFolder, config: RunConfig, stop: runs.StopSignal, log: runs.RunLog, stream: TextIO | None
) -> Outcome:
    _pin_threads(folder)
    built, prompts = load(folder, config, on_output=log)
    total = built.plan.total_steps
    console = runs.ConsoleTracker(stream, total_steps=total) if stream is not None else None
    observers = [runs.ConsoleTracker(_LogStream(log), total_steps=total, live=False)]
    tracker = runs.FencedTrackers([*observers, *([console] if console is not None else [])], log)

    def tell(text: str) -> None:
        nonlocal console
        log(text)
        try:
            if console is not None:
                console.say(text)
        except (OSError, ValueError) as error:  # a closed pipe or terminal must not cost the run
            console = None
            log(f"nothing more can be shown ({error}); the run goes on")

    try:
        progress, notices = restore(folder, built.learner)
        runs.prune_checkpoints(folder, config.train.keep_checkpoints)  # a death may have come between save and prune
        if progress.source:
            built.source.load(progress.source)
        built.publish(progress.version)
        for line in (*notices, *_start_lines(folder, config, built, prompts, progress.step)):
            tell(line)
        runs.update_status(folder, step=progress.step, **_facts(built))
        tracker.start(runs.read_config(folder))
        journal = RunJournal(
            folder,
            tracker=tracker,
            learner=built.learner,
            save_adapter=partial(models.save_adapter, built.model),
            note=tell,
            reward_names=built.plan.reward_names,
            keep_checkpoints=config.train.keep_checkpoints,
        )
        parts = Parts(
            source=built.source,
            score=built.scorer,
            estimator=built.estimator,
            learner=built.learner,
            publish=built.publish,
            evaluate=built.evaluate,
            journal=journal,
            stop=lambda: stop.reason,
        )
        reason = train(parts, built.plan, progress)
        return _end(folder, config, built, reason, progress.step, progress.elapsed_s)
    finally:
        tracker.finish(runs.read_status(folder).state)
        built.close()


def load(
    folder: RunFolder, config: RunConfig, *, on_output: Callable[[str], None] = lambda text: None
) -> tuple[Built, Mapping[str, list[Prompt]]]:
    """Build the parts of a run from its folder alone; `on_output` is told what user functions print."""
    ref = model_of(folder, config)
    renderer = models.make_renderer(ref, config.model.chat_template)
    rewards = RewardSet(as_rewards(list(config.rewards)))
    prompts = {side: _prompts(folder, side) for side in ("train", "eval")}
    built = build(config, ref, renderer, Scorer(rewards, on_output), prompts["train"], prompts["eval"])
    return built, prompts


def evaluate_run(folder: RunFolder, *, tell: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Score a run's adapter on its held-out prompts again.

    Returns {"reward", "per_reward"}, each compared with the evaluation before the first step. Needs a finished adapter,
    or at least one checkpoint. Changes nothing in the run.
    """
    _pin_threads(folder)
    built, prompts = load(folder, run_config(folder))
    try:
        if not prompts["eval"]:
            raise RunError(f"run {folder.id} held out no prompts (data.eval is 0), so there is nothing to evaluate on")
        before = next((e for e in read_history(folder) if e.step == 0), None)
        if before is None:
            tell("the run recorded no evaluation before its first step; measuring it now")
            before = _measured(built, 0)
        step = _load_adapter(folder, built)
        return compare(before, _measured(built, step))
    finally:
        built.close()


class _LogStream(io.StringIO):
    """Let a tracker write its plain lines into the run's log."""

    def __init__(self, log: runs.RunLog) -> None:
        super().__init__()
        self._log = log

    def write(self, text: str) -> int:
        self._log(text)
        return len(text)


def _measured(built: Built, step: int) -> Evaluation:
    found = built.evaluate(step)
    if found is None:
        raise RunError("there are no held-out prompts to evaluate on")
    return found


def _load_adapter(folder: RunFolder, built: Built) -> int:
    """Put the run's published adapter, or that of its latest checkpoint, into the model; return its step."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if folder.adapter.is_dir():
        where, step = folder.adapter, runs.read_status(folder).step
    else:
        checkpoint = runs.load_checkpoint(folder)
        if checkpoint is None:
            raise RunError(
                f"run {folder.id} has neither an adapter nor a checkpoint yet; wait for it, or go on with it by: "
                f"dragonet resume {folder.id}"
            )
        where, step = checkpoint.file("adapter"), checkpoint.step
    try:
        tensors = load_file(where / "adapter_model.safetensors")
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"the adapter in {where} cannot be read: {error}; its checkpoints are in {folder.checkpoints}"
        ) from error
    models.load_adapter_tensors(built.model, tensors)
    return step


def _end(
    folder: RunFolder, config: RunConfig, built: Built, reason: str | None, steps: int, elapsed_s: float
) -> Outcome:
    cancelled = reason is not None and not reason.startswith(MAX_MINUTES)
    gained = gain(read_history(folder))
    state = "cancelled" if cancelled else "succeeded"
    if not cancelled:
        runs.publish_adapter(folder, {".": partial(models.save_adapter, built.model)})
        report = {
            "stage": "reinforce",
            "step": steps,
            "steps": steps,
            "seconds": elapsed_s,
            "objective": describe(config),
            "stopped_by": reason,
            **gained,
        }
        runs.write_json(folder, "report.json", report)
    runs.finish(folder, state, reason=reason, step=steps, reward=gained["reward"])
    return Outcome(folder.id, state, steps, gained["reward"], reason)


def _prompts(folder: RunFolder, side: str) -> list[Prompt]:
    path = folder.data / f"{side}.jsonl"
    try:
        return data.prompts_from_jsonl(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}; the run folder is not whole") from error


def _pin_threads(folder: RunFolder) -> None:
    """Compute with the number of threads the run began with: on a CPU the last bits depend on it."""
    import torch

    facts = runs.read_json(folder, "environment.json")
    recorded = facts.get("torch_threads")
    if isinstance(recorded, int) and recorded >= 1:
        torch.set_num_threads(recorded)
    else:
        runs.write_json(folder, "environment.json", {**facts, "torch_threads": torch.get_num_threads()})


def _facts(built: Built) -> dict[str, Any]:
    trainable, total = models.parameter_counts(built.model)
    return {
        "device": built.device,
        "dtype": built.dtype,
        "trainable_params": trainable,
        "total_params": total,
        "total_steps": built.plan.total_steps,
    }


def _start_lines(
    folder: RunFolder, config: RunConfig, built: Built, prompts: Mapping[str, list[Prompt]], step: int
) -> list[str]:
    import torch

    trainable, total = models.parameter_counts(built.model)
    place = f"{config.model.id} on {built.device} in {built.dtype}, {torch.get_num_threads()} threads"
    share = f"training {trainable:,} of {total:,} parameters ({trainable / total:.2%})"
    size = f"{config.train.batch_size} prompts x {config.reinforce.group_size} rollouts"
    counts = (
        f"{len(prompts['train'])} prompts, {len(prompts['eval'])} held out; {built.plan.total_steps} steps of {size}"
    )
    return [
        f"run {folder.id} in {folder.path}",
        f"model {place}; {share}",
        f"{counts}; rewards: {built.scorer.rewards.describe()}",
        describe(config),
        _schedule_line(config, built.plan.total_steps),
        f"resuming after step {step}" if step else "evaluating before the first step",
        f"watch it with: dragonet watch {folder.id}; stop it with Ctrl-C or: dragonet cancel {folder.id}",
    ]


def _schedule_line(config: RunConfig, steps: int) -> str:
    section = config.train
    warm = f"after a warm-up over {section.warmup:.0%} of them" if section.warmup else "from the first"
    return f"learning rate {section.learning_rate:g}, {section.schedule} over {steps} steps {warm}"
