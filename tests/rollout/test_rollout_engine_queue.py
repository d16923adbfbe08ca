"""How the engine is asked: batching, admission, sessions, failures, cancellation and new weights."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from rollout_parts import forwards, make_engine, prompt, request, sample_all, tokens
from transformers import LlamaForCausalLM

from dragonet.errors import ModelError, RolloutError
from dragonet.models import adapter_tensors
from dragonet.models.support import quiet
from dragonet.models.tiny import tiny_config, tiny_model
from dragonet.types import SampleRequest, Sampling


def turn(session: str, ids: tuple[int, ...], *, seed: int = 0, last: bool = False) -> SampleRequest:
    return SampleRequest(Sampling(max_new_tokens=4), (seed,), session=session, new_ids=ids, last=last)


@pytest.fixture
def model() -> Any:
    return tiny_model(dtype=torch.float64)


def test_what_waits_is_answered_together_however_deep_its_tasks_lie(model: Any) -> None:
    engine = make_engine(model, eos_ids=frozenset())

    async def late(turns: int, seed: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.wait_for(engine.sample(request(seed=seed)), timeout=60)

    async def ask() -> None:
        await asyncio.gather(*(late(turns, seed) for seed, turns in enumerate((0, 5, 2))))

    with forwards(model) as shapes:
        asyncio.run(ask())
    assert shapes == [(1, 5), *[(3, 1)] * 7]


def test_requests_are_admitted_in_order_within_the_budget_and_one_row_at_least(model: Any) -> None:
    engine = make_engine(model, eos_ids=frozenset(), max_tokens=3 * 13)
    requests = [request(5, n=2), request(5, n=2, seed=1), request(40, seed=2), request(5, seed=3)]
    with forwards(model) as shapes:
        answers = sample_all(engine, requests)
    prefills = [shape for shape in shapes if shape[1] > 1]
    assert prefills == [(1, 5), (1, 5), (1, 40), (1, 5)]
    assert [shape[0] for shape in shapes if shape[1] == 1] == [3] * 7 + [1] * 21
    roomy = sample_all(make_engine(model, eos_ids=frozenset()), requests)
    assert [tokens(a) for a in answers] == [tokens(a) for a in roomy]


def test_who_asks_again_after_an_answer_joins_those_that_still_wait(model: Any) -> None:
    engine = make_engine(model, eos_ids=frozenset(), max_tokens=2 * 13)

    async def twice(seed: int) -> None:
        await engine.sample(request(seed=seed))
        await engine.sample(request(seed=seed))

    async def ask() -> None:
        await asyncio.gather(*(twice(seed) for seed in range(3)))

    with forwards(model) as shapes:
        asyncio.run(ask())
    assert [shape[0] for shape in shapes if shape[1] == 1][::7] == [2, 2, 2]  # not 2, 1, 2, 1


def test_a_session_continues_its_own_tokens(model: Any) -> None:
    engine = make_engine(model, eos_ids=frozenset())
    start, answer = prompt(6), prompt(3, seed=9)

    async def talk() -> list[tuple[int, ...]]:
        (first,) = await engine.sample(turn("a", start))
        (second,) = await engine.sample(turn("a", answer, seed=1, last=True))
        return [first.token_ids, second.token_ids]

    first, second = asyncio.run(talk())
    again = SampleRequest(Sampling(max_new_tokens=4), (1,), prompt_ids=start + first + answer)
    assert tokens(sample_all(engine, [again])[0]) == [second]
    with pytest.raises(RolloutError, match="session 'a' has ended"):
        sample_all(engine, [turn("a", answer)])


def test_a_session_is_used_by_one_request_at_a_time(model: Any) -> None:
    engine = make_engine(model)

    async def crowd() -> list[Any]:
        turns = [engine.sample(turn("a", prompt(4))), engine.sample(turn("a", prompt(4)))]
        return list(await asyncio.gather(*turns, return_exceptions=True))

    first, second = asyncio.run(crowd())
    assert len(first) == 1
    assert isinstance(second, RolloutError)
    assert "still sampling" in str(second)
    assert len(sample_all(engine, [turn("a", prompt(4))])[0]) == 1  # the first one was not disturbed


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (SampleRequest(Sampling(), (1,), prompt_ids=prompt(500)), "500 tokens and max_new_tokens 128 .* 512"),
        (SampleRequest(Sampling(), (1,)), "no tokens"),
        (SampleRequest(Sampling(), (1,), session="new"), "no tokens"),
        (SampleRequest(Sampling(), (1,), prompt_ids=(1, 260)), "between 0 and 259"),
        (SampleRequest(Sampling(), (1,), prompt_ids=(1, -1)), "between 0 and 259"),
        (SampleRequest(Sampling(), (1, 2), prompt_ids=(1,)), "2 seeds"),
        (SampleRequest(Sampling(), (), prompt_ids=(1,), n=0), "n is 0"),
        (SampleRequest(Sampling(), (1,), prompt_ids=(1,), new_ids=(2,)), "new_ids"),
        (SampleRequest(Sampling(), (1, 2), session="s", new_ids=(2,), n=2), "n = 1"),
        (SampleRequest(Sampling(), (1,), session="s", prompt_ids=(2,)), "prompt_ids"),
        (SampleRequest(Sampling(top_p=2), (1,), prompt_ids=(1,)), "top_p"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_and_harms_nobody(bad: SampleRequest, text: str, model: Any) -> None:
    engine = make_engine(model)

    async def ask() -> list[Any]:
        asked = [engine.sample(request()), engine.sample(bad), engine.sample(request(seed=1))]
        return list(await asyncio.gather(*asked, return_exceptions=True))

    first, second, third = asyncio.run(ask())
    assert len(first) == len(third) == 1
    assert isinstance(second, RolloutError)
    with pytest.raises(RolloutError, match=text):
        raise second


def test_a_prompt_and_answer_that_just_fit_are_served(model: Any) -> None:
    (samples,) = sample_all(make_engine(model, eos_ids=frozenset(), context_length=13), [request(5)])
    assert len(samples[0].token_ids) == 8


def test_a_failing_forward_reaches_every_waiter_and_the_engine_goes_on(model: Any) -> None:
    engine = make_engine(model)
    fuse = [True]

    def blow() -> None:
        if fuse:
            fuse.pop()
            raise RuntimeError("the kernel fell over")

    async def ask() -> list[Any]:
        asked = [engine.sample(request(seed=s)) for s in range(2)] + [engine.sample(turn("a", prompt(4)))]
        return list(await asyncio.gather(*asked, return_exceptions=True))

    model.train()
    with forwards(model, then=blow):
        errors = asyncio.run(ask())
        assert [type(e) for e in errors] == [RolloutError] * 3
        assert len({id(e) for e in errors}) == 3
        assert all("RuntimeError: the kernel fell over" in str(e) and e.__cause__ is not None for e in errors)
        assert model.training
        assert len(sample_all(engine, [request()])[0]) == 1
    with pytest.raises(RolloutError, match="has ended"):
        sample_all(engine, [turn("a", prompt(4))])


def test_memory_that_runs_out_says_what_to_lower(model: Any) -> None:
    def blow() -> None:
        raise torch.OutOfMemoryError("no room")

    with forwards(model, then=blow), pytest.raises(RolloutError, match="group_size or max_new_tokens"):
        sample_all(make_engine(model), [request()])


def test_weights_that_are_not_numbers_are_reported(model: Any) -> None:
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(RolloutError, match="NaN"):
        sample_all(make_engine(model), [request()])


def test_a_cancelled_waiter_leaves_the_others(model: Any) -> None:
    engine = make_engine(model, eos_ids=frozenset())

    async def ask() -> list[Any]:
        tasks = [asyncio.create_task(engine.sample(request(seed=s))) for s in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    with forwards(model) as shapes:
        first, second, third = asyncio.run(ask())
    assert isinstance(second, asyncio.CancelledError)
    assert shapes[1] == (2, 1)  # nothing was sampled for it
    assert [first, third] == sample_all(engine, [request(seed=0), request(seed=2)])


def test_a_waiter_cancelled_between_batches_is_not_sampled(model: Any) -> None:
    engine = make_engine(model, eos_ids=frozenset(), max_tokens=13)
    tasks: list[asyncio.Task[Any]] = []

    async def ask() -> list[Any]:
        tasks.extend(asyncio.create_task(engine.sample(request(seed=s))) for s in range(3))
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    def cancel_second() -> None:
        tasks[1].cancel()

    with forwards(model, then=cancel_second) as shapes:
        answers = asyncio.run(ask())
    assert isinstance(answers[1], asyncio.CancelledError)
    assert [shape for shape in shapes if shape[1] > 1] == [(1, 5)] * 2


def test_an_interrupted_event_loop_leaves_a_usable_engine(model: Any) -> None:
    engine = make_engine(model)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with forwards(model, then=interrupt), pytest.raises(KeyboardInterrupt):
        sample_all(engine, [request(), request(seed=1)])
    assert len(sample_all(engine, [request()])[0]) == 1


def test_an_abandoned_event_loop_leaves_a_usable_engine(model: Any) -> None:
    engine = make_engine(model, eos_ids=frozenset())
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(engine.sample(request(seed=5)))
    loop.run_until_complete(asyncio.sleep(0))
    assert not waiting.done()
    loop.close()
    with forwards(model) as shapes:
        assert len(sample_all(engine, [request()])[0]) == 1
    assert shapes == [(1, 5), *[(1, 1)] * 7]  # the waiter that nobody awaits any more was dropped


def test_two_running_event_loops_are_told_apart(model: Any) -> None:
    engine = make_engine(model)

    async def ask() -> list[Any]:
        first = asyncio.create_task(engine.sample(request()))
        await asyncio.sleep(0)
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(asyncio.run, engine.sample(request()))
            return [second.exception(), await first]

    error, samples = asyncio.run(ask())
    assert isinstance(error, RolloutError)
    assert "another event loop" in str(error)
    assert len(samples) == 1


def test_a_closed_engine_refuses(model: Any) -> None:
    engine = make_engine(model)

    async def close_while_waiting() -> list[Any]:
        task = asyncio.create_task(engine.sample(request()))
        await asyncio.sleep(0)
        engine.close()
        return list(await asyncio.gather(task, return_exceptions=True))

    (error,) = asyncio.run(close_while_waiting())
    assert isinstance(error, RolloutError)
    engine.close()
    with pytest.raises(RolloutError, match="closed"):
        sample_all(engine, [request()])


def test_the_model_is_left_as_it_was(model: Any) -> None:
    model.train()
    model.model.layers[0].eval()
    before = {name: module.training for name, module in model.named_modules()}
    sample_all(make_engine(model), [request()])
    assert {name: module.training for name, module in model.named_modules()} == before
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_a_buffer_refreshed_while_sampling_stays_usable_for_training() -> None:
    config = tiny_config()
    config.max_position_embeddings = 16
    config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    model = LlamaForCausalLM(config).eval()
    before = [b.clone() for b in model.buffers()]
    sample_all(make_engine(model), [request(30)])
    assert not all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))
    assert not any(b.is_inference() for b in model.buffers())


@pytest.fixture
def policy(model: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    with quiet():
        return get_peft_model(model, LoraConfig(r=4, lora_dropout=0.5, target_modules=["q_proj", "down_proj"]))


def test_dropout_is_off_while_sampling(policy: Any) -> None:
    with torch.no_grad():
        for tensor in adapter_tensors(policy).values():
            tensor.normal_(std=0.3, generator=torch.Generator().manual_seed(tensor.numel()))
    policy.eval()
    quiet = sample_all(make_engine(policy), [request(n=3)])
    policy.train()
    assert sample_all(make_engine(policy), [request(n=3)]) == quiet
    assert policy.training


def test_new_weights_change_the_samples_and_their_version(policy: Any) -> None:
    engine = make_engine(policy)
    live = adapter_tensors(policy)
    old = {name: tensor.detach().clone() for name, tensor in live.items()}
    new = {name: tensor + 0.5 for name, tensor in old.items()}
    (before,) = sample_all(engine, [request(n=3)])
    engine.load_weights(new, version=7)
    (after,) = sample_all(engine, [request(n=3)])
    assert [s.version for s in before + after] == [0] * 3 + [7] * 3
    assert tokens(before) != tokens(after)
    assert all(torch.equal(live[name], new[name]) for name in live)
    engine.load_weights(old, version=8)
    (back,) = sample_all(engine, [request(n=3)])
    assert tokens(back) == tokens(before)


def test_shared_weights_are_left_alone(policy: Any) -> None:
    live = adapter_tensors(policy)
    versions = {name: tensor._version for name, tensor in live.items()}
    make_engine(policy).load_weights(live, version=1)
    assert {name: tensor._version for name, tensor in live.items()} == versions


def test_unknown_weights_change_nothing(policy: Any) -> None:
    engine = make_engine(policy)
    live = adapter_tensors(policy)
    before = {name: tensor.detach().clone() for name, tensor in live.items()}
    with pytest.raises(ModelError, match="unknown"):
        engine.load_weights({**{n: t + 1 for n, t in before.items()}, "lora_Q": torch.zeros(1)}, version=5)
    assert all(torch.equal(live[name], before[name]) for name in live)
    assert sample_all(engine, [request()])[0][0].version == 0
