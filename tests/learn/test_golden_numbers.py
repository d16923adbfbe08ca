"""Reference numbers computed with other trainers' own code: every estimator, loss and KL row that exists here.

logp, old_logp, ref_logp, mask   4 rows of 4, 3, 4 and 1 tokens, one group of four with rewards 1 0 1 0
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dragonet.learn.advantages import ESTIMATORS, estimator
from dragonet.learn.kl import kl_per_token, sequence_penalty
from dragonet.learn.losses import LOSSES, aggregate, aggregate_weights
from dragonet.protocols import GroupBatch, LossInput

GOLDEN = json.loads((Path(__file__).parent / "golden" / "policy_gradient.json").read_text(encoding="utf-8"))
BATCH = GOLDEN["batch"]
ADVANTAGES = GOLDEN["advantages"]
MASK = np.array(BATCH["mask"], dtype=np.float64)
LENGTHS = MASK.sum(axis=1).astype(int).tolist()
BY_ID = {row["id"]: row for row in GOLDEN["losses"]}


def tensor(name: str) -> torch.Tensor:
    """Padding is NaN, so that a single leak spoils every number below."""
    rows = [[float("nan") if v is None else v for v in row] for row in BATCH[name]]
    return torch.tensor(rows, dtype=torch.float64)


def groups(rewards: list[float | None]) -> GroupBatch:
    values = np.array([[np.nan if r is None else r for r in rewards]], dtype=np.float64)
    return GroupBatch(values, MASK[None])


def per_rollout(advantages: np.ndarray) -> list[float]:
    """Each rollout's advantage, after checking that all its sampled tokens share it and the others have 0."""
    firsts = advantages[0, :, 0]
    np.testing.assert_array_equal(advantages[0], firsts[:, None] * MASK)
    return firsts.tolist()


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_group_estimators(name: str) -> None:
    found = per_rollout(ESTIMATORS[name](groups(BATCH["rewards"])))
    assert found == pytest.approx(ADVANTAGES[name], abs=1e-9)


def test_an_unscored_rollout_leaves_the_statistics_and_gets_zero() -> None:
    found = per_rollout(ESTIMATORS["grpo"](groups([1.0, None, 0.0, 1.0])))
    assert found == pytest.approx(ADVANTAGES["grpo/one_unscored [1,null,0,1]"], abs=1e-9)


@pytest.mark.parametrize("name", ["reinforce", "reinforce_baseline"])
def test_whitening_estimators(name: str) -> None:
    biased = per_rollout(ESTIMATORS[name](groups(BATCH["rewards"])))
    assert biased == pytest.approx(ADVANTAGES["reinforce (openrlhf, biased variance; the default)"], abs=1e-9)
    unbiased = per_rollout(estimator(name, variance="unbiased")(groups(BATCH["rewards"])))
    assert unbiased == pytest.approx(ADVANTAGES["reinforce/variance_unbiased (verl)"], abs=1e-7)


def test_rloo_with_kl_in_the_reward() -> None:
    old, ref = tensor("old_logp").numpy(), tensor("ref_logp").numpy()
    rewards = [r - sequence_penalty(old[i], ref[i], 0.05) for i, r in enumerate(BATCH["rewards"])]
    found = per_rollout(ESTIMATORS["rloo"](groups(rewards)))
    assert found == pytest.approx(ADVANTAGES["rloo/kl_in_reward_0.05"], abs=1e-9)


def loss_of(name: str, mode: str, advantages: str, **settings: Any) -> tuple[float, float]:
    """Return the aggregated loss and the sum of |d loss / d logp|."""
    logp = tensor("logp").requires_grad_()
    on_policy = settings.pop("on_policy", False)
    row_weights = settings.pop("row_weights", [1.0, 1.0, 1.0, 1.0])
    kl = settings.pop("kl", None)
    old = logp.detach() if on_policy else tensor("old_logp")
    A = torch.tensor(ADVANTAGES[advantages], dtype=torch.float64)[:, None].expand(4, 4)
    mask = torch.tensor(MASK) > 0
    per_token, _ = LOSSES[name].bind(settings.pop("clip", (0.2, 0.2)), **settings)(LossInput(logp, old, A, mask))
    per_token = per_token * torch.tensor(row_weights, dtype=torch.float64)[:, None]  # before the KL, as TRL does
    if kl is not None:
        ref, before = tensor("ref_logp"), old if kl == "corrected" else None
        per_token = per_token + 0.04 * kl_per_token(logp, ref, mask, "k3", old_logp=before)
    weights = torch.tensor(aggregate_weights(mode, LENGTHS, BATCH["max_completion_length"]))
    loss = aggregate(per_token, mask, weights)
    loss.backward()
    assert logp.grad is not None
    assert torch.isfinite(logp.grad).all()
    return float(loss.detach()), float(logp.grad.abs().sum())


LOSS_ROWS: dict[str, dict[str, Any]] = {
    "ppo_clip/sequence_mean": {"mode": "sequence_mean"},
    "ppo_clip/token_mean": {"mode": "token_mean"},
    "ppo_clip/constant": {"mode": "constant"},
    "ppo_clip/token_mean/clip_higher": {"mode": "token_mean", "clip": (0.2, 0.28)},
    "ppo_clip/token_mean/delta": {"mode": "token_mean", "delta": 1.5},
    "ppo_clip/token_mean/dual_clip": {"mode": "token_mean", "dual_clip": 1.5},
    "ppo_clip/sequence_mean/k3_corrected": {"mode": "sequence_mean", "kl": "corrected"},
    "ppo_clip/sequence_mean/k3_plain": {"mode": "sequence_mean", "kl": "plain"},
    "ppo_clip/token_mean/k3_corrected": {"mode": "token_mean", "kl": "corrected"},
    "ppo_clip/token_mean/k3_plain": {"mode": "token_mean", "kl": "plain"},
    "ppo_clip/token_mean/on_policy": {"mode": "token_mean", "on_policy": True},
    "ppo_clip/constant/on_policy": {"mode": "constant", "on_policy": True},
    "rloo": {"mode": "sequence_mean", "name": "rloo"},
    "ppo_clip/token_mean/sequence_is": {"mode": "token_mean", "row_weights": [1.2, 0.0, 0.8, 1.0]},
}


@pytest.mark.parametrize("row_id", LOSS_ROWS)
def test_losses(row_id: str) -> None:
    golden, settings = BY_ID[row_id], dict(LOSS_ROWS[row_id])
    value, grads = loss_of(settings.pop("name", "ppo_clip"), settings.pop("mode"), golden["adv"], **settings)
    assert value == pytest.approx(golden["value"], abs=1e-9)
    if "abs_grad_sum" in golden:
        assert grads == pytest.approx(golden["abs_grad_sum"], abs=1e-9)


def test_every_loss_row_of_a_known_loss_is_checked() -> None:
    mine = {row["id"] for row in GOLDEN["losses"] if row["loss"].startswith(("ppo_clip", "rloo"))}
    assert mine == set(LOSS_ROWS)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_token_means(kind: str) -> None:
    mask = torch.tensor(MASK) > 0
    estimate = kl_per_token(tensor("logp"), tensor("ref_logp"), mask, kind)
    assert float(estimate.sum() / MASK.sum()) == pytest.approx(GOLDEN["kl_token_mean"][kind], abs=1e-9)


@pytest.mark.parametrize(
    ("mode", "key"), [("token_mean", "token_mean"), ("sequence_mean", "sequence_mean"), ("constant", None)]
)
def test_aggregation(mode: str, key: str | None) -> None:
    rows = GOLDEN["aggregation"]["per_token"]
    weights = aggregate_weights(mode, [len(r) for r in rows], 8)
    expected = 2.8 / (4 * 8) if key is None else GOLDEN["aggregation"][key]
    assert sum(w * sum(r) for w, r in zip(weights, rows, strict=True)) == pytest.approx(expected, abs=1e-9)
