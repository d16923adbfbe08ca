"""What the engine says of the tokens it sampled is what the trainer computes for them."""

from __future__ import annotations

import asyncio

import pytest
import torch
from learn_helpers import batch_with, given, policy, rollout, sampled, scored

from dragonet.learn.advantages import ESTIMATORS
from dragonet.learn.learner import LocalLearner
from dragonet.learn.objective import Objective
from dragonet.learn.step import OptimizerSettings
from dragonet.models.tiny import TINY_KINDS
from dragonet.rollout.local_engine import LocalEngine
from dragonet.types import SampleRequest, Sampling


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-4), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("kind", TINY_KINDS)
def test_sampler_gap(kind: str, dtype: torch.dtype, limit: float) -> None:
    model = policy(kind, dtype)
    engine = LocalEngine(model, eos_ids=frozenset({7}), pad_id=258, decode=lambda _: "", context_length=512)
    prompts = [tuple(range(30, 30 + n)) for n in (3, 9, 21)]

    async def ask() -> list[list[object]]:
        sampling = Sampling(max_new_tokens=12, temperature=0.8)
        requests = [SampleRequest(sampling, (1, 2, 3), prompt_ids=ids, n=3) for ids in prompts]
        return await asyncio.gather(*map(engine.sample, requests))

    groups = []
    for ids, samples in zip(prompts, asyncio.run(ask()), strict=True):
        members = [
            rollout(given(*ids), sampled(*s.token_ids, logprobs=s.logprobs), stop=s.stop_reason) for s in samples
        ]
        groups.append(scored([1.0, 0.0, 0.5], members))
    learner = LocalLearner(model, Objective(temperature=0.8, updates=2), OptimizerSettings(0.0, 2))
    batch = batch_with(ESTIMATORS["grpo"], groups, learner)
    gap = learner.update(batch)[0]["sampler_gap"]
    assert 0 <= gap < limit
    if dtype == torch.float32:  # the gap notices a trainer that forgets the temperature
        other = LocalLearner(model, Objective(temperature=1.0, updates=2), OptimizerSettings(0.0, 2))
        assert other.update(batch_with(ESTIMATORS["grpo"], groups, other))[0]["sampler_gap"] > 100 * limit
