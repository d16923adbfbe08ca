"""Random tiny models: the same everywhere, of every architecture, in every dtype."""

from __future__ import annotations

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonet.errors import ModelError
from dragonet.models import load_base, make_renderer, resolve
from dragonet.models.attention import EAGER_TOKENS, attention_for
from dragonet.models.ref import ModelRef
from dragonet.models.tiny import CONTEXT_LENGTH, TINY_KINDS, VOCAB_SIZE, tiny_config, tiny_model, tiny_tokenizer

IDS = torch.tensor([[256, 259, 72, 105, 33, 257, 10]])


def test_tiny_random_loads_and_is_a_byte_model(tiny: ModelRef) -> None:
    assert (tiny.name, tiny.kind, tiny.adapters) == ("tiny-random", "tiny", ())
    model = load_base(tiny, device="cpu", dtype="float32")
    assert (model.config.hidden_size, model.config.num_hidden_layers) == (64, 2)
    assert model.config.vocab_size == VOCAB_SIZE == 260
    assert make_renderer(tiny).context_length == CONTEXT_LENGTH == 512
    assert torch.equal(model(IDS).logits, tiny_model("llama", seed=0)(IDS).logits)
    assert resolve("tiny-random").folder == tiny.folder


def test_the_same_seed_is_the_same_model_in_every_process_and_version() -> None:
    digest = hashlib.sha256()
    for name, parameter in sorted(tiny_model("llama", seed=0).named_parameters()):
        digest.update(name.encode() + parameter.detach().numpy().tobytes())
    assert digest.hexdigest()[:16] == "25c477fd709782c5"
    head = tiny_model("llama", seed=1).lm_head.weight
    assert not torch.equal(head, tiny_model("llama", seed=0).lm_head.weight)


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_every_kind_in_float64_agrees_with_float32(kind: str) -> None:
    wide, narrow = tiny_model(kind, 3, torch.float64), tiny_model(kind, 3)
    assert {p.dtype for p in wide.parameters()} == {torch.float64}
    assert not wide.training
    assert not narrow.training
    with torch.no_grad():
        torch.testing.assert_close(wide(IDS).logits, narrow(IDS).logits.double(), atol=1e-4, rtol=1e-4)


def test_soft_caps_are_in_force() -> None:
    assert attention_for(tiny_config("gemma2")) == "eager"
    assert attention_for(tiny_config("gemma3")) is None
    assert attention_for(tiny_config("llama"), rounds_apart=True, longest=EAGER_TOKENS) == "eager"
    assert attention_for(tiny_config("llama"), rounds_apart=True, longest=EAGER_TOKENS + 1) is None
    assert attention_for(tiny_config("llama"), rounds_apart=True) is None
    assert attention_for(tiny_config("llama"), longest=8) is None
    model = tiny_model("gemma2")
    assert model.config._attn_implementation == "eager"
    with torch.no_grad():
        assert model(IDS).logits.abs().max() <= 10.0
        capped = model(IDS).logits
        for layer in model.model.layers:
            layer.self_attn.attn_logit_softcapping = None
        assert not torch.allclose(capped, model(IDS).logits)


@pytest.mark.parametrize("kind", ["gemma2", "gemma3"])
def test_the_window_matters_for_prompts_longer_than_it_and_only_there(kind: str) -> None:
    windowed, open_model = tiny_model(kind), tiny_model(kind)
    assert sorted(windowed.config.layer_types) == ["full_attention", "sliding_attention"]
    open_model.config.sliding_window = CONTEXT_LENGTH
    ids = torch.arange(40)[None]
    with torch.no_grad():
        torch.testing.assert_close(windowed(ids[:, :16]).logits, open_model(ids[:, :16]).logits)
        assert not torch.allclose(windowed(ids).logits[:, -1], open_model(ids).logits[:, -1], atol=1e-4)


def test_drawing_a_model_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    tiny_model("qwen3", seed=5)
    assert torch.equal(before, torch.get_rng_state())


def test_an_unknown_kind_names_the_near_one() -> None:
    with pytest.raises(ModelError, match="did you mean 'gemma3'"):
        tiny_config("gema3")


def test_special_tokens_are_distinct_and_bytes_are_their_values() -> None:
    tokenizer = tiny_tokenizer()
    assert len({tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}) == 3
    assert tokenizer("Aé", add_special_tokens=False)["input_ids"] == list("Aé".encode())
    assert tokenizer("A")["input_ids"] == [tokenizer.bos_token_id, 65]


TOKENIZER = tiny_tokenizer()


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(blacklist_categories=("Cs",))))
def test_any_text_round_trips(text: str) -> None:
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(ids) == text
    assert len(ids) == len(text.encode()) or any(token in text for token in TOKENIZER.all_special_tokens)
