"""What must stay quick to import: dragonet itself, the rooms without tensors, and the command's help."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "peft", "ray", "vllm", "datasets", "pandas", "polars", "pyarrow")
LIGHT_ROOMS = ("dragonet", "dragonet.config", "dragonet.data", "dragonet.host", "dragonet.rewards", "dragonet.runs")


def loaded_by(code: str, among: tuple[str, ...]) -> set[str]:
    """The names among those given that a fresh interpreter has loaded after running code."""
    report = f"{code}\nimport sys\nprint('\\n'.join(name for name in {among!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("room", LIGHT_ROOMS)
def test_importing_a_light_room_loads_nothing_heavy(room: str) -> None:
    assert loaded_by(f"import {room}", HEAVY) == set()


def test_a_public_name_of_a_light_room_loads_nothing_heavy() -> None:
    assert loaded_by("import dragonet\ndragonet.Score, dragonet.NA, dragonet.DragonetError", HEAVY) == set()


def test_help_loads_neither_models_nor_schema() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dragonet", "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    loaded = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "dragonet" in loaded
    assert loaded.isdisjoint({*HEAVY, "pydantic", "numpy"})
    assert "reinforce" in done.stdout


def test_a_heavy_import_would_be_seen() -> None:
    assert loaded_by("import json", ("json", "torch")) == {"json"}
