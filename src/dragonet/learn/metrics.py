"""The numbers of one round, from scored groups: what the policy earned, how it varied, what went wrong.

Pure functions of scored groups; the optimizer's own metrics come from the learner. Names are those of the run folder's
`metrics.jsonl`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from dragonet.types import Rollout, ScoredGroup

SPREAD = 1e-9  # of the largest reward; below this, the rewards of a group count as equal, as for the advantages


def round_metrics(
    scored: Sequence[ScoredGroup], names: Sequence[str], reward_range: tuple[float, float]
) -> dict[str, float | None]:
    """Return the metrics of a round.

    `reward_std` is the mean over groups of the sample standard deviation inside a group. `flat` is the share of groups
    whose scored rewards are all equal; `flat_high` and `flat_low` split it at the middle of `reward_range`. `entropy`,
    in nats per token, is the mean of -log p over the sampled tokens (unbiased for the sampling distribution). Shares
    are of all rollouts, or of all groups.
    """
    rollouts = [r for g in scored for r in g.group.rollouts]
    rewards = [r for g in scored for r in g.rewards_G if r is not None]
    groups = [[r for r in g.rewards_G if r is not None] for g in scored]
    flats = [values for values in groups if is_flat(values)]
    middle = sum(reward_range) / 2
    high = sum(1 for values in flats if values and values[0] > middle)
    logprobs = [lp for r in rollouts for s in r.segments if s.sampled for lp in s.logprobs]
    out: dict[str, float | None] = {
        "reward": _mean(rewards),
        "reward_std": _mean([statistics.stdev(values) for values in groups if len(values) > 1]),
        "flat": len(flats) / max(len(groups), 1),
        "flat_high": high / max(len(groups), 1),
        "flat_low": (len(flats) - high) / max(len(groups), 1),
        "truncated": _share(r.stop_reason.truncated for r in rollouts),
        "failed": failed_fraction(scored),
        "not_applicable": _share(reward is None and not failed for reward, failed in _ends(scored)),
        "entropy": _mean([-lp for lp in logprobs]),
        "completion_len": _mean([float(r.n_sampled) for r in rollouts]),
    }
    for k, name in enumerate(names):
        values = [row[k].value for g in scored for row in g.scores_G_K]
        out[f"reward/{name}"] = _mean([v for v in values if v is not None])
    out.update(_extra_logs(scored))
    return out


def is_flat(rewards: Sequence[float]) -> bool:
    """Whether a group's scored rewards teach nothing: fewer than two, or all equal."""
    return len(rewards) < 2 or max(rewards) - min(rewards) <= SPREAD * max(abs(r) for r in rewards)


def failed_fraction(scored: Sequence[ScoredGroup]) -> float:
    """Share of rollouts that have no number because a reward failed; a failing log-only reward leaves the number."""
    return _share(reward is None and failed for reward, failed in _ends(scored))


def first_failure(scored: Sequence[ScoredGroup]) -> tuple[Rollout, str] | None:
    """Return the first rollout that a failed reward left without a number, with the reason."""
    for group in scored:
        for rollout, row, reward in zip(group.group.rollouts, group.scores_G_K, group.rewards_G, strict=True):
            for score in row if reward is None else ():
                if score.failure is not None:
                    return rollout, score.failure
    return None


def explain_flat(row: dict[str, float | None], streak: int) -> str | None:
    """Say why `streak` steps in a row had no advantage but 0, and what to change; None where that was just said."""
    if streak not in (1, 3, 10, 30):
        return None
    times = "this step" if streak == 1 else f"{streak} steps in a row"
    head = (
        f"every group was flat in {times}: all answers to a prompt earned the same, so there is nothing to learn from"
    )
    if (row["flat_high"] or 0.0) > 0.5:
        return f"{head} (loss reads 0). The rewards are high: take harder prompts or a stricter reward."
    return (
        f"{head} (loss reads 0). The rewards are low: raise reinforce.temperature or reinforce.group_size, take easier "
        "prompts, give partial credit with a second reward, or teach the format first."
    )


def _ends(scored: Sequence[ScoredGroup]) -> Iterator[tuple[float | None, bool]]:
    """Yield, per rollout, its number and whether some reward failed."""
    for group in scored:
        for reward, row in zip(group.rewards_G, group.scores_G_K, strict=True):
            yield reward, any(score.status == "failed" for score in row)


def _extra_logs(scored: Sequence[ScoredGroup]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for group in scored:
        for row in group.scores_G_K:
            for score in row:
                for key, value in score.logs.items():
                    found.setdefault(f"log/{key}", []).append(float(value))
    return {key: sum(values) / len(values) for key, values in sorted(found.items())}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _share(flags: Iterable[bool]) -> float:
    listed = list(flags)
    return sum(listed) / max(len(listed), 1)
