"""Scored groups -> the arrays of one round: ids, masks, log-probabilities, rewards and the group structure.

Owns `Row` (one rollout laid out as tokens) and `TrainBatch` (a round of them). Rows may hold several sampled segments
with environment tokens between them. The T axis everywhere is a row's span: from its first sampled token to its last.

    ids      p p p  a a a  e e  b b        p prompt, e environment (mask 0), a and b sampled (mask 1)
    span            0 1 2  3 4  5 6

Knows no model: whoever computes log-probabilities fills the slots of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from dragonet.errors import ConfigError, did_you_mean
from dragonet.protocols import FloatArray, GroupBatch
from dragonet.types import Rollout, Score, ScoredGroup

__all__ = ["TRUNCATED", "Row", "TrainBatch", "make_batch", "pack"]

TRUNCATED: Final = ("train", "mask", "zero")

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One rollout as tokens.

    ids: (L,) prompt and span, what follows the last sampled token cut off · start: index of the first sampled token ·
    mask: (T,) True where sampled, T = L - start · sampler_logp: (T,) NaN where not sampled · reward: NaN where
    unscored · in_loss: whether its tokens are trained on.
    """

    ids: IntArray
    start: int
    mask: BoolArray
    sampler_logp: FloatArray
    group: int
    member: int
    reward: float
    in_loss: bool

    @property
    def n_sampled(self) -> int:
        """Number of sampled tokens."""
        return int(self.mask.sum())

    @property
    def scored(self) -> bool:
        """Whether a reward was found."""
        return bool(np.isfinite(self.reward))


@dataclass(slots=True, eq=False)
class TrainBatch:
    """A round of rows in the order of groups and members.

    `old_logp` and `ref_logp` hold one array (T,) per row, NaN where not sampled, or None where not computed;
    `penalty` (N,) is subtracted from the rewards; `advantages` is (P, G, T). Annotate and estimator fill these.
    """

    rows: tuple[Row, ...]
    n_groups: int
    group_size: int
    scores_P_G_K: FloatArray
    weights_K: FloatArray | None = None
    old_logp: list[FloatArray | None] = field(default_factory=list)
    ref_logp: list[FloatArray | None] = field(default_factory=list)
    penalty: FloatArray | None = None
    advantages: FloatArray | None = None

    @property
    def span(self) -> int:
        """Length of the T axis: the longest row's span, at least 1."""
        return max((row.mask.size for row in self.rows), default=1) or 1

    def group_batch(self) -> GroupBatch:
        """Return what an estimator sees; the penalty, where there is one, is taken off the rewards."""
        shape = (self.n_groups, self.group_size)
        rewards = np.full(shape, np.nan)
        mask = np.zeros((*shape, self.span))
        for index, row in enumerate(self.rows):
            taken_off = 0.0 if self.penalty is None else self.penalty[index]
            rewards[row.group, row.member] = row.reward - taken_off
            mask[row.group, row.member, : row.mask.size] = row.mask
        return GroupBatch(rewards, mask, self.scores_P_G_K, self.weights_K)

    def row_advantages(self, index: int) -> FloatArray:
        """Return the advantages (T,) of one row."""
        if self.advantages is None:
            raise ValueError("advantages are not set; call an estimator on group_batch() first")
        row = self.rows[index]
        return self.advantages[row.group, row.member, : row.mask.size]

    def loss_lengths(self) -> dict[int, int]:
        """Map the index of every scored row to its number of loss tokens, 0 for rows masked out of the loss.

        Unscored rows are absent: the step's denominators treat them as never sampled.
        """
        return {i: row.n_sampled if row.in_loss else 0 for i, row in enumerate(self.rows) if row.scored}


def make_batch(
    scored_groups: Sequence[ScoredGroup], *, truncated: str = "train", weights: Sequence[float] | None = None
) -> TrainBatch:
    """Lay out a round of scored groups as arrays.

    `truncated` decides about rollouts that were cut off: `train` like any other; `mask` out of the loss and of the
    token count that token_mean divides by, while their rewards stay in the statistics and sequence_mean and constant
    still count them; `zero` gives them the reward 0. `weights` are those of the rewards, for estimators that use them.
    """
    if truncated not in TRUNCATED:
        raise ConfigError(f"unknown truncated {truncated!r}{did_you_mean(truncated, TRUNCATED)}")
    group_size = max((len(g.group.rollouts) for g in scored_groups), default=0)
    n_rewards = max((len(scores) for g in scored_groups for scores in g.scores_G_K), default=0)
    scores = np.full((len(scored_groups), group_size, n_rewards), np.nan)
    rows = []
    for p, scored in enumerate(scored_groups):
        for g, (rollout, reward) in enumerate(zip(scored.group.rollouts, scored.rewards_G, strict=True)):
            rows.append(_row(rollout, p, g, reward, truncated))
            scores[p, g, : len(scored.scores_G_K[g])] = [_number(score) for score in scored.scores_G_K[g]]
    empty: list[FloatArray | None] = [None] * len(rows)
    return TrainBatch(
        rows=tuple(rows),
        n_groups=len(scored_groups),
        group_size=group_size,
        scores_P_G_K=scores,
        weights_K=None if weights is None else np.asarray(weights, dtype=np.float64),
        old_logp=empty,
        ref_logp=list(empty),
    )


def _number(score: Score) -> float:
    return np.nan if score.value is None else score.value


def _row(rollout: Rollout, group: int, member: int, reward: float | None, truncated: str) -> Row:
    """Lay out one rollout; raises ValueError where sampled tokens lack log-probabilities or a prompt before them."""
    ids: list[int] = []
    mask: list[bool] = []
    logp: list[float] = []
    for segment in rollout.segments:
        n = len(segment.token_ids)
        if segment.sampled and len(segment.logprobs) != n:
            raise ValueError(f"a sampled segment has {n} tokens and {len(segment.logprobs)} log-probabilities")
        ids += segment.token_ids
        mask += [segment.sampled] * n
        logp += segment.logprobs if segment.sampled else [np.nan] * n
    sampled = np.flatnonzero(mask)
    start, end = (int(sampled[0]), int(sampled[-1]) + 1) if sampled.size else (len(ids), len(ids))
    if sampled.size and start == 0:
        raise ValueError("a rollout begins with a sampled token, which nothing predicts; a prompt comes first")
    value = np.nan if reward is None else float(reward)
    if truncated == "zero" and rollout.stop_reason.truncated and np.isfinite(value):
        value = 0.0
    masked_out = truncated == "mask" and rollout.stop_reason.truncated
    return Row(
        ids=np.asarray(ids[:end], dtype=np.int64),
        start=start,
        mask=np.asarray(mask[start:end], dtype=np.bool_),
        sampler_logp=np.asarray(logp[start:end], dtype=np.float64),
        group=group,
        member=member,
        reward=value,
        in_loss=bool(sampled.size) and not masked_out and bool(np.isfinite(value)),
    )


def pack(
    indices: Sequence[int], lengths: Mapping[int, int], micro_batch: int | str, auto_tokens: int
) -> list[list[int]]:
    """Split rows into micro-batches, longest first: `micro_batch` rows each, or `auto` by tokens with their padding."""
    plan: list[list[int]] = []
    for i in sorted(indices, key=lambda i: -lengths[i]):
        full = not plan
        if plan and micro_batch == "auto":
            full = (len(plan[-1]) + 1) * lengths[plan[-1][0]] > auto_tokens
        elif plan:
            full = len(plan[-1]) == micro_batch
        if full:
            plan.append([])
        plan[-1].append(i)
    return plan
