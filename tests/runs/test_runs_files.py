"""Bytes get onto the disk whole or not at all, rows may be cut by a death, JSON is strict."""

from __future__ import annotations

import enum
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragonet.errors import RunError
from dragonet.runs import files, jsontext


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 3


def strict(text: bytes) -> Any:
    """Parse as a reader that knows no NaN."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)


def test_numbers_that_json_lacks_become_null() -> None:
    text = jsontext.dumps({"a": float("nan"), "b": [float("inf"), 1.5], "c": np.float32("-inf")})
    assert strict(text) == {"a": None, "b": [None, 1.5], "c": None}


def test_exact_text_brings_them_back() -> None:
    value = {"a": float("inf"), "b": [-float("inf"), {"c": float("nan")}], "d": 0.1}
    back = jsontext.restore(strict(jsontext.dumps(value, exact=True)))
    assert back["a"] == float("inf")
    assert back["b"][0] == -float("inf")
    assert back["b"][1]["c"] != back["b"][1]["c"]
    assert back["d"] == 0.1


def test_values_of_other_types_come_down_to_json() -> None:
    value = {1: np.int64(7), "f": np.float64(0.25), "b": np.bool_(True), "t": (1, 2), "p": Path("a/b"), "r": Colour.RED}
    assert strict(jsontext.dumps({**value, "s": Size.SMALL})) == {
        "1": 7,
        "f": 0.25,
        "b": True,
        "t": [1, 2],
        "p": "a/b",
        "r": "red",
        "s": 3,
    }


def test_a_type_without_a_place_is_named_with_its_path() -> None:
    with pytest.raises(TypeError, match=r"value\.a\[1\] is a set"):
        jsontext.dumps({"a": [1, {2}]})


def test_a_row_is_one_line_for_every_reader() -> None:
    text = "a\u2028b\u2029c\x85d\ne\x0bf\x1cg 日本"
    for extra in ({}, {"lone": "\ud800"}):  # a lone surrogate has no UTF-8, so its row is written in ASCII
        line = jsontext.row({"text": text, **extra})
        assert len(line.decode().splitlines()) == 1
        assert strict(line) == {"schema": 1, "text": text, **extra}
        assert ("日本".encode() in line) is not bool(extra)


def test_a_document_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"schema": 2, "a": 1}')
    with pytest.raises(RunError, match=r"newer dragonet.*upgrade"):
        files.read_json(path)
    (tmp_path / "m.jsonl").write_text('{"schema": 1, "a": 1}\n{"schema": 2, "a": 1}\n')
    with pytest.raises(RunError, match=r"line 2.*newer dragonet"):
        files.read_rows(tmp_path / "m.jsonl")


def test_a_document_reads_back_and_says_its_version(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a.json", {"x": 1})
    assert json.loads((tmp_path / "a.json").read_text()) == {"schema": 1, "x": 1}
    assert files.read_json(tmp_path / "a.json") == {"x": 1}


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"a": 1} x'])
def test_a_damaged_document_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(RunError, match=r"a\.json is damaged"):
        files.read_json(tmp_path / "a.json")


def test_readers_never_see_half_a_document(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    files.write_json(path, {"n": -1, "fill": "x" * 50_000})
    seen, stop = [], threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.append(files.read_json(path)["n"])

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(60):
        files.write_json(path, {"n": n, "fill": "x" * (50_000 - n)})
    stop.set()
    reader.join()
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    assert [p.name for p in tmp_path.iterdir()] == ["status.json"]


def test_a_file_gets_the_permissions_of_the_umask(tmp_path: Path) -> None:
    files.write_bytes(tmp_path / "a", b"x")
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~mask


def test_half_a_row_is_not_read_and_the_next_append_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    files.append_bytes(path, jsontext.row({"step": 1}))
    with open(path, "ab") as stream:
        stream.write(jsontext.row({"step": 2})[:-9])
    assert files.read_rows(path) == [{"step": 1}]
    files.append_bytes(path, jsontext.row({"step": 3}))
    assert files.read_rows(path) == [{"step": 1}, {"step": 3}]


def test_a_file_of_nothing_but_half_a_long_row_becomes_empty(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"step": 1, "text": "' + b"x" * 200_000)
    assert files.read_rows(path) == []
    files.append_bytes(path, jsontext.row({"step": 1}))
    assert path.read_bytes() == jsontext.row({"step": 1})


def test_a_damaged_row_in_the_middle_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"step": \n{"step": 3}\n')
    with pytest.raises(RunError, match=r"m\.jsonl, line 2 is damaged"):
        files.read_rows(path)


def test_rows_that_stay_keep_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"step":1,   "x": 1e-7}\n{"step": 2}\n{"step": 3}\n{"st')
    files.keep_rows(path, lambda row: row["step"] != 2)
    assert path.read_bytes() == b'{"step":1,   "x": 1e-7}\n{"step": 3}\n'


def test_keeping_every_row_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"step": 1}\n')
    before = path.stat().st_ino
    files.keep_rows(path, lambda row: True)
    assert path.stat().st_ino == before
    files.keep_rows(tmp_path / "none.jsonl", lambda row: True)
    assert not (tmp_path / "none.jsonl").exists()


def test_an_unfinished_swap_is_undone(tmp_path: Path) -> None:
    old = tmp_path / ".adapter.1-abcd.old"
    old.mkdir()
    (old / "w").write_text("old")
    (tmp_path / ".adapter.1.tmp").mkdir()
    (tmp_path / ".status.json.1-ff.tmp").write_text("{")
    files.recover_folders(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["adapter"]
    assert (tmp_path / "adapter" / "w").read_text() == "old"


def test_a_finished_swap_only_loses_its_rest(tmp_path: Path) -> None:
    for name, text in (("adapter", "new"), (".adapter.1-abcd.old", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "w").write_text(text)
    files.recover_folders(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["adapter"]
    assert (tmp_path / "adapter" / "w").read_text() == "new"


def test_a_folder_is_out_of_sight_before_it_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "w").write_text("x")
    seen: list[list[str]] = []
    files.remove_folder(tmp_path / "step-1", lambda: seen.append([p.name[:8] for p in tmp_path.iterdir()]))
    assert seen == [[".step-1."]]
    assert list(tmp_path.iterdir()) == []
