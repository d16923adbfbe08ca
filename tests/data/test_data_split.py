"""The held-out split: disjoint, deterministic, equal prompts together, within its bounds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragonet.data import Split, load_dataset
from dragonet.data.split import split_prompts
from dragonet.errors import DataError
from dragonet.types import Prompt


def prompts(texts: list[str]) -> list[Prompt]:
    return [Prompt(({"role": "user", "content": text},), index=index) for index, text in enumerate(texts)]


def different(n: int) -> list[Prompt]:
    return prompts([f"prompt {i}" for i in range(n)])


def held(split: Split) -> set[str]:
    return {prompt.text for prompt in split.eval}


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=60),
    st.floats(0, 0.99),
    st.integers(1, 20),
    st.integers(0, 30),
    st.integers(0, 5),
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_invariants(numbers: list[int], share: float, min_eval: int, more: int, seed: int) -> None:
    table = prompts([str(number) for number in numbers])
    split = split_prompts(table, share, min_eval, min_eval + more, seed)
    indices = [[prompt.index for prompt in side] for side in (split.train, split.eval)]
    assert sorted(indices[0] + indices[1]) == list(range(len(table)))
    assert all(side == sorted(side) for side in indices)
    assert not {prompt.text for prompt in split.train} & held(split)
    assert split.train
    assert split == split_prompts(table, share, min_eval, min_eval + more, seed)
    assert held(split) == held(split_prompts(table[::-1], share, min_eval, min_eval + more, seed))
    assert split.eval or split.notices
    if len(set(numbers)) > 1 and share > 0 and len(numbers) > 1:
        assert split.eval


@pytest.mark.parametrize(
    ("total", "share", "expected"),
    [
        (1000, 0.1, 100),  # the share
        (5000, 0.1, 200),  # max_eval
        (100, 0.1, 16),  # min_eval
        (32, 0.1, 16),
        (31, 0.1, 15),  # at most half of a small table is taken to reach min_eval
        (3, 0.1, 1),
        (2, 0.1, 1),
        (1, 0.1, 0),
        (100, 0.8, 80),  # what the user asks for is taken
        (10, 0.99, 9),  # one row is always left
    ],
)
def test_counts(total: int, share: float, expected: int) -> None:
    split = split_prompts(different(total), share)
    assert (len(split.eval), len(split.train)) == (expected, total - expected)
    assert bool(split.notices) == (expected < 16)


def test_notices() -> None:
    assert "eval is 0" in split_prompts(different(50), 0).notices[0]
    assert "only 5 of 10 rows are held out (min_eval is 16)" in split_prompts(different(10)).notices[0]
    assert "1 rows are too few" in split_prompts(different(1)).notices[0]
    same = split_prompts(prompts(["x"] * 50))
    assert (len(same.train), len(same.eval)) == (50, 0)
    assert "too few to leave different prompts on both sides" in same.notices[0]
    repeated = split_prompts(prompts(["x", "y", "z"] * 30))
    assert (len(repeated.train), len(repeated.eval)) == (60, 30)
    assert repeated.notices == ("30 rows are held out instead of 16, since equal prompts stay on one side",)


def test_an_unmapped_dataset_says_what_it_took() -> None:
    data = load_dataset([{"question": str(i), "answer": i} for i in range(100)])
    assert data.split().notices == ("prompt <- question, reference <- answer",)
    assert data.map_prompts().split().notices == ()
    assert data.split().eval == data.map_prompts().split().eval


def test_of_large_classes_the_smallest_is_held_out() -> None:
    table = prompts(["x"] * 40 + ["y"] * 30 + ["z"] * 20)
    assert all(held(split_prompts(table, seed=seed)) == {"z"} for seed in range(8))


def test_the_seed_chooses() -> None:
    table = different(500)
    assert held(split_prompts(table, seed=1)) == held(split_prompts(table, seed=1))
    common = held(split_prompts(table, seed=1)) & held(split_prompts(table, seed=2))
    assert len(common) < 20  # 5 of 50 are expected by chance


def test_the_choice_is_the_same_on_every_machine() -> None:
    # a change here moves the held-out rows of every run that users compare with
    assert sorted(held(split_prompts(different(40), min_eval=4))) == ["prompt 14", "prompt 32", "prompt 7", "prompt 8"]


def test_more_rows_move_few_others() -> None:
    before = split_prompts(different(500))
    after = split_prompts(different(550))
    assert len(held(before) - held(after)) <= 10


def test_the_system_message_counts_and_the_reference_does_not() -> None:
    rows = [{"question": str(i // 2), "answer": i} for i in range(400)]
    split = load_dataset(rows).split()
    assert not {prompt.text for prompt in split.train} & held(split)
    assert len(split.eval) == 40


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"eval": 1.0}, "from 0 .none. to below 1, got 1.0"),
        ({"eval": -0.1}, "got -0.1"),
        ({"eval": 20}, "got 20"),
        ({"eval": float("nan")}, "got nan"),
        ({"min_eval": 0}, "1 <= min_eval <= max_eval must hold, got 0 and 200"),
        ({"min_eval": 300}, "got 300 and 200"),
    ],
)
def test_bounds_that_cannot_hold(bounds, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset([{"prompt": "x"}, {"prompt": "y"}]).split(**bounds)
