"""What the engine samples: log-probabilities against plain forwards of transformers, seeds, ends and stop strings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_parts import EOS, PAD, as_letters, forwards, make_engine, prompt, request, sample_all, tokens
from transformers import GPT2Config, GPT2LMHeadModel

from dragonet.models.tiny import TINY_KINDS, tiny_model, tiny_tokenizer
from dragonet.rollout.decode import Ends, Row
from dragonet.types import Sample, SampleRequest, Sampling, StopReason

EARLY = frozenset(range(0, 256, 16)) | {EOS}  # with so many end tokens rows leave the batch at all times


def mixed_requests(temperature: float = 1.0) -> list[SampleRequest]:
    """Four prompts, most longer than the sliding window of 16, in groups of three, with limits of their own."""
    limits = {3: (40, temperature), 41: (12, temperature / 2), 21: (25, 0.0), 33: (1, 2 * temperature)}
    return [
        request(length, n=3, seed=length, max_new_tokens=limit, temperature=t) for length, (limit, t) in limits.items()
    ]


def plain_logprobs(model: Any, r: SampleRequest, sample: Sample) -> torch.Tensor:
    """Log-probabilities of the sampled ids in one forward of the whole sequence, without cache, padding or mask."""
    full = torch.tensor([r.prompt_ids + sample.token_ids])
    with torch.no_grad():
        logits = model(input_ids=full).logits[0, len(r.prompt_ids) - 1 : -1]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logp = torch.log_softmax(logits / (r.sampling.temperature or 1.0), -1)
    return logp.gather(-1, torch.tensor(sample.token_ids)[:, None])[:, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", TINY_KINDS)
def test_log_probabilities_are_those_of_a_plain_forward(kind: str, dtype: torch.dtype) -> None:
    model = tiny_model(kind, dtype=dtype)
    requests = mixed_requests(temperature=2.0 if "gemma" in kind else 1.0)
    answers = sample_all(make_engine(model, eos_ids=EARLY), requests)
    gaps, logprobs = [], []
    for r, samples in zip(requests, answers, strict=True):
        for sample in samples:
            told = torch.tensor(sample.logprobs, dtype=torch.float64)
            gaps.append((plain_logprobs(model, r, sample).double() - told).abs())
            logprobs.append(told)
    gap = torch.cat(gaps)
    assert torch.cat(logprobs).mean() < -0.3  # else there would be nothing to tell apart
    assert {s.stop_reason for samples in answers for s in samples} == {StopReason.EOS, StopReason.LENGTH}
    if dtype == torch.bfloat16:
        assert gap.mean() < 0.02
    elif dtype == torch.float32:
        assert gap.max() < 1e-4
    else:  # eager attention, which Gemma-2 needs for its soft caps, takes the softmax in float32
        assert gap.max() < (1e-6 if kind == "gemma2" else 1e-9)


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_request_alone_gives_the_tokens_it_gives_among_others(kind: str) -> None:
    model = tiny_model(kind, dtype=torch.float64)
    requests = mixed_requests()
    together = sample_all(make_engine(model, eos_ids=EARLY), requests)
    for r, samples in zip(requests, together, strict=True):
        assert tokens(sample_all(make_engine(model, eos_ids=EARLY), [r])[0]) == tokens(samples)
    backwards = sample_all(make_engine(model, eos_ids=EARLY), requests[::-1])[::-1]
    assert [tokens(a) for a in backwards] == [tokens(a) for a in together]
    narrow = sample_all(make_engine(model, eos_ids=EARLY, max_tokens=100), requests)
    assert [tokens(a) for a in narrow] == [tokens(a) for a in together]


def test_seeds_decide() -> None:
    engine = make_engine()
    first, again, other = sample_all(engine, [request(n=4), request(n=4), request(n=4, seed=1)])
    assert first == again
    assert len(set(tokens(first)) | set(tokens(other))) == 8


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_greedy_is_what_generate_does(kind: str) -> None:
    model = tiny_model(kind, dtype=torch.float64)
    lengths = (20, 7, 33)
    answers = sample_all(make_engine(model), [request(n, temperature=0, max_new_tokens=24) for n in lengths])
    for length, (sample,) in zip(lengths, answers, strict=True):
        ids = torch.tensor([prompt(length)])
        with torch.no_grad():
            wanted = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=24,
                eos_token_id=EOS,
                pad_token_id=PAD,
            )
        assert list(sample.token_ids) == wanted[0, length:].tolist()


def test_learned_positions_are_counted_from_the_prompt_not_the_padding() -> None:
    config = GPT2Config(
        vocab_size=260, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=EOS
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GPT2LMHeadModel(config).double().eval()
    requests = [request(length, n=2, max_new_tokens=10) for length in (3, 30)]
    for r, samples in zip(requests, sample_all(make_engine(model), requests), strict=True):
        for sample in samples:
            assert sample.logprobs == pytest.approx(plain_logprobs(model, r, sample).tolist(), abs=1e-9)


def test_generation_settings_of_the_checkpoint_do_not_leak() -> None:
    model = tiny_model(dtype=torch.float64)
    before = sample_all(make_engine(model), [request(n=3)])
    settings_ = model.generation_config
    settings_.temperature, settings_.top_k, settings_.repetition_penalty, settings_.do_sample = 0.01, 1, 5.0, True
    settings_.max_new_tokens, settings_.eos_token_id, settings_.suppress_tokens = 1, 5, list(range(200))
    assert sample_all(make_engine(model), [request(n=3)]) == before


def test_the_end_token_is_kept_with_its_log_probability() -> None:
    model = tiny_model(dtype=torch.float64)
    (free,) = sample_all(make_engine(model, eos_ids=frozenset()), [request(n=6, max_new_tokens=20)])
    (ended,) = sample_all(make_engine(model, eos_ids=EARLY), [request(n=6, max_new_tokens=20)])
    assert any(s.stop_reason is StopReason.EOS for s in ended)
    for whole, cut in zip(free, ended, strict=True):
        hits = [i for i, token in enumerate(whole.token_ids) if token in EARLY]
        n = hits[0] + 1 if hits else 20
        assert cut.token_ids == whole.token_ids[:n]
        assert cut.logprobs == pytest.approx(whole.logprobs[:n], abs=1e-9)
        assert cut.stop_reason is (StopReason.EOS if hits else StopReason.LENGTH)
        assert len(cut.logprobs) == len(cut.token_ids)


def test_an_end_token_at_the_limit_is_an_end() -> None:
    (samples,) = sample_all(make_engine(eos_ids=frozenset(range(256))), [request(n=3, max_new_tokens=1)])
    assert {s.stop_reason for s in samples} == {StopReason.EOS}


def test_a_stop_string_across_token_borders_ends_the_row() -> None:
    model = tiny_model(dtype=torch.float64)
    (whole,) = sample_all(make_engine(model, eos_ids=frozenset()), [request(n=4, max_new_tokens=30)])
    text = as_letters(whole[2].token_ids)
    stop = text[21:26]  # begins and ends in the middle of a token of two letters
    assert stop not in text[:25]
    (cut,) = sample_all(make_engine(model, eos_ids=frozenset()), [request(n=4, max_new_tokens=30, stop=("!", stop))])
    assert cut[2].token_ids == whole[2].token_ids[:13]
    assert cut[2].stop_reason is StopReason.STOP
    assert len(cut[2].logprobs) == 13
    others = [i for i in (0, 1, 3) if stop not in as_letters(whole[i].token_ids)]
    assert others
    assert all(cut[i].token_ids == whole[i].token_ids for i in others)


def first_end(ends: Ends, ids: list[int], stop: tuple[str, ...]) -> tuple[int, StopReason | None]:
    row = Row((0,), Sampling(max_new_tokens=len(ids), stop=stop), 0)
    for n, token in enumerate(ids, start=1):
        row.token_ids.append(token)
        reason = ends.reason(row)
        if reason is not None:
            return n, reason
    raise AssertionError("the limit was reached without an end")


def test_a_stop_string_of_characters_split_over_tokens() -> None:
    tokenizer = tiny_tokenizer()
    ids = list("naïve — “ça”".encode())
    ends = Ends(frozenset({EOS}), lambda i: tokenizer.decode(i, skip_special_tokens=True))
    assert first_end(ends, ids, ("—",)) == (len("naïve —".encode()), StopReason.STOP)
    assert first_end(ends, ids, ("é",)) == (len(ids), StopReason.LENGTH)
    assert first_end(ends, [*b"a", EOS, *b"b"], ("b",)) == (2, StopReason.EOS)


@given(
    texts=st.lists(st.sampled_from(["", "a", "b", "ab", "ba ", " aab", "b" * 40]), min_size=1, max_size=60),
    stop=st.text("ab ", min_size=1, max_size=6),
    strips=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_the_tail_tells_what_the_whole_text_tells(texts: list[str], stop: str, strips: bool) -> None:
    def decode(ids: Any) -> str:
        text = "".join(texts[i] for i in ids)
        return text.removeprefix(" ") if strips else text  # as decoders do that take a first blank for a token's mark

    ids = list(range(len(texts)))
    hits = [n for n in range(1, len(ids) + 1) if stop in decode(ids[:n])]
    wanted = (hits[0], StopReason.STOP) if hits else (len(ids), StopReason.LENGTH)
    assert first_end(Ends(frozenset(), decode), ids, (stop,)) == wanted


def test_a_stop_string_around_tokens_without_text() -> None:
    texts = ["a" * 20, "s", *[""] * 40, "top"]
    ends = Ends(frozenset(), lambda ids: "".join(texts[i] for i in ids))
    assert first_end(ends, [*range(len(texts)), 0], ("stop",)) == (len(texts), StopReason.STOP)


def test_what_only_the_start_of_a_tail_shows_does_not_stop() -> None:
    def decode(ids: Any) -> str:
        return ("" if ids[0] == 0 else "^") + "x" * len(ids)

    assert first_end(Ends(frozenset(), decode), list(range(30)), ("^",)) == (30, StopReason.LENGTH)


def test_a_long_answer_is_not_decoded_whole_at_each_token() -> None:
    seen: list[int] = []

    def decode(ids: Any) -> str:
        seen.append(len(ids))
        return "x" * len(ids)

    first_end(Ends(frozenset(), decode), [1] * 500, ("stop",))
    assert max(seen) < 40


def test_prompts_are_read_once_per_group_and_rows_leave() -> None:
    model = tiny_model(dtype=torch.float64)
    requests = [request(9, n=4, max_new_tokens=6), request(9, n=4, seed=3, max_new_tokens=2), request(5, n=8)]
    with forwards(model) as shapes:
        sample_all(make_engine(model, eos_ids=frozenset()), requests)
    # two different prompts; then 16 rows, 12 once four have ended at their limit of 2, 8 after the limit of 6
    assert shapes == [(2, 9), (16, 1), *[(12, 1)] * 4, *[(8, 1)] * 2]


def test_a_few_ended_rows_are_fed_on_until_it_pays_to_compact() -> None:
    model = tiny_model(dtype=torch.float64)
    limits = [3, *[9] * 8]
    requests = [request(4, seed=i, max_new_tokens=limit) for i, limit in enumerate(limits)]
    with forwards(model) as shapes:
        answers = sample_all(make_engine(model, eos_ids=frozenset()), requests)
    assert shapes == [(1, 4), *[(9, 1)] * 8]  # one of nine is less than an eighth
    assert [len(a[0].token_ids) for a in answers] == limits
