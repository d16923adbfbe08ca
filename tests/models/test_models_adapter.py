"""Adapters: by name in memory, in PEFT layout on disk, off for reference."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dragonet.errors import ModelError
from dragonet.models import (
    LoraSpec,
    ModelRef,
    adapter_tensors,
    load_adapter_tensors,
    load_base,
    load_policy,
    reference_mode,
    save_adapter,
)

IDS = torch.tensor([[256, 259, 72, 105, 33, 257, 10]])


@pytest.fixture
def model(tiny: ModelRef) -> Any:
    policy = load_policy(tiny, device="cpu", dtype="float32", lora=LoraSpec(r=4, alpha=8), seed=3)
    with torch.no_grad():
        for tensor in adapter_tensors(policy).values():
            tensor.add_(0.01)
    return policy


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft's own call of what transformers deprecates
def test_peft_reads_what_was_saved(model: Any, tiny: ModelRef, tmp_path: Path) -> None:
    from peft import PeftModel

    save_adapter(model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    again = PeftModel.from_pretrained(load_base(tiny, device="cpu", dtype="float32"), str(tmp_path))
    with torch.no_grad():
        assert torch.equal(again(IDS).logits, model(IDS).logits)


def test_names_in_memory_are_names_on_disk(model: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    save_adapter(model, tmp_path)
    stored, live = load_file(tmp_path / "adapter_model.safetensors"), adapter_tensors(model)
    assert sorted(stored) == list(live)
    assert all(torch.equal(stored[name], live[name]) for name in live)


def test_the_same_weights_are_the_same_bytes_and_name_no_place_on_this_machine(
    model: Any, tiny: ModelRef, tmp_path: Path
) -> None:
    save_adapter(model, tmp_path / "one")
    again = load_policy(tiny, device="cpu", dtype="float32", lora=LoraSpec(r=4, alpha=8), seed=99)
    load_adapter_tensors(again, {name: t.clone() for name, t in adapter_tensors(model).items()})
    save_adapter(again, tmp_path / "two")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    text = (tmp_path / "one" / "adapter_config.json").read_text(encoding="utf-8")
    config = json.loads(text)
    assert str(tiny.folder) not in text
    assert (config["base_model_name_or_path"], config["r"], config["lora_alpha"]) == ("tiny-random", 4, 8)
    assert config["target_modules"] == sorted(config["target_modules"])
    assert list(config) == sorted(config)


def test_live_tensors_are_the_models_own(model: Any) -> None:
    with torch.no_grad():
        before = model(IDS).logits
        for tensor in adapter_tensors(model).values():
            tensor.zero_()
        assert not torch.equal(before, model(IDS).logits)
    assert all(tensor.requires_grad for tensor in adapter_tensors(model).values())


def test_loading_copies_in_place_and_leaves_shared_tensors_alone(model: Any) -> None:
    live = adapter_tensors(model)
    places = {name: tensor.data_ptr() for name, tensor in live.items()}
    load_adapter_tensors(model, live)
    load_adapter_tensors(model, {name: torch.ones_like(tensor) for name, tensor in live.items()})
    after = adapter_tensors(model)
    assert {name: tensor.data_ptr() for name, tensor in after.items()} == places
    assert all(bool((tensor == 1).all()) for tensor in after.values())


def test_loading_is_strict_and_writes_nothing_before_it_is_sure(model: Any) -> None:
    before = {name: tensor.detach().clone() for name, tensor in adapter_tensors(model).items()}
    new = {name: torch.ones_like(tensor) for name, tensor in before.items()}
    first = next(iter(new))
    with pytest.raises(ModelError, match=r"1 unknown, first layers\.9\.lora_A; .* other lora\.targets"):
        load_adapter_tensors(model, {**new, "layers.9.lora_A": new[first]})
    with pytest.raises(ModelError, match="1 missing"):
        load_adapter_tensors(model, {name: t for name, t in new.items() if name != first})
    with pytest.raises(ModelError, match=r"has shape \(1, 1\), the model wants \(4, 128\).*lora\.r"):
        load_adapter_tensors(model, {**new, first: torch.ones(1, 1)})
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapter_tensors(model).items())


def test_reference_mode_is_the_base_and_ends_with_the_block(model: Any, tiny: ModelRef) -> None:
    base = load_base(tiny, device="cpu", dtype="float32")
    with torch.no_grad():
        on = model(IDS).logits
        with reference_mode(model):
            assert torch.equal(model(IDS).logits, base(IDS).logits)
            with reference_mode(model):  # again inside: still off until the outer block ends
                pass
            assert torch.equal(model(IDS).logits, base(IDS).logits)
        with contextlib.suppress(KeyError), reference_mode(model):
            raise KeyError
        assert torch.equal(model(IDS).logits, on)


def test_reference_mode_keeps_gradients_that_are_under_way_and_frozen_adapters_frozen(model: Any) -> None:
    loss = model(IDS).logits.square().mean()
    with reference_mode(model):
        assert not model(IDS).logits.requires_grad
    loss.backward()
    assert all(tensor.grad is not None and bool(tensor.grad.any()) for tensor in adapter_tensors(model).values())
    model.requires_grad_(False)
    with reference_mode(model):
        pass
    assert not any(p.requires_grad for p in model.parameters())
