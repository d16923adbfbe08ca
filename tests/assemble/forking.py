"""A process that has imported everything once and forks a real `dragonet` process per call.

Importing torch, transformers and peft costs seconds; a fork costs milliseconds and is otherwise what a shell would
start: own session, own pid, own files as stdout and stderr, the command line's `main`. The server computes nothing
itself, so a child inherits no thread and no state of a run. At its end a child runs what is registered for the exit
and joins its threads, and skips only the dismantling of modules, which would cost more than the run.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

HANG_S = 120.0  # no child of a test takes this long; one that does is killed and fails its test


@dataclass(frozen=True)
class Done:
    """How a process ended: its exit code (negative: the signal) and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document that `--json` printed, which must be all there is."""
        lines = self.out.splitlines()
        assert len(lines) == 1, f"expected one line, got {self.out!r}; stderr {self.err}"
        return json.loads(lines[0])


class Child:
    """A running process that was forked for one call."""

    def __init__(self, server: Server, pid: int, place: Path) -> None:
        self.pid, self._server, self._place = pid, server, place
        self._done: Done | None = None

    def kill(self, signum: int = signal.SIGKILL) -> None:
        """Send a signal."""
        os.kill(self.pid, signum)

    def poll(self) -> Done | None:
        """Return how the process ended, None while it runs."""
        if self._done is None:
            code = self._server.ask({"poll": self.pid})["code"]
            if code is not None:
                out, err = (self._place.with_suffix(end).read_text("utf-8", "replace") for end in (".out", ".err"))
                self._done = Done(code, out, err)
        return self._done

    def printed(self, end: str = ".err") -> str:
        """Return what it has written so far: `.err` or `.out`."""
        path = self._place.with_suffix(end)
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def wait(self, timeout_s: float = HANG_S) -> Done:
        """Wait for the end; a process that hangs is killed and fails the test."""
        deadline = time.monotonic() + timeout_s
        pause = 0.002
        while (done := self.poll()) is None:
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"process {self.pid} hung; stderr: {self.printed()}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        return done


class Server:
    """The parent of the forks, seen from the test process."""

    def __init__(self) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._place = tempfile.TemporaryDirectory(prefix="dragonet-forks-", dir=memory)
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._count = 0

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send one request and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def start(
        self,
        *argv: object,
        env: Mapping[str, str] | None = None,
        cwd: os.PathLike[str] | None = None,
        script: str | None = None,
    ) -> Child:
        """Fork `dragonet ARGV`, or a Python script with these arguments."""
        self._count += 1
        place = Path(self._place.name) / f"{self._count:05d}"
        request = {
            "argv": [str(part) for part in argv],
            "env": {**os.environ, **(env or {})},
            "cwd": os.fspath(cwd) if cwd is not None else os.getcwd(),
            "place": str(place),
            "script": script,
        }
        return Child(self, self.ask(request)["pid"], place)

    def run(
        self,
        *argv: object,
        env: Mapping[str, str] | None = None,
        cwd: os.PathLike[str] | None = None,
        script: str | None = None,
    ) -> Done:
        """Fork, and wait for the end."""
        return self.start(*argv, env=env, cwd=cwd, script=script).wait()

    def close(self) -> None:
        """End the server; what still runs below it is killed."""
        self._process.communicate(timeout=HANG_S)
        self._place.cleanup()


@functools.cache
def server() -> Server:
    """Return the one server of this test process."""
    return Server()


def close_server() -> None:
    """End the server, if one was started."""
    if server.cache_info().currsize:
        server().close()
        server.cache_clear()


# --- below: the server's own process ---


def serve() -> None:
    """Answer requests until the input ends."""
    _import_everything()
    alive: dict[int, int | None] = {}
    while line := sys.stdin.readline():
        request = json.loads(line)
        if "poll" in request:
            answer: dict[str, Any] = {"code": _poll(alive, request["poll"])}
        else:
            pid = os.fork()
            if pid == 0:
                _leave(_become, request)
            alive[pid] = None
            answer = {"pid": pid}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid, code in alive.items():
        if code is None and _poll(alive, pid) is None:
            os.kill(pid, signal.SIGKILL)


def _poll(alive: dict[int, int | None], pid: int) -> int | None:
    if alive[pid] is None:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            alive[pid] = os.waitstatus_to_exitcode(status)
    return alive[pid]


def _import_everything() -> None:
    import importlib
    import pkgutil

    import peft  # noqa: F401
    import safetensors.torch  # noqa: F401
    import torch  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast  # noqa: F401

    import dragonet

    for module in pkgutil.walk_packages(dragonet.__path__, "dragonet."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()  # children would otherwise copy every page their first collection looks at


def _leave(act: Callable[[Mapping[str, Any]], None], request: Mapping[str, Any]) -> NoReturn:
    """Run the child's work and end the process with the code that the interpreter would have given."""
    code = 1
    try:
        act(request)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _become(request: Mapping[str, Any]) -> None:
    """Turn the forked child into the process that was asked for, and run it to its end."""
    os.setsid()
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for fd, end in ((1, ".out"), (2, ".err")):
        opened = os.open(request["place"] + end, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, fd)
        os.close(opened)
    os.close(nothing)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if request["script"] is not None:
        sys.argv = [request["script"], *request["argv"]]
        runpy.run_path(request["script"], run_name="__main__")
        return
    from dragonet.cli import main

    sys.argv = ["dragonet", *request["argv"]]
    main()


if __name__ == "__main__":
    serve()
