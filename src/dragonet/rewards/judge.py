"""What one type of reward has to say: the inner seam of this room.

A judge sees texts that are already cut to the answer and says what they are worth; typed.py adds what all types share
(weight, name, answer, when, clip). This file refuses to know any type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dragonet.types import Rollout, Score

__all__ = ["MAX_CHARS", "TOO_LATE", "Judge", "by_reference", "by_text", "no_reference"]

MAX_CHARS = 500_000
"""Longer texts (some hundred thousand tokens) cannot be judged within 2 s on any machine, and are worth 0."""

TOO_LATE = Score(0.0, logs={"timeout": 1.0})
"""A text that could not be judged in time."""

Scorer = Callable[[Sequence[str], Sequence[Rollout]], list[Score]]
T = TypeVar("T")


def no_reference(reference: str | None) -> str | None:
    """Accept any reference: it is not read."""
    return None


@dataclass(frozen=True, slots=True)
class Judge:
    """`score` takes texts and their rollouts; `check` says why a reference cannot be used ("is empty"), or None.

    `start` makes ready and raises what would make every score fail; `close` ends workers; `output` returns what user
    code printed since the last call.
    """

    score: Scorer
    check: Callable[[str | None], str | None] = no_reference
    start: Callable[[], object] = lambda: None
    close: Callable[[], None] = lambda: None
    output: Callable[[], str] = lambda: ""


def by_text(worth: Callable[[str], float]) -> Scorer:
    """Score every text by itself."""

    def score(texts: Sequence[str], rollouts: Sequence[Rollout]) -> list[Score]:
        return [TOO_LATE if len(text) > MAX_CHARS else Score(float(worth(text))) for text in texts]

    return score


def by_reference(
    check: Callable[[str | None], str | None], prepare: Callable[[str], T], worth: Callable[[str, T], float]
) -> Scorer:
    """Score every text against its prompt's reference, which is prepared once per call."""

    def score(texts: Sequence[str], rollouts: Sequence[Rollout]) -> list[Score]:
        prepared: dict[str | None, T | Score] = {}
        out = []
        for text, rollout in zip(texts, rollouts, strict=True):
            reference = rollout.prompt.reference
            if reference not in prepared:
                reason = check(reference)
                prepared[reference] = prepare(reference or "") if reason is None else _unusable(reference, reason)
            wanted = prepared[reference]
            if isinstance(wanted, Score):
                out.append(wanted)
            elif len(text) > MAX_CHARS:
                out.append(TOO_LATE)
            else:
                out.append(Score(float(worth(text, wanted))))
        return out

    return score


def _unusable(reference: str | None, reason: str) -> Score:
    shown = "" if reference is None else f" {reference[:80]!r}"
    return Score(failure=f"the reference{shown} {reason}")
