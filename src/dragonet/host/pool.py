"""Calls with a deadline into worker processes that can be killed.

Owns when workers start, what happens to the calls around a late or dead one, and that nothing is left behind: a late
worker is killed with everything it started, replaced, and the remaining calls go on. Refuses to know what is called;
a factory named `module:function` builds the handler inside the worker. Usable from any thread and after a fork.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from dragonet import errors
from dragonet.errors import ConfigError, DataError, DragonetError, ModelError, RewardError, UserCodeError
from dragonet.host.process import OUTPUT_LIMIT, Died, Late, Worker

__all__ = ["Outcome", "Pool"]

_CHUNK_CALLS = 256
_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one call ended: `ok` with the handler's answer, or `raised`, `late`, `died` with a reason."""

    status: Literal["ok", "raised", "late", "died"]
    value: Any = None
    detail: str = ""


class Pool:
    """Workers that share one factory. They start with the first call, or with `start`.

    `factory(**arguments)` runs in the worker and returns (handler, info): `handler(payload)` answers a call with
    something JSON can hold, `info` is what `start` returns. A DragonetError it raises is raised here again.
    """

    def __init__(
        self, factory: str, arguments: Mapping[str, Any], *, workers: int = 1, start_timeout_s: float = 120.0
    ) -> None:
        self._setup = (factory, dict(arguments))
        self._start_timeout_s = start_timeout_s
        self._slots = _Slots(workers)
        self._lock = threading.RLock()
        weakref.finalize(self, _Slots.close, self._slots)
        forked = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: (f := forked()) and f())

    def start(self) -> Any:
        """Start one worker if none runs; return what the factory told. Raises the factory's error."""
        with self._lock:
            return self._ready(0)[1]

    def call(self, payloads: Sequence[Any], timeout_s: float) -> list[Outcome]:
        """Answer every payload, in order; `timeout_s` is the wall time of a single call.

        Each payload is pickled by itself, so the handler gets copies. Raises the factory's error at the first start.
        """
        with self._lock:
            jobs = _Jobs(payloads, len(self._slots.items))
            if not jobs.left:
                return jobs.results()
            self._ready(0)
            busy = min(len(self._slots.items), len(jobs.left))
            if busy == 1:
                self._drive(0, jobs, timeout_s)
            else:
                with ThreadPoolExecutor(busy) as threads:
                    for done in [threads.submit(self._drive, slot, jobs, timeout_s) for slot in range(busy)]:
                        done.result()
            return jobs.results()

    def take_output(self) -> str:
        """Return what the handlers printed since the last call (the end of it, when it was long)."""
        with self._lock:
            self._slots.collect()
            text, self._slots.output = self._slots.output, ""
            return text

    def close(self) -> None:
        """End the workers. A later call starts new ones."""
        with self._lock:
            self._slots.close()

    def _ready(self, slot: int) -> tuple[Worker, Any]:
        held = self._slots.items[slot]
        if held is None:
            try:
                worker = Worker()
            except OSError as error:
                raise DragonetError(f"a worker process cannot be started: {error}") from None
            try:
                held = self._slots.items[slot] = (worker, self._load(worker))
            except BaseException:
                self._slots.keep(worker)
                worker.kill()
                raise
        return held

    def _load(self, worker: Worker) -> Any:
        deadline = time.monotonic() + self._start_timeout_s
        try:
            worker.send(("setup", self._setup), deadline)
            reply = worker.receive(deadline)
        except Late:
            raise UserCodeError(f"loading took longer than {self._start_timeout_s:g} s{self._said(worker)}") from None
        except Died as death:
            raise UserCodeError(f"the worker {death} while loading{self._said(worker)}") from None
        if "refused" in reply:
            name, text = reply["refused"]
            kind = getattr(errors, name, UserCodeError)
            raise kind(text) if kind in (ConfigError, DataError, ModelError, RewardError) else UserCodeError(text)
        return reply.get("ready")

    def _drive(self, slot: int, jobs: _Jobs, timeout_s: float) -> None:
        """Answer jobs with one worker until none is left."""
        while chunk := jobs.take():
            try:
                worker = self._deliver(slot, [body for _, body in chunk])
                while chunk:
                    jobs.done[chunk[0][0]] = _outcome(worker.receive(time.monotonic() + timeout_s))
                    chunk.pop(0)
            except Late:
                self._replace(slot)
                jobs.done[chunk[0][0]] = Outcome("late", detail=f"took longer than {timeout_s:g} s")
                jobs.put_back(chunk[1:])
            except Died as death:
                jobs.done[chunk[0][0]] = Outcome("died", detail=f"the worker {death}{self._replace(slot)}")
                jobs.put_back(chunk[1:])
            except DragonetError as refusal:  # it loaded before and does not load again
                jobs.done.update({index: Outcome("died", detail=str(refusal)) for index, _ in chunk})
            except BaseException:
                self._replace(slot)  # interrupted in the middle: its next reply would answer an older call
                raise

    def _deliver(self, slot: int, bodies: list[bytes]) -> Worker:
        """Hand over calls; a worker that ended while it was idle is replaced, and no call is blamed for it."""
        for attempt in (1, 2):
            worker, _ = self._ready(slot)
            try:
                worker.send(("work", bodies), time.monotonic() + self._start_timeout_s)
                return worker
            except (Late, Died):
                if attempt == 2:
                    raise
                self._replace(slot)
        raise AssertionError("unreachable")

    def _replace(self, slot: int) -> str:
        """Kill a slot's worker, to be started anew by the next call; return the end of what it printed."""
        held, self._slots.items[slot] = self._slots.items[slot], None
        if held is None:
            return ""
        said = self._said(held[0])
        held[0].kill()
        return said

    def _said(self, worker: Worker) -> str:
        text = self._slots.keep(worker).strip()
        return f"; it printed last:\n{text[-1000:]}" if text else ""

    def _forked(self) -> None:
        """In a forked child: the workers and the lock belong to the parent."""
        self._lock = threading.RLock()
        self._slots.abandon()


class _Slots:
    """The workers of a pool, kept apart so that a finalizer can end them without the pool."""

    def __init__(self, workers: int) -> None:
        self.items: list[tuple[Worker, Any] | None] = [None] * workers
        self.output = ""

    def keep(self, worker: Worker) -> str:
        text = worker.take_output()
        self.output = (self.output + text)[-OUTPUT_LIMIT:]
        return text

    def collect(self) -> None:
        for held in self.items:
            if held is not None:
                self.keep(held[0])

    def close(self) -> None:
        for slot, held in enumerate(self.items):
            self.items[slot] = None
            if held is not None:
                held[0].close()

    def abandon(self) -> None:
        for slot, held in enumerate(self.items):
            self.items[slot] = None
            if held is not None:
                held[0].abandon()


class _Jobs:
    """The calls of one round: what is left, and what was answered."""

    def __init__(self, payloads: Sequence[Any], workers: int) -> None:
        self._chunk = _CHUNK_CALLS if workers == 1 else max(1, min(_CHUNK_CALLS, len(payloads) // (4 * workers)))
        self.done: dict[int, Outcome] = {}
        self.left: deque[tuple[int, bytes]] = deque()
        self._size = len(payloads)
        self._lock = threading.Lock()
        for index, payload in enumerate(payloads):
            try:
                self.left.append((index, pickle.dumps(payload, protocol=pickle.HIGHEST_PROTOCOL)))
            except Exception as error:
                self.done[index] = Outcome("raised", detail=f"the arguments cannot be sent to a worker: {error}")

    def take(self) -> list[tuple[int, bytes]]:
        with self._lock:
            chunk: list[tuple[int, bytes]] = []
            size = 0
            while self.left and len(chunk) < self._chunk and size < _CHUNK_BYTES:
                chunk.append(self.left.popleft())
                size += len(chunk[-1][1])
            return chunk

    def put_back(self, jobs: Sequence[tuple[int, bytes]]) -> None:
        with self._lock:
            self.left.extendleft(reversed(jobs))

    def results(self) -> list[Outcome]:
        return [self.done[index] for index in range(self._size)]


def _outcome(reply: Mapping[str, Any]) -> Outcome:
    if "raised" in reply:
        return Outcome("raised", detail=reply["raised"])
    return Outcome("ok", value=reply.get("ok"))
