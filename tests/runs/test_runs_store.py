"""A run exists whole or not at all, under an id of its own, and an unwritable place is explained."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from dragonet.errors import RunError
from dragonet.runs import (
    RunFolder,
    create_run,
    create_run_at,
    default_runs_dir,
    environment,
    lineage,
    read_config,
    read_status,
    sha256_of,
)
from dragonet.runs.store import run_id

NOON = datetime(2031, 5, 6, 12, 30, 45)
CONFIG = {"name": "sums", "model": {"id": "tiny-random", "revision": None}, "train": {"learning_rate": 1e-5}}


def test_a_new_run_holds_everything(runs_dir: Path) -> None:
    run = create_run(
        runs_dir,
        name="Größe & Sums!",
        stage="reinforce",
        config=CONFIG,
        files={"data/train.jsonl": '{"a": "é"}\n', "rewards/mine.py": b"x = 1\n", "lineage.json": {"parents": ["p"]}},
        now=NOON,
    )
    assert run.id == "20310506-123045-größe-sums-reinforce"
    assert run.path == runs_dir / run.id
    assert sorted(p.name for p in run.path.iterdir()) == [
        "checkpoints",
        "config.yaml",
        "data",
        "environment.json",
        "lineage.json",
        "rewards",
        "rollouts",
        "status.json",
    ]
    assert (run.data / "train.jsonl").read_bytes() == '{"a": "é"}\n'.encode()
    assert (run.rewards / "mine.py").read_text() == "x = 1\n"
    assert json.loads(run.lineage.read_text()) == {"schema": 1, "parents": ["p"]}
    assert yaml.safe_load(run.config.read_text()) == CONFIG == read_config(run)
    assert "schema 1" in run.config.read_text().splitlines()[0]
    status = read_status(run)
    assert (status.state, status.stage, status.model, status.pid) == ("queued", "reinforce", "tiny-random", os.getpid())
    assert json.loads(run.status.read_text())["schema"] == 1
    assert [p.name for p in runs_dir.iterdir()] == [run.id]


@pytest.mark.parametrize(
    ("name", "id"),
    [
        (None, "20310506-123045-sft"),
        ("", "20310506-123045-sft"),
        ("...", "20310506-123045-sft"),
        ("../../etc/passwd", "20310506-123045-etc-passwd-sft"),
        ("加法", "20310506-123045-加法-sft"),
        ("x" * 300, f"20310506-123045-{'x' * 40}-sft"),
        ("ﬁne\ttune\n2", "20310506-123045-fine-tune-2-sft"),
    ],
)
def test_names_become_ids(name: str | None, id: str) -> None:
    assert run_id(name, "sft", NOON) == id


def test_runs_of_one_second_are_numbered(runs_dir: Path) -> None:
    ids = [create_run(runs_dir, name="a", stage="sft", config={}, now=NOON).id for _ in range(3)]
    assert ids == ["20310506-123045-a-sft", "20310506-123045-a-sft-2", "20310506-123045-a-sft-3"]


def test_a_place_that_is_taken_in_the_last_instant_is_passed_by(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = create_run(runs_dir, name="a", stage="sft", config={"n": 1}, now=NOON)
    monkeypatch.setattr(os.path, "lexists", lambda path: False)  # as if it had been free when it was looked at
    second = create_run(runs_dir, name="a", stage="sft", config={"n": 2}, now=NOON)
    assert second.id == f"{first.id}-2"
    assert [read_config(run)["n"] for run in (first, second)] == [1, 2]
    with pytest.raises(RunError, match="exists already"):
        create_run_at(first.path, name="a", stage="sft", config={"n": 3})
    assert sorted(p.name for p in runs_dir.iterdir()) == [first.id, second.id]


def test_threads_that_create_at_once_get_a_run_each(runs_dir: Path) -> None:
    made: list[RunFolder] = []

    def make(text: str) -> None:
        made.append(create_run(runs_dir, name="a", stage="sft", config={}, files={"data/t": text}, now=NOON))

    threads = [threading.Thread(target=make, args=(str(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({run.id for run in made}) == 8
    assert sorted((run.data / "t").read_text() for run in made) == [str(i) for i in range(8)]


def test_processes_that_create_at_once_get_a_run_each(runs_dir: Path, child: Callable[..., subprocess.Popen]) -> None:
    source = """
        import sys
        from datetime import datetime
        from dragonet.runs import create_run
        for _ in range(5):
            print(create_run(sys.argv[1], name="a", stage="sft", config={}, now=datetime(2031, 5, 6)).id)
    """
    makers = [child(source, runs_dir) for _ in range(2)]
    ids = [line for maker in makers for line in maker.communicate()[0].split()]
    assert len(ids) == len(set(ids)) == 10
    assert {p.name for p in runs_dir.iterdir()} == set(ids)


def test_leftovers_of_dead_creators_go_and_those_of_others_stay(runs_dir: Path) -> None:
    runs_dir.mkdir()
    host = socket.gethostname()
    dead = runs_dir / f".creating-{2**22 - 3}-1000-aaaaaaaa@{host}"
    reused = runs_dir / f".creating-{os.getpid()}-1000-aaaaaaaa@{host}"
    foreign = runs_dir / ".creating-1-1000-aaaaaaaa@elsewhere"
    old = runs_dir / ".creating-2-1000-aaaaaaaa@elsewhere"
    for path in (dead, reused, foreign, old):
        path.mkdir()
    os.utime(old, (0, 0))
    run = create_run(runs_dir, name="a", stage="sft", config={}, now=NOON)
    assert {p.name for p in runs_dir.iterdir()} == {run.id, foreign.name}


def test_a_folder_that_exists_is_refused_and_untouched(tmp_path: Path) -> None:
    for target in (tmp_path / "empty", tmp_path / "full", tmp_path / "file"):
        if target.name == "file":
            target.write_text("x")
        else:
            target.mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")
    for name in ("empty", "full", "file"):
        with pytest.raises(RunError, match=f"{name} exists already.*dragonet resume"):
            create_run_at(tmp_path / name, name=None, stage="sft", config={})
    assert (tmp_path / "full" / "mine.txt").read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file", "full"]


def test_an_explicit_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    run = create_run_at(tmp_path / "deep" / "my run", name="n", stage="sft", config={"a": 1})
    assert run.path == tmp_path / "deep" / "my run"
    assert read_status(run).name == "n"


def test_a_file_outside_the_run_is_refused(runs_dir: Path) -> None:
    for path in ("../x", "/tmp/x"):
        with pytest.raises(ValueError, match="inside the run folder"):
            create_run(runs_dir, name="a", stage="sft", config={}, files={path: "x"})
    assert list(runs_dir.iterdir()) == []


def test_the_runs_folder_is_passed_or_set_or_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRAGONET_RUNS_DIR", raising=False)
    assert default_runs_dir() == tmp_path / "dragonet_runs"
    monkeypatch.setenv("DRAGONET_RUNS_DIR", " ")
    assert default_runs_dir() == tmp_path / "dragonet_runs"
    monkeypatch.setenv("DRAGONET_RUNS_DIR", "~/runs")
    assert default_runs_dir() == Path.home() / "runs"
    assert default_runs_dir("here") == tmp_path / "here"


def test_runs_below_a_file_are_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match=r"cannot write .*file: something else is in its place.*runs_dir"):
        create_run(tmp_path / "file", name="a", stage="sft", config={})
    with pytest.raises(RunError, match=r"a part of the path is a file.*\$DRAGONET_RUNS_DIR"):
        create_run(tmp_path / "file" / "runs", name="a", stage="sft", config={})
    assert (tmp_path / "file").read_text() == "x"


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB in memory, where this user may mount one."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip(f"a file system cannot be mounted here: {made.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_explained_and_leaves_nothing_half(mounted: Path) -> None:
    run = create_run(mounted, name="a", stage="sft", config={}, now=NOON)
    with pytest.raises(RunError, match=r"the disk is full.*free some space"):
        create_run(mounted, name="b", stage="sft", config={}, files={"data/train.jsonl": "x" * 400_000}, now=NOON)
    assert [p.name for p in mounted.iterdir()] == [run.id]
    again = create_run(mounted, name="c", stage="sft", config={}, now=NOON)
    assert read_status(again).state == "queued"


def test_a_read_only_disk_is_explained(mounted: Path) -> None:
    run = create_run(mounted, name="a", stage="sft", config={}, now=NOON)
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    with pytest.raises(RunError, match=r"read-only file system.*choose another place"):
        create_run(mounted, name="b", stage="sft", config={})
    assert read_status(run).state == "queued"


def test_a_limit_on_file_sizes_is_explained(runs_dir: Path, child: Callable[..., subprocess.Popen]) -> None:
    source = """
        import resource, sys
        from dragonet.errors import RunError
        from dragonet.runs import create_run
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            create_run(sys.argv[1], name="a", stage="sft", config={}, files={"data/t": b"x" * 30_000})
        except RunError as error:
            print(error)
    """
    out, err = child(source, runs_dir).communicate()
    assert "exceed the size limit" in out, err
    assert list(runs_dir.iterdir()) == []


def test_the_environment_lists_versions_and_threads_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    facts = environment(torch_threads=2)
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["packages"]["torch"]
    assert facts["threads"]["OMP_NUM_THREADS"] == os.environ["OMP_NUM_THREADS"]
    assert facts["torch_threads"] == 2
    assert "sk-secret" not in json.dumps(facts)


def test_lineage_records_checksums(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_bytes(b"abc")
    record = lineage(model="m", parents=["p"], data={"train": "abc"}, rewards={"r.py": tmp_path / "r.py"})
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of abc, FIPS 180-2
    assert record["data"]["train"]["sha256"] == record["rewards"]["r.py"]["sha256"] == known == sha256_of(b"abc")
    assert (record["model"], record["parents"], record["adapters"]) == ("m", ["p"], [])
    with pytest.raises(RunError, match="cannot read"):
        sha256_of(tmp_path / "none")


def test_a_damaged_or_newer_config_is_explained(run: RunFolder) -> None:
    run.config.write_text("a: [1")
    with pytest.raises(RunError, match="damaged"):
        read_config(run)
    run.config.write_text("# configuration of a dragonet run, schema 9\na: 1\n")
    with pytest.raises(RunError, match="newer dragonet"):
        read_config(run)
    run.config.unlink()
    with pytest.raises(RunError, match="cannot read"):
        read_config(run)


def test_numbers_and_text_of_a_config_survive(runs_dir: Path) -> None:
    config = {
        "lr": 1e-5,
        "tiny": 5e-324,
        "inf": float("inf"),
        "no": "no",
        "date": "2020-01-01",
        "t": "a: b\n # c\u2028é",
    }
    assert read_config(create_run(runs_dir, name="a", stage="sft", config=config)) == config
