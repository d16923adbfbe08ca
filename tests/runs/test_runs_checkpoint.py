"""A checkpoint is complete or absent, and a damaged one is noticed."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dragonet.errors import RunError
from dragonet.runs import (
    RunFolder,
    append_metrics,
    checkpoint_steps,
    latest_checkpoint,
    load_checkpoint,
    prune_checkpoints,
    publish_adapter,
    read_metrics,
    save_checkpoint,
)


def just(data: bytes) -> Callable[[Path], None]:
    """Return a writer of these bytes."""

    def write(path: Path) -> None:
        path.write_bytes(data)

    return write


def save(run: RunFolder, step: int) -> Path:
    """Write a checkpoint of an optimizer file and an adapter folder."""

    def adapter(path: Path) -> None:
        path.mkdir()
        save_file({"w": np.full(3, step, np.float32)}, path / "adapter_model.safetensors")
        (path / "adapter_config.json").write_text("{}")

    return save_checkpoint(run, step, {"optimizer.bin": b"o" * 100, "adapter": adapter}, {"round": step})


def test_a_checkpoint_reads_back(run: RunFolder) -> None:
    assert load_checkpoint(run) is None
    assert latest_checkpoint(run) is None
    state = {"round": 3, "best": float("-inf"), "rng": [2**70, 1], "nested": {"x": 0.1 + 0.2}, "buffer": []}
    path = save_checkpoint(run, 20, {"a.bin": b"abc", "b/c.bin": just(b"d")}, state)
    assert path == run.checkpoints / "step-000020" == latest_checkpoint(run)
    checkpoint = load_checkpoint(run)
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.state, checkpoint.notices) == (20, state, ())
    assert checkpoint.file("a.bin").read_bytes() == b"abc"
    assert checkpoint.file("b/c.bin").read_bytes() == b"d"
    with pytest.raises(RunError, match="holds no critic"):
        checkpoint.file("critic.bin")
    listed = json.loads((path / "manifest.json").read_text())
    assert set(listed["files"]) == {"a.bin", "b/c.bin", "state.json"}
    assert listed["schema"] == json.loads((path / "state.json").read_text())["schema"] == 1
    assert listed["files"]["a.bin"]["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_writers_are_called_in_order(run: RunFolder) -> None:
    order: list[str] = []

    def writer(name: str) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            order.append(name)
            path.write_bytes(b"x")

        return write

    save_checkpoint(run, 1, {name: writer(name) for name in ("z", "a", "m")}, {})
    assert order == ["z", "a", "m"]


@pytest.mark.parametrize("error", [ValueError("bad tensor"), KeyboardInterrupt()])
def test_a_writer_that_raises_leaves_no_trace(error: BaseException, run: RunFolder) -> None:
    save(run, 2)

    def writer(path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    with pytest.raises(type(error)):
        save_checkpoint(run, 4, {"a": writer}, {})
    assert [p.name for p in run.checkpoints.iterdir()] == ["step-000002"]


def test_a_writer_that_writes_nothing_is_a_mistake(run: RunFolder) -> None:
    with pytest.raises(ValueError, match="wrote nothing"):
        save_checkpoint(run, 4, {"a": lambda path: None}, {})
    with pytest.raises(ValueError, match="save_checkpoint itself"):
        save_checkpoint(run, 4, {"state.json": b""}, {})
    with pytest.raises(TypeError, match=r"value\.state\.x is a object"):
        save_checkpoint(run, 4, {}, {"x": object()})
    assert checkpoint_steps(run) == []


def test_the_same_step_again_replaces_it(run: RunFolder) -> None:
    save_checkpoint(run, 2, {"a": b"old"}, {"n": 1})
    save_checkpoint(run, 2, {"b": b"new"}, {"n": 2})
    checkpoint = load_checkpoint(run)
    assert checkpoint is not None
    assert checkpoint.state == {"n": 2}
    assert sorted(p.name for p in checkpoint.path.iterdir()) == ["b", "manifest.json", "state.json"]
    assert [p.name for p in run.checkpoints.iterdir()] == ["step-000002"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("optimizer.bin", cut, "optimizer.bin has 99 bytes instead of 100"),
        ("optimizer.bin", flip, "the checksum of optimizer.bin differs"),
        ("adapter/adapter_model.safetensors", Path.unlink, "adapter_model.safetensors is missing"),
        ("adapter/adapter_model.safetensors", flip, "the checksum of adapter/adapter_model.safetensors differs"),
        ("state.json", flip, "the checksum of state.json differs"),
        ("manifest.json", Path.unlink, "manifest.json does not exist"),
        ("manifest.json", cut, "manifest.json"),
        ("manifest.json", lambda path: path.write_text("[]"), "manifest.json is damaged"),
        ("manifest.json", lambda path: path.write_text("{}"), "no list of files"),
        ("manifest.json", lambda path: path.write_text('{"files": {}}'), "state.json is missing"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_with_a_notice(
    name: str, damage: Callable[[Path], Any], message: str, run: RunFolder
) -> None:
    save(run, 2)
    path = save(run, 4) / name
    damage(path)
    if name == "manifest.json" and damage is cut:  # only the last line end is gone: still a whole document
        checkpoint = load_checkpoint(run)
        assert checkpoint is not None
        assert checkpoint.step == 4
        return
    checkpoint = load_checkpoint(run)
    assert checkpoint is not None
    assert checkpoint.step == 2
    assert message in checkpoint.notices[0]
    assert "passed over" in checkpoint.notices[0]
    with pytest.raises(RunError, match=r"step-000004 is damaged.*other checkpoints of the run: 2"):
        load_checkpoint(run, 4)


def test_a_step_can_be_chosen(run: RunFolder) -> None:
    save(run, 2)
    save(run, 4)
    chosen = load_checkpoint(run, 2)
    assert chosen is not None
    assert load_file(chosen.file("adapter/adapter_model.safetensors"))["w"].tolist() == [2, 2, 2]
    with pytest.raises(RunError, match="no checkpoint of step 3; there are: 2, 4"):
        load_checkpoint(run, 3)


def test_nothing_but_damage_is_an_error_that_says_what_to_do(run: RunFolder) -> None:
    for step in (2, 4):
        flip(save(run, step) / "optimizer.bin")
    with pytest.raises(RunError, match=r"no checkpoint that is whole.*step-000004.*step-000002.*start over"):
        load_checkpoint(run)


def test_pruning_keeps_the_latest_and_the_protected(run: RunFolder) -> None:
    for step in range(2, 13, 2):
        save(run, step)
    assert prune_checkpoints(run, keep=2, protect={4}) == [2, 6, 8]
    assert checkpoint_steps(run) == [4, 10, 12]
    assert prune_checkpoints(run, keep=3) == []
    assert prune_checkpoints(run, keep=1) == [4, 10]
    with pytest.raises(ValueError, match="at least one"):
        prune_checkpoints(run, keep=0)


def test_steps_beyond_six_digits_stay_in_order(run: RunFolder) -> None:
    for step in (999_999, 1_000_000):
        save_checkpoint(run, step, {}, {})
    assert checkpoint_steps(run) == [999_999, 1_000_000]


def test_the_adapter_is_published_from_a_folder_or_from_writers(run: RunFolder) -> None:
    publish_adapter(run, save(run, 2) / "adapter")
    assert load_file(run.adapter / "adapter_model.safetensors")["w"].tolist() == [2, 2, 2]
    publish_adapter(run, {"adapter_config.json": b"{}", "w.bin": just(b"w")})
    assert sorted(p.name for p in run.adapter.iterdir()) == ["adapter_config.json", "w.bin"]
    assert not [p for p in run.path.iterdir() if p.name.startswith(".adapter")]


def test_a_reader_never_sees_half_an_adapter(run: RunFolder) -> None:
    def content(n: int) -> dict[str, bytes]:
        return {name: str(n).encode() * 1000 for name in ("a", "b", "c")}

    publish_adapter(run, content(0))
    stop, seen = threading.Event(), set()

    def read() -> None:
        while not stop.is_set():
            try:
                before = run.adapter.stat().st_ino
                names = sorted(p.name for p in run.adapter.iterdir())
                if before == run.adapter.stat().st_ino:  # else it was listed while it was being replaced
                    seen.add(tuple(names))
            except FileNotFoundError:
                continue  # between the two renames there is none for an instant

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(20):
        publish_adapter(run, content(n))
    stop.set()
    reader.join()
    assert seen == {("a", "b", "c")}


def test_a_failed_publication_keeps_the_old_adapter(run: RunFolder) -> None:
    publish_adapter(run, {"w": b"old"})

    def broken(path: Path) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        publish_adapter(run, {"v": b"x", "w": broken})
    with pytest.raises(RunError, match="cannot write"):
        publish_adapter(run, run.path / "none")
    assert (run.adapter / "w").read_bytes() == b"old"
    assert not [p for p in run.path.iterdir() if p.name.startswith(".adapter")]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB in memory, where this user may mount one."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip(f"a file system cannot be mounted here: {made.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def native(path: Path) -> None:
    """A writer in native code, whose error for a full disk is no OSError."""
    save_file({"w": np.zeros(200_000, np.float32)}, path)


@pytest.mark.parametrize("writer", [b"x" * 800_000, just(b"x" * 800_000), native])
def test_a_full_disk_costs_no_earlier_checkpoint(writer: Any, full_disk: Path) -> None:
    run = RunFolder(full_disk / "run")
    run.path.mkdir()
    save_checkpoint(run, 2, {"a": b"x" * 1000}, {"round": 2})
    with pytest.raises(RunError, match=r"the disk is full.*dragonet resume"):
        save_checkpoint(run, 4, {"a": b"x" * 1000, "b": writer}, {"round": 4})
    checkpoint = load_checkpoint(run)
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.notices) == (2, ())
    assert [p.name for p in run.checkpoints.iterdir()] == ["step-000002"]
    save_checkpoint(run, 6, {"a": b"x" * 1000}, {"round": 6})


def test_a_full_disk_leaves_no_half_row(full_disk: Path) -> None:
    run = RunFolder(full_disk)
    append_metrics(run, {"step": 1})
    before = run.metrics.read_bytes()
    with pytest.raises(RunError, match="the disk is full"):
        append_metrics(run, {"step": 2, "text": "x" * 400_000})
    assert run.metrics.read_bytes() == before
    append_metrics(run, {"step": 3})
    assert [row["step"] for row in read_metrics(run)] == [1, 3]
