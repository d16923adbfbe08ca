"""Fixtures for run folders: a fresh runs_dir, one run in it, and real child processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragonet.runs import RunFolder, create_run

CONFIG = {"name": "sums", "model": "tiny-random", "train": {"learning_rate": 1e-5, "max_steps": 6}}


@pytest.fixture
def runs_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty place for runs, which is also where the environment points.

    It lies in memory where that can be: waiting for a disk some thousand times would show nothing.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as place:
        path = Path(place) / "runs"
        monkeypatch.setenv("DRAGONET_RUNS_DIR", str(path))
        yield path


@pytest.fixture
def run(runs_dir: Path) -> RunFolder:
    """A run that was just created."""
    return create_run(runs_dir, name="sums", stage="reinforce", config=CONFIG)


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a real Python process from source text, in a group of its own; what is alive at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(source: str, *arguments: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
