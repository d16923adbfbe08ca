"""The cache: complete or absent, whoever builds, and however they end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dragonet.errors import ModelError
from dragonet.models.cache import build_folder, cache_root

BUILDER = """
import sys, time
from pathlib import Path
from dragonet.models.cache import build_folder
def fill(folder):
    (folder / "who").write_text(sys.argv[2])
    Path(sys.argv[1] + "." + sys.argv[2]).touch()
    while len(list(Path(sys.argv[1]).parent.glob("target.*"))) < 2:  # both are inside before either goes on
        time.sleep(0.01)
print(build_folder(Path(sys.argv[1]), fill))
"""


def test_two_processes_at_once_leave_one_whole_folder(tmp_path: Path) -> None:
    target = tmp_path / "target"
    started = [
        subprocess.Popen([sys.executable, "-c", BUILDER, str(target), who], stdout=subprocess.PIPE, text=True)
        for who in ("first", "second")
    ]
    answers = [process.communicate(timeout=60)[0].strip() for process in started]
    assert answers == [str(target)] * 2
    assert [process.returncode for process in started] == [0, 0]
    assert (target / "who").read_text() in ("first", "second")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".building")] == []


def test_a_folder_that_exists_is_not_built_again(tmp_path: Path) -> None:
    calls = []
    for _ in range(2):
        build_folder(tmp_path / "x", lambda folder: calls.append(folder))
    assert len(calls) == 1


def test_what_fill_raises_passes_and_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyError("broken")

    with pytest.raises(KeyError):
        build_folder(tmp_path / "x", fail)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_dead_processes_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    host, me = socket.gethostname(), os.getpid()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = tmp_path / f".building-a~{host}~{ended.pid}~1000000000~aa"
    reused = tmp_path / f".building-b~{host}~{me}~1000000000~bb"  # our pid, but another start: a pid used again
    foreign = tmp_path / f".building-c~elsewhere~{ended.pid}~1000000000~cc"
    for path in (dead, reused, foreign):
        path.mkdir()

    def fill(folder: Path) -> None:
        build_folder(tmp_path / "inner", lambda inner: None)  # a second build must not remove the first one's folder
        assert folder.is_dir()

    build_folder(tmp_path / "outer", fill)
    assert sorted(path.name for path in tmp_path.iterdir()) == [foreign.name, "inner", "outer"]


def test_files_get_the_rights_of_new_files(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "weights").touch(mode=0o600)

    plain = tmp_path / "plain"
    plain.touch()
    target = build_folder(tmp_path / "x", fill)
    assert (target / "weights").stat().st_mode == plain.stat().st_mode
    assert [path.name for path in target.iterdir()] == ["weights"]


def test_a_cache_that_cannot_be_written_names_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match=r"cannot write the model cache at .*DRAGONET_CACHE"):
        build_folder(tmp_path / "file" / "x", lambda folder: None)


def test_the_place_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAGONET_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("DRAGONET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_root() == tmp_path / "xdg" / "dragonet"
