"""The nouns of dragonet, frozen: what flows from a table row to an optimizer step.

Ragged containers carry axis suffixes: `_P` prompts, `_G` group members, `_T` tokens, `_K` rewards.
This file knows no torch, no text normalisation and no files; rooms of one level meet through it.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = [
    "NA",
    "Group",
    "Message",
    "NotApplicable",
    "Prompt",
    "Rollout",
    "Sample",
    "SampleRequest",
    "Sampling",
    "Score",
    "ScoredGroup",
    "Segment",
    "StopReason",
    "rollout_seed",
]

Message = Mapping[str, Any]
"""One chat message: `role` (system, user, assistant, tool) and `content`."""


class NotApplicable:
    """The answer of a reward that has nothing to say about a rollout; there is one instance, `dragonet.NA`."""

    _instance: NotApplicable | None = None

    def __new__(cls) -> NotApplicable:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "dragonet.NA"

    def __reduce__(self) -> tuple[type[NotApplicable], tuple[()]]:
        return (NotApplicable, ())

    def __bool__(self) -> bool:
        return False


NA: Final = NotApplicable()


class StopReason(enum.StrEnum):
    """Why a rollout ended."""

    EOS = "eos"  # the policy chose an end token
    STOP = "stop"  # a stop string appeared in the sampled text
    LENGTH = "length"  # max_new_tokens of the (last) turn was used up
    ENV_DONE = "env_done"  # the environment terminated the episode
    ENV_TRUNCATED = "env_truncated"  # the environment cut the episode short
    MAX_TURNS = "max_turns"  # the limit on turns was reached
    BUDGET = "budget"  # the limit on tokens of the whole episode was reached
    ERROR = "error"  # sampling or the environment failed; Rollout.error says how

    @property
    def truncated(self) -> bool:
        """Whether the policy was cut off rather than finished by itself or the environment."""
        return self in (StopReason.LENGTH, StopReason.BUDGET, StopReason.MAX_TURNS)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model sees for one row, plus what rewards may need to judge the answer.

    `index` is the row's number in the user's table, from 0. `row` holds every column with its loaded value
    (blank cells are absent keys). `reference` is None when no reference column is mapped or the cell is blank.
    """

    messages: tuple[Message, ...]
    reference: str | None = None
    row: Mapping[str, Any] = field(default_factory=dict)
    index: int = 0

    @property
    def text(self) -> str:
        """The last user message."""
        for message in reversed(self.messages):
            if message["role"] == "user":
                return str(message["content"])
        return str(self.messages[-1]["content"]) if self.messages else ""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens with one origin: environment text (mask 0) or sampled by the policy (mask 1).

    `logprobs` (one per token, natural log, full distribution at the sampling temperature) and `version` (of the
    weights) exist for sampled segments only.
    """

    token_ids: tuple[int, ...]
    sampled: bool
    logprobs: tuple[float, ...] = ()
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """Everything sampled for one prompt once.

    `completion` is the text of the last sampled segment without special tokens, cut at a stop string.
    `prompt_text` is the rendered prompt, exactly what the model saw. `error` is set when `stop_reason` is ERROR.
    """

    prompt: Prompt
    segments: tuple[Segment, ...]
    completion: str
    stop_reason: StopReason
    prompt_text: str = ""
    seed: int = 0
    round: int = 0
    attempt: int = 0
    member: int = 0
    transcript: tuple[Message, ...] = ()
    error: str | None = None

    @property
    def n_sampled(self) -> int:
        """Number of sampled tokens (mask 1)."""
        return sum(len(s.token_ids) for s in self.segments if s.sampled)


@dataclass(frozen=True, slots=True)
class Score:
    """What one reward says of one rollout: a finite number, not applicable, or failed to score.

    Exactly one of these holds: `value` is a finite number (scored); `failure` is a reason (failed);
    both are None (not applicable). `filter_value` feeds dynamic filtering, `logs` the trackers.
    """

    value: float | None = None
    failure: str | None = None
    filter_value: float | None = None
    logs: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.value is not None and (self.failure is not None or not math.isfinite(self.value)):
            raise ValueError(f"a score is a finite number or a failure, got {self.value} and {self.failure!r}")

    @property
    def status(self) -> str:
        """One of scored, not_applicable, failed."""
        if self.failure is not None:
            return "failed"
        return "not_applicable" if self.value is None else "scored"


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one prompt."""

    prompt: Prompt
    rollouts: tuple[Rollout, ...]


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group with what each reward said and the weighted sum that training uses.

    `scores_G_K` holds one Score per member and reward; `rewards_G` is None where a rollout is unscored: a reward
    failed, or none applied. Such a rollout is outside every statistic and has advantage 0.
    """

    group: Group
    scores_G_K: tuple[tuple[Score, ...], ...]
    rewards_G: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. `temperature` 0 is greedy; `top_p` 1, `top_k` 0 and `min_p` 0 are off."""

    max_new_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Ask for `n` continuations of one token sequence.

    Either `prompt_ids` alone (single turn), or a `session` whose history is extended by `new_ids` (the first request
    of a session gives the whole prompt as `new_ids`; sessions take n = 1). `seeds` holds one seed per continuation.
    `last` says that the session will not be used again.
    """

    sampling: Sampling
    seeds: tuple[int, ...]
    prompt_ids: tuple[int, ...] = ()
    session: str | None = None
    new_ids: tuple[int, ...] = ()
    n: int = 1
    last: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """One continuation: ids with the end token that was chosen, and one log-probability per id.

    `version` is that of the weights that sampled it.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: StopReason
    version: int = 0


def rollout_seed(run_seed: int, round: int, attempt: int, row: int, member: int, turn: int) -> int:
    """Return the 63-bit seed of one sampled segment, so that no two segments of a run share one."""
    key = f"{run_seed}/{round}/{attempt}/{row}/{member}/{turn}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 1
