"""From a model's name to weights, tokenizer and prompt text: one piece for preview, training, sampling and serving.

Owns resolving names, the bundled models, chat templates, devices, LoRA and adapters. Knows nothing of rewards, rounds
or run folders beyond the two files that name a finished run's base. Importing it loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# public name -> module that defines it; no module may bear a public name, since importing it would hide the function
_HOMES = {
    "LoraSpec": "dragonet.models.ref",
    "ModelRef": "dragonet.models.ref",
    "Renderer": "dragonet.models.render",
    "adapter_tensors": "dragonet.models.adapter",
    "list_bundled": "dragonet.models.bundled",
    "load_adapter_tensors": "dragonet.models.adapter",
    "load_base": "dragonet.models.policy",
    "load_policy": "dragonet.models.policy",
    "load_tokenizer": "dragonet.models.render",
    "make_renderer": "dragonet.models.render",
    "parameter_counts": "dragonet.models.adapter",
    "pick_device": "dragonet.models.device",
    "pick_dtype": "dragonet.models.device",
    "pull": "dragonet.models.bundled",
    "reference_mode": "dragonet.models.adapter",
    "resolve": "dragonet.models.lookup",
    "save_adapter": "dragonet.models.adapter",
}

__all__ = [
    "LoraSpec",
    "ModelRef",
    "Renderer",
    "adapter_tensors",
    "list_bundled",
    "load_adapter_tensors",
    "load_base",
    "load_policy",
    "load_tokenizer",
    "make_renderer",
    "parameter_counts",
    "pick_device",
    "pick_dtype",
    "pull",
    "reference_mode",
    "resolve",
    "save_adapter",
]

if TYPE_CHECKING:
    from dragonet.models.adapter import (
        adapter_tensors,
        load_adapter_tensors,
        parameter_counts,
        reference_mode,
        save_adapter,
    )
    from dragonet.models.bundled import list_bundled, pull
    from dragonet.models.device import pick_device, pick_dtype
    from dragonet.models.lookup import resolve
    from dragonet.models.policy import load_base, load_policy
    from dragonet.models.ref import LoraSpec, ModelRef
    from dragonet.models.render import Renderer, load_tokenizer, make_renderer


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dragonet.models' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
