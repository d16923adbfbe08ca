"""User patterns on model text, in a worker that can be killed.

Owns compiling a pattern with a message that points at the mistake, and the two ways of asking: does it match, and what
did its last match capture. Refuses to know what a match is worth.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

from dragonet.errors import ConfigError
from dragonet.host.pool import Pool
from dragonet.rewards.judge import MAX_CHARS

__all__ = ["Matcher"]

_SOFT_LIMIT_S = 0.5  # of processor time; the worker gives up by itself and lives on
_HARD_LIMIT_S = 1.6  # of wall time; the worker is killed


class Matcher:
    """One pattern, searched in the raw text. Raises ConfigError when it does not compile or is empty."""

    def __init__(self, pattern: str, *, case_sensitive: bool, last: bool = False, what: str = "pattern") -> None:
        flags = 0 if case_sensitive else re.IGNORECASE
        if not pattern:
            raise ConfigError(f"{what} is empty, and an empty pattern matches every text; write what must appear")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                re.compile(pattern, flags)
        except re.error as error:
            at = "" if error.pos is None else f" at position {error.pos}\n    {pattern}\n    {' ' * error.pos}^"
            raise ConfigError(f"{what} {pattern!r} is not a regular expression: {error.msg}{at}") from None
        except (OverflowError, RecursionError, ValueError) as error:
            raise ConfigError(f"{what} {pattern[:80]!r} is not a usable regular expression: {error}") from None
        self._pool = Pool(
            "dragonet.host.bounded:searcher",
            {"pattern": pattern, "flags": flags, "last": last, "limit_s": _SOFT_LIMIT_S},
        )

    def found(self, texts: Sequence[str]) -> list[bool | None]:
        """Say of each text whether the pattern matches; None where that took too long."""
        return [None if answer is None else bool(answer[0]) for answer in self._ask(texts)]

    def captured(self, texts: Sequence[str]) -> list[str | None]:
        """Return of each text what the last match captured ("" without a match); None where that took too long."""
        return [None if answer is None else str(answer[0] or "") for answer in self._ask(texts)]

    def close(self) -> None:
        """End the worker."""
        self._pool.close()

    def _ask(self, texts: Sequence[str]) -> list[list[bool | str | None] | None]:
        out: list[list[bool | str | None] | None] = [None] * len(texts)
        short = [i for i, text in enumerate(texts) if len(text) <= MAX_CHARS]
        for i, outcome in zip(short, self._pool.call([texts[i] for i in short], _HARD_LIMIT_S), strict=True):
            out[i] = outcome.value or None  # a text whose matching kills the worker cannot be judged either
        return out
