"""What every LossFn keeps: shape, padding that is never read, and zero advantage without a gradient."""

from __future__ import annotations

import pytest
import torch

from dragonet.learn.losses import LOSSES
from dragonet.protocols import LossFn, LossInput

MASK = torch.tensor([[True, True, True], [True, False, False]])


def _input(advantages: torch.Tensor, padding: float = 0.0) -> LossInput:
    generator = torch.Generator().manual_seed(0)
    logp = -torch.rand(2, 3, generator=generator, dtype=torch.float64)
    old = -torch.rand(2, 3, generator=generator, dtype=torch.float64)
    filled = [torch.where(MASK, x, torch.tensor(padding, dtype=x.dtype)) for x in (logp, old, advantages)]
    return LossInput(filled[0].requires_grad_(), filled[1], filled[2], MASK)


@pytest.fixture(params=sorted(LOSSES))
def loss(request: pytest.FixtureRequest) -> LossFn:
    return LOSSES[request.param].bind((0.2, 0.2), None, None)


def test_a_loss_per_token_and_sums_of_metrics(loss: LossFn) -> None:
    per_token, sums = loss(_input(torch.ones(2, 3, dtype=torch.float64)))
    assert per_token.shape == (2, 3)
    assert torch.isfinite(per_token[MASK]).all()
    assert {"clip_fraction", "ratio"} <= sums.keys()


@pytest.mark.parametrize("padding", [float("nan"), float("inf"), 1e300])
def test_padding_is_never_read(loss: LossFn, padding: float) -> None:
    clean, dirty = _input(torch.ones(2, 3, dtype=torch.float64)), _input(torch.ones(2, 3, dtype=torch.float64), padding)
    for x in (clean, dirty):
        per_token, _ = loss(x)
        torch.where(MASK, per_token, 0.0).sum().backward()
    torch.testing.assert_close(torch.where(MASK, dirty.logp.grad, 0.0), torch.where(MASK, clean.logp.grad, 0.0))
    assert (dirty.logp.grad[~MASK] == 0).all()


def test_no_advantage_no_gradient(loss: LossFn) -> None:
    x = _input(torch.zeros(2, 3, dtype=torch.float64))
    per_token, _ = loss(x)
    torch.where(MASK, per_token, 0.0).sum().backward()
    assert (x.logp.grad == 0).all()


def test_a_better_answer_becomes_likelier(loss: LossFn) -> None:
    x = _input(torch.ones(2, 3, dtype=torch.float64))
    x = LossInput(x.logp, x.logp.detach(), x.advantages, x.mask)  # on-policy
    per_token, _ = loss(x)
    torch.where(MASK, per_token, 0.0).sum().backward()
    assert (x.logp.grad[MASK] < 0).all()  # going down the loss raises log-probabilities
