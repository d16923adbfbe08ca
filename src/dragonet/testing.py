"""Public fakes, one per seam of `dragonet.protocols`, so that users test against the same parts as dragonet's suite.

Each fake does the real thing in the smallest way: it keeps the seam's promises (the conformance suites run on it) and
records what it was asked. No torch is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dragonet.protocols import FloatArray, GroupBatch, Observation, StepResult
from dragonet.types import (
    Group,
    Prompt,
    Rollout,
    Sample,
    SampleRequest,
    Score,
    ScoredGroup,
    Segment,
    StopReason,
    rollout_seed,
)

if TYPE_CHECKING:
    import torch

__all__ = [
    "FakeEngine",
    "FakeEnvironment",
    "FakeLearner",
    "FakeReward",
    "FakeSource",
    "FakeTracker",
    "centred_estimator",
    "make_rollout",
    "scored_group",
]


def make_rollout(
    completion: str = "",
    *,
    prompt: str = "?",
    reference: str | None = None,
    row: Mapping[str, Any] | None = None,
    token_ids: Sequence[int] = (1,),
    member: int = 0,
) -> Rollout:
    """Build a single-turn rollout around a completion's text."""
    user = ({"role": "user", "content": prompt},)
    return Rollout(
        prompt=Prompt(messages=user, reference=reference, row=row or {}),
        segments=(
            Segment((0,), sampled=False),
            Segment(tuple(token_ids), sampled=True, logprobs=(-1.0,) * len(token_ids), version=0),
        ),
        completion=completion,
        stop_reason=StopReason.EOS,
        prompt_text=prompt,
        member=member,
    )


def scored_group(rewards: Sequence[float | None], *, lengths: Sequence[int] | None = None) -> ScoredGroup:
    """Build a scored group with one reward per member; None stands for a reward that failed."""
    lengths = lengths or [1] * len(rewards)
    rollouts = tuple(make_rollout(token_ids=(1,) * n, member=i) for i, n in enumerate(lengths))
    scores = tuple((Score(failure="fake") if r is None else Score(r),) for r in rewards)
    return ScoredGroup(Group(rollouts[0].prompt, rollouts), scores, tuple(rewards))


class FakeReward:
    """Score by a plain function of the rollout; what it returns must already be a Score or a number."""

    unit = "rollout"

    def __init__(self, fn: Callable[[Rollout], Score | float], *, name: str = "fake", weight: float = 1.0) -> None:
        self.name, self.weight, self._fn = name, weight, fn
        self.closed = False

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        answers = [self._fn(rollout) for rollout in rollouts]
        return [a if isinstance(a, Score) else Score(float(a)) for a in answers]

    def close(self) -> None:
        self.closed = True


class FakeEnvironment:
    """Answer each action with the next of a list of steps; the last one terminates."""

    def __init__(self, steps: Sequence[tuple[str, float]]) -> None:
        self._steps, self._turn = list(steps), 0
        self.actions: list[str] = []
        self.closed = False

    async def reset(self, prompt: Prompt) -> Observation:
        return Observation(messages=prompt.messages)

    async def step(self, action: str) -> StepResult:
        self.actions.append(action)
        text, reward = self._steps[self._turn]
        self._turn += 1
        reply = Observation(messages=({"role": "user", "content": text},))
        return StepResult(reply, reward=reward, terminated=self._turn == len(self._steps))

    async def close(self) -> None:
        self.closed = True


class FakeEngine:
    """Answer every request from `script(ids, seed) -> token ids`, as if a model had sampled them.

    A script that ends with `eos_id` stops with EOS, one that runs past `max_new_tokens` is cut with LENGTH. Every token
    has log-probability -1.
    """

    def __init__(self, script: Callable[[tuple[int, ...], int], Sequence[int]], *, eos_id: int) -> None:
        self._script, self._eos = script, eos_id
        self._sessions: dict[str, tuple[int, ...]] = {}
        self.version = 0
        self.requests: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> list[Sample]:
        self.requests.append(request)
        history = request.prompt_ids
        if request.session is not None:
            history = self._sessions.pop(request.session, ()) + request.new_ids
        samples = [self._draw(history, seed, request.sampling.max_new_tokens) for seed in request.seeds]
        if request.session is not None and not request.last:
            self._sessions[request.session] = history + samples[0].token_ids
        return samples

    def _draw(self, history: tuple[int, ...], seed: int, limit: int) -> Sample:
        ids = tuple(self._script(history, seed))[:limit]
        stop = StopReason.EOS if ids and ids[-1] == self._eos else StopReason.LENGTH
        return Sample(ids, (-1.0,) * len(ids), stop, self.version)

    def load_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        self.version = version

    def close(self) -> None:
        self._sessions.clear()


class FakeSource:
    """Hand out the same prompts each round, answered by `answer(prompt, seed)`."""

    def __init__(self, prompts: Sequence[Prompt], answer: Callable[[Prompt, int], str], *, group_size: int = 2) -> None:
        self._prompts, self._answer, self._size = list(prompts), answer, group_size
        self._rounds = 0

    def next(self, round: int) -> list[Group]:
        self._rounds += 1
        return [Group(p, tuple(self._rollout(p, round, m) for m in range(self._size))) for p in self._prompts]

    def _rollout(self, prompt: Prompt, round: int, member: int) -> Rollout:
        seed = rollout_seed(0, round, 0, prompt.index, member, 0)
        text = self._answer(prompt, seed)
        ids = tuple(text.encode()) or (0,)
        segments = (Segment((0,), sampled=False), Segment(ids, True, (-1.0,) * len(ids), 0))
        return Rollout(prompt, segments, text, StopReason.EOS, prompt.text, seed, round, 0, member)

    def state(self) -> dict[str, Any]:
        return {"rounds": self._rounds}

    def load(self, state: Mapping[str, Any]) -> None:
        self._rounds = int(state["rounds"])


def centred_estimator(batch: GroupBatch) -> FloatArray:
    """Spread the reward minus its group's mean over the sampled tokens; the smallest AdvantageEstimator."""
    rewards = batch.rewards_P_G
    scored = np.isfinite(rewards)
    filled = np.where(scored, rewards, 0.0)
    mean = filled.sum(1, keepdims=True) / np.maximum(scored.sum(1, keepdims=True), 1)
    advantages: FloatArray = np.where(scored, filled - mean, 0.0)[:, :, None] * (batch.mask_P_G_T > 0)
    return advantages


class FakeLearner:
    """Count what it is given; its only weight is the number of updates."""

    def __init__(self, metrics: Mapping[str, float] | None = None) -> None:
        self._metrics = dict(metrics or {"loss": 0.5, "grad_norm": 1.0, "lr": 1e-5})
        self.annotated = 0
        self.updates = 0

    def annotate(self, batch: Any) -> None:
        self.annotated += 1

    def update(self, batch: Any) -> list[dict[str, float]]:
        self.updates += 1
        return [dict(self._metrics)]

    def state(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load(self, state: Mapping[str, Any]) -> None:
        self.updates = int(state["updates"])


class FakeTracker:
    """Remember every call; raise on `log` when told to, as a broken tracker would."""

    def __init__(self, *, broken: bool = False) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._broken = broken

    def start(self, config: Mapping[str, Any]) -> None:
        self.calls.append(("start", dict(config)))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._broken:
            raise ConnectionError("the tracker's server is gone")
        self.calls.append(("log", step, dict(metrics)))

    def finish(self, status: str) -> None:
        self.calls.append(("finish", status))
