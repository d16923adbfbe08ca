"""Rewards that compare plain text: exact, contains, numeric, length, keyword.

Each is a judge of one rule. What counts as the same text is decided in normalise.py alone, what a number is in
numbers.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dragonet.errors import ConfigError
from dragonet.rewards import numbers
from dragonet.rewards.judge import Judge, by_reference, by_text
from dragonet.rewards.normalise import EDGES, canonical, edged, fold, join_groups
from dragonet.types import Rollout, Score

__all__ = ["contains", "exact", "keyword", "length", "numeric"]


def exact() -> Judge:
    """1 if the answer is the reference."""
    return Judge(by_reference(_unusable, canonical, lambda text, wanted: canonical(text) == wanted), _unusable)


def contains() -> Judge:
    """1 if the reference appears in the answer."""
    return Judge(by_reference(_unusable, _Needle.of, lambda text, needle: needle.within(text, fold(text))), _unusable)


def numeric(tolerance: float | None = None) -> Judge:
    """1 if the last number of the answer equals the reference's."""

    def worth(text: str, wanted: numbers.Number | None) -> bool:
        number = numbers.read(text).number
        return number is not None and wanted is not None and numbers.equal(number, wanted, tolerance)

    return Judge(by_reference(_no_number, lambda reference: numbers.read(reference).number, worth), _no_number)


def length(min_chars: int | None = None, max_chars: int | None = None) -> Judge:
    """1 inside the bounds, falling in proportion outside; counts code points of the trimmed text."""
    if min_chars is None and max_chars is None:
        raise ConfigError("give min_chars, max_chars or both; without a bound every length is worth the same")
    if min_chars is not None and max_chars is not None and min_chars > max_chars:
        raise ConfigError(f"min_chars {min_chars} is above max_chars {max_chars}, so no length fits")

    def worth(n: int) -> float:
        if min_chars is not None and n < min_chars:
            return n / min_chars
        if max_chars is not None and n > max_chars:
            return max(0.0, 1.0 - (n - max_chars) / max_chars)
        return 1.0

    def score(texts: Sequence[str], rollouts: Sequence[Rollout]) -> list[Score]:
        return [Score(worth(len(text.strip(EDGES)))) for text in texts]

    return Judge(score)


def keyword(words: Sequence[str], mode: str = "any") -> Judge:
    """`any`: 1 if one of the words appears; `all`: the share of different words that do."""
    empty = [word for word in words if not fold(word)]
    if empty:
        raise ConfigError(f"words holds {empty[0]!r}, and an empty word is in every text; take it out")
    needles = list({needle.text: needle for needle in map(_Needle.of, words)}.values())

    def worth(text: str) -> float:
        folded = fold(text)
        found = (needle.within(text, folded) for needle in needles)
        return any(found) if mode == "any" else sum(found) / len(needles)

    return Judge(by_text(worth))


def _unusable(reference: str | None) -> str | None:
    if reference is None:
        return "is missing"
    return None if fold(reference) else "is empty"


def _no_number(reference: str | None) -> str | None:
    if reference is None:
        return "is missing"
    reason = numbers.unusable(reference)
    hint = "; numeric compares plain numbers: for text use exact or contains, for other values the math reward"
    return reason if reason in (None, "is empty") else f"{reason}{hint}"


@dataclass(frozen=True, slots=True)
class _Needle:
    """A normalised text that can be found at word edges."""

    text: str
    pattern: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> _Needle:
        text = canonical(text)
        return cls(text, edged(text))

    def within(self, raw: str, folded: str) -> bool:
        """Whether the needle appears; `folded` is the folded form of `raw`."""
        if self.text not in folded:
            return False
        if self.text[0].isdecimal() and " " not in self.text and not raw.isascii():
            folded = fold(join_groups(raw))
        return self.pattern.search(folded) is not None
