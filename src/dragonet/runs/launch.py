"""Starting a run in the background, waiting for it, and stopping it.

Owns the process that outlives its parent, the request to cancel (a file that the loop sees, and SIGTERM to the very
process that was recorded), the escalation to SIGKILL, and the rule for Ctrl-C: the first finishes the step, the second
stops at once. It refuses to know what the process computes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any, Final

from dragonet.errors import RunError
from dragonet.runs import files
from dragonet.runs.files import Where, writing
from dragonet.runs.folder import RunFolder
from dragonet.runs.lock import is_held
from dragonet.runs.process import kill_tree, process_alive, this_process
from dragonet.runs.status import Status, finish, hand_over, now_text, queue, read_status

__all__ = ["StopSignal", "cancel", "launch_detached", "request_cancel", "wait"]

_POLL_S: Final = 0.1
_PAST: Final = {"succeeded": "succeeded", "failed": "failed", "cancelled": "been cancelled"}


def launch_detached(
    folder: Where, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Where | None = None
) -> int:
    """Start `argv` as a background process of this run and return its pid.

    It has its own session, reads nothing, prints into log.txt, and outlives this process and its terminal. `env` adds
    to the environment. Until it says more the run is queued under its pid. RunError when it cannot be started.
    """
    run = RunFolder(folder)
    run.cancel_request.unlink(missing_ok=True)
    queue(run)  # before the start, so that the child's own word always comes later
    with writing(run.log):
        log = os.open(run.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=cwd,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
        )
    except OSError as error:
        finish(run, "failed", error=f"{argv[0]} could not be started: {error.strerror or error}")
        raise RunError(f"run {run.id}: cannot start {argv[0]}: {error.strerror or error}") from error
    finally:
        os.close(log)
    # reaps the child should it end while this process lives; otherwise the system does
    threading.Thread(target=child.wait, name=f"reaper of {run.id}", daemon=True).start()
    hand_over(run, child.pid)
    return child.pid


def wait(
    folder: Where,
    *,
    timeout_s: float | None = None,
    poll_s: float = 0.2,
    tick: Callable[[Status], object] | None = None,
) -> Status:
    """Block until the run has ended and return its state; `tick` is called with the state at every poll.

    Raises RunError when it has not ended after `timeout_s`. A run whose process is gone has ended as failed.
    """
    run = RunFolder(folder)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        status = read_status(run)
        if tick is not None:
            tick(status)
        if status.final or status.state == "unknown":
            return status
        if deadline is not None and time.monotonic() >= deadline:
            raise RunError(
                f"run {run.id} is still {status.state} at step {status.step} after {timeout_s:g} s; it goes on, "
                f"look again with: dragonet status {run.id}"
            )
        time.sleep(poll_s)


def request_cancel(folder: Where) -> None:
    """Leave the request that the loop finds before its next step."""
    files.write_bytes(RunFolder(folder).cancel_request, f"{now_text()}\n".encode())


def cancel(folder: Where, *, timeout_s: float = 120.0) -> Status:
    """Ask a run to finish its step, save and end; kill it when it has not after `timeout_s`. Return its last state.

    Raises RunError when the run has ended already, when its process is gone, or when it can be reached neither by the
    request nor by a signal.
    """
    run = RunFolder(folder)
    status = read_status(run)
    _check_cancellable(run, status)
    signalled = run.cancel_request.exists()  # somebody asked before; a second signal would stop the run at once
    request_cancel(run)
    if status.pid == os.getpid():
        return status
    deadline = time.monotonic() + timeout_s
    while not status.final:
        if not signalled and _is_its_own(run, status):
            _signal(run, status, signal.SIGTERM)
            signalled = True
        if time.monotonic() >= deadline:
            return _kill(run, status, timeout_s)
        time.sleep(_POLL_S)
        status = read_status(run)
    if status.gone:
        return finish(run, "cancelled", reason="stopped before it could save; earlier checkpoints are whole")
    _await_end(status)
    return status


def _is_its_own(run: RunFolder, status: Status) -> bool:
    """Whether the recorded process is the run's own, here, and not the one that has created it and may serve others."""
    here = status.host in (None, this_process().host)
    return here and (status.state == "running" or status.detached or is_held(run.lock))


def _kill(run: RunFolder, status: Status, timeout_s: float) -> Status:
    if not _is_its_own(run, status):
        raise RunError(
            f"run {run.id} was asked to stop, but process {status.pid} on host {status.host} has not answered within "
            f"{timeout_s:g} s; the request stays in its folder. If that process is hung, end it there"
        )
    kill_tree(status.pid or 0, status.pid_started)
    return finish(run, "cancelled", reason=f"killed, as it had not stopped within {timeout_s:g} s")


def _check_cancellable(run: RunFolder, status: Status) -> None:
    if status.gone:
        raise RunError(
            f"run {run.id} cannot be cancelled: it is dead already. {status.reason}\nContinue it with: "
            f"dragonet resume {run.id}"
        )
    if status.final:
        then = "" if status.state == "succeeded" else f"; continue it with: dragonet resume {run.id}"
        raise RunError(f"run {run.id} cannot be cancelled: it has {_PAST[status.state]} already{then}")
    if status.state == "unknown":
        raise RunError(f"run {run.id} cannot be cancelled: {status.notes[0]}")


def _signal(run: RunFolder, status: Status, signum: int) -> None:
    """Signal the recorded process, if it is really that one."""
    if status.pid is None or not process_alive(status.pid, status.pid_started):
        return
    try:
        os.kill(status.pid, signum)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise RunError(
            f"run {run.id}: process {status.pid} belongs to another user; the request to stop was left in its folder"
        ) from error


def _await_end(status: Status, patience_s: float = 5.0) -> None:
    deadline = time.monotonic() + patience_s
    while process_alive(status.pid, status.pid_started) and time.monotonic() < deadline:
        time.sleep(_POLL_S / 2)


class StopSignal:
    """Ctrl-C and its relatives while a loop runs; a context manager.

    The first SIGINT or SIGTERM, or a request to cancel, only sets `requested`: the loop finishes its step, saves and
    ends. A second signal raises KeyboardInterrupt at once. `notify` is called from the handler at the first signal, so
    it must not print through a buffered stream. Outside the main thread no handlers are installed and the request to
    cancel still counts.
    """

    def __init__(self, folder: Where, *, notify: Callable[[str], object] | None = None) -> None:
        self._request = RunFolder(folder).cancel_request
        self._notify = notify
        self._caught: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._before[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    @property
    def reason(self) -> str | None:
        """What asked to stop, as a phrase for status.json; None when nothing did."""
        if self._request.exists():  # asked first, as `cancel` leaves the request before it sends SIGTERM
            return "a request to cancel"
        return self._caught

    @property
    def requested(self) -> bool:
        """Whether the loop should end after this step."""
        return self.reason is not None

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        name = "Ctrl-C" if signum == signal.SIGINT else "SIGTERM"
        if self._caught is not None:
            raise KeyboardInterrupt(f"stopped at once by a second signal ({name})")
        self._caught = name
        if self._notify is not None:
            self._notify(name)
