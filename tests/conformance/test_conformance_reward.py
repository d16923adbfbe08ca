"""What every Reward keeps, the fake and each type alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dragonet.protocols import Reward
from dragonet.rewards import reward
from dragonet.testing import FakeReward, make_rollout
from dragonet.types import Score

TEXTS = ["4", "", "the answer is 4.", "\ud83d 4", "x" * 5000, '{"a": 1}', "\x00", "４"]


@pytest.fixture(params=["fake", "exact", "contains", "numeric", "regex", "json", "length", "keyword", "custom"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reward]:
    file = tmp_path / "mine.py"
    file.write_text("def reward(completion):\n    return len(completion)\n")
    keys = {
        "regex": {"pattern": r"\d"},
        "length": {"max_chars": 8},
        "keyword": {"words": ["4"]},
        "custom": {"file": str(file)},
    }
    made: Reward
    if request.param == "fake":
        made = FakeReward(lambda rollout: float(rollout.completion == rollout.prompt.reference))
    else:
        made = reward(request.param, **keys.get(request.param, {}))
    yield made
    made.close()


def test_it_satisfies_the_protocol(subject: Reward) -> None:
    assert isinstance(subject, Reward)
    assert subject.unit in ("rollout", "group")
    assert subject.name
    assert isinstance(subject.weight, float)


def test_one_score_per_rollout_in_order(subject: Reward) -> None:
    rollouts = [make_rollout(text, reference="4") for text in TEXTS]
    together = subject.score(rollouts)
    assert len(together) == len(rollouts)
    assert all(isinstance(score, Score) for score in together)
    if subject.unit == "rollout":
        apart = [subject.score([rollout])[0] for rollout in rollouts]
        assert [s.value for s in apart] == [s.value for s in together]
        assert subject.score(rollouts[::-1]) == together[::-1]


def test_nothing_to_score_gives_nothing(subject: Reward) -> None:
    assert subject.score([]) == []


def test_the_same_text_gets_the_same_score(subject: Reward) -> None:
    rollout = make_rollout("the answer is 4.", reference="4")
    assert subject.score([rollout]) == subject.score([rollout])


def test_closing_twice_is_fine(subject: Reward) -> None:
    subject.score([make_rollout("4", reference="4")])
    subject.close()
    subject.close()
