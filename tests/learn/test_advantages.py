"""Estimators: hand-computed numbers, invariants, and the degenerate cases that must give exactly 0."""

from __future__ import annotations

import numpy as np
import pytest
from learn_helpers import group_batch

from dragonet.errors import ConfigError
from dragonet.learn.advantages import ESTIMATORS, estimator
from dragonet.learn.losses import LOSSES

NAMES = tuple(ESTIMATORS)
GROUPED = ("grpo", "dr_grpo", "rloo")  # per-group baselines, no whitening
RNG = np.random.default_rng(7)


def firsts(name: str, rewards: list[list[float | None]], lengths: list[list[int]] | None = None) -> np.ndarray:
    return ESTIMATORS[name](group_batch(rewards, lengths))[:, :, 0]


def test_the_table_is_complete() -> None:
    assert NAMES == ("grpo", "dr_grpo", "rloo", "reinforce", "reinforce_baseline")
    for entry in ESTIMATORS.values():
        assert entry.formula.startswith("A = ")
        assert "arXiv" in entry.paper
        assert entry.assumption
        assert entry.degenerate
        assert entry.aggregate in LOSSES[entry.loss].aggregates


def test_grpo_by_hand() -> None:
    # mean 3, sample std sqrt((4 + 0 + 4) / 2) = 2
    assert firsts("grpo", [[1.0, 3.0, 5.0]])[0] == pytest.approx([-2 / 2.0001, 0.0, 2 / 2.0001], abs=1e-12)


def test_dr_grpo_by_hand() -> None:
    assert firsts("dr_grpo", [[1.0, 3.0, 8.0]])[0] == pytest.approx([-3.0, -1.0, 4.0], abs=1e-12)


def test_rloo_by_hand() -> None:
    # others' means: (3 + 8) / 2, (1 + 8) / 2, (1 + 3) / 2
    assert firsts("rloo", [[1.0, 3.0, 8.0]])[0] == pytest.approx([-4.5, -1.5, 6.0], abs=1e-12)


def test_reinforce_by_hand_counts_every_token() -> None:
    # tokens: one with reward 4, three with reward 0: mean 1, variance (9 + 3 * 1) / 4 = 3
    found = firsts("reinforce", [[4.0, 0.0]], [[1, 3]])[0]
    assert found == pytest.approx([3 / np.sqrt(3), -1 / np.sqrt(3)], abs=1e-12)


def test_reinforce_unbiased_by_hand() -> None:
    found = estimator("reinforce", variance="unbiased")(group_batch([[4.0, 0.0]], [[1, 3]]))[0, :, 0]
    assert found == pytest.approx([3 / 2, -1 / 2], abs=1e-12)  # variance 12 / 3 = 4


def test_reinforce_baseline_by_hand() -> None:
    # centred: 2, -2, 1, -1; one token each: mean 0, variance (4 + 4 + 1 + 1) / 4 = 2.5
    found = firsts("reinforce_baseline", [[4.0, 0.0], [12.0, 10.0]])
    assert found == pytest.approx(np.array([[2.0, -2.0], [1.0, -1.0]]) / np.sqrt(2.5), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_tokens_outside_the_mask_get_zero(name: str) -> None:
    batch = group_batch([[1.0, 0.0, 0.5]], [[4, 1, 2]])
    found = ESTIMATORS[name](batch)
    assert found.shape == (1, 3, 4)
    assert (found[batch.mask_P_G_T == 0] == 0).all()
    assert (found[batch.mask_P_G_T == 1] != 0).sum() >= 5


@pytest.mark.parametrize("name", NAMES)
def test_gaps_in_the_mask_are_skipped(name: str) -> None:
    whole = group_batch([[1.0, 0.0]], [[2, 2]])
    gap = group_batch([[1.0, 0.0]], [[4, 2]])
    gap.mask_P_G_T[0, 0] = [1, 0, 0, 1]
    found = ESTIMATORS[name](gap)[0, 0]
    assert found.tolist() == pytest.approx([found[0], 0, 0, found[0]])
    assert found[0] == pytest.approx(ESTIMATORS[name](whole)[0, 0, 0], abs=1e-12)


@pytest.mark.parametrize("name", GROUPED)
def test_groups_have_zero_mean(name: str) -> None:
    found = firsts(name, RNG.normal(size=(6, 5)).tolist())
    assert np.abs(found.sum(axis=1)).max() < 1e-12


@pytest.mark.parametrize("name", ["reinforce", "reinforce_baseline"])
def test_whitened_tokens_have_mean_zero_and_variance_one(name: str) -> None:
    batch = group_batch(RNG.normal(size=(4, 3)).tolist(), RNG.integers(1, 6, size=(4, 3)).tolist())
    tokens = ESTIMATORS[name](batch)[batch.mask_P_G_T > 0]
    assert tokens.mean() == pytest.approx(0, abs=1e-12)
    assert tokens.var() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_members_and_groups_can_be_permuted(name: str) -> None:
    rewards, lengths = RNG.normal(size=(4, 5)), RNG.integers(1, 6, size=(4, 5))
    groups, members = RNG.permutation(4), RNG.permutation(5)
    plain = firsts(name, rewards.tolist(), lengths.tolist())
    moved = firsts(name, rewards[groups][:, members].tolist(), lengths[groups][:, members].tolist())
    np.testing.assert_allclose(moved, plain[groups][:, members], atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_shift_of_all_rewards_changes_nothing(name: str) -> None:
    rewards = RNG.normal(size=(3, 4))
    np.testing.assert_allclose(firsts(name, (rewards + 5).tolist()), firsts(name, rewards.tolist()), atol=1e-12)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_scale_of_rewards(scale: float) -> None:
    rewards = RNG.normal(size=(3, 4))
    for name in ("dr_grpo", "rloo"):  # proportional
        scaled = firsts(name, (rewards * scale).tolist())
        np.testing.assert_allclose(scaled, firsts(name, rewards.tolist()) * scale, rtol=1e-9)
    for name in ("reinforce", "reinforce_baseline"):  # divided out, down to a variance of 1e-8
        scaled = firsts(name, (rewards * scale).tolist())
        np.testing.assert_allclose(scaled, firsts(name, rewards.tolist()), rtol=1e-9)
    std = rewards.std(axis=1, ddof=1, keepdims=True)  # divided out up to the 1e-4
    expected = firsts("grpo", rewards.tolist()) * (std + 1e-4) * scale / (std * scale + 1e-4)
    np.testing.assert_allclose(firsts("grpo", (rewards * scale).tolist()), expected, rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 0.1, 1e6 / 3])
def test_constant_rewards_give_exactly_zero(name: str, value: float) -> None:
    assert not firsts(name, [[value] * 7] * 3, [[1, 2, 3, 4, 5, 6, 7]] * 3).any()


@pytest.mark.parametrize("name", NAMES)
def test_float_noise_is_not_a_difference(name: str) -> None:
    noisy = [0.1 + 0.2, 0.3, 0.7 - 0.4, 3 * 0.1]
    assert len(set(noisy)) > 1
    assert not firsts(name, [noisy]).any()


@pytest.mark.parametrize("name", NAMES)
def test_small_true_differences_count(name: str) -> None:
    assert firsts(name, [[1.0, 1.0 + 1e-6]]).all()


@pytest.mark.parametrize("name", NAMES)
def test_an_unscored_rollout_is_as_if_it_had_not_been_sampled(name: str) -> None:
    with_hole = firsts(name, [[1.0, None, 0.0, 0.25], [0.0, 1.0, None, None]], [[2, 9, 1, 3], [1, 4, 9, 9]])
    first = firsts(name, [[1.0, 0.0, 0.25], [0.0, 1.0, None]], [[2, 1, 3], [1, 4, 1]])
    assert with_hole[0, 1] == with_hole[1, 2] == with_hole[1, 3] == 0
    np.testing.assert_allclose(with_hole[0, [0, 2, 3]], first[0], atol=1e-12)
    np.testing.assert_allclose(with_hole[1, :2], first[1, :2], atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_flat_group_leaves_the_others_alone(name: str) -> None:
    if name in GROUPED:
        alone = firsts(name, [[1.0, 0.0]])
        np.testing.assert_array_equal(firsts(name, [[1.0, 0.0], [0.5, 0.5]]), np.vstack([alone, [[0.0, 0.0]]]))
    else:  # it takes part in the whitening
        assert firsts(name, [[1.0, 0.0], [0.5, 0.5]])[0, 0] > firsts(name, [[1.0, 0.0]])[0, 0]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "reinforce"])
def test_a_group_with_one_scored_rollout_has_no_baseline(name: str) -> None:
    found = firsts(name, [[1.0, None, None], [1.0, 0.0, 0.5]])
    assert not found[0].any()
    assert found[1].any()
    np.testing.assert_allclose(found[1], firsts(name, [[1.0, 0.0, 0.5]])[0], atol=1e-12)


def test_reinforce_works_with_groups_of_one() -> None:
    assert firsts("reinforce", [[1.0], [0.0]])[:, 0] == pytest.approx([1.0, -1.0])


@pytest.mark.parametrize("name", NAMES)
def test_nothing_scored_gives_zero(name: str) -> None:
    assert not firsts(name, [[None, None]]).any()


def test_unknown_names_and_options_are_answered_with_the_near_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'reinforce'"):
        estimator("reinforc")
    with pytest.raises(ConfigError, match=r"no option 'varianc'.*did you mean 'variance'"):
        estimator("reinforce", varianc="biased")
    with pytest.raises(ConfigError, match="biased, unbiased, got 'sample'"):
        estimator("reinforce", variance="sample")
    with pytest.raises(ConfigError, match="'grpo' has no option 'variance'"):
        estimator("grpo", variance="biased")
