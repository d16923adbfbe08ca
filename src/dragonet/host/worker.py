"""The worker's main: build one handler, then answer calls until the pipe ends.

Requests come as pickles over one pipe, replies leave as JSON over another; standard output and error belong to user
code and lead to a third, so nothing that is printed can be taken for an answer. The worker dies with its parent, even
when that is killed outright and even while native code holds the interpreter. It knows no torch and no rewards: what
to call is named by the request.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import json
import os
import pickle
import select
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from dragonet.errors import DragonetError
from dragonet.host.frames import read_frame, write_frame
from dragonet.host.load import printable

__all__ = ["main"]


def main(requests: int, replies: int, lifeline: int) -> None:
    """Serve until the request pipe ends. Arguments are descriptors inherited from the parent."""
    for fd in (requests, replies, lifeline):
        os.set_inheritable(fd, False)
    _die_with_parent(lifeline)
    faulthandler.enable()
    sys.dont_write_bytecode = True
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a lone surrogate in model text must not turn a print into an error
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    handler: Callable[[Any], Any] | None = None
    while (frame := read_frame(requests)) is not None:
        kind, content = pickle.loads(frame)
        if kind == "setup":
            handler, reply = _setup(*content)
            write_frame(replies, _encode(reply))
        elif handler is not None:
            for body in content:
                write_frame(replies, _encode(_answer(handler, body)))


def _encode(reply: dict[str, Any]) -> bytes:
    return json.dumps(reply).encode("ascii")


def _setup(factory: str, arguments: dict[str, Any]) -> tuple[Callable[[Any], Any] | None, dict[str, Any]]:
    module, _, name = factory.partition(":")
    try:
        handler, info = getattr(importlib.import_module(module), name)(**arguments)
    except DragonetError as error:
        return None, {"refused": [type(error).__name__, printable(str(error))]}
    return handler, {"ready": info}


def _answer(handler: Callable[[Any], Any], body: bytes) -> dict[str, Any]:
    try:
        # one pickle per call: two calls never share an object, whatever the first one did to it
        return {"ok": handler(pickle.loads(body))}
    except BaseException as error:
        return {"raised": printable(f"{type(error).__name__}: {error}")}
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # user code may have closed or replaced its streams
                stream.flush()


def _die_with_parent(lifeline: int) -> None:
    """Have this process group killed when the write end of the pipe closes, which the parent holds.

    On Linux the kernel sends the signal, so a thread that never lets go of the interpreter lock dies too.
    PR_SET_PDEATHSIG is not used: it fires when the *thread* that started the worker ends.
    """
    try:
        import fcntl

        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)  # type: ignore[attr-defined, unused-ignore]
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    except (ImportError, AttributeError, OSError):
        threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
        return
    if select.select([lifeline], [], [], 0)[0]:  # the parent was gone before the signal was armed
        _end_group()


def _watch(lifeline: int) -> None:
    select.select([lifeline], [], [])
    _end_group()


def _end_group() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)
