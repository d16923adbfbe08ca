"""One worker process, seen from its parent: start, send, receive until a deadline, kill.

Owns descriptors, deadlines and the process group. It refuses to know what is called; pool.py decides what happens
after a worker was late or died. A worker runs in a session of its own, so that everything it started (unless it
made a session itself) ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from dragonet.host.frames import HEADER, MAX_BODY, pack

__all__ = ["OUTPUT_LIMIT", "Died", "Late", "Worker"]

OUTPUT_LIMIT = 64 * 1024
"""Bytes of printed text kept per worker between two reads; the end is kept."""

_BOOT = "import sys; sys.path.append(sys.argv[1]); from dragonet.host.worker import main; main(*map(int, sys.argv[2:]))"
_TICK_S = 0.2
_FAREWELL_S = 0.5


class Late(Exception):
    """The worker did not answer in time."""


class Died(Exception):
    """The worker is gone; the text says how."""


class Worker:
    """A running worker. Not safe for two threads at once; the pool sees to that."""

    def __init__(self) -> None:
        request_r, self._requests = os.pipe()
        self._replies, reply_w = os.pipe()
        life_r, self._lifeline = os.pipe()
        self._output_fd, output_w = os.pipe()
        theirs = (request_r, reply_w, life_r)
        root = str(Path(__file__).resolve().parents[2])
        # -P: the folder the user happens to stand in must not shadow the standard library
        command = [sys.executable, "-P", "-c", _BOOT, root, *map(str, theirs)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output_w,
                stderr=output_w,
                pass_fds=theirs,
                start_new_session=True,
            )
        except BaseException:
            self.drop()
            raise
        finally:
            for fd in (*theirs, output_w):
                os.close(fd)
        for fd in (self._requests, self._replies, self._output_fd):
            os.set_blocking(fd, False)
        self._pending = bytearray()
        self._output = bytearray()
        self._output_ended = False

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its group."""
        return self._process.pid

    def send(self, message: tuple[str, Any], deadline: float) -> None:
        """Send one request; `deadline` is in the time of time.monotonic(). Raises Late or Died."""
        view = memoryview(pack(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)))
        while view:
            try:
                view = view[os.write(self._requests, view) :]
            except BlockingIOError:
                self._wait(deadline, self._requests, select.POLLOUT)
            except BrokenPipeError:
                raise Died(self._obituary()) from None

    def receive(self, deadline: float) -> dict[str, Any]:
        """Return the next reply. Raises Late or Died."""
        while True:
            body = self._next_body()
            if body is not None:
                return self._decode(body)
            try:
                part = os.read(self._replies, 1 << 16)
            except BlockingIOError:
                self._wait(deadline, self._replies, select.POLLIN)
                continue
            if not part:
                raise Died(self._obituary())
            self._pending += part

    def take_output(self) -> str:
        """Return what user code printed since the last call, its end when it was long."""
        self._drain()
        text = bytes(self._output).decode("utf-8", "replace")
        self._output.clear()
        return text

    def kill(self) -> None:
        """End the worker and its group at once, and collect it."""
        self._kill_group()
        self._process.wait()
        self.drop()

    def close(self) -> None:
        """Let the worker end by itself, briefly, then kill what is left."""
        if self._requests < 0:
            return
        os.close(self._requests)
        self._requests = -1
        self._exited(within_s=_FAREWELL_S)
        self.kill()

    def drop(self) -> None:
        """Close this side's descriptors and forget the process, which a forked child must not touch."""
        for fd in (self._requests, self._replies, self._lifeline, self._output_fd):
            with contextlib.suppress(OSError):
                if fd >= 0:
                    os.close(fd)
        self._requests = self._replies = self._lifeline = self._output_fd = -1

    def abandon(self) -> None:
        """Forget a worker that belongs to the process this one was forked from."""
        self.drop()
        self._process.returncode = 0

    def _next_body(self) -> bytes | None:
        if len(self._pending) < HEADER.size:
            return None
        size = HEADER.unpack_from(self._pending)[0]
        if size > MAX_BODY:
            raise Died("user code wrote into the worker's reply pipe")
        end = HEADER.size + size
        if len(self._pending) < end:
            return None
        body = bytes(self._pending[HEADER.size : end])
        del self._pending[:end]
        return body

    @staticmethod
    def _decode(body: bytes) -> dict[str, Any]:
        try:
            reply = json.loads(body)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise Died("user code wrote into the worker's reply pipe")
        return reply

    def _wait(self, deadline: float, fd: int, event: int) -> None:
        """Wait for one descriptor, draining what is printed. Raises Late past the deadline, Died without a worker."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise Late
        ready = _poll({fd: event, **self._output_events()}, min(left, _TICK_S))
        if self._output_fd in ready:
            self._drain()
        # a process that user code started may still hold the pipe, so the worker's end is looked for, too
        if fd not in ready and self._exited() and not _poll({self._replies: select.POLLIN}, 0):
            raise Died(self._obituary())

    def _output_events(self) -> dict[int, int]:
        return {} if self._output_ended else {self._output_fd: select.POLLIN}

    def _drain(self) -> None:
        for _ in range(64):  # bounded: a worker that prints without end must not keep its parent here
            if self._output_ended or self._output_fd < 0:
                return
            try:
                part = os.read(self._output_fd, 1 << 16)
            except BlockingIOError:
                return
            self._output_ended = not part
            self._output += part
            del self._output[:-OUTPUT_LIMIT]

    def _exited(self, within_s: float = 0.0) -> bool:
        limit = time.monotonic() + within_s
        while not self._gone():
            if time.monotonic() >= limit:
                return False
            time.sleep(0.002)
            self._drain()
        return True

    def _gone(self) -> bool:
        if self._process.returncode is not None:
            return True
        if hasattr(os, "waitid"):  # look without collecting: the group's id stays ours
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return self._process.poll() is not None

    def _kill_group(self) -> None:
        # only while the leader is not collected: afterwards its group's id may belong to somebody else
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _obituary(self) -> str:
        """Say how a worker ended, and end what it left behind."""
        by_itself = self._exited(within_s=_FAREWELL_S)
        self._drain()
        self._kill_group()
        code = self._process.wait()
        if not by_itself:
            return "closed its pipes"
        if code >= 0:
            return f"exited with code {code}"
        known = {s.value: s.name for s in signal.Signals}
        return f"was ended by {known.get(-code, f'signal {-code}')}"


def _poll(events: dict[int, int], timeout_s: float) -> set[int]:
    """Return the descriptors that are ready or broken; unlike select, with numbers above 1023 too."""
    poller = select.poll()
    for fd, event in events.items():
        poller.register(fd, event)
    return {fd for fd, _ in poller.poll(timeout_s * 1000)}
