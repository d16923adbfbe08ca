"""What holds for every tracker: the order of calls, odd numbers, a copy of the metrics, and finishing twice."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from dragonet.protocols import Tracker
from dragonet.runs import ConsoleTracker, FencedTrackers
from dragonet.testing import FakeTracker

MAKERS: dict[str, Callable[[], Tracker]] = {
    "fake": FakeTracker,
    "console": lambda: ConsoleTracker(io.StringIO(), total_steps=3),
    "console without a total": lambda: ConsoleTracker(io.StringIO()),
    "console with a bar": lambda: ConsoleTracker(io.StringIO(), total_steps=3, live=True),
    "fenced": lambda: FencedTrackers([ConsoleTracker(io.StringIO())], pytest.fail),
    "fenced nothing": lambda: FencedTrackers([], pytest.fail),
}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS.keys())
def tracker(request: pytest.FixtureRequest) -> Tracker:
    return request.param()


def test_it_has_the_shape(tracker: Tracker) -> None:
    assert isinstance(tracker, Tracker)


def test_it_takes_a_run_from_start_to_finish(tracker: Tracker) -> None:
    tracker.start({"train": {"max_steps": 3}})
    for step in (1, 2, 3):
        tracker.log(step, {"reward": step / 3, "loss": 0.5, "eta_s": 3 - step})
    tracker.finish("succeeded")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e300, 0, None])
def test_it_takes_any_number(value: float, tracker: Tracker) -> None:
    tracker.start({})
    tracker.log(1, dict.fromkeys(("reward", "loss", "kl", "flat", "eta_s", "new column"), value))
    tracker.log(2, {})
    tracker.finish("failed")


def test_it_leaves_the_metrics_alone(tracker: Tracker) -> None:
    metrics = {"reward": 1.0, "loss": 0.5}
    tracker.start({})
    tracker.log(1, metrics)
    tracker.finish("cancelled")
    assert metrics == {"reward": 1.0, "loss": 0.5}


def test_it_can_go_on_where_a_resumed_run_does(tracker: Tracker) -> None:
    tracker.start({})
    tracker.log(21, {"reward": 0.5})
    tracker.finish("succeeded")


def test_finishing_twice_or_before_the_first_step_is_harmless(tracker: Tracker) -> None:
    tracker.start({})
    tracker.finish("cancelled")
    tracker.finish("cancelled")
