"""What a user sees of the steps, on a terminal and elsewhere; and observers that fail."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

import pytest

from dragonet.runs import ConsoleTracker, FencedTrackers
from dragonet.runs.tracker import duration, is_live, sparkline

ROW = {
    "reward": 0.5,
    "reward_std": 0.25,
    "loss": 0.0,
    "kl": 0.001,
    "flat": 0.25,
    "completion_len": 5.5,
    "truncated": 0.0,
    "failed": 0.125,
    "eta_s": 80.4,
    "lr": 1e-5,
}


class Terminal:
    """A real pseudo-terminal; `shown` is what arrived on the other side."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        self.stream: TextIO = os.fdopen(slave, "w", encoding="utf-8")
        self._bytes = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 65536):
                self._bytes += data
        except OSError:
            pass

    def shown(self) -> str:
        """Close the terminal and return everything it got."""
        self.stream.close()
        self._reader.join(10)
        os.close(self._master)
        return self._bytes.decode()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    terminal = Terminal()
    yield terminal
    if not terminal.stream.closed:
        terminal.shown()


def test_elsewhere_each_step_is_a_plain_line() -> None:
    stream = io.StringIO()
    tracker = ConsoleTracker(stream, total_steps=40)
    tracker.start({})
    tracker.log(7, ROW)
    tracker.log(40, {"reward": 1.0, "loss": float("nan"), "eta_s": 0})
    tracker.say("a notice [with] brackets")
    tracker.finish("succeeded")
    assert stream.getvalue().splitlines() == [
        "step  7/40  reward 0.500  std 0.250  loss 0.0000  kl 0.0010  flat 25%  len 5.5  failed 12%  eta 1m 20s",
        "step 40/40  reward 1.000  eta 0s",
        "a notice [with] brackets",
    ]


def test_without_a_total_the_step_stands_alone() -> None:
    stream = io.StringIO()
    ConsoleTracker(stream).log(3, {})
    assert stream.getvalue() == "step 3\n"


def test_a_terminal_shows_a_bar_and_the_course_of_the_reward(terminal: Terminal) -> None:
    assert is_live(terminal.stream)
    tracker = ConsoleTracker(terminal.stream, total_steps=3)
    tracker.start({})
    for step, reward in ((1, 0.0), (2, 0.5), (3, 1.0)):
        tracker.log(step, {**ROW, "reward": reward})
    tracker.say("above [the] bar")
    tracker.finish("succeeded")
    shown = terminal.shown()
    assert "3/3" in shown
    assert "▁▅█" in shown
    assert "reward 1.000" in shown
    assert "eta 1m 20s" in shown
    assert "above [the] bar" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1, "the cursor was not given back"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("CI", "true"), ("TERM", "dumb")])
def test_a_terminal_that_wants_no_moving_pictures_gets_lines(
    name: str, value: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    tracker = ConsoleTracker(terminal.stream, total_steps=3)
    tracker.start({})
    tracker.log(1, {"reward": 0.5})
    tracker.finish("succeeded")
    assert terminal.shown() == "step 1/3  reward 0.500\r\n"


def test_a_terminal_without_the_characters_gets_numbers(terminal: Terminal) -> None:
    with os.fdopen(os.dup(terminal.stream.fileno()), "w", encoding="ascii", errors="replace") as stream:
        tracker = ConsoleTracker(stream, total_steps=2, live=True)
        tracker.start({})
        tracker.log(1, {"reward": 0.5})
        tracker.finish("succeeded")
    shown = terminal.shown()
    assert "reward 0.500" in shown
    assert "▁" not in shown


@pytest.mark.parametrize(
    ("values", "bars"),
    [([], ""), ([3.0], "▁"), ([2, 2, 2], "▁▁▁"), ([0, 1], "▁█"), ([0, 7, 3.5, -7], "▅█▇▁"), (range(8), "▁▂▃▄▅▆▇█")],
)
def test_bars_go_from_the_lowest_to_the_highest(values: list[float], bars: str) -> None:
    assert sparkline(list(values)) == bars


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0.4, "0s"), (59.4, "59s"), (59.6, "1m 00s"), (61, "1m 01s"), (3599.7, "1h 00m"), (90_000, "25h 00m")],
)
def test_spans_of_time_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


class Recorder:
    """A tracker that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def start(self, config: Mapping[str, Any]) -> None:
        self.seen.append(dict(config))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.seen.append((step, metrics))

    def finish(self, status: str) -> None:
        self.seen.append(status)


class Vandal:
    """A tracker that changes what it is given and fails all the time."""

    def start(self, config: Mapping[str, Any]) -> None:
        raise OSError("no network")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        metrics.clear()  # type: ignore[attr-defined]
        raise ValueError(f"step {step}")

    def finish(self, status: str) -> None:
        raise RuntimeError("still no network")


def test_a_failing_tracker_is_logged_once_and_stops_nobody() -> None:
    lines: list[str] = []
    before, after = Recorder(), Recorder()
    fenced = FencedTrackers([before, Vandal(), after, Vandal()], lines.append)
    fenced.start({"a": 1})
    for step in (1, 2):
        fenced.log(step, {"loss": 0.5})
    fenced.finish("succeeded")
    assert before.seen == after.seen == [{"a": 1}, (1, {"loss": 0.5}), (2, {"loss": 0.5}), "succeeded"]
    assert len(lines) == 2, "once per tracker"
    assert re.match(r"tracker Vandal failed \(OSError: no network\); the run goes on", lines[0])
    assert "in start" in lines[0], "the place of the failure is missing"


def test_ctrl_c_passes_the_fence() -> None:
    class Interrupted(Vandal):
        def log(self, step: int, metrics: Mapping[str, float]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FencedTrackers([Interrupted()], print).log(1, {})
