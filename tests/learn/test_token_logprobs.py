"""Log-probabilities of sampled tokens equal those from the model's own logits, whatever the padding and the chunk."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from learn_helpers import given, policy, random_round, rollout, sampled, scored

from dragonet.errors import ModelError
from dragonet.learn.batch import Row, make_batch
from dragonet.learn.policy import check_head, split_model, token_logprobs
from dragonet.models.tiny import TINY_KINDS, tiny_config, tiny_model

ROWS = make_batch(random_round([[1.0, 0.0], [0.5, 1.0, 0.0]], seed=3)).rows


def direct(model: Any, row: Row, temperature: float = 1.0) -> torch.Tensor:
    """Return log-probabilities (T,) from the model's whole logits, one row at a time, 0 outside the mask."""
    logits = model(input_ids=torch.tensor(row.ids)[None]).logits[0]
    logp = (logits.to(torch.float64) / temperature).log_softmax(-1)
    found = logp[torch.arange(row.start - 1, row.ids.size - 1), torch.tensor(row.ids[row.start :])]
    return torch.where(torch.tensor(row.mask), found, 0.0)


@pytest.mark.parametrize("kind", TINY_KINDS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_equal_to_the_models_own_logits(kind: str, temperature: float) -> None:
    model = policy(kind, torch.float64)
    with torch.no_grad():
        found = token_logprobs(model, ROWS, temperature=temperature)
        for row, values in zip(ROWS, found, strict=True):
            expected = direct(model, row, temperature)
            torch.testing.assert_close(values[: row.mask.size], expected, atol=1e-10, rtol=0)
            assert not values[row.mask.size :].any()


def test_environment_tokens_are_read_but_not_scored() -> None:
    model = policy(dtype=torch.float64)
    turns = rollout(given(1, 2), sampled(3, 4), given(5, 6, 7), sampled(8), given(9))
    row = make_batch([scored([1.0], [turns])]).rows[0]
    with torch.no_grad():
        found = token_logprobs(model, [row])[0]
        torch.testing.assert_close(found, direct(model, row))
    assert (found != 0).tolist() == row.mask.tolist() == [True, True, False, False, False, True]


def gradients(model: Any, rows: Any, **settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
    model.zero_grad()
    values = token_logprobs(model, rows, **settings)
    (values * torch.arange(1, values.numel() + 1).view_as(values)).sum().backward()
    return values.detach(), torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
def test_the_chunk_does_not_matter(chunk: int) -> None:
    model = policy(dtype=torch.float64)
    values, grads = gradients(model, ROWS, temperature=0.8)
    other_values, other_grads = gradients(model, ROWS, temperature=0.8, chunk=chunk)
    torch.testing.assert_close(other_values, values, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(other_grads, grads, atol=1e-10, rtol=1e-10)
    assert grads.abs().max() > 1


def test_gradients_are_those_of_the_whole_logits() -> None:
    model = policy(dtype=torch.float64)
    _, grads = gradients(model, ROWS[:1], chunk=2)
    model.zero_grad()
    (direct(model, ROWS[0]) * torch.arange(1, ROWS[0].mask.size + 1)).sum().backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])
    torch.testing.assert_close(grads, expected, atol=1e-10, rtol=1e-10)


def test_the_head_sees_sampled_positions_only_and_one_chunk_at_a_time() -> None:
    model = policy()
    _, head = split_model(model)
    seen: list[int] = []
    hook = head.linear.register_forward_hook(lambda _m, inputs, _out: seen.append(inputs[0].shape[0]))
    token_logprobs(model, ROWS, chunk=4).sum().backward()
    hook.remove()
    n = sum(row.n_sampled for row in ROWS)
    assert n < sum(row.ids.size for row in ROWS)
    assert max(seen) == 4
    assert sum(seen) == 2 * n  # once forward, once again in the backward pass


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_bfloat16_base_with_float32_adapter(kind: str) -> None:
    model = policy(kind, torch.bfloat16)
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    values, grads = gradients(model, ROWS)
    assert values.dtype == torch.float32
    assert torch.isfinite(grads).all()
    assert grads.abs().max() > 0
    with torch.no_grad():
        for row, found in zip(ROWS, values, strict=True):
            gap = (found[: row.mask.size] - direct(model, row)).abs()
            assert gap.mean() < 0.02


def test_no_rows_and_rows_without_samples() -> None:
    model = policy()
    assert token_logprobs(model, ROWS[:1], chunk=1).dtype == torch.float32
    empty = make_batch([scored([None], [rollout(given(1, 2))])]).rows
    assert token_logprobs(model, empty).tolist() == [[0.0]]


@pytest.mark.parametrize("kind", TINY_KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_check_head_knows_five_architectures(kind: str, dtype: torch.dtype) -> None:
    check_head(tiny_model(kind, dtype=dtype))
    check_head(policy(kind, dtype))


@pytest.mark.parametrize("name", ["CohereConfig", "GraniteConfig"])
def test_scaled_logits_are_known(name: str) -> None:
    import transformers

    wanted = {"CohereConfig": {"logit_scale": 0.25}, "GraniteConfig": {"logits_scaling": 8.0}}[name]
    common = tiny_config().to_dict()
    keep = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    config = getattr(transformers, name)(**{k: common[k] for k in keep}, pad_token_id=0, **wanted)
    with torch.random.fork_rng(devices=[]):
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
    check_head(model)
    with torch.no_grad():
        found = token_logprobs(model, ROWS[:1])[0]
        torch.testing.assert_close(found.double(), direct(model, ROWS[0]), atol=1e-5, rtol=1e-5)


def test_an_architecture_that_does_something_else_is_refused() -> None:
    model = tiny_model()
    forward = model.forward

    def shifted(**inputs: Any) -> Any:
        output = forward(**inputs)
        output.logits = output.logits * 1.5
        return output

    model.forward = shifted
    with pytest.raises(ModelError, match=r"LlamaForCausalLM turns hidden states.*does not know \(largest difference"):
        check_head(model)


def test_a_model_without_a_head_is_refused() -> None:
    with pytest.raises(ModelError, match="no separate decoder and output head"):
        check_head(tiny_model().model)


def test_the_check_leaves_no_trace() -> None:
    model = policy()
    before = torch.get_rng_state()
    check_head(model)
    assert torch.equal(before, torch.get_rng_state())
    assert all(p.grad is None for p in model.parameters())
