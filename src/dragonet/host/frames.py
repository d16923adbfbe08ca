"""Length-prefixed frames over a pipe: eight bytes of length, then the body.

Owns the shape of a frame and the blocking reader and writer of the worker's side. It refuses to know what a body
means; the pool's side reads without blocking (process.py).
"""

from __future__ import annotations

import os
import struct

__all__ = ["HEADER", "MAX_BODY", "pack", "read_frame", "write_frame"]

HEADER = struct.Struct("!Q")
MAX_BODY = 1 << 32
"""A longer body means that something else wrote to the pipe."""


def pack(body: bytes) -> bytes:
    """Return the frame of one body."""
    return HEADER.pack(len(body)) + body


def write_frame(fd: int, body: bytes) -> None:
    """Write one frame to a blocking descriptor."""
    view = memoryview(pack(body))
    while view:
        view = view[os.write(fd, view) :]


def read_frame(fd: int) -> bytes | None:
    """Read one frame from a blocking descriptor; None at the end of the pipe."""
    header = _read(fd, HEADER.size)
    if header is None:
        return None
    return _read(fd, HEADER.unpack(header)[0])


def _read(fd: int, size: int) -> bytes | None:
    parts = []
    while size:
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
