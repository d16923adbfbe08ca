"""Rewards -> advantages: what is left of a rollout's reward after a baseline.

Owns the estimators as pure float64 numpy functions `GroupBatch -> (P, G, T)`, each with its paper, formula, assumption
and degenerate case. Knows no tokens' text, no model and no loss. A NaN reward (unscored) is outside every statistic and
its rollout gets 0. Rewards that differ by no more than float noise count as equal, because Adam would turn even a
1e-13 advantage into a full-sized step.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dragonet.errors import ConfigError, did_you_mean
from dragonet.protocols import FloatArray, GroupBatch

__all__ = ["ESTIMATORS", "Estimator", "dr_grpo", "estimator", "grpo", "reinforce", "reinforce_baseline", "rloo"]

GRPO_EPS: Final = 1e-4  # added to the standard deviation, as TRL does; other trainers use 1e-6 or 1e-9
VARIANCE_FLOOR: Final = 1e-8  # smallest variance that whitening divides by, as OpenRLHF does
NOISE: Final = 1e-9  # spread relative to the largest reward, above what summing float64 rewards leaves behind

BoolArray = npt.NDArray[np.bool_]


def grpo(batch: GroupBatch) -> FloatArray:
    """Return (r - mean of the group) / (sample standard deviation of the group + 1e-4) on every sampled token."""
    centred = _centred(batch)
    variance = (centred**2).sum(axis=1, keepdims=True) / np.maximum(_counts(batch) - 1, 1)
    return _spread(centred / (np.sqrt(variance) + GRPO_EPS), batch)


def dr_grpo(batch: GroupBatch) -> FloatArray:
    """Return r - mean of the group on every sampled token."""
    return _spread(_centred(batch), batch)


def rloo(batch: GroupBatch) -> FloatArray:
    """Return r - mean of the other scored members on every sampled token."""
    counts = _counts(batch)
    # r - (sum - r) / (n - 1) = (r - mean) * n / (n - 1), which is exactly 0 for a flat group
    return _spread(_centred(batch) * counts / np.maximum(counts - 1, 1), batch)


def reinforce(batch: GroupBatch, *, variance: str = "biased") -> FloatArray:
    """Return the rewards whitened over all sampled tokens of the round; `variance` is biased or unbiased."""
    usable = _scored(batch)
    if _is_flat(batch.rewards_P_G[usable]):
        return np.zeros_like(batch.mask_P_G_T)
    return _whiten(batch.rewards_P_G, usable, batch, variance)


def reinforce_baseline(batch: GroupBatch, *, variance: str = "biased") -> FloatArray:
    """Return r - mean of the group, whitened over all sampled tokens of the round."""
    usable = _scored(batch) & (_counts(batch) >= 2)
    centred = _centred(batch)
    if not np.any(centred[usable]):
        return np.zeros_like(batch.mask_P_G_T)
    return _whiten(centred, usable, batch, variance)


def _scored(batch: GroupBatch) -> BoolArray:  # (P, G)
    scored: BoolArray = np.isfinite(batch.rewards_P_G)
    return scored


def _counts(batch: GroupBatch) -> FloatArray:  # (P, 1) scored members per group
    counts: FloatArray = _scored(batch).sum(axis=1, keepdims=True).astype(np.float64)
    return counts


def _is_flat(rewards: FloatArray) -> bool:
    """Say whether rewards are equal up to float noise (or there are none)."""
    return rewards.size == 0 or bool(np.ptp(rewards) <= NOISE * np.max(np.abs(rewards)))


def _centred(batch: GroupBatch) -> FloatArray:
    """Return r - mean of the group (P, G); 0 for unscored members and for groups that are flat or have one scored."""
    scored = _scored(batch)
    rewards = np.where(scored, batch.rewards_P_G, 0.0)
    mean = rewards.sum(axis=1, keepdims=True) / np.maximum(_counts(batch), 1)
    flat = np.array([_is_flat(row[keep]) for row, keep in zip(batch.rewards_P_G, scored, strict=True)], dtype=bool)
    return np.where(scored & ~flat[:, None], rewards - mean, 0.0)


def _spread(advantages_P_G: FloatArray, batch: GroupBatch) -> FloatArray:
    """Put one number per rollout on each of its sampled tokens."""
    return np.where(batch.mask_P_G_T > 0, advantages_P_G[:, :, None], 0.0)


def _whiten(values_P_G: FloatArray, usable: BoolArray, batch: GroupBatch, variance: str) -> FloatArray:
    """Return (v - mean) / sqrt(max(variance, 1e-8)), every sampled token of a usable rollout counting once."""
    tokens = np.where(usable, (batch.mask_P_G_T > 0).sum(axis=2), 0).astype(np.float64)  # (P, G)
    total = tokens.sum()
    values = np.where(usable, values_P_G, 0.0)
    mean = (tokens * values).sum() / max(total, 1.0)
    divisor = max(total - (variance == "unbiased"), 1.0)
    spread = (tokens * (values - mean) ** 2).sum() / divisor
    return _spread(np.where(usable, (values - mean) / np.sqrt(max(spread, VARIANCE_FLOOR)), 0.0), batch)


@dataclass(frozen=True, slots=True)
class Estimator:
    """An entry of the table: the function, what it needs, what it claims, and the recipe of its paper.

    `needs` names optional streams of GroupBatch (`kl`, `values`) that must be filled. `options` maps the keyword
    arguments of `fn` to their allowed values. `loss` and `aggregate` are the settings it was published with.
    """

    name: str
    fn: Callable[..., FloatArray]
    formula: str
    paper: str
    assumption: str
    degenerate: str
    needs: frozenset[str] = frozenset()
    loss: str = "ppo_clip"
    aggregate: str = "token_mean"
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __call__(self, batch: GroupBatch) -> FloatArray:
        """Return the advantages (P, G, T) of a round."""
        result: FloatArray = self.fn(batch)
        return result


_VARIANCE: Final[Mapping[str, tuple[str, ...]]] = types.MappingProxyType({"variance": ("biased", "unbiased")})

_TABLE: Final = (
    Estimator(
        name="grpo",
        fn=grpo,
        formula="A = (r - mean of the group) / (sample std of the group + 1e-4)",
        paper="DeepSeekMath, arXiv 2402.03300",
        assumption="rewards within a group are comparable; a group's spread says how much each of them should count",
        degenerate="a group whose scored rewards are equal, or with fewer than two scored rollouts, gets 0",
        aggregate="sequence_mean",
    ),
    Estimator(
        name="dr_grpo",
        fn=dr_grpo,
        formula="A = r - mean of the group",
        paper="Understanding R1-Zero-Like Training, arXiv 2503.20783",
        assumption="rewards of all prompts live on one scale, so that no group needs rescaling",
        degenerate="a group whose scored rewards are equal, or with fewer than two scored rollouts, gets 0",
        aggregate="constant",
    ),
    Estimator(
        name="rloo",
        fn=rloo,
        formula="A = r - mean of the other scored rollouts of the group",
        paper="Back to Basics, arXiv 2402.14740",
        assumption="the others' mean is an unbiased baseline because it does not depend on the rollout itself",
        degenerate="a group whose scored rewards are equal, or with fewer than two scored rollouts, gets 0",
        loss="rloo",
        aggregate="sequence_mean",
    ),
    Estimator(
        name="reinforce",
        fn=reinforce,
        formula="A = (r - mean) / sqrt(max(variance, 1e-8)), statistics over all sampled tokens of the round",
        paper="REINFORCE++, arXiv 2501.03262",
        assumption="one baseline serves all prompts; works with a group of one; long rollouts weigh more",
        degenerate="a round whose scored rewards are all equal gets 0",
        options=_VARIANCE,
    ),
    Estimator(
        name="reinforce_baseline",
        fn=reinforce_baseline,
        formula="A = (c - mean of c) / sqrt(max(variance of c, 1e-8)), c = r - mean of the group, statistics over all "
        "sampled tokens of the round",
        paper="REINFORCE++ (baseline variant), arXiv 2501.03262",
        assumption="the group mean takes out a prompt's difficulty, the round's spread sets the scale",
        degenerate="a group with fewer than two scored rollouts gets 0 and leaves the statistics; a round of flat "
        "groups gets 0; a flat group among others gets the small common shift of the whitening",
        options=_VARIANCE,
    ),
)

ESTIMATORS: Final[Mapping[str, Estimator]] = types.MappingProxyType({entry.name: entry for entry in _TABLE})


def estimator(name: str, **options: Any) -> Estimator:
    """Return the estimator of that name with its options fixed; raises ConfigError for unknown names and values."""
    if name not in ESTIMATORS:
        raise ConfigError(f"unknown estimator {name!r}{did_you_mean(name, ESTIMATORS)}")
    entry = ESTIMATORS[name]
    for key, value in options.items():
        if key not in entry.options:
            raise ConfigError(f"estimator {name!r} has no option {key!r}{did_you_mean(key, entry.options)}")
        if value not in entry.options[key]:
            raise ConfigError(f"estimator {name!r}: {key} is one of {', '.join(entry.options[key])}, got {value!r}")
    return replace(entry, fn=functools.partial(entry.fn, **options)) if options else entry
