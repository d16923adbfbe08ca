"""What holds for every learner: the order of calls, finite metrics per step, and a state from which work continues."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dragonet.learn.advantages import ESTIMATORS
from dragonet.learn.batch import TrainBatch, make_batch
from dragonet.learn.learner import LocalLearner
from dragonet.learn.objective import Objective
from dragonet.learn.step import OptimizerSettings
from dragonet.models.tiny import tiny_model
from dragonet.protocols import Learner
from dragonet.testing import FakeLearner, scored_group


def local(objective: Objective, dropout: float = 0.0) -> LocalLearner:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, lora_dropout=dropout, target_modules="all-linear", task_type="CAUSAL_LM")
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore", FutureWarning)
        torch.manual_seed(0)
        model = get_peft_model(tiny_model(), config).eval()
    return LocalLearner(model, objective, OptimizerSettings(1e-2, total_steps=9), micro_batch=2)


MAKERS: dict[str, Callable[[], Learner]] = {
    "fake": FakeLearner,
    "local": lambda: local(Objective()),
    "local, two updates": lambda: local(Objective(updates=2, beta=0.1)),
    "local, kl in reward": lambda: local(Objective(loss="rloo", beta=0.1, kl_in="reward")),
    "local, dropout": lambda: local(Objective(), dropout=0.2),
}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS.keys())
def make(request: pytest.FixtureRequest) -> Callable[[], Learner]:
    return request.param


def round_of(rewards: list[list[float | None]]) -> TrainBatch:
    return make_batch([scored_group(group, lengths=[1 + n for n, _ in enumerate(group)]) for group in rewards])


def play(learner: Learner, rewards: list[list[float | None]]) -> list[dict[str, float]]:
    batch = round_of(rewards)
    learner.annotate(batch)
    batch.advantages = ESTIMATORS["grpo"](batch.group_batch())
    return learner.update(batch)


USUAL: list[list[float | None]] = [[1.0, 0.0, 0.5], [0.0, None, 1.0]]


def same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else bool(a == b)


def test_it_has_the_shape(make: Callable[[], Learner]) -> None:
    assert isinstance(make(), Learner)


@pytest.mark.parametrize("rewards", [USUAL, [[1.0, 1.0]], [[None, None]], [[1.0]]])
def test_each_step_answers_with_finite_plain_numbers(
    make: Callable[[], Learner], rewards: list[list[float | None]]
) -> None:
    steps = play(make(), rewards)
    assert steps
    for metrics in steps:
        assert {"loss", "grad_norm", "lr"} <= metrics.keys()
        assert all(type(value) is float and math.isfinite(value) for value in metrics.values())
        assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics


def test_annotate_leaves_rewards_and_tokens_alone(make: Callable[[], Learner]) -> None:
    batch, untouched = round_of(USUAL), round_of(USUAL)
    make().annotate(batch)
    assert batch.advantages is None
    for row, other in zip(batch.rows, untouched.rows, strict=True):
        np.testing.assert_array_equal(row.ids, other.ids)
        np.testing.assert_array_equal(row.reward, other.reward)


def test_the_state_is_flat_and_of_tensors_and_plain_values(make: Callable[[], Learner]) -> None:
    learner = make()
    play(learner, USUAL)
    plain = {}
    for key, value in learner.state().items():
        assert isinstance(key, str)
        if not isinstance(value, torch.Tensor):
            plain[key] = value
    assert json.loads(json.dumps(plain)) == plain


def test_loading_a_state_continues_the_same_run(make: Callable[[], Learner]) -> None:
    learner = make()
    play(learner, USUAL)
    saved = learner.state()
    ends = [play(learner, [[0.5, 1.0], [0.0, 0.1]]), play(learner, USUAL)]

    resumed = make()
    resumed.load(saved)
    assert [play(resumed, [[0.5, 1.0], [0.0, 0.1]]), play(resumed, USUAL)] == ends
    one, two = learner.state(), resumed.state()
    assert one.keys() == two.keys()
    assert all(same(one[key], two[key]) for key in one)


def test_a_loaded_state_is_given_out_again(make: Callable[[], Learner]) -> None:
    learner, other = make(), make()
    play(learner, USUAL)
    saved = learner.state()
    other.load(saved)
    found = other.state()
    assert found.keys() == saved.keys()
    assert all(same(found[key], saved[key]) for key in saved)
