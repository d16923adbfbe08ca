"""The trainable part of a policy: its tensors by name, on disk in PEFT layout, counted, and switched off for reference.

Names are those of the adapter file (PEFT's, without the adapter's own label), in memory and on disk alike. Files are
the same bytes for the same weights. Knows nothing of how the policy was built or is trained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonet.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "ADAPTER_CONFIG",
    "ADAPTER_WEIGHTS",
    "adapter_tensors",
    "load_adapter_tensors",
    "parameter_counts",
    "reference_mode",
    "save_adapter",
]

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_LABEL = "default"


def adapter_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the adapter's live tensors by name, sorted; writing into one changes the model."""
    found = {
        name.replace(f".{_LABEL}.", "."): parameter
        for name, parameter in model.named_parameters()
        if ".lora_" in name and f".{_LABEL}." in name
    }
    return dict(sorted(found.items()))


def load_adapter_tensors(model: nn.Module, mapping: Mapping[str, Tensor]) -> None:
    """Copy `mapping` into the adapter, in place; a tensor the model already shares is left alone.

    Raises ModelError, before anything is written, for a missing, unknown or misshapen tensor.
    """
    import torch

    live = adapter_tensors(model)
    missing = sorted(live.keys() - mapping.keys())
    unknown = sorted(mapping.keys() - live.keys())
    for names, what in ((missing, "missing"), (unknown, "unknown")):
        if names:
            raise ModelError(
                f"adapter weights do not fit the model: {len(names)} {what}, first {names[0]}; the adapter was made "
                "with other lora.targets or for another model"
            )
    for name, tensor in mapping.items():
        if tensor.shape != live[name].shape:
            raise ModelError(
                f"adapter weight {name} has shape {tuple(tensor.shape)}, the model wants {tuple(live[name].shape)}; "
                "the adapter was made with another lora.r or for another model"
            )
    with torch.no_grad():
        for name, tensor in mapping.items():
            if tensor.data_ptr() != live[name].data_ptr() or tensor.device != live[name].device:
                live[name].copy_(tensor)


def save_adapter(model: Any, folder: Path) -> None:
    """Write the adapter into `folder` as PEFT reads it; the same weights give the same bytes."""
    from safetensors.torch import save

    tensors = {name: t.detach().to("cpu").contiguous() for name, t in adapter_tensors(model).items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ADAPTER_WEIGHTS).write_bytes(save(tensors, metadata={"format": "pt"}))
    config = {key: _plain(value) for key, value in model.peft_config[_LABEL].to_dict().items()}
    config["inference_mode"] = True
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / ADAPTER_CONFIG).write_text(text, encoding="utf-8")


def parameter_counts(model: nn.Module) -> tuple[int, int]:
    """Return how many parameters are trained, and how many there are in all."""
    trainable = total = 0
    for parameter in model.parameters():
        total += parameter.numel()
        trainable += parameter.numel() if parameter.requires_grad else 0
    return trainable, total


@contextmanager
def reference_mode(model: nn.Module) -> Iterator[None]:
    """Switch the adapter off inside the block: the model computes what it did before training."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [m for m in model.modules() if isinstance(m, BaseTunerLayer) and not m.disable_adapters]
    grads = [(p, p.requires_grad) for layer in layers for p in layer.parameters()]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)
        for parameter, wanted in grads:  # peft makes every adapter trainable when it switches one on
            parameter.requires_grad_(wanted)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else value
