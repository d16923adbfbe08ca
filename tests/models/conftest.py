"""A model cache of the suite's own, shared by all tests of this folder and removed at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragonet.models import ModelRef, resolve


@pytest.fixture(scope="session")
def shared_cache() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dragonet-models-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAGONET_CACHE", str(shared_cache))
    return shared_cache


@pytest.fixture
def tiny(own_cache: Path) -> ModelRef:
    return resolve("tiny-random")
