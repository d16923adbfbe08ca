"""Run one batch of rows through the model until each has ended.

Prompts that occur more than once are read once and their cache is shared out to the rows; prompts of different length
are padded on the left. A row that has ended is fed on until an eighth of the batch has, then the cache is compacted.
Tokens are chosen by `sampling`; generation settings of a checkpoint are never read. Knows nothing of requests, sessions
or queues.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from dragonet.errors import RolloutError
from dragonet.rollout.sampling import Sampler, uniforms, wide_dtype
from dragonet.types import Sampling, StopReason

COMPACT_SHARE = 8  # the cache is compacted once one row in this many has ended
MARGIN = 8  # characters decoded before a possible stop string, since decoders treat the start of a text specially

Decode = Callable[[Sequence[int]], str]


@dataclass(slots=True)
class Row:
    """One continuation on its way: what to continue, how, and what was sampled so far."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: StopReason | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class Ends:
    """What ends a row, beside its limit: end tokens, and stop strings in the text that `decode` makes of its ids."""

    eos_ids: frozenset[int]
    decode: Decode

    def reason(self, row: Row) -> StopReason | None:
        """Return why the row ends with the token it has just got, or None."""
        if row.token_ids[-1] in self.eos_ids:
            return StopReason.EOS
        if row.sampling.stop and self._stopped(row.token_ids, row.sampling.stop):
            return StopReason.STOP
        return StopReason.LENGTH if len(row.token_ids) >= row.sampling.max_new_tokens else None

    def _stopped(self, ids: Sequence[int], stop: Sequence[str]) -> bool:
        # A stop string that is new reaches into the last token's text: the tail before it need not be longer than that.
        chars = max(map(len, stop)) + MARGIN
        n = chars + 1
        while n < len(ids) and len(self.decode(ids[-n:-1])) < chars:
            n *= 2
        tail = self.decode(ids[-n:])
        if not any(s in tail for s in stop):
            return False
        return n >= len(ids) or any(s in self.decode(ids) for s in stop)


class CausalForward:
    """A causal language model of transformers as a function of ids, cache, positions and mask."""

    def __init__(self, model: nn.Module) -> None:
        # LoRA layers live inside the base model; the wrapper's forward would only pass arguments on.
        base: Any = model
        self._base = base.get_base_model() if hasattr(base, "get_base_model") else base
        names = inspect.signature(self._base.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"  # renamed in transformers 5.24
        self._can_keep = "logits_to_keep" in names

    @property
    def device(self) -> torch.device:
        """Where token ids go."""
        return next(self._base.parameters()).device  # type: ignore[no-any-return]

    @property
    def pads(self) -> bool:
        """Whether prompts of different length may share a batch.

        Eager attention marks a hidden key with the smallest number of the model's type and takes the softmax in
        float32, where that of float64 is -inf: a padding position, which sees nothing, would turn everything into NaN.
        """
        eager = getattr(self._base.config, "_attn_implementation", None) == "eager"
        return not (eager and next(self._base.parameters()).dtype == torch.float64)

    @property
    def vocabulary(self) -> int:
        """How many token ids there are."""
        return int(self._base.config.get_text_config(decoder=True).vocab_size)

    def new_cache(self) -> Any:
        """Return an empty cache that knows the model's sliding layers."""
        from transformers import DynamicCache

        return DynamicCache(config=self._base.config)

    def __call__(self, ids: Tensor, cache: Any, positions: Tensor, mask: Tensor | None) -> Tensor:
        """Return the logits (B, V) after the last of ids (B, T); the cache grows by T."""
        keys = {self._cache_name: cache, "use_cache": True}
        if self._can_keep:  # an index, not 1: a slice is not contiguous, and torch would copy the head for each row
            keys["logits_to_keep"] = torch.tensor([ids.shape[1] - 1], device=ids.device)
        output = self._base(input_ids=ids, attention_mask=mask, position_ids=positions, **keys)
        return output.logits[:, -1]  # type: ignore[no-any-return]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode without gradients; afterwards every module is as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        # not inference_mode: a buffer that a model refreshes in its forward would be lost to later backward passes
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def decode_rows(forward: CausalForward, rows: Sequence[Row], ends: Ends, pad_id: int) -> None:
    """Sample every row to its end, in place.

    Raises RolloutError when the model returns no usable distribution.
    """
    batches: dict[int, list[Row]] = {}
    for row in rows:
        batches.setdefault(0 if forward.pads else len(row.prompt_ids), []).append(row)
    for together in batches.values():
        _run(forward, _prefill(forward, together, pad_id), ends)


def _run(forward: CausalForward, batch: _Batch, ends: Ends) -> None:
    while True:
        ids, logprobs = batch.sampler.draw(batch.logits, batch.uniforms[:, batch.step])
        _append(batch.rows, ids.tolist(), logprobs.tolist(), ends)
        alive = [i for i, row in enumerate(batch.rows) if row.stop_reason is None]
        if not alive:
            return
        if (len(batch.rows) - len(alive)) * COMPACT_SHARE >= len(batch.rows):
            keep = torch.tensor(alive, device=ids.device)
            batch, ids = batch.select(alive, keep), ids[keep]
        batch.advance(forward, ids)


def _append(rows: Sequence[Row], ids: Sequence[int], logprobs: Sequence[float], ends: Ends) -> None:
    for row, token, logprob in zip(rows, ids, logprobs, strict=True):
        if row.stop_reason is not None:
            continue
        if not math.isfinite(logprob):
            raise RolloutError(
                f"the model returned no usable distribution (NaN or infinite logits) for token "
                f"{len(row.token_ids) + 1} after a prompt of {len(row.prompt_ids)} tokens; its weights have probably "
                "diverged: lower train.learning_rate, or try float32"
            )
        row.token_ids.append(token)
        row.logprobs.append(logprob)
        row.stop_reason = ends.reason(row)


@dataclass(slots=True)
class _Batch:
    """The tensors of the rows that are still fed, one slot per row."""

    rows: list[Row]
    sampler: Sampler
    cache: Any
    logits: Tensor  # (B, V)
    uniforms: Tensor  # (B, longest limit), float64
    lengths: Tensor  # (B,) tokens of the prompt
    mask: Tensor | None  # (B, width + longest limit), None when nothing is padded
    width: int
    step: int = 0

    def advance(self, forward: CausalForward, ids: Tensor) -> None:
        """Feed the tokens just drawn (B,)."""
        positions = (self.lengths + self.step)[:, None]
        self.step += 1
        mask = None if self.mask is None else self.mask[:, : self.width + self.step]
        self.logits = forward(ids[:, None], self.cache, positions, mask)

    def select(self, alive: Sequence[int], keep: Tensor) -> _Batch:
        """Keep these slots; the cache is compacted in place."""
        self.cache.reorder_cache(keep)  # takes any choice of rows
        rows = [self.rows[i] for i in alive]
        sampler = Sampler([row.sampling for row in rows], keep.device)
        mask = None if self.mask is None else self.mask[keep]
        picked = (self.logits[keep], self.uniforms[keep], self.lengths[keep], mask)
        return _Batch(rows, sampler, self.cache, *picked, self.width, self.step)


def _prefill(forward: CausalForward, rows: list[Row], pad_id: int) -> _Batch:
    unique = list(dict.fromkeys(row.prompt_ids for row in rows))
    lengths = [len(ids) for ids in unique]
    width, longest = max(lengths), max(row.sampling.max_new_tokens for row in rows)
    device = forward.device
    ids = torch.tensor([[pad_id] * (width - len(p)) + list(p) for p in unique], device=device)  # (U, width)
    starts = torch.tensor([width - n for n in lengths], device=device)[:, None]  # (U, 1)
    positions = (torch.arange(width, device=device) - starts).clamp(min=0)  # (U, width)
    mask = None
    if min(lengths) < width:
        mask = (torch.arange(width + longest, device=device) >= starts).long()  # (U, width + longest)
    cache = forward.new_cache()
    logits = forward(ids, cache, positions, None if mask is None else mask[:, :width])

    draws = torch.zeros(len(rows), longest, dtype=torch.float64)
    for i, row in enumerate(rows):
        limit = row.sampling.max_new_tokens
        draws[i, :limit] = uniforms(row.seed, limit)
    draws = draws.to(wide_dtype(device)).to(device)
    place = {p: i for i, p in enumerate(unique)}
    source = torch.tensor([place[row.prompt_ids] for row in rows], device=device)  # (B,)
    if len(unique) < len(rows):
        cache.reorder_cache(source)
    sampler = Sampler([row.sampling for row in rows], device)
    mask = None if mask is None else mask[source]
    return _Batch(
        rows, sampler, cache, logits[source], draws, torch.tensor(lengths, device=device)[source], mask, width
    )
