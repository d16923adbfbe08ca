"""What status.json says is believed only while its process lives, and only on its own host."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from dragonet.errors import RunError
from dragonet.runs import RunFolder, RunLog, finish, process_alive, read_status, start, update_status
from dragonet.runs import status as status_module
from dragonet.runs.lock import FileLock
from dragonet.runs.process import process_started, this_process

SLEEP = "import time; time.sleep(60)"


def stored(run: RunFolder) -> dict[str, Any]:
    return json.loads(run.status.read_text())


def test_a_run_goes_from_queued_through_running_to_its_end(run: RunFolder) -> None:
    assert read_status(run).state == "queued"
    started = start(run, total_steps=6, device="cpu", dtype="float32", trainable_params=10, total_params=100)
    assert (started.state, started.pid, started.step) == ("running", os.getpid(), 0)
    assert abs((started.pid_started or 0) - psutil.Process().create_time()) < 2
    update_status(run, step=3, latest_checkpoint="step-000002", extra={"held_out": 16})
    now = read_status(run)
    assert (now.step, now.total_steps, now.device, now.extra) == (3, 6, "cpu", {"held_out": 16})
    assert now.started_at == started.started_at
    done = finish(run, "succeeded", reward={"before": 0.1, "after": 0.9, "ci95": [0.7, 0.9], "n": 16})
    assert done == read_status(run)
    assert done.finished_at is not None
    assert done.reward == {"before": 0.1, "after": 0.9, "ci95": [0.7, 0.9], "n": 16}
    assert stored(run)["schema"] == 1


def test_starting_again_forgets_the_end_and_keeps_the_beginning(run: RunFolder) -> None:
    first = start(run)
    finish(run, "failed", error="boom", reason="why")
    again = start(run)
    assert (again.state, again.error, again.reason, again.finished_at) == ("running", None, None, None)
    assert again.started_at == first.started_at


def test_unknown_keys_states_and_ends_are_refused(run: RunFolder) -> None:
    with pytest.raises(ValueError, match=r"no key.*stpe"):
        update_status(run, stpe=3)
    with pytest.raises(ValueError, match="paused"):
        update_status(run, state="paused")
    with pytest.raises(ValueError, match="ends as one of"):
        finish(run, "running")
    assert read_status(run).state == "queued"


def test_a_status_is_plain_values_in_a_fixed_order(run: RunFolder) -> None:
    values = read_status(run).as_dict()
    assert list(values)[:2] == ["state", "stage"]
    assert json.loads(json.dumps(values)) == values


def test_a_run_whose_process_was_killed_reads_as_failed(run: RunFolder, child: Callable[..., subprocess.Popen]) -> None:
    source = """
        import sys, time
        from dragonet.runs import RunLog, start
        start(sys.argv[1], step=7)
        RunLog(sys.argv[1])("about to sleep")
        print("up", flush=True)
        time.sleep(60)
    """
    process = child(source, run)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    assert read_status(run).state == "running"
    before = run.status.read_bytes()
    process.kill()
    while process_alive(process.pid, None):  # a zombie, not yet waited for, is dead already
        time.sleep(0.01)
    status = read_status(run)
    assert (status.state, status.gone) == ("failed", True)
    assert status.reason is not None
    assert f"process {process.pid} is gone" in status.reason
    assert "at step 7" in status.reason
    assert f"dragonet resume {run.id}" in status.reason
    assert "about to sleep" in status.reason
    assert run.status.read_bytes() == before


def test_a_pid_that_was_reused_is_another_process(run: RunFolder) -> None:
    start(run)
    assert read_status(run).state == "running"
    update_status(run, pid_started=psutil.Process().create_time() - 1000)
    status = read_status(run)
    assert (status.state, status.gone) == ("failed", True)
    assert not process_alive(os.getpid(), psutil.Process().create_time() - 1000)
    assert process_alive(os.getpid(), psutil.Process().create_time())


def test_a_held_lock_outweighs_a_start_time_that_a_changed_clock_moved(run: RunFolder) -> None:
    start(run)
    update_status(run, pid_started=psutil.Process().create_time() - 7200)
    lock = FileLock(run.lock)
    assert read_status(run).state == "running"
    lock.release()
    assert read_status(run).state == "failed"


def test_a_restart_of_the_machine_ends_every_run(run: RunFolder) -> None:
    start(run)
    update_status(run, boot="another-boot")
    if this_process().boot is None:
        pytest.skip("this system does not name its boots")
    status = read_status(run)
    assert status.state == "failed"
    assert "restarted since" in (status.reason or "")


def test_a_run_of_another_host_is_not_judged(run: RunFolder) -> None:
    start(run)
    update_status(run, host="elsewhere", pid=2**22 - 3)
    status = read_status(run)
    assert (status.state, status.gone) == ("running", False)
    assert "host elsewhere" in status.notes[0]


def test_a_queued_run_whose_creator_died_is_dead(runs_dir: Path, child: Callable[..., subprocess.Popen]) -> None:
    source = """
        import sys
        from dragonet.runs import create_run
        print(create_run(sys.argv[1], name="a", stage="sft", config={}))
    """
    path = child(source, runs_dir).communicate()[0].strip()
    assert read_status(path).state == "failed"
    assert "last state: queued" in (read_status(path).reason or "")


def test_the_last_word_of_a_process_that_ends_while_we_look_counts(
    run: RunFolder, child: Callable[..., subprocess.Popen], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
        import pathlib, sys, time
        from dragonet.runs import finish, start
        start(sys.argv[1])
        print("up", flush=True)
        while not pathlib.Path(sys.argv[2]).exists():
            time.sleep(0.005)
        finish(sys.argv[1], "succeeded")
    """
    process = child(source, run, tmp_path / "go")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"

    def look_late(pid: int | None, started: float | None) -> bool:
        (tmp_path / "go").touch()  # status.json was read as running; now the process ends
        process.wait()
        return process_alive(pid, started)

    monkeypatch.setattr(status_module, "process_alive", look_late)
    assert read_status(run).state == "succeeded"


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"[]", b'{"state": "paused"}', b'{"state": "running", "pid": "x"}', b'{"pid": 1}']
)
def test_a_missing_or_damaged_status_is_unknown_and_can_be_started_over(content: bytes | None, run: RunFolder) -> None:
    if content is None:
        run.status.unlink()
    else:
        run.status.write_bytes(content)
    status = read_status(run)
    assert status.state == "unknown"
    assert "status.json" in status.notes[0]
    assert start(run).state == "running"
    assert read_status(run).state == "running"


def test_a_status_of_a_later_version_is_never_overwritten(run: RunFolder) -> None:
    run.status.write_text('{"schema": 7, "state": "running"}')
    assert "newer dragonet" in read_status(run).notes[0]
    with pytest.raises(RunError, match="newer dragonet"):
        start(run)
    assert json.loads(run.status.read_text())["schema"] == 7


def test_a_folder_that_is_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run"):
        read_status(tmp_path)
    with pytest.raises(RunError, match=r"not a folder.*dragonet runs"):
        read_status(tmp_path / "none")
    with pytest.raises(RunError, match="not a folder"):
        update_status(tmp_path / "none", step=1)


def test_writers_of_one_status_take_turns(run: RunFolder) -> None:
    start(run)
    threads = [
        threading.Thread(target=lambda key=key: [update_status(run, **{key: n}) for n in range(1, 16)])
        for key in ("step", "total_steps", "trainable_params", "total_params")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    status = read_status(run)
    assert (status.step, status.total_steps, status.trainable_params, status.total_params) == (15, 15, 15, 15)


def test_the_tail_of_the_log_is_in_the_reason(run: RunFolder) -> None:
    start(run, pid=2**22 - 3)
    for n in range(30):
        RunLog(run)(f"line {n}")
    reason = read_status(run).reason or ""
    assert "line 29" in reason
    assert "line 20" in reason
    assert "line 19" not in reason


def test_no_process_has_the_pids_0_and_below() -> None:
    assert process_started(0) is None
    assert process_started(-1) is None
    assert not process_alive(None, None)
