"""Watching a run: the console, and the fence around every observer.

Owns the progress bar on a terminal, the one plain line per step elsewhere, and the rule that what an observer raises
is logged once and never stops training. The store itself (metrics.jsonl) is no observer: its errors do stop a run.
Only the console tracker prints, into the stream it is given.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeGuard

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from dragonet.protocols import Tracker

__all__ = ["ConsoleTracker", "FencedTrackers", "duration", "sparkline"]

_BARS: Final = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH: Final = 24

# column -> label and format of a plain line, in order; what a row lacks is left out
_COLUMNS: Final = (
    ("reward", "reward", "{:.3f}"),
    ("reward_std", "std", "{:.3f}"),
    ("loss", "loss", "{:.4f}"),
    ("kl", "kl", "{:.4f}"),
    ("flat", "flat", "{:.0%}"),
    ("completion_len", "len", "{:.1f}"),
    ("truncated", "truncated", "{:.0%}"),
    ("failed", "failed", "{:.0%}"),
)
_QUIET: Final = frozenset({"truncated", "failed"})  # shown only when they are not zero


class ConsoleTracker:
    """Show steps on a stream: a bar with ETA and the course of the reward on a terminal, else one line per step."""

    def __init__(self, stream: TextIO, *, total_steps: int | None = None, live: bool | None = None) -> None:
        self._stream = stream
        self._total = total_steps
        self._live = is_live(stream) if live is None else live
        self._rewards: list[float] = []
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def start(self, config: Mapping[str, Any]) -> None:
        """Show the bar; a plain stream stays silent until the first step."""
        if not self._live:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("step"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}", markup=False),
            console=Console(file=self._stream, highlight=False),
            refresh_per_second=4,
        )
        self._task = self._progress.add_task("step", total=self._total, facts="")
        self._progress.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show one step."""
        reward = metrics.get("reward")
        if _is_number(reward):
            self._rewards = [*self._rewards, float(reward)][-_SPARK_WIDTH:]
        if self._progress is None or self._task is None:
            self.say(plain_line(step, self._total, metrics))
            return
        spark = sparkline(self._rewards)
        try:
            spark.encode(getattr(self._stream, "encoding", None) or "utf-8")
        except (UnicodeEncodeError, LookupError):
            spark = ""
        facts = "  ".join(part for part in (spark, *_facts(metrics, ("reward", "loss")), *_eta(metrics)) if part)
        self._progress.update(self._task, completed=step, total=self._total, facts=facts)

    def say(self, text: str) -> None:
        """Print a line, above the bar where there is one."""
        if self._progress is not None:
            self._progress.console.print(text, markup=False, highlight=False)
        else:
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def finish(self, status: str) -> None:
        """Leave the last state on the screen and give the cursor back."""
        if self._progress is not None:
            progress, self._progress = self._progress, None
            progress.stop()


class FencedTrackers:
    """Several trackers as one. What one of them raises is logged once per tracker; training and the others go on."""

    def __init__(self, trackers: Iterable[Tracker], log: Callable[[str], object]) -> None:
        self._trackers = tuple(trackers)
        self._log = log
        self._failed: set[int] = set()

    def start(self, config: Mapping[str, Any]) -> None:
        """Start each tracker."""
        self._each(lambda tracker: tracker.start(config))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Pass one step on, a copy to each."""
        self._each(lambda tracker: tracker.log(step, dict(metrics)))

    def finish(self, status: str) -> None:
        """Finish each tracker."""
        self._each(lambda tracker: tracker.finish(status))

    def _each(self, call: Callable[[Tracker], object]) -> None:
        for position, tracker in enumerate(self._trackers):
            try:
                call(tracker)
            except Exception as error:
                if position not in self._failed:
                    self._failed.add(position)
                    details = "".join(traceback.format_exception(error)).rstrip()
                    self._log(
                        f"tracker {type(tracker).__name__} failed ({type(error).__name__}: {error}); the run goes on, "
                        f"further failures of it are not logged\n{details}"
                    )


def is_live(stream: TextIO) -> bool:
    """Tell whether the stream is a terminal that wants moving pictures."""
    quiet = os.environ.get("NO_COLOR") or os.environ.get("CI") or os.environ.get("TERM") == "dumb"
    return not quiet and stream.isatty()


def plain_line(step: int, total: int | None, metrics: Mapping[str, float]) -> str:
    """Return one step as a line of text."""
    head = f"step {step}" if total is None else f"step {step:>{len(str(total))}}/{total}"
    return "  ".join([head, *_facts(metrics, [name for name, _, _ in _COLUMNS]), *_eta(metrics)])


def sparkline(values: Sequence[float]) -> str:
    """Return the course of some numbers in one line of bars, from their lowest to their highest."""
    if not values:
        return ""
    low, high = min(values), max(values)
    span = high - low
    return "".join(
        _BARS[min(int((value - low) / span * len(_BARS)), len(_BARS) - 1) if span else 0] for value in values
    )


def duration(seconds: float) -> str:
    """Return a span of time in the two largest of its units."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"


def _facts(metrics: Mapping[str, float], wanted: Sequence[str]) -> list[str]:
    facts = []
    for name, label, form in _COLUMNS:
        value = metrics.get(name)
        if name in wanted and _is_number(value) and not (name in _QUIET and value == 0):
            facts.append(f"{label} {form.format(value)}")
    return facts


def _eta(metrics: Mapping[str, float]) -> list[str]:
    eta = metrics.get("eta_s")
    return [f"eta {duration(eta)}"] if _is_number(eta) else []


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value - value == 0
