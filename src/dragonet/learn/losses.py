"""Advantages -> per-token policy losses, and the weights that aggregate them over an optimizer step.

Owns `ppo_clip` (PPO, arXiv 1707.06347; separate clip bounds from DAPO, arXiv 2503.14476; dual clip, arXiv 1912.09729)
and `rloo` (arXiv 2402.14740), plus the three aggregations. Knows no rewards, no models and no micro-batches: the
weights come from the whole step, so any split of it gives the same update. Masked positions may hold anything: they
are replaced, never multiplied away.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from dragonet.protocols import FloatArray, LossFn, LossInput

__all__ = ["AGGREGATES", "LOSSES", "Loss", "aggregate", "aggregate_weights", "ppo_clip", "rloo"]

AGGREGATES: Final = ("token_mean", "sequence_mean", "constant")

LossOutput = tuple[torch.Tensor, dict[str, torch.Tensor]]


def ppo_clip(
    x: LossInput,
    *,
    clip: tuple[float, float] = (0.2, 0.2),
    delta: float | None = None,
    dual_clip: float | None = None,
) -> LossOutput:
    """Return -min(rho A, clip(rho, 1 - low, 1 + high) A) per token, rho = exp(logp - old_logp).

    `delta` caps the unclipped rho (two-sided clipping); `dual_clip` c limits the loss to c |A| where A < 0.
    """
    ratio = torch.where(x.mask, x.logp - x.old_logp, 0.0).exp()  # (B, T)
    return _clipped(ratio, x, clip, delta, dual_clip)


def rloo(
    x: LossInput,
    *,
    clip: tuple[float, float] = (0.2, 0.2),
    delta: float | None = None,
    dual_clip: float | None = None,
) -> LossOutput:
    """Return the clipped loss of the whole sequence on each of its tokens, R = exp(sum of logp - old_logp).

    Aggregated by `sequence_mean` this is the mean over sequences of -min(R A, clip(R) A).
    """
    log_ratio = torch.where(x.mask, x.logp - x.old_logp, 0.0).sum(dim=1, keepdim=True)  # (B, 1)
    return _clipped(log_ratio.exp().expand_as(x.logp), x, clip, delta, dual_clip)


def _clipped(
    ratio: torch.Tensor, x: LossInput, clip: tuple[float, float], delta: float | None, dual_clip: float | None
) -> LossOutput:
    advantages = torch.where(x.mask, x.advantages, 0.0)
    unclipped = ratio if delta is None else ratio.clamp(max=delta)
    per_token = torch.maximum(-unclipped * advantages, -ratio.clamp(1 - clip[0], 1 + clip[1]) * advantages)
    if dual_clip is not None:
        per_token = torch.where(advantages < 0, torch.minimum(per_token, -dual_clip * advantages), per_token)
    with torch.no_grad():
        outside = ((ratio < 1 - clip[0]) & (advantages < 0)) | ((ratio > 1 + clip[1]) & (advantages > 0))
        cap = min((value for value in (delta, dual_clip) if value is not None), default=None)
        if cap is not None:
            outside |= (ratio > cap) & (advantages < 0)
        sums = {
            "clip_fraction": (outside & x.mask).sum(),
            "ratio": torch.where(x.mask, ratio, 0.0).sum(),
        }
    return torch.where(x.mask, per_token, 0.0), sums


@dataclass(frozen=True, slots=True)
class Loss:
    """An entry of the table: `fn` takes (LossInput, *, clip, delta, dual_clip); `aggregates` are those that fit it."""

    name: str
    fn: Callable[..., LossOutput]
    formula: str
    paper: str
    ratio: str
    assumption: str
    degenerate: str
    aggregates: tuple[str, ...] = AGGREGATES

    def bind(self, clip: tuple[float, float], delta: float | None = None, dual_clip: float | None = None) -> LossFn:
        """Return the loss with its settings fixed."""
        return lambda x: self.fn(x, clip=clip, delta=delta, dual_clip=dual_clip)


_TABLE: Final = (
    Loss(
        name="ppo_clip",
        fn=ppo_clip,
        formula="-min(rho A, clip(rho, 1 - low, 1 + high) A)",
        paper="PPO, arXiv 1707.06347",
        ratio="rho = exp(logp - old_logp) per token",
        assumption="token ratios stay near 1; the product over a sequence is not controlled",
        degenerate="on the first update of a round rho is 1, nothing is clipped, and the gradient is that of -A logp",
    ),
    Loss(
        name="rloo",
        fn=rloo,
        formula="-min(R A, clip(R, 1 - low, 1 + high) A) per sequence",
        paper="Back to Basics, arXiv 2402.14740",
        ratio="R = exp(sum over the sequence of logp - old_logp)",
        assumption="a rollout is one action; its ratio is the true importance weight, which long rollouts clip soon",
        degenerate="on the first update of a round R is 1, nothing is clipped, and the gradient is that of -A sum logp",
        aggregates=("sequence_mean",),
    ),
)

LOSSES: Final[Mapping[str, Loss]] = types.MappingProxyType({entry.name: entry for entry in _TABLE})


def aggregate_weights(mode: str, lengths: Sequence[int], max_new_tokens: int) -> FloatArray:
    """Return the weight of every token of each rollout of an optimizer step (N,).

    `lengths` counts the loss tokens of ALL rollouts of the step; a rollout without any still counts as a sequence.
    token_mean: 1 / all tokens · sequence_mean: 1 / (N x own tokens) · constant: 1 / (N x max_new_tokens).
    """
    tokens = np.asarray(lengths, dtype=np.float64)
    if mode == "token_mean":
        each = np.full_like(tokens, 1.0 / max(tokens.sum(), 1.0))
    elif mode == "sequence_mean":
        each = 1.0 / (max(tokens.size, 1) * np.maximum(tokens, 1.0))
    elif mode == "constant":
        each = np.full_like(tokens, 1.0 / (max(tokens.size, 1) * max_new_tokens))
    else:
        raise ValueError(f"aggregate is one of {', '.join(AGGREGATES)}, got {mode!r}")
    return np.where(tokens > 0, each, 0.0)


def aggregate(per_token: torch.Tensor, mask: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted sum over a micro-batch: per_token (B, T), mask (B, T), weights (B,)."""
    return torch.where(mask, per_token * weights[:, None], 0.0).sum()
