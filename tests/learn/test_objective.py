"""The objective refuses what cannot work or would be ignored, and says what it optimises."""

from __future__ import annotations

from typing import Any

import pytest

from dragonet.errors import ConfigError
from dragonet.learn.advantages import ESTIMATORS
from dragonet.learn.objective import Objective, describe_objective


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "ppo_clp"}, "did you mean 'ppo_clip'"),
        ({"aggregate": "token_men"}, "did you mean 'token_mean'"),
        ({"loss": "rloo", "aggregate": "token_mean"}, "needs aggregate sequence_mean.*set aggregate: sequence_mean"),
        ({"kl": "k4"}, "unknown kl 'k4'"),
        ({"kl_in": "rewards"}, "kl_in is loss or reward"),
        ({"clip": (1.2, 0.2)}, "0 <= low < 1"),
        ({"clip": (0.2,)}, "clip is"),
        ({"clip": (0.2, float("nan"))}, "clip is"),
        ({"delta": 1.1}, "above 1 \\+ the upper clip \\(1.2\\)"),
        ({"dual_clip": 1.0}, "above 1"),
        ({"clip": (1e-300, 1e308)}, "0 <= high <= 1000"),
        ({"delta": 1e308}, "to 1000, got 1e\\+308"),
        ({"dual_clip": 1e308}, "to 1000, got 1e\\+308"),
        ({"beta": -0.1}, "beta must be"),
        ({"beta": float("nan")}, "beta must be"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"updates": 0}, "at least 1"),
        ({"delta": 3.0, "dual_clip": 3.0}, "keep one of them"),
        ({"importance_corrected": True}, "set beta above 0"),
        ({"importance_corrected": True, "beta": 0.1, "kl_in": "reward"}, "KL in the loss"),
        ({"kl_in": "reward"}, "does nothing while beta is 0"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Objective(**settings)


def test_what_is_left_open_takes_what_fits() -> None:
    assert (Objective().aggregate, Objective().kl) == ("token_mean", "k3")
    assert Objective(loss="rloo").aggregate == "sequence_mean"
    assert Objective(beta=0.1, kl_in="reward").kl == "k1"


def test_the_sentence_has_the_numbers_filled_in() -> None:
    objective = Objective(clip=(0.2, 0.28), delta=4.0, beta=0.04, importance_corrected=True, updates=2, temperature=0.9)
    text = describe_objective(objective, ESTIMATORS["grpo"])
    assert "token_mean [ -min(min(rho, 4) A, clip(rho, 0.8, 1.28) A) + 0.04 rho k3 ]" in text
    assert "rho = exp(logp - old_logp) per token at temperature 0.9; old: the round's start" in text
    assert "k3 = exp(ref - logp) - (ref - logp) - 1" in text
    assert "A = (r - mean of the group) / (sample std of the group + 1e-4) (grpo;" in text


def test_the_sentence_of_other_settings() -> None:
    text = describe_objective(Objective(loss="rloo", beta=0.05, kl_in="reward"), ESTIMATORS["rloo"])
    assert "-min(R A, clip(R, 0.8, 1.2) A)" in text
    assert "ratio is 1 and clipping is idle" in text
    assert "r = reward - 0.05 x sum of k1" in text
    assert "sum / (rollouts x 77)" in describe_objective(Objective(aggregate="constant", max_new_tokens=77))
    assert "at most 3 |A| where A < 0" in describe_objective(Objective(dual_clip=3.0))
    assert "gradient of zero on average" in describe_objective(Objective(beta=0.1, kl="k1"))
    assert "KL" not in describe_objective(Objective())
