"""The training loop for generated text; there is one.

A round: groups from the source, scores, annotations, advantages, updates, weights published, then evaluate, record and
save. The loop knows no algorithm, critic, engine or machine: those stand behind the seams it is handed. What it must
carry over a kill is in `Progress`; everything else is derived from the round's number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from dragonet.errors import RewardError, RolloutError, TrainingError
from dragonet.learn.batch import TrainBatch, make_batch
from dragonet.learn.evaluate import Evaluation
from dragonet.learn.metrics import explain_flat, failed_fraction, first_failure, round_metrics
from dragonet.protocols import AdvantageEstimator, Learner, RolloutSource
from dragonet.types import Group, ScoredGroup

MAX_MINUTES = "max_minutes"  # how the reason begins when the time is used up
MIN_STEPS_TO_JUDGE = 10  # a run this long in which nothing was learned ends as failed; a shorter one is warned


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to train and how often to look; `eval_steps` 0 evaluates only at the start and the end."""

    total_steps: int
    rounds_per_epoch: float
    save_steps: int
    eval_steps: int
    max_minutes: float | None
    max_failed_fraction: float
    reward_names: tuple[str, ...]
    reward_range: tuple[float, float]
    truncated: str = "train"


@dataclass(slots=True)
class Progress:
    """Where the run stands; saved in each checkpoint.

    `version` counts published weights. `elapsed_s` is all time in the loop, evaluations and saving included; `rounds_s`
    is that of the rounds alone.
    """

    step: int = 0
    round: int = 0
    version: int = 0
    elapsed_s: float = 0.0
    rounds_s: float = 0.0
    save_share: float = 0.0
    flat_streak: int = 0
    had_gradient: bool = False
    source: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for the checkpoint."""
        return asdict(self)


class Journal(Protocol):
    """Where the loop writes; the run folder stands behind it."""

    def record(self, rows: Sequence[Mapping[str, Any]], batch: TrainBatch, scored: Sequence[ScoredGroup]) -> None: ...
    def evaluated(self, evaluation: Evaluation) -> None: ...
    def save(self, progress: Progress) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop is handed. `evaluate(step)` looks at the held-out prompts; `stop()` says why to stop, or None."""

    source: RolloutSource
    score: Callable[[Sequence[Group]], list[ScoredGroup]]
    estimator: AdvantageEstimator
    learner: Learner
    publish: Callable[[int], None]
    evaluate: Callable[[int], Evaluation | None]
    journal: Journal
    stop: Callable[[], str | None]


def train(parts: Parts, plan: Plan, progress: Progress) -> str | None:
    """Train until the plan is fulfilled; return None, or why the run was stopped before.

    Raises RewardError when too many rewards failed, TrainingError when nothing could be learned.
    """
    looked: int | None = None  # the step of the last evaluation
    if progress.step == 0:
        _first_look(parts, plan, progress)
        looked = 0
    reason = _why_stop(parts, plan, progress)
    if progress.step == 0 and reason is not None and reason.startswith(MAX_MINUTES):
        raise TrainingError(f"{reason} before the first step, by the evaluation; raise train.max_minutes")
    while progress.step < plan.total_steps and reason is None:
        before = progress.step
        try:
            _round(parts, plan, progress)
        except (RewardError, RolloutError):  # raised before the update: what stands is the end of the last round
            if progress.step > 0:
                _save(parts, progress)
            raise
        finished = progress.step >= plan.total_steps
        if _due(plan.eval_steps, before, progress.step) and not finished:
            _evaluate(parts, progress)
            looked = progress.step
        reason = _why_stop(parts, plan, progress)
        if finished or reason is not None or _due(plan.save_steps, before, progress.step):
            _save(parts, progress)
    if reason is None or reason.startswith(MAX_MINUTES):
        _judge(parts, progress)
        if looked != progress.step:
            _evaluate(parts, progress)
    return reason


def _round(parts: Parts, plan: Plan, progress: Progress) -> None:
    clock = _Clock()
    groups = parts.source.next(progress.round)
    clock.lap("sample")
    scored = parts.score(groups)
    clock.lap("score")
    _check_failures(scored, plan.max_failed_fraction)
    batch = make_batch(scored, truncated=plan.truncated)
    parts.learner.annotate(batch)
    batch.advantages = parts.estimator(batch.group_batch())
    updates = parts.learner.update(batch)
    clock.lap("update")
    progress.version += 1
    parts.publish(progress.version)
    clock.lap("sync")
    rows = _rows(scored, updates, clock, plan, progress)
    progress.source = parts.source.state()
    parts.journal.record(rows, batch, scored)
    progress.flat_streak = 0 if np.any(batch.advantages) else progress.flat_streak + 1
    hint = explain_flat(rows[-1], progress.flat_streak)
    if hint:
        parts.journal.note(hint)


def _rows(
    scored: Sequence[ScoredGroup],
    updates: Sequence[Mapping[str, float]],
    clock: _Clock,
    plan: Plan,
    progress: Progress,
) -> list[dict[str, Any]]:
    common = round_metrics(scored, plan.reward_names, plan.reward_range)
    generated = sum(r.n_sampled for g in scored for r in g.group.rollouts)
    common["tokens_per_s"] = generated / max(clock.total_s, 1e-9)
    common |= clock.shares() | {"time_save": progress.save_share}
    rows = []
    for n, update in enumerate(updates, start=1):
        progress.step += 1
        progress.elapsed_s += clock.total_s / len(updates)
        progress.rounds_s += clock.total_s / len(updates)
        progress.had_gradient |= update.get("grad_norm", 0.0) > 0.0
        per_step = progress.rounds_s / progress.step
        place = {
            "step": progress.step,
            "round": progress.round,
            "epoch": (progress.round + n / len(updates)) / plan.rounds_per_epoch,
            "elapsed_s": progress.elapsed_s,
            "eta_s": per_step * max(plan.total_steps - progress.step, 0),
        }
        rows.append({**place, **common, **update})
    progress.round += 1
    return rows


def _first_look(parts: Parts, plan: Plan, progress: Progress) -> None:
    """Evaluate before the first step, and stop there when the rewards fail already."""
    found = _evaluate(parts, progress)
    share = found.failed / max(len(found.rewards_P), 1) if found is not None else 0.0
    if found is not None and share > plan.max_failed_fraction:
        raise _too_many(f"{share:.0%} of the held-out prompts", plan.max_failed_fraction, str(found.first_failure))


def _evaluate(parts: Parts, progress: Progress) -> Evaluation | None:
    started = time.perf_counter()
    evaluation = parts.evaluate(progress.step)
    if evaluation is not None:
        parts.journal.evaluated(evaluation)
    progress.elapsed_s += time.perf_counter() - started
    return evaluation


def _save(parts: Parts, progress: Progress) -> None:
    started = time.perf_counter()
    parts.journal.save(progress)
    spent = time.perf_counter() - started
    progress.elapsed_s += spent
    progress.save_share = spent / max(progress.rounds_s / max(progress.step, 1), 1e-9)


def _due(every: int, before: int, now: int) -> bool:
    return every > 0 and before // every < now // every


def _why_stop(parts: Parts, plan: Plan, progress: Progress) -> str | None:
    reason = parts.stop()
    if reason is None and plan.max_minutes is not None and progress.elapsed_s >= 60 * plan.max_minutes:
        reason = f"{MAX_MINUTES}: {plan.max_minutes:g} minutes of training were used"
    return reason


def _check_failures(scored: Sequence[ScoredGroup], limit: float) -> None:
    share = failed_fraction(scored)
    found = first_failure(scored)
    if share > limit and found is not None:
        rollout, failure = found
        raise _too_many(f"{share:.0%} of the round's rollouts", limit, f"on row {rollout.prompt.index + 1}: {failure}")


def _too_many(where: str, limit: float, first: str) -> RewardError:
    return RewardError(
        f"rewards failed on {where} (reinforce.max_failed_fraction is {limit:g}). The first failure: {first}\n"
        "A failed reward is not a wrong answer, so going on would mislead; mend the reward and resume."
    )


def _judge(parts: Parts, progress: Progress) -> None:
    if progress.had_gradient or progress.step == 0:
        return
    text = (
        f"nothing was learned: in {progress.step} steps no group had rewards that differ, so every gradient was zero. "
        "Raise reinforce.temperature or reinforce.group_size, take easier prompts, or give partial credit."
    )
    if progress.step >= MIN_STEPS_TO_JUDGE:
        raise TrainingError(text)
    parts.journal.note(text)


class _Clock:
    """Wall seconds of one round by phase."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self._laps[phase] = now - self._last
        self._last = now

    @property
    def total_s(self) -> float:
        return sum(self._laps.values())

    def shares(self) -> dict[str, float | None]:
        return {f"time_{phase}": spent / max(self.total_s, 1e-9) for phase, spent in self._laps.items()}
