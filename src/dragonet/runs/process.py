"""Which process is meant: pids are reused, so a process is known by its pid and its start time, on its host.

Owns the identity of this process and the question whether a recorded one still lives. It refuses to know runs.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

__all__ = ["ProcessId", "boot_id", "kill_tree", "process_alive", "process_started", "this_process"]

# the kernel counts a start in ticks since boot; the epoch time of the boot wobbles by a second when clocks are adjusted
_TOLERANCE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process for good: `started` in seconds since the epoch, `boot` where the system names its boots."""

    pid: int
    started: float
    host: str
    boot: str | None


def this_process() -> ProcessId:
    """Return the identity of the calling process."""
    pid = os.getpid()
    return ProcessId(pid, process_started(pid) or 0.0, platform.node() or socket.gethostname(), boot_id())


def boot_id() -> str | None:
    """Return the name of this boot of the machine (Linux), else None."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None


def process_started(pid: int) -> float | None:
    """Return when the process with this pid started, seconds since the epoch; None when none lives (zombies do not)."""
    if pid <= 0:
        return None
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:  # gone, or hidden from this user; the lock of a run tells the two apart
        return None


def process_alive(pid: int | None, started: float | None) -> bool:
    """Tell whether the process with this pid and start time lives; another start time means that the pid was reused."""
    if pid is None:
        return False
    found = process_started(pid)
    return found is not None and (started is None or abs(found - started) <= _TOLERANCE_S)


def kill_tree(pid: int, started: float | None) -> None:
    """Kill this very process and everything it started; nothing happens when it is gone."""
    if not process_alive(pid, started):
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for victim in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
