"""A model's folder to a torch model: base with earlier adapters folded in, or the policy with a fresh LoRA adapter.

LoRA: Low-Rank Adaptation of Large Language Models (Hu et al. 2021). Departs from PEFT's own start in two ways: the
adapter is drawn in float32 whatever the base's dtype, from a generator of its own. Knows nothing of training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonet.errors import ModelError, did_you_mean
from dragonet.models.adapter import adapter_tensors
from dragonet.models.attention import attention_for
from dragonet.models.device import pick_device, pick_dtype
from dragonet.models.ref import LoraSpec, ModelRef
from dragonet.models.support import first_line, quiet

if TYPE_CHECKING:
    import torch

__all__ = ["load_base", "load_policy"]


def load_base(
    ref: ModelRef,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    longest: int | None = None,
) -> Any:
    """Return the model in eval mode, adapters of earlier runs folded in, no parameter trainable.

    Folding is computed in float32 (or wider) and cast afterwards. Raises ModelError for weights that do not fit.
    """
    import torch

    place = pick_device(device)
    kind = pick_dtype(dtype, place)
    rounds_apart = place.type == "cpu" and kind.itemsize == 2
    model = _load_weights(ref, kind, rounds_apart=rounds_apart, longest=longest)
    if ref.adapters:
        folded = _load_weights(ref, torch.promote_types(kind, torch.float32))
        for folder in ref.adapters:
            folded = _fold(folded, folder)
        source = dict(folded.named_parameters())
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(source[name])
    model.requires_grad_(False)
    model.name_or_path = ref.name  # what an adapter file will call its base; never a place inside a cache
    return model.to(place).eval()


def load_policy(
    ref: ModelRef,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    lora: LoraSpec | None = None,
    seed: int = 0,
    longest: int | None = None,
) -> Any:
    """Return a PEFT model in eval mode whose fresh adapter alone is trainable.

    The adapter is float32 (float64 on a float64 base) and depends on `seed` only; torch's global generators stay as
    they are. `longest` is how many tokens a row will have, prompt and answer, where that is known: short rows take the
    attention that rounds alike in sampling and training. Raises ModelError for unknown targets.
    """
    import torch
    from peft import get_peft_model

    base = load_base(ref, device=device, dtype=dtype, longest=longest)
    config = _lora_config(ref, base, lora or LoraSpec())
    with quiet(), torch.random.fork_rng(devices=[]):
        model = get_peft_model(base, config)
    _draw_adapter(model, seed)
    return model.eval()


def _load_weights(ref: ModelRef, dtype: torch.dtype, *, rounds_apart: bool = False, longest: int | None = None) -> Any:
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    try:
        with quiet():
            config = AutoConfig.from_pretrained(
                str(ref.folder), local_files_only=True, trust_remote_code=ref.trust_remote_code
            )
            model, info = AutoModelForCausalLM.from_pretrained(
                str(ref.folder),
                config=config,
                dtype=dtype,
                attn_implementation=attention_for(config, rounds_apart=rounds_apart, longest=longest),
                local_files_only=True,
                trust_remote_code=ref.trust_remote_code,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        raise ModelError(f"model {ref.name!r} cannot be loaded from {ref.folder}: {first_line(error)}") from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelError(
            f"model {ref.name!r}: {len(missing)} weights are missing in {ref.folder} (first: {missing[0]}) and would "
            "be random; download the model again, or point at a folder with all weights"
        )
    model.generation_config = GenerationConfig()  # the checkpoint's sampling settings must not leak into ours
    return model


def _fold(model: Any, folder: Path) -> Any:
    from peft import PeftModel
    from safetensors import SafetensorError

    try:
        with quiet():
            return PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"the adapter in {folder} cannot be folded into its base: {first_line(error)}") from error


def _lora_config(ref: ModelRef, base: Any, lora: LoraSpec) -> Any:
    from peft import LoraConfig, TaskType
    from transformers.pytorch_utils import Conv1D

    if lora.r < 1:
        raise ModelError(f"lora.r is {lora.r}; it must be at least 1")
    if not 0 <= lora.dropout < 1:
        raise ModelError(f"lora.dropout is {lora.dropout}; it must be at least 0 and below 1")
    targets, modules = _targets(base, lora.targets)
    return LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        base_model_name_or_path=ref.name,
        revision=ref.revision,
        r=lora.r,
        lora_alpha=int(lora.alpha) if float(lora.alpha).is_integer() else lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in modules),
    )


def _targets(base: Any, wanted: str | Sequence[str]) -> tuple[list[str], list[Any]]:
    """Last parts of the names of the linear layers to adapt, and these layers; the output head is left out."""
    import torch
    from transformers.pytorch_utils import Conv1D

    head = base.get_output_embeddings()
    linear: dict[str, list[Any]] = {}
    head_name = ""
    for name, module in base.named_modules():
        if module is head:
            head_name = name.rpartition(".")[2]
        elif isinstance(module, torch.nn.Linear | Conv1D):
            linear.setdefault(name.rpartition(".")[2], []).append(module)
    names = sorted(linear) if wanted == "all-linear" else sorted({wanted} if isinstance(wanted, str) else set(wanted))
    for name in names:
        if name not in linear and name == head_name:
            raise ModelError(f"lora.targets: {name!r} is the output head, which is not adapted; drop it")
        if name not in linear:
            raise ModelError(f"lora.targets: the model has no linear layer {name!r}{did_you_mean(name, linear)}")
    if not names:
        raise ModelError("lora.targets names no layer; give all-linear or names such as q_proj")
    return names, [module for name in names for module in linear[name]]


def _draw_adapter(model: Any, seed: int) -> None:
    """Draw A uniformly within 1/sqrt(fan in), PEFT's range, and set B to zero: the policy starts as its base."""
    import torch

    generator = torch.Generator("cpu").manual_seed(seed)
    with torch.no_grad():
        for name, tensor in adapter_tensors(model).items():
            if ".lora_A." in name:
                bound = 1.0 / math.sqrt(tensor.shape[1])
                fresh = torch.empty(tensor.shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator)
                tensor.copy_(fresh)
            else:
                tensor.zero_()
