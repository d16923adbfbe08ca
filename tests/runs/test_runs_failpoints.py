"""No moment of death damages a run: each named one, and some at random, seen by the reader and undone by resume."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from dragonet.errors import ConfigError
from dragonet.runs import failpoints

WALK = Path(__file__).with_name("miniature_training.py")
RANDOM_DEATHS = 10


def walk(hits: int, kills: int) -> dict[str, Any]:
    """Walk in a process of its own, which forks; in memory where that can be, as the disk is not on trial."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as place:
        command = [sys.executable, str(WALK), place, str(hits), str(kills)]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def deaths() -> dict[str, Any]:
    return walk(3, RANDOM_DEATHS)


@pytest.mark.slow
def test_no_hit_of_any_failpoint_does_harm() -> None:
    results = walk(60, 0)
    assert len(results) > 140
    for place, result in results.items():
        assert result == results["alone"], place


@pytest.mark.parametrize("name", failpoints.NAMES)
def test_every_death_at_a_failpoint_leaves_a_whole_run_that_resumes_to_the_same_end(
    name: str, deaths: dict[str, Any]
) -> None:
    hits = {place: result for place, result in deaths.items() if place.startswith(f"{name}:")}
    assert hits, "the failpoint was never reached"
    for place, result in hits.items():
        assert result == deaths["alone"], place


def test_a_second_death_while_resuming_does_no_harm_either(deaths: dict[str, Any]) -> None:
    again = {place: result for place, result in deaths.items() if place.startswith("resume ")}
    assert len({place.partition(":")[0] for place in again}) > 15
    assert sum("rewind" in place for place in again) >= 3
    for place, result in again.items():
        assert result == deaths["alone"], place


@pytest.mark.parametrize("number", range(RANDOM_DEATHS))
def test_a_death_at_any_moment_does_no_harm(number: int, deaths: dict[str, Any]) -> None:
    assert deaths[f"random:{number}"] == deaths["alone"]


def test_the_undisturbed_training_is_what_its_steps_make_it(deaths: dict[str, Any]) -> None:
    alone = deaths["alone"]
    momentum, weights = 1, 1
    for step in range(1, 7):
        momentum = (momentum * 31 + step) % 1_000_003
        weights = (weights * 17 + momentum) % 1_000_003
    assert alone["adapter"] == str(weights)
    assert [row["step"] for row in alone["metrics"]] == [1, 2, 3, 4, 5, 6]
    assert alone["checkpoints"] == [4, 6]
    assert not [name for name in alone["names"] if name.endswith((".tmp", ".old"))]


def test_nothing_happens_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(failpoints.VARIABLE, raising=False)
    failpoints.hit("metrics.half_row", lambda: pytest.fail("must not be called"))


def test_the_count_goes_down_until_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, "metrics.after_append:3")
    failpoints.hit("metrics.before_append")
    failpoints.hit("metrics.after_append")
    assert os.environ[failpoints.VARIABLE] == "metrics.after_append:2"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("metrics.half_rwo", "did you mean 'metrics.half_row'?"),
        ("metrics.half_row:0", "the number of the hit"),
        ("metrics.half_row:x", "the number of the hit"),
    ],
)
def test_a_switch_that_cannot_work_is_an_error(value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, value)
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        failpoints.hit("metrics.half_row")


def test_a_place_in_the_code_must_be_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, "metrics.half_row")
    with pytest.raises(ValueError, match="not in failpoints"):
        failpoints.hit("elsewhere")
