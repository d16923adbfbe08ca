"""Values at the edge of what numbers and text hold: each ends in a message, never in a foreign exception."""

from __future__ import annotations

from typing import Any

import pytest

import dragonet
from dragonet.errors import ConfigError
from dragonet.rewards import RewardSet, as_rewards, reward
from dragonet.types import Group, Prompt, Rollout, StopReason


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("weight", [1e308, -1e308, 1e6 + 1, 10**5000], ids=["high", "low", "near", "int"])
def test_a_weight_has_bounds(weight: float) -> None:
    with pytest.raises(ConfigError, match=r"^reward .exact.: weight must be (from -1e6 to 1e6|a finite number), got "):
        reward("exact", weight=weight)
    assert reward("exact", weight=-1_000_000).weight == -1e6


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"type": "length", "max_chars": 10**400}, "max_chars must be a finite number, got 1000"),
        ({"type": "length", "max_chars": 10**5000}, "got a value of type int of about 5000 digits"),
        ({"type": "regex", "pattern": 10**5000}, "pattern must be text, got a value of type int"),
        ({"type": "exact", "name": Unprintable()}, "name must be text, got a value of type Unprintable"),
        ({"type": "keyword", "mode": "x" * 5000, "words": ["a"]}, "mode must be any or all, got 'xxx"),
        ({"type": "x" * 5000}, "there is no reward type 'xxx"),
        ({"type": 10**5000}, "the type of a reward is text, one of exact, "),
        ({"type": "exact", "x" * 5000: 1}, "there is no key 'xxx"),
        ({"weight": 10**5000}, "type is missing in "),
        ({"type": "custom", "file": "a\0b"}, r"file holds a NUL character, which no path can: 'a\x00b'"),
    ],
)
def test_what_cannot_be_used_is_shown_in_short(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        as_rewards(keys)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"completion": 5}, "^completion must be text, got 5$"),
        ({"completion": None}, "^completion must be text, got None$"),
        ({"completion": "5", "prompt": None}, "^prompt must be text, got None$"),
        ({"completion": "5", "row": [1]}, r"^row must be a mapping of columns, got \[1\]$"),
        ({"completion": "5", "reference": ["5"]}, r"^reference must be text, a number or None, got \['5'\]$"),
        ({"completion": "5", "reference": 10**5000}, "^reference must be text, a number of less than 4300 digits"),
    ],
)
def test_score_names_the_argument_that_it_cannot_use(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dragonet.score("numeric", **arguments)


def test_a_number_may_be_a_reference() -> None:
    assert dragonet.score("numeric", "It is 5.", reference=5).value == 1.0
    assert dragonet.score("numeric", "It is 2.5.", reference=2.5).value == 1.0


def test_a_sum_that_overflows_is_a_failure_with_its_reason() -> None:
    prompt = Prompt(({"role": "user", "content": "q"},), "5", {}, index=16)
    huge = {"type": "custom", "source": "def reward(completion):\n    return 1e308\n", "weight": 10, "name": "huge"}
    rewards = RewardSet(as_rewards([{"type": "exact", "weight": 2}, huge]))
    try:
        (scored,) = rewards.score([Group(prompt, (Rollout(prompt, (), "5", StopReason.EOS),))])
    finally:
        rewards.close()
    assert scored.rewards_G == (None,)
    assert [score.status for score in scored.scores_G_K[0]] == ["scored", "failed"]
    assert rewards.tally.failures == {"huge": 1}
    assert rewards.tally.first_failure == (
        'reward "huge" on row 17: 10 x 1e+308 makes the weighted sum overflow; use smaller values'
    )
