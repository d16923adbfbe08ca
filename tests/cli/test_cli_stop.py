"""Ctrl-C, SIGTERM, cancel and background runs: real processes that are told to stop while they train."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assemble.forking import HANG_S, Child, Server
from assemble.tiny_run import difference, outcome, write_config
from dragonet.runs import (
    RunFolder,
    checkpoint_steps,
    find_run,
    list_runs,
    process_alive,
    read_metrics,
    read_status,
    tail,
)

LONG = ("train.max_steps=5000", "train.save_steps=5000", "train.eval_steps=5000")


def until(holds: Callable[[], object], what: str) -> None:
    """Wait for something that a running process does."""
    deadline = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


def evaluating() -> bool:
    """Whether the only run looks at its held-out prompts for the first time."""
    return bool(list_runs()) and "evaluating before" in "\n".join(tail(find_run("last")))


def training(child: Child) -> RunFolder:
    """Return the run of a process once it has made a step."""
    until(lambda: child.poll() or (list_runs() and read_metrics(find_run("last"))), "a first step")
    assert child.poll() is None, child.poll()
    return find_run("last")


@pytest.mark.parametrize(("signum", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_the_first_signal_finishes_the_step_saves_and_ends_well(
    signum: int, name: str, forks: Server, config: Path, runs_dir: Path
) -> None:
    child = forks.start("reinforce", config, *LONG, "--json")
    folder = training(child)
    child.kill(signum)
    done = child.wait()
    assert done.code == 0, done
    step = len(read_metrics(folder))
    status = read_status(folder)
    assert (status.state, status.reason, status.step) == ("cancelled", name, step)
    assert done.json["state"] == "cancelled"
    assert done.json["steps"] == step < 5000
    assert checkpoint_steps(folder) == [step]
    assert f"{name}: finishing this step" in done.err
    assert not folder.adapter.exists()

    resumed = forks.run("resume", "last", f"train.max_steps={step + 1}", "--json").json
    assert (resumed["state"], resumed["steps"]) == ("succeeded", step + 1)


def test_the_second_signal_stops_at_once(forks: Server, place: Path, runs_dir: Path) -> None:
    (place / "reward.py").write_text(
        "import time\ndef reward(completion):\n    time.sleep(20)\n    return 1\n", "utf-8"
    )
    config = write_config(place, {"rewards": [{"type": "custom", "file": "reward.py"}]})
    child = forks.start("reinforce", config, "--json")
    until(evaluating, "the evaluation")
    child.kill(signal.SIGINT)
    until(lambda: "finishing this step" in child.printed(), "an answer to the first Ctrl-C")
    began = time.monotonic()
    child.kill(signal.SIGINT)
    done = child.wait()
    assert time.monotonic() - began < 15  # the reward would sleep for minutes
    assert done.code == 130, done
    assert "interrupted" in done.err
    assert "KeyboardInterrupt" not in done.err, done.err
    assert read_status(find_run("last")).state == "cancelled"


def test_cancel_ends_a_run_with_a_checkpoint_and_resume_finishes_it(
    forks: Server, config: Path, runs_dir: Path
) -> None:
    child = forks.start("reinforce", config, *LONG)
    folder = training(child)
    watcher = forks.start("watch", folder)
    until(lambda: "1/5000" in watcher.printed(".out"), "a line of the watcher")
    watcher.kill(signal.SIGINT)
    assert watcher.wait().code == 130
    assert child.poll() is None  # Ctrl-C stops the watching, not the run
    said = forks.run("cancel", "last", "--json")
    assert said.code == 0, said
    assert (said.json["state"], said.json["reason"]) == ("cancelled", "a request to cancel")
    assert child.wait().code == 0
    step = len(read_metrics(folder))
    assert checkpoint_steps(folder) == [step]
    assert not folder.cancel_request.exists()

    more = (*LONG, f"train.max_steps={step + 2}")
    assert forks.run("resume", folder, *more, "--json").json["state"] == "succeeded"
    straight = forks.run("reinforce", config, *more, "--json").json
    stopped, whole = outcome(folder), outcome(find_run(straight["run"]))
    assert stopped["checkpoints"].pop(step)  # the only trace of the stop
    stopped["names"].remove(f"step-{step:06d}")
    assert difference(stopped, whole) == []


@pytest.mark.slow
def test_a_run_that_is_asked_to_stop_before_its_first_step_can_be_resumed(
    forks: Server, place: Path, runs_dir: Path
) -> None:
    (place / "reward.py").write_text(
        "import time\ndef reward(completion):\n    time.sleep(0.3)\n    return 1\n", "utf-8"
    )
    config = write_config(place, {"rewards": [{"type": "custom", "file": "reward.py"}]})
    child = forks.start("reinforce", config, "train.max_steps=2", "--json")
    until(evaluating, "the evaluation")
    child.kill(signal.SIGTERM)
    assert (child.wait().json["state"], child.wait().json["steps"]) == ("cancelled", 0)
    folder = find_run("last")
    (copy,) = folder.rewards.rglob("reward.py")
    copy.write_text("def reward(completion):\n    return len(completion) % 3\n", "utf-8")
    assert forks.run("resume", "last", "--json").json["state"] == "succeeded"


def test_runs_of_one_second_do_not_collide(forks: Server, config: Path, runs_dir: Path) -> None:
    children = [forks.start("reinforce", config, "train.max_steps=2", "--json") for _ in range(4)]
    ids = {child.wait().json["run"] for child in children}
    assert len(ids) == 4
    assert {summary.id for summary in list_runs() if summary.state == "succeeded"} == ids
    first, *others = (outcome(find_run(id)) for id in sorted(ids))
    assert all(difference(first, other) == [] for other in others)


@pytest.mark.slow
def test_a_detached_run_outlives_its_parent_and_is_found_again(forks: Server, config: Path, runs_dir: Path) -> None:
    """The parent is a shell with a session of its own, and the whole of it is killed."""
    command = [sys.executable, "-m", "dragonet", "reinforce", str(config), *LONG, "--detach", "--json"]
    script = "import subprocess, sys; print(subprocess.check_output(sys.argv[1:], text=True), flush=True); input()"
    shell = subprocess.Popen(
        [sys.executable, "-c", script, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert shell.stdout is not None
    said = json.loads(shell.stdout.readline())
    os.killpg(shell.pid, signal.SIGKILL)
    shell.communicate()
    folder = find_run(said["run"])
    assert (said["state"], said["folder"]) == ("queued", str(folder))
    until(lambda: read_metrics(folder) or read_status(folder).final, "a first step")
    status = read_status(folder)
    assert (status.state, status.pid, status.detached) == ("running", said["pid"], True), status
    assert forks.run("wait", folder, "--timeout", "0.1").code == 2
    assert "detached" in forks.run("status", folder, "--json").json
    refused = forks.run("resume", folder)
    assert (refused.code, f"is running in process {said['pid']}" in refused.err) == (2, True)
    waiting = forks.start("wait", folder, "--json")
    assert forks.run("cancel", folder, "--json").json["state"] == "cancelled"
    assert (waiting.wait().code, waiting.wait().json["state"]) == (1, "cancelled")
    until(lambda: not process_alive(said["pid"], status.pid_started), "the end of the process")
    assert checkpoint_steps(folder) == [len(read_metrics(folder))]
    assert "Traceback" not in folder.log.read_text("utf-8")


@pytest.mark.slow
def test_a_finished_run_is_extended_in_the_background(forks: Server, config: Path, runs_dir: Path) -> None:
    assert forks.run("reinforce", config, "train.max_steps=2", "--json").code == 0
    started = forks.run("resume", "last", "train.max_steps=6", "--detach")
    assert started.code == 0, started
    assert "trains in the background as process" in started.out
    waited = forks.run("wait", "last", "--json")
    assert (waited.code, waited.json["state"], waited.json["step"]) == (0, "succeeded", 6)
    assert forks.run("reinforce", config, "--json").code == 0
    extended, straight = (outcome(RunFolder(summary.path)) for summary in list_runs())
    assert difference(extended, straight) == []


@pytest.mark.slow
def test_a_detached_run_that_cannot_go_on_says_so_in_its_log(forks: Server, place: Path, runs_dir: Path) -> None:
    (place / "reward.py").write_text("def reward(completion):\n    return 1 / 0\n", "utf-8")
    config = write_config(place, {"rewards": [{"type": "custom", "file": "reward.py"}]})
    assert forks.run("reinforce", config, "--detach").code == 0
    waited = forks.run("wait", "last")
    assert waited.code == 1
    assert "ZeroDivisionError" in waited.out
    assert find_run("last").log.read_text("utf-8").count("failed: RewardError") == 1
