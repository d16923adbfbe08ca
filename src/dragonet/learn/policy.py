"""Log-probabilities of sampled tokens under a causal language model, with gradients, in bounded memory.

Only the positions that predict sampled tokens go through the output head, a chunk at a time, and each chunk is computed
again in the backward pass: the logits of a whole batch never exist. Rows are padded on the right. Knows the few ways in
which architectures turn hidden states into logits and can check that it knows the one at hand; knows no loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from dragonet.errors import ModelError
from dragonet.learn.batch import Row

__all__ = ["Head", "check_head", "split_model", "token_logprobs"]

CHUNK_NUMBERS: Final = 1 << 24  # logits per chunk when no chunk is asked for: 64 MiB in float32

_TOLERANCE: Final = {torch.float64: 1e-9, torch.float32: 1e-4}  # relative to the largest logit; others 3e-2


@dataclass(frozen=True, slots=True)
class Head:
    """How hidden states become logits: a linear map, a scale (Cohere, Granite), a soft cap (Gemma)."""

    linear: torch.nn.Module
    scale: float
    softcap: float | None
    vocab_size: int
    device: torch.device
    dtype: torch.dtype

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits (M, V) in float32, or float64 when the model is float64, for hidden states (M, H)."""
        raw: torch.Tensor = self.linear(hidden)
        logits = raw if raw.dtype == torch.float64 else raw.float()
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits


def split_model(model: Any) -> tuple[torch.nn.Module, Head]:
    """Return the inner decoder and the head of a causal language model, bare or wrapped by peft."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    linear = base.get_output_embeddings()
    decoder = base.get_decoder()
    if linear is None or decoder is base:
        raise ModelError(
            f"{type(base).__name__} has no separate decoder and output head, so it cannot be trained here; "
            "use a decoder-only causal language model"
        )
    config = base.config.get_text_config()
    scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)
    softcap = getattr(config, "final_logit_softcapping", None)
    weight = linear.weight
    softcap = None if softcap is None else float(softcap)
    return decoder, Head(linear, scale, softcap, int(weight.shape[0]), weight.device, weight.dtype)


def token_logprobs(
    model: Any, rows: Sequence[Row], *, temperature: float = 1.0, chunk: int | None = None
) -> torch.Tensor:
    """Return log-probabilities (B, T) of the rows' sampled tokens, 0 elsewhere; T is the longest span.

    `chunk` is how many positions go through the head at once.
    """
    decoder, head = split_model(model)
    device = head.device
    hidden = _hidden(decoder, rows, device)  # (B, L, H)
    at = [np.flatnonzero(row.mask) for row in rows]
    width = max(max((row.mask.size for row in rows), default=0), 1)
    row_of = np.concatenate([np.full(where.size, b) for b, where in enumerate(at)])
    # the hidden state one place before a token predicts it
    place = np.concatenate([where + row.start - 1 for where, row in zip(at, rows, strict=True)])
    target = np.concatenate([row.ids[row.start :][row.mask] for row in rows])
    cell = np.concatenate([b * width + where for b, where in enumerate(at)])
    picked = hidden[_to(row_of, device), _to(place, device)]  # (M, H)
    step = chunk or max(CHUNK_NUMBERS // head.vocab_size, 16)
    values = _chunked(head, picked, _to(target, device), temperature, step)  # (M,)
    flat = torch.zeros(len(rows) * width, dtype=values.dtype, device=device)
    return flat.index_put((_to(cell, device),), values).view(len(rows), width)


def check_head(model: Any) -> None:
    """Compare our logits with the model's own on a short random input; raises ModelError where they differ."""
    decoder, head = split_model(model)
    rng = np.random.default_rng(0)
    ids = _to(rng.integers(0, head.vocab_size, size=(1, 8)), head.device)
    with torch.no_grad():
        ours = head.logits(decoder(input_ids=ids, use_cache=False).last_hidden_state)[0]
        theirs = model(input_ids=ids, use_cache=False).logits[0].to(ours.dtype)
    tolerance = _TOLERANCE.get(head.dtype, 3e-2) * max(float(theirs.abs().max()), 1e-6)
    gap = float((ours - theirs).abs().max()) if ours.shape == theirs.shape else float("inf")
    if not gap <= tolerance:
        raise ModelError(
            f"{type(model).__name__} turns hidden states into logits in a way dragonet does not know "
            f"(largest difference {gap:.3g}, allowed {tolerance:.3g}), so its log-probabilities would be wrong; "
            "use another architecture, or report this one"
        )


def _hidden(decoder: torch.nn.Module, rows: Sequence[Row], device: torch.device) -> torch.Tensor:
    lengths = [max(row.ids.size - 1, 1) for row in rows]  # nothing is predicted from a row's last token
    ids = np.zeros((len(rows), max(lengths)), dtype=np.int64)
    real = np.zeros_like(ids)
    for b, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        ids[b, :length] = row.ids[:length]
        real[b, :length] = 1
    attention_mask = None if min(lengths) == max(lengths) else _to(real, device)
    output = decoder(input_ids=_to(ids, device), attention_mask=attention_mask, use_cache=False)
    hidden: torch.Tensor = output.last_hidden_state
    return hidden


def _chunked(head: Head, hidden: torch.Tensor, target: torch.Tensor, temperature: float, step: int) -> torch.Tensor:
    def logprobs(hidden: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = head.logits(hidden)
        if temperature != 1.0:
            logits = logits / temperature
        chosen = logits.gather(1, target[:, None])[:, 0]
        return chosen - torch.logsumexp(logits, dim=1)

    parts = []
    for low in range(0, hidden.shape[0], step):
        piece, wanted = hidden[low : low + step], target[low : low + step]
        if torch.is_grad_enabled() and piece.requires_grad:
            parts.append(checkpoint(logprobs, piece, wanted, use_reentrant=False))
        else:
            parts.append(logprobs(piece, wanted))
    if parts:
        return torch.cat(parts)
    return hidden.new_zeros(0, dtype=hidden.dtype if hidden.dtype == torch.float64 else torch.float32)


def _to(array: Any, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(array, dtype=torch.int64).to(device)
