"""Per-token estimates of KL(policy || reference) from the log-probabilities of sampled tokens.

Owns k1, k2 and k3 (Schulman, "Approximating KL divergence", 2020), their importance-corrected form (DeepSeek-V3.2), and
the penalty per rollout when the KL is taken out of the reward. Knows no model and no batch.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from dragonet.protocols import FloatArray

__all__ = ["KL_KINDS", "kl_per_token", "kl_per_token_numpy", "sequence_penalty"]

KL_KINDS: Final = ("k1", "k2", "k3")


def kl_per_token(
    logp: torch.Tensor,
    ref_logp: torch.Tensor,
    mask: torch.Tensor,
    kind: str = "k3",
    *,
    old_logp: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the estimate per token (B, T), 0 where the mask is False whatever stands there.

    k1 = logp - ref, k2 = (logp - ref)^2 / 2, k3 = exp(ref - logp) - (ref - logp) - 1. With `old_logp` the estimate is
    multiplied by exp(logp - old_logp), gradient included, which makes its expectation over tokens drawn from the old
    policy the KL of the current one.
    """
    delta = torch.where(mask, ref_logp - logp, 0.0)  # (B, T)
    if kind == "k1":
        estimate = -delta
    elif kind == "k2":
        estimate = delta.square() / 2
    elif kind == "k3":
        estimate = torch.expm1(delta) - delta  # expm1 keeps the small values that exp(x) - 1 rounds away
    else:
        raise ValueError(f"kind is one of {', '.join(KL_KINDS)}, got {kind!r}")
    if old_logp is None:
        return estimate
    return estimate * torch.where(mask, logp - old_logp, 0.0).exp()


def kl_per_token_numpy(logp: FloatArray, ref_logp: FloatArray, kind: str) -> FloatArray:
    """Return the plain estimate for numpy arrays, NaN where either side is NaN."""
    everywhere = torch.ones(logp.shape, dtype=torch.bool)
    return np.asarray(kl_per_token(torch.from_numpy(logp), torch.from_numpy(ref_logp), everywhere, kind).numpy())


def sequence_penalty(logp: FloatArray, ref_logp: FloatArray, beta: float, kind: str = "k1") -> float:
    """Return beta x the sum of the estimate over a rollout's sampled tokens, to be subtracted from its reward."""
    return float(beta * np.nansum(kl_per_token_numpy(logp, ref_logp, kind)))
