"""A reward of one type with what all types share: weight, name, answer, when, clip.

Satisfies the Reward protocol by composition: a judge (judge.py) says what a text is worth; this file decides which
rollouts it is asked about, which part of the text it sees, and how the value is clipped. Equal specs are equal rewards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dragonet.rewards.answer import Answer
from dragonet.rewards.condition import Condition
from dragonet.rewards.judge import TOO_LATE, Judge
from dragonet.types import Rollout, Score

__all__ = ["TypedReward"]


@dataclass(frozen=True)
class TypedReward:
    """One reward. Make it with `reward(type, ...)`; `keys` are the type's own, with their defaults."""

    type: str
    name: str
    weight: float
    keys: Mapping[str, Any]
    judge: Judge = field(compare=False, repr=False)
    answer: Answer | None = field(compare=False, repr=False)  # None: the raw completion
    common: Mapping[str, Any] = field(default_factory=dict)  # answer, when and clip, where they were given
    when: Condition | None = None
    shown: tuple[tuple[str, Any], ...] = field(default=(), compare=False)  # what the repr holds

    @property
    def unit(self) -> str:
        """Each rollout is scored by itself."""
        return "rollout"

    def __repr__(self) -> str:
        keys = "".join(f", {key}={value!r}" for key, value in self.shown)
        return f"dragonet.reward({self.type!r}{keys})"

    def __hash__(self) -> int:
        return hash((self.type, self.name, self.weight, repr(self.keys), repr(self.common)))

    def spec(self) -> dict[str, Any]:
        """Return the keys that make this reward again, as JSON values."""
        own = {key: list(v) if isinstance(v, tuple) else v for key, v in self.keys.items() if v is not None}
        shared = {key: list(v) if isinstance(v, tuple) else v for key, v in self.common.items()}
        return {"type": self.type, "weight": self.weight, "name": self.name, **own, **shared}

    def start(self) -> None:
        """Make ready. Raises UserCodeError when a user's function cannot be used."""
        self.judge.start()

    def check(self, reference: str | None) -> str | None:
        """Say why a reference cannot be used, or None."""
        return self.judge.check(reference)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """Score each rollout."""
        scores = [Score()] * len(rollouts)
        asked = [i for i, r in enumerate(rollouts) if self.when is None or self.when.holds(r.prompt.row)]
        chosen = [rollouts[i] for i in asked]
        texts = [r.completion for r in chosen] if self.answer is None else self.answer.of(chosen)
        found = [(i, text) for i, text in zip(asked, texts, strict=True) if text is not None]
        for i, text in zip(asked, texts, strict=True):
            if text is None:
                scores[i] = TOO_LATE
        judged = self.judge.score([text for _, text in found], [rollouts[i] for i, _ in found])
        for (i, _), score in zip(found, judged, strict=True):
            scores[i] = self._clipped(score)
        return scores

    def take_output(self) -> str:
        """Return what the user's function printed since the last call."""
        return self.judge.output()

    def close(self) -> None:
        """End the workers. Scoring again starts new ones."""
        self.judge.close()
        if self.answer is not None:
            self.answer.close()

    def _clipped(self, score: Score) -> Score:
        if "clip" not in self.common or score.value is None:
            return score
        low, high = self.common["clip"]
        return dataclasses.replace(score, value=min(max(score.value, low), high))
