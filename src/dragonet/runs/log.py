"""log.txt: what happened, in lines with the time of day, readable while it grows.

Owns writing, the tail, and following. Several writers may append at once: the run itself and, for a detached run,
whatever its process prints. It refuses to know what the lines mean.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import BinaryIO, Final

from dragonet.runs.files import Where, writing
from dragonet.runs.folder import RunFolder

__all__ = ["RunLog", "follow", "tail"]

_BLOCK: Final = 65536


class RunLog:
    """Append lines to log.txt; calling it writes. Each call reaches the file before it returns."""

    def __init__(self, folder: Where) -> None:
        self._path = RunFolder(folder).log

    def __call__(self, text: str) -> None:
        """Write `text`, the time of day before its first line."""
        stamp = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        line = f"{stamp}  {text.rstrip()}\n".encode(errors="replace")
        with writing(self._path):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                while line:  # one call, unless the disk takes only a part
                    line = line[os.write(fd, line) :]
            finally:
                os.close(fd)


def tail(folder: Where, n: int = 50) -> list[str]:
    """Return the last `n` lines of log.txt, oldest first; none when there is no log."""
    try:
        with open(RunFolder(folder).log, "rb") as stream:
            lines, rest = _last_lines(stream, n)
    except OSError:
        return []
    return [_decode(line) for line in ([*lines, rest] if rest else lines)[-n:]] if n > 0 else []


def follow(
    folder: Where, *, n: int = 10, poll_s: float = 0.2, ended: Callable[[], bool] = lambda: False
) -> Iterator[str]:
    """Yield the last `n` lines and then each new one; stop once `ended()` holds and everything was yielded."""
    path = RunFolder(folder).log
    lines: list[bytes] = []
    position, rest = 0, b""
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        lines, rest = _last_lines(stream, n)
        position = stream.tell()
    yield from map(_decode, lines[-n:] if n > 0 else [])
    while True:
        over = ended()  # asked before reading, so that lines written just before the end are not missed
        fresh = b""
        with contextlib.suppress(OSError), open(path, "rb") as stream:
            if stream.seek(0, os.SEEK_END) < position:  # the file was replaced by a shorter one
                position, rest = 0, b""
            stream.seek(position)
            fresh = stream.read()
        position += len(fresh)
        *lines, rest = (rest + fresh).split(b"\n")
        yield from map(_decode, lines)
        if over:
            if rest:
                yield _decode(rest)
            return
        if not fresh:
            time.sleep(poll_s)


def _last_lines(stream: BinaryIO, n: int) -> tuple[list[bytes], bytes]:
    """Return at least the last `n` complete lines and the unfinished one; the stream is left at its end."""
    start = end = stream.seek(0, os.SEEK_END)
    data = b""
    while start > 0 and data.count(b"\n") <= n:
        size = min(_BLOCK, start)
        start = stream.seek(start - size)
        data = stream.read(size) + data
    stream.seek(end)
    *lines, rest = data.split(b"\n")
    return lines, rest


def _decode(line: bytes) -> str:
    """Return the text of a line as a terminal would leave it: what a progress bar overwrote is gone."""
    return line.decode(errors="replace").rstrip("\r").rsplit("\r", 1)[-1]
