"""Locks that the operating system takes back when their holder dies, however it dies.

Owns the exclusive lock on a file and the short lock around a read-change-write. Where a file system has no locks
(some network ones) nothing is locked and callers rely on the recorded process alone. It refuses to know runs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["FileLock", "is_held", "short_lock"]

_BUSY: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
_POLL_S: Final = 0.02


class FileLock:
    """An exclusive lock, held from construction until `release` or the death of the process.

    Raises BlockingIOError when another holder does not let go within `patience_s`.
    """

    def __init__(self, path: Path, *, patience_s: float = 0.0) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        deadline = time.monotonic() + patience_s
        while not _try(self._fd):
            if time.monotonic() >= deadline:
                self.release()
                raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process", os.fspath(path))
            time.sleep(_POLL_S)
        # a fork shares the lock and would keep it beyond the holder's death
        forget = weakref.WeakMethod(self.release)
        os.register_at_fork(after_in_child=lambda: (method := forget()) and method())

    def release(self) -> None:
        """Let go; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def is_held(path: Path) -> bool:
    """Tell whether somebody holds the lock on this file; taking it for an instant is how one asks."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def short_lock(folder: Path) -> Iterator[None]:
    """Hold the lock on a folder itself around a read-change-write of a file in it; waits for its turn."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _BUSY
    return True
