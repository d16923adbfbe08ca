"""Losses, KL and aggregation on hand-sized tensors; what stands outside the mask never matters."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dragonet.learn.kl import kl_per_token, sequence_penalty
from dragonet.learn.losses import LOSSES, aggregate, aggregate_weights
from dragonet.protocols import LossInput

NAN, INF = float("nan"), float("inf")


def one(ratio: float, advantage: float, **settings: float) -> tuple[float, float, float]:
    """Return loss, d loss / d logp and the clip fraction of ppo_clip for one token with that ratio."""
    logp = torch.tensor([[0.0]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-math.log(ratio)]], dtype=torch.float64)
    x = LossInput(logp, old, torch.tensor([[advantage]], dtype=torch.float64), torch.tensor([[True]]))
    per_token, sums = LOSSES["ppo_clip"].bind((0.2, 0.3), **settings)(x)
    per_token.sum().backward()
    assert logp.grad is not None
    return float(per_token.detach()), float(logp.grad), float(sums["clip_fraction"])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "grad", "clipped"),
    [
        (1.1, 2.0, -2.2, -2.2, 0),
        (1.5, 2.0, -2.6, 0.0, 1),  # above 1 + 0.3
        (0.5, 2.0, -1.0, -1.0, 0),  # the minimum keeps the unclipped term
        (0.5, -2.0, 1.6, 0.0, 1),  # below 1 - 0.2
        (1.5, -2.0, 3.0, 3.0, 0),
    ],
)
def test_ppo_clip_by_hand(ratio: float, advantage: float, loss: float, grad: float, clipped: int) -> None:
    assert one(ratio, advantage) == pytest.approx((loss, grad, clipped), abs=1e-12)


def test_delta_and_dual_clip_bound_the_loss_of_bad_tokens() -> None:
    assert one(9.0, -2.0) == pytest.approx((18.0, 18.0, 0))
    assert one(9.0, -2.0, delta=3.0) == pytest.approx((6.0, 0.0, 1))
    assert one(9.0, -2.0, dual_clip=3.0) == pytest.approx((6.0, 0.0, 1))
    assert one(2.0, -2.0, dual_clip=3.0) == pytest.approx((4.0, 4.0, 0))
    assert one(9.0, 2.0, dual_clip=3.0) == pytest.approx((-2.6, 0.0, 1))


def test_the_ratio_of_rloo_is_that_of_the_sequence() -> None:
    logp = torch.tensor([[-1.0, -2.0, -0.5]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-1.1, -1.95, -9.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]])
    x = LossInput(logp, old, torch.full((1, 3), 2.0, dtype=torch.float64), mask)
    per_token, sums = LOSSES["rloo"].bind((0.2, 0.2))(x)
    ratio = math.exp(0.1 - 0.05)
    assert per_token.tolist()[0] == pytest.approx([-2 * ratio, -2 * ratio, 0.0])
    assert float(sums["ratio"]) == pytest.approx(2 * ratio)
    aggregate(per_token, mask, torch.tensor(aggregate_weights("sequence_mean", [2], 9))).backward()
    assert logp.grad is not None
    assert logp.grad.tolist()[0] == pytest.approx([-2 * ratio, -2 * ratio, 0.0])


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("rubbish", [NAN, INF, -INF, 1e300])
def test_what_is_masked_never_leaks(name: str, rubbish: float) -> None:
    def run(fill: float) -> tuple[float, list[float]]:
        logp = torch.tensor([[-1.0, fill, -2.0, fill]], dtype=torch.float64, requires_grad=True)
        other = torch.tensor([[-1.2, fill, -1.9, fill]], dtype=torch.float64)
        mask = torch.tensor([[True, False, True, False]])
        per_token, sums = LOSSES[name].bind((0.2, 0.2), None, 3.0)(LossInput(logp, other, other * -1, mask))
        per_token = per_token + kl_per_token(logp, other, mask, "k3", old_logp=other)
        loss = aggregate(per_token, mask, torch.tensor([0.5], dtype=torch.float64))
        loss.backward()
        assert logp.grad is not None
        return float(loss.detach()) + float(sums["ratio"]) + float(sums["clip_fraction"]), logp.grad.tolist()[0]

    value, grad = run(rubbish)
    assert (value, grad) == run(-0.1)
    assert grad[1] == grad[3] == 0.0
    assert all(math.isfinite(g) for g in grad)


def test_even_a_loss_that_is_not_finite_outside_the_mask_is_dropped() -> None:
    per_token = torch.tensor([[1.0, NAN, INF]], requires_grad=True)
    total = aggregate(per_token, torch.tensor([[True, False, False]]), torch.tensor([2.0]))
    total.backward()
    assert float(total.detach()) == 2.0
    assert per_token.grad is not None
    assert per_token.grad.tolist() == [[2.0, 0.0, 0.0]]


def test_statistics_stay_in_float64_when_given() -> None:
    x = torch.zeros(1, 2, dtype=torch.float64)
    mask = torch.ones(1, 2, dtype=torch.bool)
    for loss in LOSSES.values():
        assert loss.bind((0.2, 0.2))(LossInput(x, x, x, mask))[0].dtype == torch.float64
    assert kl_per_token(x, x, mask).dtype == torch.float64


def test_kl_by_hand() -> None:
    logp, ref = torch.tensor([[-1.0]], dtype=torch.float64), torch.tensor([[-1.5]], dtype=torch.float64)
    mask = torch.tensor([[True]])
    assert float(kl_per_token(logp, ref, mask, "k1")) == pytest.approx(0.5)
    assert float(kl_per_token(logp, ref, mask, "k2")) == pytest.approx(0.125)
    assert float(kl_per_token(logp, ref, mask, "k3")) == pytest.approx(math.exp(-0.5) + 0.5 - 1)
    old = torch.tensor([[-1.2]], dtype=torch.float64)
    corrected = kl_per_token(logp, ref, mask, "k1", old_logp=old)
    assert float(corrected) == pytest.approx(0.5 * math.exp(0.2))


def test_k3_keeps_tiny_distances() -> None:
    logp = torch.tensor([[-1.0]], dtype=torch.float64)
    d = float((logp + 1e-8) - logp)
    found = kl_per_token(logp, logp + 1e-8, torch.tensor([[True]]))
    assert float(found) == pytest.approx(d * d / 2, rel=1e-6, abs=0)  # exp(d) - d - 1 would give 0 or twice as much
    assert float(kl_per_token(logp, logp, torch.tensor([[True]]))) == 0.0


def test_expected_corrected_gradient_is_that_of_the_kl() -> None:
    """Weighted by the policy over the whole vocabulary, corrected k1 and k3 have the gradient of KL(policy || ref)."""
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([0.1, 0.4, -0.3], dtype=torch.float64).log_softmax(0)
    logp = logits.log_softmax(0)
    (true,) = torch.autograd.grad((logp.exp() * (logp - ref)).sum(), logits, retain_graph=True)
    mask = torch.ones(3, 1, dtype=torch.bool)
    for kind in ("k1", "k3"):
        found = kl_per_token(logp[:, None], ref[:, None], mask, kind, old_logp=logp.detach()[:, None])
        (grad,) = torch.autograd.grad(logp.detach().exp() @ found[:, 0], logits, retain_graph=True)
        np.testing.assert_allclose(grad, true, atol=1e-12)
    plain = kl_per_token(logp[:, None], ref[:, None], mask, "k1")
    (grad,) = torch.autograd.grad(logp.detach().exp() @ plain[:, 0], logits)
    np.testing.assert_allclose(grad, 0, atol=1e-12)  # why plain k1 in the loss is warned about


def test_the_penalty_of_a_rollout_skips_environment_tokens() -> None:
    assert sequence_penalty(np.array([-1.0, NAN, -2.0]), np.array([-1.5, NAN, -1.0]), 0.1) == pytest.approx(-0.05)


def test_aggregate_weights_by_hand() -> None:
    lengths = [4, 0, 1]
    assert aggregate_weights("token_mean", lengths, 10).tolist() == pytest.approx([0.2, 0, 0.2])
    assert aggregate_weights("sequence_mean", lengths, 10).tolist() == pytest.approx([1 / 12, 0, 1 / 3])
    assert aggregate_weights("constant", lengths, 10).tolist() == pytest.approx([1 / 30, 0, 1 / 30])
    assert aggregate_weights("token_mean", [], 10).tolist() == []
    with pytest.raises(ValueError, match="aggregate is one of"):
        aggregate_weights("mean", lengths, 10)
