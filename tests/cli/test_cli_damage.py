"""What is lost, edited or damaged beside a run: each case is survived or named, none changes the run in silence."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from assemble.forking import Server
from assemble.tiny_run import write_config
from dragonet.runs import RunFolder, find_run, read_status


@pytest.fixture
def finished(forks: Server, config: Path, runs_dir: Path) -> RunFolder:
    """A run of two steps that has ended."""
    done = forks.run("reinforce", config, "train.max_steps=2", "--json")
    assert done.code == 0, done
    return find_run("last")


def test_a_closed_pipe_costs_the_lines_and_not_the_run(config: Path, runs_dir: Path) -> None:
    command = [sys.executable, "-m", "dragonet", "reinforce", str(config), "train.max_steps=3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("run ")
        child.stdout.close()
        child.wait(120)
    status = read_status(find_run("last"))
    assert (status.state, status.step) == ("succeeded", 3)
    assert "nothing more can be shown" in find_run("last").log.read_text()


def test_a_config_that_was_edited_is_refused_by_the_key(forks: Server, finished: RunFolder) -> None:
    text = finished.config.read_text()
    finished.config.write_text(text.replace("max_new_tokens: 8", "max_new_tokens: 5"))
    done = forks.run("resume", finished, "train.max_steps=4")
    assert done.code == 2
    assert "was edited since the run began: reinforce.max_new_tokens" in done.err
    finished.config.write_text("# a comment changes nothing\n" + text)
    assert forks.run("resume", finished, "train.max_steps=4", "--json").code == 0


@pytest.mark.parametrize(("key", "value"), [("step", "x"), ("pid", "abc"), ("pid_started", [])])
def test_a_garbled_status_can_be_resumed(forks: Server, finished: RunFolder, key: str, value: object) -> None:
    stored = json.loads(finished.status.read_text())
    finished.status.write_text(json.dumps({**stored, key: value}))
    shown = forks.run("status", finished)
    assert shown.code == 0
    assert "unknown" in shown.out
    done = forks.run("resume", finished, "train.max_steps=3", "--json")
    assert done.code == 0, done
    assert (read_status(finished).state, read_status(finished).step) == ("succeeded", 3)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("eval.json", '{"schema": 1, "history": [{"step": 0}]}', r"eval\.json is damaged \(KeyError: 'rewards'\)"),
        ("adapter/adapter_model.safetensors", "garbage", r"the adapter in .*adapter cannot be read"),
    ],
)
def test_a_damaged_file_is_named_by_evaluate(
    forks: Server, finished: RunFolder, file: str, content: str, message: str
) -> None:
    (finished.path / file).write_text(content)
    done = forks.run("evaluate", finished)
    assert done.code == 2
    assert re.search(message, done.err), done.err
    assert "Traceback" not in done.err


def test_a_damaged_metrics_row_does_not_hide_the_state(forks: Server, finished: RunFolder) -> None:
    rows = finished.metrics.read_text().splitlines(keepends=True)
    finished.metrics.write_text("{broken\n" + "".join(rows))
    done = forks.run("status", finished, "--json")
    assert done.code == 0
    said = json.loads(done.out)
    assert said["state"] == "succeeded"
    assert any("metrics.jsonl" in note for note in said["notes"])


def test_a_thread_count_that_cannot_be_is_recorded_anew(forks: Server, finished: RunFolder) -> None:
    facts = json.loads(finished.environment.read_text())
    finished.environment.write_text(json.dumps({**facts, "torch_threads": 0}))
    assert forks.run("evaluate", finished, "--json").code == 0
    assert json.loads(finished.environment.read_text())["torch_threads"] >= 1


def test_time_that_the_first_look_uses_up_fails_the_run(forks: Server, config: Path, runs_dir: Path) -> None:
    done = forks.run("reinforce", config, "train.max_minutes=1e-9", "--json")
    assert done.code == 1
    assert "before the first step, by the evaluation; raise train.max_minutes" in done.err
    assert not find_run("last").adapter.exists()


def test_a_batch_above_the_table_is_said(forks: Server, place: Path, runs_dir: Path) -> None:
    config = write_config(place, {"train": {"batch_size": 50, "max_steps": 1}})
    done = forks.run("reinforce", config, "--dry-run")
    assert done.code == 0
    assert "train.batch_size 50 is above the 36 training prompts" in done.err


def test_two_cancels_are_one(forks: Server, place: Path, runs_dir: Path) -> None:
    config = write_config(place, {"train": {"max_steps": 100_000, "save_steps": 1000}})
    run = forks.start("reinforce", config)
    while "2/100000" not in "".join(p.read_text() for p in runs_dir.glob("2*/log.txt")):
        assert run.poll() is None
    asked = [forks.start("cancel", "last") for _ in range(2)]
    assert run.wait().code == 0
    assert all(child.wait().code in (0, 2) for child in asked)  # the later one may find it cancelled already
    status = read_status(find_run("last"))
    assert status.state == "cancelled"
    assert "second" not in (status.reason or "")
    assert status.latest_checkpoint == f"step-{status.step:06d}"  # it finished its step and saved
