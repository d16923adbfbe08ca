"""No moment of death changes a run: killed, resumed by the real command, and equal to the last byte.

Every process here is a real one that trains the tiny random model. Compared are adapter, metrics, samples,
evaluations, rollouts, report and checkpoints of the finished run, clocks aside, with those of the run left alone.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from assemble.conftest import scratch
from assemble.deaths import CREATION, UNSEEN, Deaths, later_hits
from assemble.forking import Server
from assemble.tiny_run import MANY_OPTIONS, difference, write_config
from dragonet.runs import failpoints, list_runs

TRAINING = tuple(name for name in failpoints.NAMES if name not in CREATION)
ALIKE = ("create.begin", "create.before_rename")  # to a reader the same as create.after_file
RANDOM_DEATHS = 20
REAL_DEATHS = 6


@pytest.fixture(scope="module")
def deaths(forks: Server) -> Iterator[Deaths]:
    with scratch() as home:
        yield Deaths(forks, write_config(home / "config"), home)


@pytest.fixture(scope="module")
def alone(deaths: Deaths) -> dict[str, Any]:
    return deaths.survives("alone")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in ALIKE else []) for name in CREATION]
)
def test_a_death_while_a_run_is_created_leaves_a_whole_run_or_none(
    name: str, deaths: Deaths, alone: dict[str, Any]
) -> None:
    deaths.dies(name, name)
    seen = deaths.visible(name)
    assert len(seen) == (0 if name in UNSEEN else 1)
    assert difference(alone, deaths.survives(name)) == []


def test_one_run_that_dies_at_every_failpoint_in_turn_ends_as_if_it_had_been_left_alone(
    deaths: Deaths, alone: dict[str, Any]
) -> None:
    late = ("checkpoint.prune", "adapter.before_publish", "adapter.between_renames", "adapter.after_publish")
    for name in (*(name for name in TRAINING if name not in late), *late):
        deaths.dies("chain", name)
    assert difference(alone, deaths.survives("chain")) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINING)
def test_a_death_at_each_failpoint_does_no_harm(name: str, deaths: Deaths, alone: dict[str, Any]) -> None:
    deaths.dies(name, name)
    assert difference(alone, deaths.survives(name)) == []


@pytest.mark.slow
@pytest.mark.parametrize("failpoint", later_hits())
def test_a_death_at_a_later_file_or_a_later_checkpoint_does_no_harm(
    failpoint: str, deaths: Deaths, alone: dict[str, Any]
) -> None:
    deaths.dies(failpoint, failpoint)
    assert difference(alone, deaths.survives(failpoint)) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, MANY_OPTIONS], ids=["plain", "many options"])
def test_deaths_at_random_moments_do_no_harm(options: dict[str, Any], forks: Server) -> None:
    with scratch() as home:
        deaths = Deaths(forks, write_config(home / "config", options), home)
        began = time.monotonic()
        alone = deaths.survives("alone")
        whole_s = time.monotonic() - began
        wrong = {}
        for number in range(RANDOM_DEATHS // 2):
            label = f"random-{number}"
            share = (number + random.Random(number).random()) / (RANDOM_DEATHS // 2)
            child = forks.start("reinforce", deaths.config, "--json", env=deaths.env(label))
            time.sleep(share * whole_s)
            child.kill()
            child.wait()
            wrong[f"{share:.0%}"] = difference(alone, deaths.survives(label))
            shutil.rmtree(deaths.runs_dir(label))
        assert not {moment: what for moment, what in wrong.items() if what}


@pytest.mark.slow
def test_a_run_that_dies_again_and_again_comes_to_the_same_end(forks: Server) -> None:
    with scratch() as home:
        deaths = Deaths(forks, write_config(home / "config", MANY_OPTIONS), home)
        began = time.monotonic()
        alone = deaths.survives("alone")
        whole_s = time.monotonic() - began
        delays = random.Random(7)
        for _ in range(RANDOM_DEATHS):
            argv = ("resume", "last") if list_runs(deaths.runs_dir("again")) else ("reinforce", deaths.config)
            child = forks.start(*argv, env=deaths.env("again"))
            time.sleep(delays.uniform(0.1, 1.0) * whole_s)
            child.kill()
            child.wait()
            if [summary.state for summary in list_runs(deaths.runs_dir("again"))] == ["succeeded"]:
                break
        assert difference(alone, deaths.survives("again")) == []


@pytest.mark.slow
def test_deaths_of_a_freshly_started_interpreter_do_no_harm(deaths: Deaths, alone: dict[str, Any]) -> None:
    """Spread over the whole of it: the start of Python, imports, creation, evaluation, training, saving, the exit."""

    def start(label: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "dragonet", "reinforce", str(deaths.config)],
            env={**os.environ, **deaths.env(label)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    began = time.monotonic()
    assert start("fresh-alone").wait(timeout=120) == 0
    whole_s = time.monotonic() - began
    assert difference(alone, deaths.survives("fresh-alone")) == []
    for number in range(REAL_DEATHS):
        share = (number + random.Random(number).random()) / REAL_DEATHS
        process = start(f"fresh-{number}")
        time.sleep(share * whole_s)
        process.kill()
        process.wait()
        assert difference(alone, deaths.survives(f"fresh-{number}")) == [], f"killed at {share:.0%}"
