"""A place for runs in memory, a folder with a tiny config, and the server that forks real processes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from assemble.forking import Server, close_server, server
from assemble.tiny_run import write_config


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Give an empty folder, in memory where that can be: the disk is not on trial here."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="dragonet-test-", dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def forks() -> Iterator[Server]:
    """Forks a real `dragonet` process per call."""
    yield server()
    close_server()


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder."""
    with scratch() as folder:
        yield folder


@pytest.fixture
def runs_dir(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the runs of this test live, for this process and the ones it starts."""
    folder = place / "runs"
    monkeypatch.setenv("DRAGONET_RUNS_DIR", str(folder))
    return folder


@pytest.fixture
def config(place: Path) -> Path:
    """A config of six quick steps, with its table beside it."""
    return write_config(place)
