"""What every RolloutEngine promises, run on the real engine and on the public fake.

To put another engine through it, add a factory: a function without arguments that returns an engine for the byte
vocabulary of the tiny model, whose end token is 257 and whose context holds at least 64 tokens.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dragonet.protocols import RolloutEngine
from dragonet.testing import FakeEngine
from dragonet.types import Sample, SampleRequest, Sampling, StopReason

EOS = 257
Factory = Callable[[], RolloutEngine]


def local_engine() -> RolloutEngine:
    import torch

    from dragonet.models.tiny import tiny_model
    from dragonet.rollout import LocalEngine

    return LocalEngine(
        tiny_model(dtype=torch.float64),
        eos_ids=frozenset({EOS, *range(0, 256, 16)}),
        pad_id=258,
        decode=lambda ids: bytes(i for i in ids if i < 256).decode(errors="replace"),
        context_length=512,
    )


def fake_engine() -> RolloutEngine:
    def script(ids: tuple[int, ...], seed: int) -> list[int]:
        value = hash((ids, seed))
        return [*((value >> shift) % 256 for shift in range(value % 12)), EOS]

    return FakeEngine(script, eos_id=EOS)


@pytest.fixture(params=[local_engine, fake_engine], ids=lambda f: f.__name__)
def engine(request: pytest.FixtureRequest) -> RolloutEngine:
    factory: Factory = request.param
    return factory()


def ask(engine: RolloutEngine, *requests: SampleRequest) -> list[list[Sample]]:
    async def all_at_once() -> list[Any]:
        return list(await asyncio.gather(*(engine.sample(r) for r in requests)))

    return asyncio.run(all_at_once())


def single(seeds: Sequence[int], ids: tuple[int, ...] = (1, 2, 3), limit: int = 6) -> SampleRequest:
    return SampleRequest(Sampling(max_new_tokens=limit), tuple(seeds), prompt_ids=ids, n=len(seeds))


def test_it_is_a_rollout_engine(engine: RolloutEngine) -> None:
    assert isinstance(engine, RolloutEngine)


def test_every_continuation_comes_back_with_a_log_probability_per_token(engine: RolloutEngine) -> None:
    for limit in (1, 6):
        (samples,) = ask(engine, single(range(20), limit=limit))
        assert len(samples) == 20
        for sample in samples:
            assert 1 <= len(sample.token_ids) <= limit
            assert len(sample.logprobs) == len(sample.token_ids)
            assert all(math.isfinite(x) and x <= 0 for x in sample.logprobs)
            assert isinstance(sample.token_ids, tuple)
            assert all(type(i) is int for i in sample.token_ids)


def test_a_row_ends_at_its_limit_or_with_the_end_token_kept(engine: RolloutEngine) -> None:
    (samples,) = ask(engine, single(range(30)))
    reasons = {s.stop_reason for s in samples}
    assert reasons == {StopReason.EOS, StopReason.LENGTH}
    assert all(len(s.token_ids) == 6 for s in samples if s.stop_reason is StopReason.LENGTH)


def test_the_same_seeds_give_the_same_tokens_and_others_do_not(engine: RolloutEngine) -> None:
    first, again, other = ask(engine, single((1, 2, 3)), single((1, 2, 3)), single((4, 5, 6)))
    assert [s.token_ids for s in first] == [s.token_ids for s in again]
    assert [s.token_ids for s in first] != [s.token_ids for s in other]


def test_members_come_in_the_order_of_their_seeds(engine: RolloutEngine) -> None:
    first, back = ask(engine, single((1, 2, 3)), single((3, 2, 1)))
    assert [s.token_ids for s in first] == [s.token_ids for s in reversed(back)]


def test_company_changes_nothing(engine: RolloutEngine) -> None:
    requests = [single((1, 2)), single((3,), ids=(9,) * 20), single((4, 5), ids=(7, 8), limit=3)]
    together = ask(engine, *requests)
    alone = [ask(engine, r)[0] for r in requests]
    assert [[s.token_ids for s in a] for a in together] == [[s.token_ids for s in a] for a in alone]


def test_a_session_appends_what_it_was_given_and_what_was_sampled(engine: RolloutEngine) -> None:
    sampling = Sampling(max_new_tokens=4)

    async def talk() -> tuple[Sample, Sample]:
        first = await engine.sample(SampleRequest(sampling, (1,), session="s", new_ids=(1, 2, 3), last=False))
        second = await engine.sample(SampleRequest(sampling, (2,), session="s", new_ids=(4, 5)))
        return first[0], second[0]

    first, second = asyncio.run(talk())
    whole = (1, 2, 3, *first.token_ids, 4, 5)
    ((again,),) = ask(engine, SampleRequest(sampling, (2,), prompt_ids=whole))
    assert again.token_ids == second.token_ids


def test_sessions_do_not_see_each_other(engine: RolloutEngine) -> None:
    sampling = Sampling(max_new_tokens=4)

    def turn(name: str, ids: tuple[int, ...], last: bool) -> SampleRequest:
        return SampleRequest(sampling, (1,), session=name, new_ids=ids, last=last)

    ask(engine, turn("a", (1, 2), False), turn("b", (3,), False))
    (a,), (b,) = ask(engine, turn("a", (5,), True), turn("b", (5,), True))
    ask(engine, turn("c", (1, 2), False))
    ((alone,),) = ask(engine, turn("c", (5,), True))
    assert a.token_ids == alone.token_ids
    assert a.token_ids != b.token_ids


def test_samples_carry_the_version_of_the_weights(engine: RolloutEngine) -> None:
    ((before,),) = ask(engine, single((1,)))
    engine.load_weights({}, version=3)
    ((after,),) = ask(engine, single((1,)))
    assert (before.version, after.version) == (0, 3)


def test_it_works_in_one_event_loop_after_another_and_closes_twice(engine: RolloutEngine) -> None:
    assert ask(engine, single((1,))) == ask(engine, single((1,)))
    engine.close()
    engine.close()
