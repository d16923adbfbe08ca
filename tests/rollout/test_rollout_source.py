from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_parts import EOS, tiny_renderer

from dragonet.errors import DataError, RunError
from dragonet.rollout import SingleTurnSource
from dragonet.rollout.source import shuffled
from dragonet.testing import FakeEngine
from dragonet.types import Group, Prompt, Sampling

RENDERER = tiny_renderer()


def make(n: int = 10, batch_size: int = 4, seed: int = 42, group_size: int = 2, word: str = "q") -> SingleTurnSource:
    return SingleTurnSource(
        [Prompt(({"role": "user", "content": f"{word}{i}"},), index=i) for i in range(n)],
        engine=FakeEngine(lambda ids, seed: [65, EOS], eos_id=EOS),
        renderer=RENDERER,
        sampling=Sampling(),
        group_size=group_size,
        batch_size=batch_size,
        seed=seed,
    )


def rows(groups: list[Group]) -> list[int]:
    return [g.prompt.index for g in groups]


def rounds(source: SingleTurnSource, first: int, last: int) -> list[Group]:
    return [group for r in range(first, last) for group in source.next(r)]


def test_an_epoch_shows_every_prompt_once_and_the_next_shuffles_anew() -> None:
    source = make(n=10, batch_size=5)
    first, second = rows(rounds(source, 0, 2)), rows(rounds(source, 2, 4))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert first != list(range(10))
    assert source.rounds_per_epoch == 2


def test_a_batch_runs_over_the_end_of_an_epoch() -> None:
    source = make(n=10, batch_size=4)
    seen = rows(rounds(source, 0, 5))
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert seen == shuffled(10, 42, 0) + shuffled(10, 42, 1)
    assert [source.epoch_of(r) for r in range(6)] == [0, 0, 0, 1, 1, 2]
    assert source.rounds_per_epoch == 2.5


@given(n=st.integers(1, 7), batch_size=st.integers(1, 9))
def test_no_two_rollouts_share_a_seed(n: int, batch_size: int) -> None:
    source = make(n=n, batch_size=batch_size, group_size=2)
    groups = rounds(source, 0, 4)
    seeds = Counter(rollout.seed for group in groups for rollout in group.rollouts)
    assert len(groups) == 4 * batch_size
    assert set(seeds.values()) == {1}
    assert len(seeds) == 8 * batch_size


def test_a_row_that_occurs_again_in_a_round_takes_the_next_attempt() -> None:
    groups = make(n=3, batch_size=8, group_size=1).next(0)
    attempts: dict[int, list[int]] = {}
    for group in groups:
        attempts.setdefault(group.prompt.index, []).append(group.rollouts[0].attempt)
    assert sorted(map(tuple, attempts.values())) == [(0, 1), (0, 1, 2), (0, 1, 2)]


def test_the_round_decides_not_the_history() -> None:
    straight, jumping = make(), make()
    wanted = [straight.next(r) for r in range(6)]
    assert [jumping.next(r) for r in (5, 2, 5)] == [wanted[5], wanted[2], wanted[5]]
    assert rows(make(seed=43).next(0)) != rows(wanted[0])


def test_a_state_goes_on_where_it_was_saved_also_with_another_batch_size() -> None:
    source = make(n=10, batch_size=4)
    for r in range(3):
        source.next(r)
    state = json.loads(json.dumps(source.state()))
    same = make(n=10, batch_size=4)
    same.load(state)
    assert [same.next(r) for r in (3, 4)] == [source.next(r) for r in (3, 4)]
    wider = make(n=10, batch_size=6)
    wider.load(state)
    assert rows(wider.next(3)) == (shuffled(10, 42, 1) + shuffled(10, 42, 2))[2:8]
    again = make(n=10, batch_size=6)
    again.load(json.loads(json.dumps(wider.state())))
    assert again.next(4) == wider.next(4)
    assert wider.epoch_of(4) == 1


def test_a_state_of_other_prompts_or_another_seed_is_refused() -> None:
    state = make().state()
    with pytest.raises(RunError, match="seed 42, this run has 1"):
        make(seed=1).load(state)
    with pytest.raises(RunError, match="other prompts"):
        make(n=9).load(state)
    with pytest.raises(RunError, match="other prompts"):
        make(word="r").load(state)


def test_no_prompts_is_an_error() -> None:
    with pytest.raises(DataError, match="no prompts"):
        make(n=0)


def test_the_shuffle_is_the_same_on_every_machine() -> None:
    assert shuffled(8, 42, 0) == [2, 7, 6, 5, 4, 1, 3, 0]
    assert shuffled(1, 0, 0) == [0]
