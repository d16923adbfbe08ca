"""The handle a Python user holds: one run, read anew at each call.

Owns the mapping from methods to the files of the run and to `dragonet resume` and `dragonet evaluate`, which it starts
as processes of their own, so that this room imports nothing above itself. It keeps no copy of what the run says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dragonet.errors import RunError
from dragonet.runs.files import Where
from dragonet.runs.find import find_run
from dragonet.runs.folder import RunFolder
from dragonet.runs.launch import cancel, wait
from dragonet.runs.log import tail
from dragonet.runs.metrics import read_metrics
from dragonet.runs.records import read_json
from dragonet.runs.status import Status, read_status
from dragonet.runs.store import read_config

__all__ = ["Run", "override_arguments"]


class Run:
    """One run: `dragonet.Run("last")`, an id, the start of an id, or a folder.

    `program` is the command line that resume and evaluate are arguments of.
    """

    def __init__(
        self,
        ref: Where,
        *,
        runs_dir: Where | None = None,
        program: Sequence[str] = (sys.executable, "-m", "dragonet"),
    ) -> None:
        self._folder = find_run(ref, runs_dir)
        self._program = tuple(program)

    @property
    def id(self) -> str:
        """The run's id: the name of its folder."""
        return self._folder.id

    @property
    def dir(self) -> Path:
        """The run's folder."""
        return self._folder.path

    @property
    def folder(self) -> RunFolder:
        """The run's folder, with a name for each place in it."""
        return self._folder

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return read_config(self._folder)

    def status(self) -> Status:
        """Return the state as it is now."""
        return read_status(self._folder)

    def progress(self) -> list[dict[str, Any]]:
        """Return the metrics, one row per step."""
        return read_metrics(self._folder)

    def report(self) -> dict[str, Any]:
        """Return the report of a finished run: the held-out reward before and after with its interval, and more."""
        return read_json(self._folder, "report.json")

    def logs(self, n: int = 50) -> list[str]:
        """Return the last `n` lines of the log."""
        return tail(self._folder, n)

    def wait(self, timeout_s: float | None = None) -> Run:
        """Block until the run has ended; RunError when it failed, or is not done after `timeout_s`."""
        status = wait(self._folder, timeout_s=timeout_s)
        if status.state == "failed":
            raise RunError(f"run {self.id} failed: {status.error or status.reason or 'see its log'}")
        return self

    def cancel(self, timeout_s: float = 120.0) -> Status:
        """Let the run finish its step, save and end; it is killed when it has not after `timeout_s`."""
        return cancel(self._folder, timeout_s=timeout_s)

    def resume(self, *, wait: bool = True, **overrides: Any) -> Run:
        """Go on from the last checkpoint; overrides such as `train={"max_steps": 80}` extend a finished run.

        With `wait` false it goes on in the background. RunError when it cannot be resumed or fails.
        """
        self._call(["resume", str(self._folder), *override_arguments(overrides), *([] if wait else ["--detach"])])
        return self

    def evaluate(self) -> dict[str, Any]:
        """Evaluate on the held-out prompts and return what `dragonet evaluate --json` says."""
        return self._call(["evaluate", str(self._folder)])

    def __repr__(self) -> str:
        return f"Run({str(self._folder)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other._folder == self._folder

    def __hash__(self) -> int:
        return hash(self._folder)

    def _call(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Run a command and return the JSON object of its last line; what it says on stderr becomes the error."""
        command = [*self._program, *arguments, "--json"]
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches it through _outputs alone, once per key
        )
        out, err = _outputs(child)
        lines = [line for line in out.splitlines() if line.strip()]
        if child.returncode != 0:
            said = (err.strip() or out.strip() or f"exit code {child.returncode}").splitlines()[-20:]
            raise RunError(f"dragonet {arguments[0]} {self.id}: " + "\n".join(said))
        try:
            answer = json.loads(lines[-1])
        except (IndexError, ValueError):
            raise RunError(f"dragonet {arguments[0]} {self.id} gave no JSON, but {out[-500:]!r}") from None
        return answer if isinstance(answer, dict) else {"answer": answer}


def override_arguments(overrides: Mapping[str, Any]) -> list[str]:
    """Return overrides as `key.sub=value` arguments; nested mappings become dotted keys."""
    return [f"{key}={_as_yaml(value)}" for key, value in _flat(overrides, "")]


def _flat(overrides: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in overrides.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _as_yaml(value: Any) -> str:
    """Return a value in one line, so that the command line reads the same one back."""
    plain = os.fspath(value) if isinstance(value, os.PathLike) else value
    text = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=float("inf"))
    return text.removesuffix("...\n").strip()


def _outputs(child: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for the command; each Ctrl-C is passed on to it, and it ends by its own rule for that."""
    while True:
        try:
            return child.communicate()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
