"""The seams of dragonet, on one page.

Every seam is a Protocol of at most four methods. Each has a public fake in `dragonet.testing` and a conformance suite
in `tests/conformance` that runs on the fake and on the real parts alike. This file imports numpy for the type of an
array and nothing heavier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dragonet.types import Group, Message, Prompt, Rollout, Sample, SampleRequest, Sampling, Score

if TYPE_CHECKING:
    import torch

FloatArray = npt.NDArray[np.float64]


@runtime_checkable
class Reward(Protocol):
    """Is this good? `score` never raises for a bad completion; it returns one Score per rollout, in order."""

    @property
    def name(self) -> str: ...
    @property
    def weight(self) -> float: ...
    @property
    def unit(self) -> str:
        """`rollout`: may be called with any subset; `group`: must see whole groups."""
        ...

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Observation:
    """What the environment shows the model: chat messages, or raw text that is appended as it stands."""

    messages: tuple[Message, ...] = ()
    text: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one action led to. `terminated` (the task ended) and `truncated` (it was cut off) are different facts."""

    observation: Observation
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    sampling: Sampling | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Environment(Protocol):
    """One instance per episode."""

    async def reset(self, prompt: Prompt) -> Observation: ...
    async def step(self, action: str) -> StepResult: ...
    async def close(self) -> None: ...


@runtime_checkable
class RolloutEngine(Protocol):
    """Token ids in, token ids out.

    Concurrent `sample` calls are batched together: the engine takes what waits and admits it by tokens and order,
    never by the clock, so that the same calls in the same order give the same samples.
    """

    async def sample(self, request: SampleRequest) -> list[Sample]: ...
    def load_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Take over adapter weights by parameter name; a tensor the engine already shares is left alone."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class RolloutSource(Protocol):
    """Where a round's groups come from. `state` is JSON-serialisable and, loaded, continues the same sequence."""

    def next(self, round: int) -> list[Group]: ...
    def state(self) -> dict[str, Any]: ...
    def load(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """What an estimator sees of a round. Padded members have mask 0 everywhere and a NaN reward.

    rewards_P_G: (P, G) weighted sums, NaN where unscored · scores_P_G_K: (P, G, K), NaN where not a number ·
    mask_P_G_T: (P, G, T) 1 for sampled tokens · turn_rewards_P_G_T: (P, G, T) rewards of single turns on their last
    token, or None · kl_P_G_T and values_P_G_T: only for an estimator whose `needs` names them.
    """

    rewards_P_G: FloatArray
    mask_P_G_T: FloatArray
    scores_P_G_K: FloatArray | None = None
    weights_K: FloatArray | None = None
    turn_rewards_P_G_T: FloatArray | None = None
    kl_P_G_T: FloatArray | None = None
    values_P_G_T: FloatArray | None = None


class AdvantageEstimator(Protocol):
    """A pure numpy function of the round's rewards; returns (P, G, T), 0 on every token whose mask is 0."""

    def __call__(self, batch: GroupBatch) -> FloatArray: ...


@dataclass(frozen=True, slots=True)
class LossInput:
    """(B, T) tensors of one micro-batch. `logp` carries the gradient; `mask` is boolean."""

    logp: torch.Tensor
    old_logp: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor


class LossFn(Protocol):
    """Return per-token losses (B, T), before aggregation, and metrics as sums over the mask (B, T)."""

    def __call__(self, x: LossInput) -> tuple[torch.Tensor, dict[str, torch.Tensor]]: ...


@runtime_checkable
class Learner(Protocol):
    """Groups with advantages -> better weights; one process or many.

    `state` is a mapping of tensors and plain JSON values from which `load` continues bit for bit.
    """

    def annotate(self, batch: Any) -> None:
        """Fill in old and reference log-probabilities where the objective needs them."""
        ...

    def update(self, batch: Any) -> list[dict[str, float]]:
        """Make the round's optimizer steps; return the metrics of each."""
        ...

    def state(self) -> dict[str, Any]: ...
    def load(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class Tracker(Protocol):
    """An observer of a run. It is fenced: what it raises is logged once and never stops training."""

    def start(self, config: Mapping[str, Any]) -> None: ...
    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...
    def finish(self, status: str) -> None: ...
