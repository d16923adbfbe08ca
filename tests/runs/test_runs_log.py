"""log.txt is read while it grows."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from dragonet.errors import RunError
from dragonet.runs import RunFolder, RunLog, follow, tail


def test_lines_carry_the_time_of_day(run: RunFolder) -> None:
    log = RunLog(run)
    log("first")
    log("second\n  with a trace\n")
    first, second, trace = tail(run)
    for line, text in ((first, "first"), (second, "second")):
        stamp, _, said = line.partition("  ")
        assert said == text
        assert datetime.fromisoformat(stamp).tzinfo is not None
    assert trace == "  with a trace"


def test_the_tail_is_the_end_however_long_the_log(run: RunFolder) -> None:
    assert tail(run) == []
    text = "".join(f"{n} {'é' * 300}\n" for n in range(1000)) + "unfinished"
    run.log.write_text(text)
    assert tail(run, 3) == [f"998 {'é' * 300}", f"999 {'é' * 300}", "unfinished"]
    assert len(tail(run, 5000)) == 1001
    assert tail(run, 0) == []
    assert tail(run, -1) == []


def test_bytes_that_are_no_text_and_overwritten_bars_are_readable(run: RunFolder) -> None:
    run.log.write_bytes(b"\xff\xfe ok\r\n 10%\r 50%\r100%\n\n")
    assert tail(run) == ["\ufffd\ufffd ok", "100%", ""]


def test_following_yields_the_end_and_then_what_comes(run: RunFolder) -> None:
    run.log.write_text("a\nb\nc\nhal")
    over = threading.Event()
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.extend(follow(run, n=2, poll_s=0.01, ended=over.is_set)))
    reader.start()
    with open(run.log, "a") as stream:
        for piece in ("f\n", "d\ne", "e\n", "last"):
            time.sleep(0.03)
            stream.write(piece)
            stream.flush()
    over.set()
    reader.join(10)
    assert got == ["b", "c", "half", "d", "ee", "last"]


def test_following_starts_before_there_is_a_log_and_survives_its_replacement(run: RunFolder) -> None:
    lines = follow(run, poll_s=0.01)
    threading.Timer(0.05, run.log.write_text, ["one line\n"]).start()
    assert next(lines) == "one line"
    run.log.write_text("new\n")
    assert next(lines) == "new"


def test_following_one_line_at_a_time_misses_nothing(
    run: RunFolder, child: Callable[..., subprocess.Popen[str]]
) -> None:
    source = """
        import sys
        from dragonet.runs import RunLog
        log = RunLog(sys.argv[1])
        for n in range(500):
            log(f"number {n}")
    """
    process = child(source, run)
    got = list(follow(run, n=1000, poll_s=0.005, ended=lambda: process.poll() is not None))
    assert [line.rsplit(" ", 1)[1] for line in got] == [str(n) for n in range(500)]


def test_a_log_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write .*log\.txt"):
        RunLog(tmp_path / "none")("x")
