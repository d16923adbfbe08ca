"""Policies: what is trainable, where the adapter's first values come from, and folding."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dragonet.errors import ModelError
from dragonet.models import (
    LoraSpec,
    ModelRef,
    adapter_tensors,
    load_base,
    load_policy,
    make_renderer,
    parameter_counts,
    reference_mode,
    save_adapter,
)
from dragonet.models.tiny import TINY_KINDS, tiny_model, tiny_tokenizer

IDS = torch.tensor([[256, 259, 72, 105, 33, 257, 10]])


@pytest.fixture
def policy(tiny: ModelRef) -> Callable[..., Any]:
    def load(**keys: Any) -> Any:
        return load_policy(tiny, **{"device": "cpu", "dtype": "float32", "seed": 1, **keys})

    return load


def shake(model: Any, seed: int = 0) -> None:
    """Give the adapter values as training would, so that it changes what the model says."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in adapter_tensors(model).values():
            tensor.add_(torch.randn(tensor.shape, generator=generator) * 0.05)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found = model(IDS).logits
    assert isinstance(found, torch.Tensor)
    return found


def test_only_the_adapter_is_trainable_and_the_start_is_the_base(policy: Callable[..., Any], tiny: ModelRef) -> None:
    model = policy()
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trainable
    assert all(".lora_" in name for name in trainable)
    assert not model.training
    # 2 layers of q 64x64, k and v 64x32, o 64x64, gate and up 64x128, down 128x64; r (in + out) numbers each
    per_layer = 2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 128)
    assert parameter_counts(model)[0] == 16 * 2 * per_layer == 32768
    assert torch.equal(logits(model), logits(load_base(tiny, device="cpu", dtype="float32")))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(policy: Callable[..., Any]) -> None:
    first, again, other = (adapter_tensors(policy(seed=seed)) for seed in (7, 7, 8))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first if ".lora_A." in name)


def test_the_first_values_do_not_depend_on_the_base_dtype(policy: Callable[..., Any]) -> None:
    wide, narrow = adapter_tensors(policy()), adapter_tensors(policy(dtype="bfloat16"))
    assert {t.dtype for t in narrow.values()} == {torch.float32}
    assert all(torch.equal(wide[name], narrow[name]) for name in wide)
    down = wide["base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"]
    assert down.abs().max() <= 128**-0.5
    assert down.std().item() == pytest.approx(128**-0.5 / 3**0.5, rel=0.05)


def test_a_float64_base_has_a_float64_adapter(policy: Callable[..., Any]) -> None:
    assert {p.dtype for p in policy(dtype="float64").parameters()} == {torch.float64}


def test_loading_leaves_the_global_generators_alone(policy: Callable[..., Any]) -> None:
    before = torch.get_rng_state()
    policy()
    assert torch.equal(before, torch.get_rng_state())


def test_targets(policy: Callable[..., Any]) -> None:
    names = {name.split(".")[-3] for name in adapter_tensors(policy(lora=LoraSpec(targets=("q_proj", "v_proj"))))}
    assert names == {"q_proj", "v_proj"}
    assert len(adapter_tensors(policy(lora=LoraSpec(targets="o_proj")))) == 2 * 2
    assert not any("lm_head" in name for name in adapter_tensors(policy()))
    with pytest.raises(ModelError, match="no linear layer 'q_prj'; did you mean 'q_proj'"):
        policy(lora=LoraSpec(targets=("q_prj",)))
    with pytest.raises(ModelError, match="'lm_head' is the output head"):
        policy(lora=LoraSpec(targets=("lm_head",)))
    with pytest.raises(ModelError, match="names no layer"):
        policy(lora=LoraSpec(targets=()))


@pytest.mark.parametrize(("keys", "said"), [({"r": 0}, "lora.r is 0"), ({"dropout": 1.0}, "lora.dropout is 1.0")])
def test_specs_that_cannot_work(policy: Callable[..., Any], keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        policy(lora=LoraSpec(**keys))


def test_generation_settings_of_the_checkpoint_do_not_leak(tiny: ModelRef, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny.folder, folder)
    settings = {"temperature": 0.01, "top_k": 1, "do_sample": True, "repetition_penalty": 9.0, "eos_token_id": 257}
    (folder / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    model = load_policy(ModelRef("m", folder), device="cpu", dtype="float32")
    kept = model.generation_config.to_diff_dict()
    assert not kept.keys() & settings.keys()
    assert make_renderer(ModelRef("m", folder)).eos_ids == {257}


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_every_architecture_can_be_saved_loaded_and_adapted(kind: str, tmp_path: Path) -> None:
    made = tiny_model(kind)
    made.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    model = load_policy(ModelRef(kind, tmp_path), device="cpu", dtype="float32")
    assert torch.equal(logits(model), logits(made))
    assert model.config._attn_implementation == ("eager" if kind == "gemma2" else "sdpa")
    shake(model)
    assert not torch.allclose(logits(model), logits(made))
    with reference_mode(model):
        assert torch.equal(logits(model), logits(made))


def test_a_folded_adapter_says_what_it_said_when_it_was_on(policy: Callable[..., Any], tmp_path: Path) -> None:
    first = policy()
    shake(first)
    save_adapter(first, tmp_path / "first")
    ref = ModelRef("tiny-random", first_base(first), (tmp_path / "first",))
    folded = load_base(ref, device="cpu", dtype="float32")
    torch.testing.assert_close(logits(folded), logits(first), atol=1e-5, rtol=1e-5)
    assert not any(".lora_" in name for name, _ in folded.named_parameters())

    # a second stage on top of the first, then both folded in order
    second = load_policy(ref, device="cpu", dtype="float32", seed=2)
    torch.testing.assert_close(logits(second), logits(first), atol=1e-5, rtol=1e-5)
    shake(second, seed=9)
    save_adapter(second, tmp_path / "second")
    both = ModelRef("tiny-random", ref.folder, (tmp_path / "first", tmp_path / "second"))
    torch.testing.assert_close(
        logits(load_base(both, device="cpu", dtype="float32")), logits(second), atol=1e-5, rtol=1e-5
    )


def first_base(model: Any) -> Path:
    from dragonet.models import resolve

    return resolve(model.peft_config["default"].base_model_name_or_path).folder


def test_folding_is_computed_in_float32_and_rounded_once(policy: Callable[..., Any], tmp_path: Path) -> None:
    model = policy()
    shake(model)
    save_adapter(model, tmp_path)
    ref = ModelRef("tiny-random", first_base(model), (tmp_path,))
    exact = dict(load_base(ref, device="cpu", dtype="float32").named_parameters())
    for name, parameter in load_base(ref, device="cpu", dtype="bfloat16").named_parameters():
        assert torch.equal(parameter, exact[name].bfloat16())
        assert not parameter.requires_grad


def test_an_adapter_that_does_not_fit_its_base_is_an_error(policy: Callable[..., Any], tmp_path: Path) -> None:
    save_adapter(policy(), tmp_path / "adapter")
    made = tiny_model("llama")
    made.config.intermediate_size = 96
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_config(made.config).save_pretrained(tmp_path / "other")
    ref = ModelRef("other", tmp_path / "other", (tmp_path / "adapter",))
    with pytest.raises(ModelError, match=r"the adapter in .* cannot be folded into its base"):
        load_base(ref, device="cpu", dtype="float32")


def test_missing_weights_are_an_error_and_not_random(tiny: ModelRef, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    shutil.copytree(tiny.folder, folder)
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 weights are missing .*layers\.1\.mlp\.up_proj.* would be random"):
        load_base(ModelRef("m", folder), device="cpu", dtype="float32")
    (folder / "model.safetensors").write_bytes(b"no tensors here")
    with pytest.raises(ModelError, match="cannot be loaded from"):
        load_base(ModelRef("m", folder), device="cpu", dtype="float32")
