"""Background runs, waiting, cancelling, Ctrl-C, and one process per run; with real processes throughout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragonet.errors import RunError
from dragonet.runs import (
    RunFolder,
    StopSignal,
    acquire,
    cancel,
    finish,
    launch_detached,
    prepare_resume,
    process_alive,
    read_metrics,
    read_status,
    request_cancel,
    start,
    tail,
    update_status,
    wait,
)
from dragonet.runs.lock import FileLock, is_held
from dragonet.runs.process import kill_tree, process_started
from dragonet.runs.status import hand_over, queue

Child = Callable[..., "subprocess.Popen[str]"]

# a loop as a real one uses this room: own the run, step until told to stop, say how it ended
LOOP = """
    import sys, time
    from dragonet.runs import RunLog, StopSignal, acquire, append_metrics, finish, save_checkpoint, start
    run, step_s = sys.argv[1], float(sys.argv[2])
    with acquire(run), StopSignal(run) as stop:
        start(run)
        RunLog(run)("started")
        print("printed", flush=True)
        try:
            for step in range(1, int(sys.argv[3]) + 1):
                time.sleep(step_s)
                append_metrics(run, {"step": step})
                if stop.requested:
                    save_checkpoint(run, step, {}, {})
                    finish(run, "cancelled", step=step, reason=stop.reason)
                    sys.exit(0)
            finish(run, "succeeded", step=step)
        except KeyboardInterrupt:
            finish(run, "cancelled", reason="at once")
            sys.exit(1)
"""


def loop(run: RunFolder, step_s: float, steps: int) -> list[str]:
    """Return the command line of the loop."""
    return [sys.executable, "-c", textwrap.dedent(LOOP), str(run), str(step_s), str(steps)]


@pytest.fixture
def launched(run: RunFolder) -> Iterator[Callable[..., int]]:
    """Launch in the background, and leave no process behind."""
    pids: list[int] = []

    def launch(argv: list[str], **keys: object) -> int:
        pids.append(launch_detached(run, argv, **keys))  # type: ignore[arg-type]
        return pids[-1]

    yield launch
    for pid in pids:
        if process_alive(pid, None):
            kill_tree(pid, None)


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Wait for a condition; the limit only guards against a hang."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def running(run: RunFolder) -> None:
    """Wait until the loop is in its steps."""
    until(lambda: read_status(run).state == "running" and is_held(run.lock))


def test_a_detached_run_goes_to_its_end_and_logs(run: RunFolder, launched: Callable[..., int]) -> None:
    pid = launched(loop(run, 0.01, 3), env={"EXTRA": "1"})
    seen = []
    status = wait(run, timeout_s=20, poll_s=0.01, tick=lambda status: seen.append(status.state))
    assert (status.state, status.step, status.pid) == ("succeeded", 3, pid)
    assert set(seen) <= {"queued", "running", "succeeded"}
    assert [line.split("  ")[-1] for line in tail(run)] == ["started", "printed"]


def test_it_outlives_its_parent(run: RunFolder, child: Child) -> None:
    source = """
        import sys
        from dragonet.runs import launch_detached
        print(launch_detached(sys.argv[1], sys.argv[2:]))
    """
    parent = child(source, run, *loop(run, 0.05, 20))
    pid = int(parent.communicate()[0])
    assert parent.returncode == 0
    running(run)
    status = read_status(run)
    assert status.pid == pid
    assert status.detached
    assert os.getsid(pid) == pid, "it hangs on the session of its parent"
    assert wait(run, timeout_s=20).state == "succeeded"


def test_before_its_first_word_it_is_queued_under_its_pid(run: RunFolder, launched: Callable[..., int]) -> None:
    pid = launched([sys.executable, "-c", "import time; time.sleep(60)"])
    status = read_status(run)
    assert (status.state, status.pid, status.detached) == ("queued", pid, True)
    os.kill(pid, signal.SIGKILL)
    until(lambda: read_status(run).gone)
    assert "last state: queued" in (read_status(run).reason or "")


def test_a_child_that_has_spoken_first_is_not_spoken_over(run: RunFolder, child: Child) -> None:
    other = child("import time; time.sleep(60)")
    queue(run)
    start(run, pid=other.pid, pid_started=process_started(other.pid))
    hand_over(run, os.getpid())
    assert (read_status(run).state, read_status(run).pid) == ("running", other.pid)
    finish(run, "succeeded")
    hand_over(run, os.getpid())
    assert (read_status(run).state, read_status(run).pid) == ("succeeded", other.pid)


def test_what_it_printed_before_it_died_is_in_the_reason(run: RunFolder, launched: Callable[..., int]) -> None:
    launched([sys.executable, "-c", "raise SystemExit('no such model')"])
    status = wait(run, timeout_s=20, poll_s=0.01)
    assert status.state == "failed"
    assert "no such model" in (status.reason or "")


def test_a_program_that_cannot_be_started_fails_the_run(run: RunFolder) -> None:
    with pytest.raises(RunError, match="cannot start /no/such/program"):
        launch_detached(run, ["/no/such/program"])
    assert read_status(run).state == "failed"
    assert "could not be started" in (read_status(run).error or "")


def test_waiting_too_long_is_an_error_and_changes_nothing(run: RunFolder) -> None:
    start(run)
    with pytest.raises(RunError, match=r"still running at step 0 after 0\.05 s"):
        wait(run, timeout_s=0.05, poll_s=0.01)
    assert read_status(run).state == "running"


def test_waiting_for_an_unknown_run_ends(run: RunFolder) -> None:
    run.status.write_text("{")
    assert wait(run, timeout_s=5).state == "unknown"


def test_cancel_lets_the_step_finish_and_save(run: RunFolder, launched: Callable[..., int]) -> None:
    pid = launched(loop(run, 0.1, 1000))
    running(run)
    status = cancel(run, timeout_s=20)
    assert (status.state, status.reason) == ("cancelled", "a request to cancel")
    assert status.step == len(read_metrics(run)) >= 1
    assert (run.checkpoints / f"step-{status.step:06d}").is_dir()
    assert not process_alive(pid, None)
    assert not run.cancel_request.exists()
    with pytest.raises(RunError, match="been cancelled already; continue it with: dragonet resume"):
        cancel(run)


def test_the_request_alone_is_enough(run: RunFolder, launched: Callable[..., int]) -> None:
    launched(loop(run, 0.02, 1000))
    running(run)
    request_cancel(run)
    status = wait(run, timeout_s=20)
    assert (status.state, status.reason) == ("cancelled", "a request to cancel")


def test_a_run_that_does_not_stop_is_killed_with_its_children(run: RunFolder, launched: Callable[..., int]) -> None:
    source = f"""
        import signal, subprocess, sys, time
        from dragonet.runs import start
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        start({str(run)!r}, step=worker.pid)
        time.sleep(60)
    """
    pid = launched([sys.executable, "-c", textwrap.dedent(source)])
    until(lambda: read_status(run).state == "running")
    worker = read_status(run).step
    assert process_alive(worker, None)
    status = cancel(run, timeout_s=0.3)
    assert status.state == "cancelled"
    assert "killed, as it had not stopped within 0.3 s" in (status.reason or "")
    until(lambda: not process_alive(pid, None) and not process_alive(worker, None))
    assert read_status(run).state == "cancelled"


def test_a_run_that_dies_of_the_signal_is_cancelled(run: RunFolder, launched: Callable[..., int]) -> None:
    launched([sys.executable, "-c", "import time; time.sleep(60)"])  # never says a word, has no handlers
    status = cancel(run, timeout_s=20)
    assert status.state == "cancelled"
    assert "before it could save" in (status.reason or "")


def test_cancelling_the_dead_and_the_finished_says_so(run: RunFolder, child: Child) -> None:
    dead = child("pass")
    dead.wait()
    start(run, pid=dead.pid)
    with pytest.raises(RunError, match=f"dead already.*process {dead.pid} is gone(.|\n)*dragonet resume {run.id}"):
        cancel(run)
    assert read_status(run).state == "failed"
    finish(run, "succeeded")
    with pytest.raises(RunError, match=r"has succeeded already$"):
        cancel(run)
    run.status.unlink()
    with pytest.raises(RunError, match=r"state cannot be told.*status\.json"):
        cancel(run)
    assert not run.cancel_request.exists()


def test_no_signal_goes_to_a_process_that_only_created_the_run(run: RunFolder, child: Child) -> None:
    source = """
        import sys, time
        from dragonet.runs.status import queue
        queue(sys.argv[1])
        print("up", flush=True)
        time.sleep(60)
    """
    creator = child(source, run)
    assert creator.stdout is not None
    assert creator.stdout.readline() == "up\n"
    with pytest.raises(RunError, match=f"process {creator.pid} .* has not answered"):
        cancel(run, timeout_s=0.3)
    assert creator.poll() is None
    assert run.cancel_request.exists()


def test_a_run_of_another_host_is_asked_and_not_signalled(run: RunFolder, child: Child) -> None:
    bystander = child("import time; time.sleep(60)")
    start(run, pid=bystander.pid, host="elsewhere")
    with pytest.raises(RunError, match=r"on host elsewhere has not answered within 0\.2 s"):
        cancel(run, timeout_s=0.2)
    assert bystander.poll() is None
    assert run.cancel_request.exists()


def test_cancelling_oneself_leaves_the_request(run: RunFolder) -> None:
    start(run)
    assert cancel(run).state == "running"
    assert StopSignal(run).requested


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_finishes_the_step(signum: int, run: RunFolder, child: Child) -> None:
    process = child(LOOP, run, 0.2, 1000)
    running(run)
    process.send_signal(signum)
    process.communicate()
    assert process.returncode == 0
    status = read_status(run)
    assert (status.state, status.reason) == ("cancelled", "Ctrl-C" if signum == signal.SIGINT else "SIGTERM")
    assert status.step == len(read_metrics(run)) >= 1


def test_the_second_signal_stops_at_once(run: RunFolder, child: Child) -> None:
    process = child(LOOP, run, 60, 1000)
    running(run)
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 1
    assert read_status(run).reason == "at once"
    assert read_metrics(run) == []


def test_handlers_are_put_back_and_the_first_signal_is_announced(run: RunFolder) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    heard: list[str] = []
    with StopSignal(run, notify=heard.append) as stop:
        assert not stop.requested
        signal.raise_signal(signal.SIGTERM)
        assert stop.requested
        assert stop.reason == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert heard == ["SIGTERM"]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_outside_the_main_thread_only_the_request_counts(run: RunFolder) -> None:
    before = signal.getsignal(signal.SIGINT)
    got: list[bool] = []

    def loop() -> None:
        with StopSignal(run) as stop:
            got.extend((signal.getsignal(signal.SIGINT) is before, stop.requested))
            request_cancel(run)
            got.append(stop.requested)

    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    assert got == [True, False, True]


def test_a_run_has_one_owner(run: RunFolder, child: Child) -> None:
    process = child(LOOP, run, 0.2, 1000)
    running(run)
    with pytest.raises(RunError, match=f"running in process {process.pid}; only one process.*dragonet cancel"):
        acquire(run)
    with pytest.raises(RunError, match=f"running in process {process.pid}"):
        prepare_resume(run)
    process.kill()
    process.communicate()
    prepare_resume(run)
    with acquire(run):
        assert is_held(run.lock)
        with pytest.raises(RunError, match="only one process"):
            acquire(run)
    assert not is_held(run.lock)


def test_a_fork_of_the_owner_does_not_keep_the_run_busy(run: RunFolder, child: Child) -> None:
    source = """
        import os, sys, time
        from dragonet.runs import acquire, start
        owner = acquire(sys.argv[1])
        start(sys.argv[1])
        pid = os.fork()
        if pid == 0:
            os.close(1), os.close(2)
            time.sleep(60)
        print(pid, flush=True)
        time.sleep(60)
    """
    process = child(source, run)
    assert process.stdout is not None
    orphan = int(process.stdout.readline())
    try:
        assert is_held(run.lock)
        process.kill()
        process.wait()
        assert process_alive(orphan, None)
        assert read_status(run).gone
        acquire(run).release()
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_an_owner_that_is_about_to_leave_is_waited_for(run: RunFolder) -> None:
    finish(run, "cancelled")
    lock = FileLock(run.lock)
    threading.Timer(0.2, lock.release).start()
    acquire(run).release()


def test_a_copy_from_another_host_can_be_resumed_and_says_so(run: RunFolder) -> None:
    start(run, host="elsewhere", pid=os.getppid(), pid_started=process_started(os.getppid()))
    prepare_resume(run)
    with acquire(run) as owner:
        assert "host elsewhere" in owner.notices[0]


def test_a_finished_run_needs_more_steps_to_be_resumed(run: RunFolder) -> None:
    update_status(run, total_steps=40)
    finish(run, "succeeded", step=40)
    with pytest.raises(RunError, match=f"40 of 40 steps.*dragonet resume {run.id} train.max_steps=80"):
        prepare_resume(run)
    assert prepare_resume(run, overrides=True).state == "succeeded"


def test_an_old_request_to_cancel_does_not_stop_a_resumed_run(run: RunFolder) -> None:
    finish(run, "failed", error="boom")
    request_cancel(run)
    prepare_resume(run)
    assert not StopSignal(run).requested


def test_a_request_made_while_queued_reaches_the_loop(run: RunFolder, launched: Callable[..., int]) -> None:
    """The child takes a moment to start; asked meanwhile, it stops after its first step."""
    argv = loop(run, 0.01, 100_000)
    argv[2] = "import time; time.sleep(0.3)\n" + argv[2]
    launched(argv)
    request_cancel(run)
    status = wait(run, timeout_s=20)
    assert (status.state, status.step) == ("cancelled", 1)


def test_looking_at_a_lock_does_not_take_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    assert not path.exists()
    lock = FileLock(path)
    assert is_held(path)
    with pytest.raises(BlockingIOError):
        FileLock(path)
    lock.release()
    assert not is_held(path)
    FileLock(path).release()
