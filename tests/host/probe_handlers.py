"""Handlers that misbehave on demand, for workers started by the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from dragonet.errors import ConfigError


def make(**arguments: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return a handler that does what the payload says."""
    if arguments.get("refuse"):
        raise ConfigError("not today")
    if arguments.get("exit"):
        print("leaving early")
        os._exit(7)
    if arguments.get("hang"):
        time.sleep(600)
    return handle, sorted(arguments)


def handle(payload: Any) -> Any:
    if isinstance(payload, list):
        payload.append("seen")
        return payload
    if payload in ACTIONS:
        return ACTIONS[payload]()
    return payload


def spin() -> None:
    while True:
        pass


def spam() -> None:
    while True:
        print("y" * 1000)


def crash() -> None:
    import ctypes

    ctypes.string_at(0)


def child() -> int:
    return subprocess.Popen(["sleep", "300"]).pid


def late_exit() -> str:
    threading.Timer(0.05, os._exit, [9]).start()
    return "soon"


def garble() -> None:
    for fd in range(3, 1024):
        try:
            os.write(fd, b"\xff" * 16)
        except OSError:
            continue


def forked_child_keeps_pipes() -> None:
    if os.fork() == 0:
        time.sleep(300)
    os._exit(3)


def fail() -> None:
    raise ValueError("no \ud83d")


def speak() -> int:
    print("out \ud83d")
    print("err", file=sys.stderr)
    os.write(1, b"raw\n")
    return 1


ACTIONS: dict[str, Callable[[], Any]] = {
    "pid": os.getpid,
    "spin": spin,
    "spam": spam,
    "crash": crash,
    "child": child,
    "late_exit": late_exit,
    "garble": garble,
    "forked": forked_child_keeps_pipes,
    "fail": fail,
    "speak": speak,
    "exit": lambda: os._exit(3),
    "sys.exit": lambda: sys.exit(4),
    "torch": lambda: "torch" in sys.modules,
}
