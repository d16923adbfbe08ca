"""The handle a Python user holds. The command it starts is stood in for by a real program of the same manners."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from dragonet.errors import RunError, RunNotFound
from dragonet.runs import Run, RunFolder, RunLog, append_metrics, finish, read_status, start
from dragonet.runs.run import override_arguments

PROGRAM = """
    import json, sys
    from dragonet.runs import finish, read_status, start
    command, run, *rest = sys.argv[1:]
    print("what a user's reward prints")
    if command == "evaluate":
        print(json.dumps({"reward": {"after": 0.5}, "got": rest}))
    elif "fail=true" in rest:
        print("Error: run is busy", file=sys.stderr)
        sys.exit(3)
    else:
        start(run)
        finish(run, "succeeded", extra={"got": rest})
        print(json.dumps({"run": run, "state": "succeeded"}))
"""


def handle(run: RunFolder, source: str = PROGRAM) -> Run:
    """Return a handle whose commands go to the stand-in."""
    return Run(run.path, program=[sys.executable, "-c", textwrap.dedent(source)])


def test_it_reads_the_run_anew_each_time(run: RunFolder) -> None:
    it = Run(run.id)
    assert (it.id, it.dir, it.folder) == (run.id, run.path, run)
    assert it.config["model"] == "tiny-random"
    assert it.status().state == "queued"
    assert it.progress() == []
    assert it.logs() == []
    start(run)
    append_metrics(run, {"step": 1, "reward": 0.5})
    RunLog(run)("hello")
    assert it.status().state == "running"
    assert it.progress() == [{"step": 1, "reward": 0.5}]
    assert it.logs(5)[0].endswith("hello")
    finish(run, "succeeded")
    assert it.wait(timeout_s=5) is it
    with pytest.raises(RunError, match="has succeeded already"):
        it.cancel()


def test_its_repr_evaluates_back(run: RunFolder) -> None:
    it = Run("last")
    assert eval(repr(it)) == it
    assert hash(eval(repr(it))) == hash(it)
    assert it != "last"
    with pytest.raises(RunNotFound):
        Run("nothing")


def test_waiting_for_a_failed_run_raises(run: RunFolder) -> None:
    finish(run, "failed", error="the disk is full")
    with pytest.raises(RunError, match=f"run {run.id} failed: the disk is full"):
        Run(run.id).wait()
    finish(run, "cancelled")
    Run(run.id).wait()


def test_resume_and_evaluate_run_the_command(run: RunFolder) -> None:
    it = handle(run)
    assert it.resume(train={"max_steps": 80}) is it
    assert it.status().extra["got"] == ["train.max_steps=80", "--json"]
    it.resume(wait=False)
    assert it.status().extra["got"] == ["--detach", "--json"]
    assert it.evaluate() == {"reward": {"after": 0.5}, "got": ["--json"]}


def test_a_command_that_fails_raises_what_it_said(run: RunFolder) -> None:
    with pytest.raises(RunError, match=f"dragonet resume {run.id}: Error: run is busy"):
        handle(run).resume(fail=True)
    with pytest.raises(RunError, match="gave no JSON"):
        handle(run, "print('hello')").evaluate()


def test_ctrl_c_reaches_the_command_once(
    run: RunFolder, child: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    inner = tmp_path / "inner.py"
    inner.write_text(
        textwrap.dedent(
            """
            import sys, time
            from dragonet.runs import StopSignal, finish, start
            with StopSignal(sys.argv[2]) as stop:
                start(sys.argv[2])
                while not stop.requested:
                    time.sleep(0.01)
                time.sleep(0.6)  # a second signal would be raised in here; Popen passes one on after a quarter second
                finish(sys.argv[2], "cancelled", reason=stop.reason)
            print("{}")
            """
        )
    )
    source = """
        import sys
        from dragonet.runs import Run
        Run(sys.argv[1], program=[sys.executable, sys.argv[2]]).resume()
        print("back")
    """
    process = child(source, run, inner)
    while read_status(run).state != "running":
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)  # a terminal signals the whole group
    out, err = process.communicate(timeout=20)
    assert out == "back\n", err
    assert read_status(run).reason == "Ctrl-C"


@pytest.mark.parametrize(
    "value",
    [1, 1e-5, True, None, "text", "1", "true", "null", "a: b", "", " x", "{a}", "- x", "é\u2028", [1, "2"], "#"],
)
def test_overrides_read_back_as_what_they_were(value: object) -> None:
    (argument,) = override_arguments({"a": {"b": value}})
    key, _, text = argument.partition("=")
    assert key == "a.b"
    assert yaml.safe_load(text) == value


def test_overrides_become_dotted_keys(tmp_path: Path) -> None:
    overrides = {
        "train": {"max_steps": 8, "deep": {"x": 1}},
        "name": "n",
        "lora.r": 4,
        "data": {},
        "runs_dir": tmp_path,
    }
    assert override_arguments(overrides) == [
        "train.max_steps=8",
        "train.deep.x=1",
        "name=n",
        "lora.r=4",
        "data={}",
        f"runs_dir={tmp_path}",
    ]
