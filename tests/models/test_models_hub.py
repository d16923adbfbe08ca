"""Hub ids: from the local cache, from a hub on the loopback device, and a timely answer when there is neither."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_hub import COMMIT, fake_hub

from dragonet.models import ModelRef

RESOLVE = """
import sys
from dragonet.errors import ModelError
from dragonet.models import resolve
try:
    ref = resolve(sys.argv[1], on_notice=lambda text: print("NOTICE", text))
    print(ref.kind, ref.name, ref.revision, ref.folder)
except ModelError as error:
    print("ERROR", error)
"""


def ask(model: str, home: Path, endpoint: str, *, offline: bool = False) -> tuple[str, float]:
    """Resolve in a process of its own, since the hub's client reads its settings once."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    env = {**kept, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_TELEMETRY": "1"}
    env |= {"HF_HUB_OFFLINE": "1"} if offline else {}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, model],
        env=env,
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout, time.monotonic() - began


def test_offline_and_not_found_says_what_to_put_where(tmp_path: Path) -> None:
    said, _ = ask("owner/model@v2", tmp_path, "http://127.0.0.1:9", offline=True)
    assert said.startswith("ERROR model 'owner/model@v2' is not on this machine: there is no such folder")
    for hint in (str(tmp_path / "hub"), "HF_HUB_OFFLINE forbids", "hf download owner/model", "*.safetensors"):
        assert hint in said


def test_a_hub_that_refuses_connections_is_reported_at_once(tmp_path: Path) -> None:
    said, seconds = ask("owner/model", tmp_path, "http://127.0.0.1:9")
    assert "and the hub cannot be reached" in said
    assert seconds < 5 + 5  # the answer, and room for starting Python on a busy machine


@pytest.mark.slow
def test_a_hub_that_never_answers_is_given_up_within_five_seconds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        _, start = ask("owner/model", tmp_path, "http://127.0.0.1:9", offline=True)
        said, seconds = ask("owner/model", tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert "and the hub cannot be reached" in said
    assert seconds - start < 5 + 2


@pytest.mark.slow
def test_a_model_is_downloaded_once_without_what_it_does_not_need(tiny: ModelRef, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    for file in tiny.folder.iterdir():
        (repository / file.name).write_bytes(file.read_bytes())
    (repository / "pytorch_model.bin").write_bytes(b"the same weights again")
    home = tmp_path / "home"
    home.mkdir()
    with fake_hub(repository) as (address, seen):
        said, _ = ask("owner/model", home, address)
        notice, answer = said.strip().splitlines()
        assert notice == f"NOTICE downloading owner/model from the hub into {home / 'hub'}"
        kind, name, revision, folder = answer.split()
        assert (kind, name, revision) == ("hub", "owner/model", COMMIT)
        assert (Path(folder) / "model.safetensors").read_bytes() == (tiny.folder / "model.safetensors").read_bytes()
        assert not (Path(folder) / "pytorch_model.bin").exists()
        asked = len(seen)
        assert ask("owner/model", home, address)[0].strip() == answer
        assert len(seen) == asked  # found in the local cache, without a question
    assert ask(f"owner/model@{COMMIT}", home, "http://127.0.0.1:9", offline=True)[0].strip() == answer


@pytest.mark.slow
def test_a_model_the_hub_does_not_know(tmp_path: Path) -> None:
    with fake_hub(None) as (address, _):
        said, _ = ask("owner/modle", tmp_path, address)
    assert said.startswith("ERROR the hub knows no model 'owner/modle', and no such folder exists here")


@pytest.mark.slow
def test_a_repository_that_is_no_transformers_model(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "weights.onnx").touch()
    with fake_hub(repository) as (address, _):
        said, _ = ask("owner/model", tmp_path, address)
    assert "has no config.json: it is not in the transformers layout; it holds weights.onnx" in said
