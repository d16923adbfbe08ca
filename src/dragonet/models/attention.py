"""Which attention implementation a configuration is loaded with. Knows configurations, not weights."""

from __future__ import annotations

from typing import Any

__all__ = ["attention_for"]


def attention_for(config: Any) -> str | None:
    """Return `eager` for soft-capped attention logits, which fused kernels leave out, else None.

    None lets transformers take sdpa where the architecture supports it and eager elsewhere.
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return "eager" if getattr(text, "attn_logit_softcapping", None) else None
