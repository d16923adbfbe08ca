"""What every Environment keeps; the fake is the first to do so."""

from __future__ import annotations

import asyncio

import pytest

from dragonet.protocols import Environment, Observation, StepResult
from dragonet.testing import FakeEnvironment
from dragonet.types import Prompt

PROMPT = Prompt(({"role": "user", "content": "guess"},))


@pytest.fixture
def subject() -> FakeEnvironment:
    return FakeEnvironment([("higher", 0.0), ("right", 1.0)])


def test_an_episode_is_reset_stepped_and_closed(subject: FakeEnvironment) -> None:
    async def episode() -> list[StepResult]:
        assert isinstance(await subject.reset(PROMPT), Observation)
        steps = [await subject.step("3"), await subject.step("7")]
        await subject.close()
        return steps

    first, last = asyncio.run(episode())
    assert isinstance(subject, Environment)
    assert (first.terminated, last.terminated) == (False, True)
    assert (first.reward, last.reward) == (0.0, 1.0)
    assert subject.closed
