"""What holds for every advantage estimator: shape, masks, unscored members, flat rounds, order, and purity."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from dragonet.learn.advantages import ESTIMATORS, estimator
from dragonet.protocols import AdvantageEstimator, GroupBatch
from dragonet.testing import centred_estimator

ALL: dict[str, AdvantageEstimator] = {
    "fake": centred_estimator,
    **ESTIMATORS,
    "reinforce unbiased": estimator("reinforce", variance="unbiased"),
}


@pytest.fixture(params=ALL.values(), ids=ALL.keys())
def estimate(request: pytest.FixtureRequest) -> AdvantageEstimator:
    return request.param


def batch(seed: int = 0, shape: tuple[int, int, int] = (5, 4, 6)) -> GroupBatch:
    """Return random rewards and answers of 1 to T tokens, some with a gap as an environment leaves it."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, shape[2] + 1, size=shape[:2])
    mask = (np.arange(shape[2]) < lengths[:, :, None]).astype(np.float64)
    mask[:, 0, 1] = 0
    return GroupBatch(rng.normal(size=shape[:2]), mask)


def test_shape_dtype_and_zeros_outside_the_mask(estimate: AdvantageEstimator) -> None:
    given = batch()
    found = estimate(given)
    assert found.shape == given.mask_P_G_T.shape
    assert found.dtype == np.float64
    assert np.isfinite(found).all()
    assert not found[given.mask_P_G_T == 0].any()
    assert found[given.mask_P_G_T == 1].any()


def test_it_is_pure(estimate: AdvantageEstimator) -> None:
    given = batch()
    before = copy.deepcopy(given)
    one, two = estimate(given), estimate(given)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(given.rewards_P_G, before.rewards_P_G)
    np.testing.assert_array_equal(given.mask_P_G_T, before.mask_P_G_T)


def test_unscored_and_padded_members_get_zero_and_disturb_nobody(estimate: AdvantageEstimator) -> None:
    given = batch()
    rewards, mask = given.rewards_P_G.copy(), given.mask_P_G_T.copy()
    rewards[:, 3] = np.nan  # unscored, with tokens
    with_unscored = estimate(GroupBatch(rewards, mask))
    assert np.isfinite(with_unscored).all()
    assert not with_unscored[:, 3].any()
    mask[:, 3] = 0  # padding
    np.testing.assert_allclose(estimate(GroupBatch(rewards, mask)), with_unscored, atol=1e-12)
    absent = estimate(GroupBatch(rewards[:, :3], mask[:, :3]))
    np.testing.assert_allclose(with_unscored[:, :3], absent, atol=1e-12)


def test_equal_rewards_give_exactly_zero(estimate: AdvantageEstimator) -> None:
    given = batch()
    assert not estimate(GroupBatch(np.full_like(given.rewards_P_G, 0.75), given.mask_P_G_T)).any()
    assert not estimate(GroupBatch(np.full_like(given.rewards_P_G, np.nan), given.mask_P_G_T)).any()


def test_better_members_of_a_group_get_more(estimate: AdvantageEstimator) -> None:
    given = batch()
    found = estimate(given)[:, :, 0]
    np.testing.assert_array_equal(np.argsort(found, axis=1), np.argsort(given.rewards_P_G, axis=1))


def test_the_order_of_groups_and_members_does_not_matter(estimate: AdvantageEstimator) -> None:
    given, rng = batch(), np.random.default_rng(1)
    groups, members = rng.permutation(5), rng.permutation(4)
    moved = GroupBatch(given.rewards_P_G[groups][:, members], given.mask_P_G_T[groups][:, members])
    np.testing.assert_allclose(estimate(moved), estimate(given)[groups][:, members], atol=1e-12)


def test_padding_of_the_token_axis_does_not_matter(estimate: AdvantageEstimator) -> None:
    given = batch()
    wide = np.concatenate([given.mask_P_G_T, np.zeros((5, 4, 3))], axis=2)
    np.testing.assert_allclose(estimate(GroupBatch(given.rewards_P_G, wide))[:, :, :6], estimate(given), atol=1e-12)


def test_an_empty_round_is_answered(estimate: AdvantageEstimator) -> None:
    assert estimate(GroupBatch(np.zeros((0, 4)), np.zeros((0, 4, 1)))).shape == (0, 4, 1)
