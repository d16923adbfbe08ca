"""What every RolloutSource promises, run on the single-turn source and on the public fake."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from dragonet.protocols import RolloutSource
from dragonet.rollout import SingleTurnSource
from dragonet.testing import FakeEngine, FakeSource
from dragonet.types import Prompt, Sampling

PROMPTS = [Prompt(({"role": "user", "content": f"q{i}"},), index=i) for i in range(5)]
Factory = Callable[[], RolloutSource]


class Plain:
    """The least a renderer must do."""

    def prompt_ids(self, messages: object) -> list[int]:
        return list(self.prompt_text(messages).encode())

    def prompt_text(self, messages: object) -> str:
        return str(messages[-1]["content"])  # type: ignore[index]

    def decode(self, ids: object) -> str:
        return bytes(ids).decode()  # type: ignore[call-overload, no-any-return]


def single_turn_source() -> RolloutSource:
    engine = FakeEngine(lambda ids, seed: [65 + seed % 26, 0], eos_id=0)
    return SingleTurnSource(
        PROMPTS, engine=engine, renderer=Plain(), sampling=Sampling(), group_size=2, batch_size=3, seed=1
    )


def fake_source() -> RolloutSource:
    return FakeSource(PROMPTS, lambda prompt, seed: chr(65 + seed % 26))


@pytest.fixture(params=[single_turn_source, fake_source], ids=lambda f: f.__name__)
def factory(request: pytest.FixtureRequest) -> Factory:
    made: Factory = request.param
    return made


def test_it_is_a_rollout_source(factory: Factory) -> None:
    assert isinstance(factory(), RolloutSource)


def test_groups_are_well_formed(factory: Factory) -> None:
    source = factory()
    for round_ in range(3):
        groups = source.next(round_)
        assert groups
        for group in groups:
            assert group.prompt in PROMPTS
            assert [r.member for r in group.rollouts] == list(range(len(group.rollouts)))
            for rollout in group.rollouts:
                assert rollout.prompt == group.prompt
                assert rollout.round == round_
                assert rollout.prompt_text
                assert rollout.segments[0].sampled is False
                assert rollout.segments[-1].sampled is True
                for segment in rollout.segments:
                    assert segment.token_ids
                    assert len(segment.logprobs) == (len(segment.token_ids) if segment.sampled else 0)
                    assert (segment.version is not None) == segment.sampled


def test_no_two_rollouts_share_a_seed(factory: Factory) -> None:
    source = factory()
    seeds = [r.seed for round_ in range(6) for g in source.next(round_) for r in g.rollouts]
    assert len(set(seeds)) == len(seeds)


def test_two_of_a_kind_give_the_same_rounds(factory: Factory) -> None:
    one, two = factory(), factory()
    assert [one.next(r) for r in range(4)] == [two.next(r) for r in range(4)]


def test_a_loaded_state_continues_the_same_sequence(factory: Factory) -> None:
    source = factory()
    for round_ in range(3):
        source.next(round_)
    state = json.loads(json.dumps(source.state()))
    later = factory()
    later.load(state)
    assert later.state() == source.state()
    assert [later.next(r) for r in (3, 4)] == [source.next(r) for r in (3, 4)]
    assert later.state() == source.state()
