"""One process per run: who may write into a run folder, and who may resume it.

Owns the rule that combines the recorded process with a lock of the operating system, and the answers to a resume that
makes no sense. It refuses to know what the owner does with the run.
"""

from __future__ import annotations

import os
from types import TracebackType

from dragonet.errors import RunError
from dragonet.runs.files import Where, writing
from dragonet.runs.folder import RunFolder
from dragonet.runs.lock import FileLock, is_held
from dragonet.runs.process import process_alive
from dragonet.runs.status import Status, read_status

__all__ = ["Ownership", "acquire", "prepare_resume"]

# a process that has just written its last state still needs a moment to go away
_PATIENCE_S = 5.0


class Ownership:
    """The right to write into a run; a context manager. The death of the process ends it too."""

    def __init__(self, lock: FileLock, notices: tuple[str, ...]) -> None:
        self._lock = lock
        self.notices = notices

    def release(self) -> None:
        """Give the right back; a second call does nothing."""
        self._lock.release()

    def __enter__(self) -> Ownership:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def acquire(folder: Where) -> Ownership:
    """Become the only process that writes into this run; RunError with its pid when another one is at it."""
    run = RunFolder(folder)
    status = read_status(run)
    if status.state == "running" and _lives_elsewhere(status):  # a queued one waits for just this call
        raise _busy(run, status)
    with writing(run.lock):
        try:
            lock = FileLock(run.lock, patience_s=_PATIENCE_S if status.final or status.state == "queued" else 0.5)
        except BlockingIOError:
            raise _busy(run, status) from None
    return Ownership(lock, status.notes)


def prepare_resume(folder: Where, *, overrides: bool = False) -> Status:
    """Check that a run can be resumed and forget an old request to cancel it; return its state.

    Raises RunError when it is alive, or when it succeeded and no `overrides` ask for more.
    """
    run = RunFolder(folder)
    status = read_status(run)
    if status.state == "queued" and status.pid in (os.getpid(), os.getppid()):
        return status  # this process was started to do it
    if _lives_elsewhere(status) or (not status.final and is_held(run.lock)):
        raise _busy(run, status)
    if status.state == "succeeded" and not overrides:
        done = f"{status.step} of {status.total_steps} steps" if status.total_steps else f"{status.step} steps"
        timed = (status.reason or "").startswith("max_minutes")
        more = "train.max_minutes=MORE" if timed else f"train.max_steps={2 * max(status.step, 1)}"
        raise RunError(
            f"run {run.id} succeeded after {done}, so there is nothing to resume; to train it further give it more "
            f"{'time' if timed else 'steps'}: dragonet resume {run.id} {more}"
        )
    run.cancel_request.unlink(missing_ok=True)
    return status


def _lives_elsewhere(status: Status) -> bool:
    """Whether another process of this host is recorded and lives; on another host nobody can tell."""
    judged = not status.final and status.state != "unknown" and not status.notes
    return judged and status.pid != os.getpid() and process_alive(status.pid, status.pid_started)


def _busy(run: RunFolder, status: Status) -> RunError:
    who = f"process {status.pid}" if status.pid is not None else "another process"
    return RunError(
        f"run {run.id} is {status.state} in {who}; only one process may write into a run. Wait for it with "
        f"`dragonet wait {run.id}` or stop it with `dragonet cancel {run.id}`"
    )
