"""Draw the next token of every row, and say how likely it was.

A row's token is the inverse of its cumulative distribution at one uniform number, and those numbers come from the row's
own seed: neither neighbours nor the order of admission can change a draw. Log-probabilities are those of the full
distribution at the sampling temperature (at temperature 1 for greedy rows), whatever top_k, top_p and min_p cut.

Why inversion: the Gumbel and exponential tricks draw one number per row and vocabulary entry, some 48 ms a step for
64 rows of 49k entries on one core, and would have to draw them from 64 generators. Summing blocks of 256 entries first
and cumulating only the sums and one block costs well below a millisecond and keeps the rounding of a long float32
cumulative sum out. Temperature, top_k, then top_p of what is left, then min_p, as in transformers; a cut is a threshold
on probability, so entries that tie with the last one kept are kept too, and the most probable one always is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from dragonet.errors import RolloutError
from dragonet.types import Sampling

BLOCK = 256  # vocabulary entries summed before the cumulative sum
FIRST_LOOK = 256  # most probable entries looked at for top_p before a full sort is considered


def check_sampling(sampling: Sampling) -> None:
    """Raise RolloutError when a setting is outside its range."""
    ranges = {
        "max_new_tokens": (sampling.max_new_tokens, 1, math.inf),
        "temperature": (sampling.temperature, 0, math.inf),
        "top_p": (sampling.top_p, 0, 1),
        "top_k": (sampling.top_k, 0, math.inf),
        "min_p": (sampling.min_p, 0, 1),
    }
    for name, (value, low, high) in ranges.items():
        if not (low <= value <= high and math.isfinite(value)):
            raise RolloutError(f"sampling: {name} must be a finite number in [{low}, {high}], got {value!r}")
    if "" in sampling.stop:
        raise RolloutError("sampling: a stop string must not be empty; remove it from `stop`")


def uniforms(seed: int, n: int) -> Tensor:
    """Return the `n` numbers in [0, 1) that decide a row's tokens: (n,) float64, drawn on the CPU for every device."""
    return torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Sampler:
    """The settings of one batch of rows, as tensors."""

    def __init__(self, rows: Sequence[Sampling], device: torch.device | str = "cpu") -> None:
        greedy = [s.temperature == 0 for s in rows]
        self._greedy = torch.tensor(greedy, device=device)  # (B,)
        self._any_greedy, self._all_greedy = any(greedy), all(greedy)
        temperature = [s.temperature or 1.0 for s in rows]
        self._temperature = _column(temperature, device) if any(t != 1 for t in temperature) else None  # (B, 1)
        self._min_p = _column([s.min_p for s in rows], device) if any(s.min_p > 0 for s in rows) else None
        self._top_p = _column([s.top_p for s in rows], device) if any(s.top_p < 1 for s in rows) else None
        self._top_k = [s.top_k for s in rows] if any(s.top_k > 0 for s in rows) else None

    def draw(self, logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return token ids (B,) and their log-probabilities (B,) for logits (B, V) and one uniform number per row (B,).

        Computed in float32, or float64 for a float64 model. A row without a usable distribution (NaN, +inf, or nothing
        but -inf) gets a log-probability of NaN.
        """
        dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
        if self._temperature is None:
            p = torch.softmax(logits, -1, dtype=dtype)
        else:
            p = torch.softmax(logits / self._temperature.to(dtype), -1)  # one pass: the quotient has the wider type
        if self._all_greedy:
            ids = p.argmax(-1)
        else:
            ids = invert(self._cut(p), uniform)
            if self._any_greedy:
                ids = torch.where(self._greedy, p.argmax(-1), ids)
        return ids, p.gather(-1, ids[:, None])[:, 0].log()

    def _cut(self, p: Tensor) -> Tensor:
        if self._min_p is None and self._top_k is None and self._top_p is None:
            return p
        threshold = torch.zeros_like(p[:, :1]) if self._top_k is None else _kth(p, self._top_k)  # (B, 1)
        if self._top_p is not None:
            threshold = torch.maximum(threshold, _nucleus(p, threshold, self._top_p))
        if self._min_p is not None:
            threshold = torch.maximum(threshold, p.amax(-1, keepdim=True) * self._min_p.to(p.dtype))
        return torch.where(p >= threshold, p, 0)


def invert(p: Tensor, uniform: Tensor) -> Tensor:
    """Return the first index at which the cumulative sum of p (B, V) exceeds `uniform` (B,) times the row's total.

    An entry of probability 0 is never returned; p need not sum to 1.
    """
    n_rows, n_vocab = p.shape
    whole = functional.pad(p, (0, -n_vocab % BLOCK)) if n_vocab % BLOCK else p
    blocks = whole.view(n_rows, -1, BLOCK)  # (B, V / BLOCK, BLOCK)
    wide = wide_dtype(p.device)
    cum = blocks.sum(-1).to(wide).cumsum(-1)  # (B, V / BLOCK)
    below = 1 - torch.finfo(wide).eps  # a target that rounding carried up to the total would find no entry
    target = torch.minimum(uniform * cum[:, -1], cum[:, -1] * below)[:, None]  # (B, 1)
    block = (cum <= target).sum(-1, keepdim=True).clamp(max=cum.shape[1] - 1)  # (B, 1)
    before = torch.where(block > 0, cum.gather(-1, (block - 1).clamp(min=0)), 0)
    inner = blocks[torch.arange(n_rows, device=p.device), block[:, 0]].to(wide).cumsum(-1)  # (B, BLOCK)
    target = torch.minimum(target - before, inner[:, -1:] * below)
    ids = block[:, 0] * BLOCK + (inner <= target).sum(-1)
    return ids.clamp(max=n_vocab - 1)


def _kth(p: Tensor, top_k: Sequence[int]) -> Tensor:
    """Return the probability of each row's k-th most probable entry (B, 1), 0 where k is off."""
    on = [0 < k < p.shape[-1] for k in top_k]
    if not any(on):
        return torch.zeros_like(p[:, :1])
    top = p.topk(max(k for k, used in zip(top_k, on, strict=True) if used), -1).values
    index = torch.tensor([k - 1 if used else 0 for k, used in zip(top_k, on, strict=True)], device=p.device)
    return torch.where(torch.tensor(on, device=p.device)[:, None], top.gather(-1, index[:, None]), 0)


def _nucleus(p: Tensor, threshold: Tensor, top_p: Tensor) -> Tensor:
    """Return the probability (B, 1) of the entry with which the most probable ones reach `top_p` of the mass.

    The mass is that of the entries at or above `threshold` (B, 1). Only rows whose mass is spread are sorted whole.
    """
    wide, n_vocab = wide_dtype(p.device), p.shape[-1]
    wanted = torch.where(p >= threshold, p, 0).sum(-1, keepdim=True).to(wide) * top_p.to(wide)  # (B, 1)
    found = torch.zeros_like(threshold)
    left = (top_p[:, 0] < 1).nonzero()[:, 0]  # rows without an answer yet
    n = min(FIRST_LOOK, n_vocab)
    while len(left):
        rest = p[left]
        top = rest.topk(n, -1).values if n < n_vocab else rest.sort(-1, descending=True).values  # (left, n)
        reached = torch.where(top >= threshold[left], top, 0).to(wide).cumsum(-1) >= wanted[left]
        crossing = top.gather(-1, reached.to(torch.uint8).argmax(-1, keepdim=True))
        found[left] = torch.where(reached[:, -1:], crossing, 0)  # 0, no cut, where rounding keeps the mass out of reach
        left = left[:0] if n == n_vocab else left[~reached[:, -1]]
        n = min(16 * n, n_vocab)
    return found


def _column(values: Sequence[float], device: torch.device | str) -> Tensor:
    return torch.tensor(values, dtype=wide_dtype(device), device=device)[:, None]


def wide_dtype(device: torch.device | str) -> torch.dtype:
    """Return the widest float a device computes with; sums and uniform numbers are kept in it."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64  # MPS has no float64
