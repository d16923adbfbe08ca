"""Shared by the tests of this room: tiny policies whose adapter does something, and rounds of made-up rollouts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dragonet.learn.batch import TrainBatch, make_batch
from dragonet.models.tiny import tiny_model
from dragonet.protocols import GroupBatch
from dragonet.types import Group, Prompt, Rollout, Score, ScoredGroup, Segment, StopReason


def policy(kind: str = "llama", dtype: torch.dtype = torch.float32, seed: int = 0, dropout: float = 0.0) -> Any:
    """Return a tiny model with a LoRA adapter that is not zero, so that the reference differs from the policy."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=4, lora_alpha=8, lora_dropout=dropout, target_modules="all-linear", task_type="CAUSAL_LM")
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore", FutureWarning)
        model = get_peft_model(tiny_model(kind, seed=seed, dtype=dtype), config)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if parameter.requires_grad:
                scale = 0.05 if ".lora_B." in name else 0.2
                parameter.copy_(torch.from_numpy(rng.standard_normal(tuple(parameter.shape)) * scale))
    return model.eval()


def rollout(*segments: Segment, stop: StopReason = StopReason.EOS) -> Rollout:
    return Rollout(prompt=Prompt(()), segments=segments, completion="", stop_reason=stop)


def given(*ids: int) -> Segment:
    return Segment(ids, sampled=False)


def sampled(*ids: int, logprobs: Sequence[float] | None = None) -> Segment:
    return Segment(ids, sampled=True, logprobs=tuple(logprobs or [-5.0] * len(ids)))


def scored(rewards: Sequence[float | None], rollouts: Sequence[Rollout]) -> ScoredGroup:
    scores = tuple((Score(value=r) if r is not None else Score(failure="down"),) for r in rewards)
    return ScoredGroup(Group(Prompt(()), tuple(rollouts)), scores, tuple(rewards))


def random_round(rewards: Sequence[Sequence[float | None]], seed: int = 0, longest: int = 6) -> list[ScoredGroup]:
    """Return one group per entry of `rewards`, with prompts and answers of random ids and lengths."""
    rng = np.random.default_rng(seed)
    groups = []
    for group in rewards:
        prompt = given(*rng.integers(0, 256, size=int(rng.integers(2, 7))).tolist())
        members = []
        for _ in group:
            n = int(rng.integers(1, longest + 1))
            ids = rng.integers(0, 256, size=n).tolist()
            members.append(rollout(prompt, sampled(*ids, logprobs=(-5.0 - rng.random(n)).tolist())))
        groups.append(scored(group, members))
    return groups


def batch_with(estimator: Any, groups: Sequence[ScoredGroup], learner: Any = None) -> TrainBatch:
    batch = make_batch(groups)
    if learner is not None:
        learner.annotate(batch)
    batch.advantages = estimator(batch.group_batch())
    return batch


def group_batch(
    rewards: Sequence[Sequence[float | None]], lengths: Sequence[Sequence[int]] | None = None
) -> GroupBatch:
    """Return rewards (None is unscored) with `lengths` sampled tokens each, one by default."""
    values = np.array([[np.nan if r is None else r for r in row] for row in rewards], dtype=np.float64)
    counts = np.ones_like(values) if lengths is None else np.array(lengths)
    mask = (np.arange(int(counts.max())) < counts[:, :, None]).astype(np.float64)
    return GroupBatch(values, mask)
