"""The shared optimizer step: schedule by hand, clipping, the guard against non-finite steps, exact resume."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from dragonet.errors import ConfigError, TrainingError
from dragonet.learn.step import OptimizerSettings, OptimizerStep, learning_rate


def rates(**settings: Any) -> list[float]:
    made = OptimizerSettings(learning_rate=1.0, **settings)
    return [learning_rate(made, s) for s in range(made.total_steps)]


def test_schedules_by_hand() -> None:
    assert rates(total_steps=6, warmup=2, schedule="constant") == pytest.approx([0.5, 1, 1, 1, 1, 1])
    assert rates(total_steps=6, warmup=2, schedule="linear") == pytest.approx([0.5, 1, 1, 0.75, 0.5, 0.25])
    cosine = [0.5 * (1 + math.cos(math.pi * k / 4)) for k in range(4)]
    assert rates(total_steps=6, warmup=2) == pytest.approx([0.5, 1, *cosine])
    assert rates(total_steps=3, warmup=0, schedule="linear") == pytest.approx([1, 2 / 3, 1 / 3])


def test_warm_up_as_a_fraction_and_as_a_count() -> None:
    assert OptimizerSettings(1.0, total_steps=200, warmup=0.03).warmup_steps == 6
    assert OptimizerSettings(1.0, total_steps=10, warmup=0.03).warmup_steps == 1
    assert OptimizerSettings(1.0, total_steps=10, warmup=4).warmup_steps == 4
    assert OptimizerSettings(1.0, total_steps=10, warmup=0).warmup_steps == 0
    assert rates(total_steps=2, warmup=5) == pytest.approx([0.2, 0.4])


def test_past_the_end_the_rate_stays_at_its_floor() -> None:
    assert learning_rate(OptimizerSettings(1.0, total_steps=4), 9) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number"),
        ({"learning_rate": -1.0}, "learning_rate must be"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"warmup": 2.5}, "whole number of steps"),
        ({"warmup": -1}, "warmup is"),
        ({"weight_decay": float("inf")}, "weight_decay must be"),
        ({"max_grad_norm": float("nan")}, "max_grad_norm must be"),
        ({"total_steps": 0}, "at least 1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OptimizerSettings(**{"learning_rate": 0.1, "total_steps": 5, **settings})


def weights(*values: float) -> dict[str, torch.nn.Parameter]:
    return {f"w{i}": torch.nn.Parameter(torch.tensor([v])) for i, v in enumerate(values)}


def push(step: OptimizerStep, parameters: dict[str, torch.nn.Parameter], *grads: float) -> Any:
    for parameter, grad in zip(parameters.values(), grads, strict=True):
        parameter.grad = torch.tensor([grad])
    return step.apply()


def settings(**changes: Any) -> OptimizerSettings:
    return OptimizerSettings(**{"learning_rate": 0.1, "total_steps": 9, "warmup": 3, "schedule": "linear", **changes})


def test_the_first_adam_step_by_hand() -> None:
    w = weights(1.0, 2.0)
    step = OptimizerStep(w, settings(weight_decay=0.5))
    report = push(step, w, 3.0, -4.0)
    # the reported rate is the one this step used; Adam's first step is lr x sign, the decay lr x 0.5 x weight
    lr = 0.1 / 3
    assert (report.grad_norm, report.lr, report.skipped) == (5.0, pytest.approx(lr), False)
    assert float(w["w0"].detach()) == pytest.approx(1 - lr * 0.5 - lr)
    assert float(w["w1"].detach()) == pytest.approx(2 - lr * 0.5 * 2 + lr)
    assert step.lr == pytest.approx(0.2 / 3)


def test_clipping_scales_all_gradients_alike() -> None:
    seen = []
    for limit in (0.0, 1.0, 100.0):
        w = weights(0.0, 0.0)
        step = OptimizerStep(w, settings(max_grad_norm=limit, betas=(0.0, 0.0), eps=1.0))  # update = lr g / (|g| + 1)
        assert push(step, w, 3.0, -4.0).grad_norm == 5.0
        seen.append([float(p.detach()) * -30 for p in w.values()])
    assert seen[0] == pytest.approx([3 / 4, -4 / 5])
    assert seen[1] == pytest.approx([0.6 / 1.6, -0.8 / 1.8])
    assert seen[2] == seen[0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])  # the square of 1e30 overflows float32
def test_a_step_that_is_not_finite_changes_nothing_but_the_count(bad: float) -> None:
    w = weights(1.0, 2.0)
    step = OptimizerStep(w, settings())
    push(step, w, 1.0, 1.0)
    before = step.state()
    values = [p.detach().clone() for p in w.values()]
    report = push(step, w, bad, 1.0)
    assert (report.skipped, report.grad_norm) == (True, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(values, w.values(), strict=True))
    assert all(p.grad is None for p in w.values())
    after = step.state()
    assert (after["steps"], after["skipped"], after["adam_steps"]) == (2, 1, 1)
    assert all(torch.equal(before[k], after[k]) for k in before if isinstance(before[k], torch.Tensor))


def test_a_loss_that_is_not_finite_skips_too() -> None:
    w = weights(1.0)
    step = OptimizerStep(w, settings())
    w["w0"].grad = torch.tensor([1.0])
    assert step.apply(loss_is_finite=False).skipped
    assert float(w["w0"].detach()) == 1.0


def test_many_skips_in_a_row_stop_training() -> None:
    w = weights(1.0)
    step = OptimizerStep(w, settings(max_skips=3))
    for _ in range(2):
        push(step, w, math.nan)
    push(step, w, 1.0)  # a good one starts the count anew
    for _ in range(2):
        push(step, w, math.nan)
    with pytest.raises(TrainingError, match=r"not finite for 3 steps in a row.*Lower train.learning_rate"):
        push(step, w, math.nan)
    assert step.skipped == 5


def test_no_gradient_counts_as_zero() -> None:
    w = weights(1.0, 1.0)
    step = OptimizerStep(w, settings())
    report = step.apply()
    assert (report.grad_norm, report.skipped) == (0.0, False)
    assert [float(p.detach()) for p in w.values()] == [1.0, 1.0]


def test_resume_is_exact() -> None:
    grads = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).tolist()
    w = weights(1.0, 2.0)
    step = OptimizerStep(w, settings(weight_decay=0.1))
    for g in grads[:3]:
        push(step, w, *g)
    push(step, w, math.inf, 0.0)
    saved, kept, values = step.state(), step.state(), [float(p.detach()) for p in w.values()]
    push(step, w, math.nan, 0.0)
    reports = [push(step, w, *g) for g in grads[3:]]

    again = weights(*values)
    resumed = OptimizerStep(again, settings(weight_decay=0.1))
    resumed.load(saved)
    push(resumed, again, math.nan, 0.0)
    assert [push(resumed, again, *g) for g in grads[3:]] == reports
    assert all(torch.equal(a, b) for a, b in zip(w.values(), again.values(), strict=True))
    assert resumed.skipped == step.skipped == 2
    assert saved["adam_steps"] == 3
    assert all(torch.equal(kept[k], saved[k]) for k in saved if "/" in k)  # training does not reach into the state


def test_a_state_of_other_parameters_is_refused_before_anything_changes() -> None:
    w = weights(1.0, 2.0)
    step = OptimizerStep(w, settings())
    push(step, w, 1.0, 1.0)
    saved = step.state()
    other = OptimizerStep(weights(1.0, 2.0, 3.0), settings())
    with pytest.raises(TrainingError, match=r"exp_avg/w2 is missing, expected torch.float32 \[1\]"):
        other.load(saved)
    assert other.state() == OptimizerStep(weights(0.0), settings()).state()
    saved["exp_avg/w1"] = torch.zeros(3)
    with pytest.raises(TrainingError, match=r"exp_avg/w1 is torch.float32 \[3\]"):
        step.load(saved)


def test_nothing_to_train() -> None:
    with pytest.raises(TrainingError, match="no trainable parameters"):
        OptimizerStep({}, settings())
