"""Held-out evaluation: what the policy earns on prompts it never trains on, and what was gained.

Greedy, one rollout per prompt. Comparisons are paired over prompts: the interval is a bootstrap of after minus before.
This file samples nothing itself: it turns scored groups into an `Evaluation`, and two of those into a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dragonet.stats import paired_bootstrap
from dragonet.types import Score, ScoredGroup

BOOTSTRAP_SEED = 20_000


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Rewards of one pass over the held-out prompts, in the order of the prompts; None where one is unscored.

    `samples` holds the rows for samples.jsonl: the first few prompts with what the policy answered.
    """

    step: int
    rewards_P: tuple[float | None, ...]
    scores_K_P: Mapping[str, tuple[float | None, ...]]
    failed: int
    truncated: float
    completion_len: float
    first_failure: str | None = None
    samples: tuple[Mapping[str, Any], ...] = ()

    @property
    def reward(self) -> float | None:
        """Mean reward over the scored prompts."""
        return _mean(self.rewards_P)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, from which `from_json` builds an equal evaluation."""
        return {
            "step": self.step,
            "reward": self.reward,
            "n": sum(r is not None for r in self.rewards_P),
            "failed": self.failed,
            "truncated": self.truncated,
            "completion_len": self.completion_len,
            "first_failure": self.first_failure,
            "per_reward": {name: _mean(values) for name, values in self.scores_K_P.items()},
            "rewards": list(self.rewards_P),
            "scores": {name: list(values) for name, values in self.scores_K_P.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evaluation:
        """Read back what `to_json` gave."""
        return cls(
            step=int(data["step"]),
            rewards_P=tuple(data["rewards"]),
            scores_K_P={name: tuple(values) for name, values in data["scores"].items()},
            failed=int(data["failed"]),
            truncated=float(data["truncated"]),
            completion_len=float(data["completion_len"]),
            first_failure=data.get("first_failure"),
        )


def evaluation(step: int, scored: Sequence[ScoredGroup], names: Sequence[str], n_samples: int = 0) -> Evaluation:
    """Summarise greedy groups of one rollout each."""
    firsts = [(g.group.rollouts[0], g.scores_G_K[0], g.rewards_G[0]) for g in scored]
    rows = [scores for _, scores, _ in firsts]
    failures = [s.failure for scores in rows for s in scores if s.failure is not None]
    n = max(len(firsts), 1)
    return Evaluation(
        step=step,
        rewards_P=tuple(reward for _, _, reward in firsts),
        scores_K_P={name: tuple(scores[k].value for scores in rows) for k, name in enumerate(names)},
        failed=sum(any(s.status == "failed" for s in scores) for scores in rows),
        truncated=sum(rollout.stop_reason.truncated for rollout, _, _ in firsts) / n,
        completion_len=sum(rollout.n_sampled for rollout, _, _ in firsts) / n,
        first_failure=failures[0] if failures else None,
        samples=tuple(_sample_row(step, group, names) for group in scored[:n_samples]),
    )


def _sample_row(step: int, group: ScoredGroup, names: Sequence[str]) -> dict[str, Any]:
    rollout, scores = group.group.rollouts[0], group.scores_G_K[0]
    return {
        "step": step,
        "index": rollout.prompt.index,
        "prompt": rollout.prompt.text,
        "reference": rollout.prompt.reference,
        "completion": rollout.completion,
        "stop_reason": str(rollout.stop_reason),
        "reward": group.rewards_G[0],
        "scores": named_scores(names, scores),
    }


def named_scores(names: Sequence[str], scores: Sequence[Score]) -> dict[str, Any]:
    """Map each reward's name to its number, None (not applicable), or {"failed": reason}."""
    return {
        name: {"failed": score.failure} if score.failure is not None else score.value
        for name, score in zip(names, scores, strict=True)
    }


def gain(history: Sequence[Evaluation]) -> dict[str, Any]:
    """Return what was gained from the first evaluation to the last; after one only, `after` is None."""
    if len(history) > 1:
        return compare(history[0], history[-1])
    names = history[0].scores_K_P if history else {}
    alone = [_alone(history[0].rewards_P if history else ()), *(_alone(values) for values in names.values())]
    return {"reward": alone[0], "per_reward": dict(zip(names, alone[1:], strict=True))}


def compare(before: Evaluation, after: Evaluation) -> dict[str, Any]:
    """Return {"reward": {before, after, ci95, n}, "per_reward": {name: the same}}.

    Only prompts scored both times count, so that the three numbers speak of the same prompts. `ci95` is the paired
    bootstrap interval of after minus before, None where fewer than two prompts are left.
    """
    per_reward = {name: _paired(before.scores_K_P.get(name, ()), values) for name, values in after.scores_K_P.items()}
    return {"reward": _paired(before.rewards_P, after.rewards_P), "per_reward": per_reward}


def _alone(rewards: Sequence[float | None]) -> dict[str, Any]:
    return {"before": _mean(rewards), "after": None, "ci95": None, "n": sum(r is not None for r in rewards)}


def _paired(before: Sequence[float | None], after: Sequence[float | None]) -> dict[str, Any]:
    pairs = [(b, a) for b, a in zip(before, after, strict=False) if b is not None and a is not None]
    if not pairs:
        return {"before": None, "after": None, "ci95": None, "n": 0}
    olds, news = [b for b, _ in pairs], [a for _, a in pairs]
    ci95 = None
    if len(pairs) > 1:
        _, low, high = paired_bootstrap(olds, news, seed=BOOTSTRAP_SEED)
        ci95 = [low, high]
    return {"before": _mean(olds), "after": _mean(news), "ci95": ci95, "n": len(pairs)}


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [v for v in values if v is not None]
    return sum(numbers) / len(numbers) if numbers else None
