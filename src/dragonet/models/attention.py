"""Which attention implementation a configuration is loaded with. Knows configurations, not weights.

In 16 bits on a CPU, torch's fused attention takes other kernels for one query over a cache than for whole rows, and
they round in other places: sampler and trainer then differ by 0.03 nats a token on the bundled model, with eager
attention by 0.01. Eager attention keeps every score for the backward pass, so it is left to short sequences.
"""

from __future__ import annotations

from typing import Any

__all__ = ["EAGER_TOKENS", "attention_for"]

EAGER_TOKENS = 512  # longest row whose scores are worth keeping: about 0.6 GB over the layers of the bundled model


def attention_for(config: Any, *, rounds_apart: bool = False, longest: int | None = None) -> str | None:
    """Return `eager` for soft-capped attention logits, which fused kernels leave out, else None.

    None lets transformers take sdpa where the architecture supports it and eager elsewhere. `rounds_apart` says that
    fused kernels would round in other places for the sampler than for the trainer; then rows of at most EAGER_TOKENS
    tokens (`longest`, None when unknown) are eager too.
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    short = longest is not None and longest <= EAGER_TOKENS
    return "eager" if getattr(text, "attn_logit_softcapping", None) or (rounds_apart and short) else None
