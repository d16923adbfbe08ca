"""Pattern matching that ends: a handler for a worker that gives up by itself.

CPython's matcher looks for signals while it backtracks, so a timer in the worker's main thread interrupts it and the
worker lives on; the pool kills it should even that fail. The timer counts processor time, so that a busy machine does
not turn a match into a miss.
"""

from __future__ import annotations

import re
import signal
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["searcher"]


class _Late(Exception):
    pass


def searcher(pattern: str, flags: int, last: bool, limit_s: float) -> tuple[Callable[[str], list[Any]], None]:
    """Return a handler of texts: [found] or, with `last`, [the last match's first group or None]; [] when too slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = re.compile(pattern, flags)
    find = _last if last else _any

    def late(signum: int, frame: Any) -> None:
        raise _Late

    def handle(text: str) -> list[Any]:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
            try:
                return [find(compiled, text)]
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except (_Late, MemoryError):
            return []

    signal.signal(signal.SIGVTALRM, late)
    return handle, None


def _any(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.search(text) is not None


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    found = None
    for match in pattern.finditer(text):
        found = match
    if found is None:
        return None
    return found.group(1 if pattern.groups else 0)
