"""Several rewards as one number: weights, names, the three outcomes, and what is checked before the first step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from dragonet.errors import ConfigError, RewardError
from dragonet.rewards import RewardSet, as_rewards, reward
from dragonet.types import Group, Prompt, Rollout, Score, StopReason

HINT = "; numeric compares plain numbers: for text use exact or contains, for other values the math reward"


def group(*completions: str, reference: str | None = "5", error: str | None = None, index: int = 0) -> Group:
    prompt = Prompt(({"role": "user", "content": "q"},), reference, {"level": "hard"}, index)
    return Group(prompt, tuple(Rollout(prompt, (), c, StopReason.EOS, error=error) for c in completions))


@dataclass
class Fixed:
    """A reward from outside: gives what it is told, in whole groups or not."""

    answers: Sequence[Score] | Exception
    name: str = "fixed"
    weight: float = 1.0
    unit: str = "rollout"

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        if isinstance(self.answers, Exception):
            raise self.answers
        self.sizes = [*getattr(self, "sizes", []), len(rollouts)]
        return list(self.answers[: len(rollouts)])

    def close(self) -> None:
        return


def test_the_weighted_sum_by_hand() -> None:
    rewards = RewardSet(as_rewards(["numeric", {"type": "length", "max_chars": 4, "weight": -0.5, "name": "long"}]))
    assert (rewards.names, rewards.weights) == (["numeric", "long"], [1.0, -0.5])
    first, second = rewards.score([group("5", "it is 5"), group("6")])
    assert first.rewards_G == (1 - 0.5 * 1, 1 - 0.5 * 0.25)
    assert second.rewards_G == (0 - 0.5,)
    assert [s.value for s in first.scores_G_K[1]] == [1.0, 0.25]
    assert rewards.tally.rollouts == 3
    assert rewards.tally.first_failure is None
    assert rewards.describe() == "numeric - 0.5 x long (length)"


def test_names_are_unique_and_numbered() -> None:
    kinds = ["numeric", "numeric", "exact", "numeric", {"type": "exact", "name": "numeric_2"}]
    assert RewardSet(as_rewards(kinds)).names == ["numeric", "numeric_2", "exact", "numeric_3", "numeric_2_2"]


def test_what_does_not_apply_is_left_out_and_weights_stay() -> None:
    easy = reward("numeric", when="level == 'easy'", weight=3)
    rewards = RewardSet([easy, reward("exact", weight=0.5)])
    (scored,) = rewards.score([group("5")])
    assert scored.rewards_G == (0.5,)
    assert rewards.tally.not_applicable == {"numeric": 1}
    assert (rewards.tally.failed, rewards.tally.unscored) == (0, 0)


def test_a_rollout_to_which_nothing_applies_is_unscored() -> None:
    rewards = RewardSet([reward("numeric", when="level == 'easy'"), reward("exact", weight=0)])
    (scored,) = rewards.score([group("5", "6")])
    assert scored.rewards_G == (None, None)
    assert (rewards.tally.failed, rewards.tally.unscored) == (0, 2)
    assert scored.scores_G_K[0][1].value == 1  # logged


def test_a_failed_reward_takes_its_rollout_out() -> None:
    rewards = RewardSet([Fixed([Score(1.0), Score(failure="broken"), Score(2.0)]), reward("numeric")])
    (scored,) = rewards.score([group("5", "5", "5", index=6)])
    assert scored.rewards_G == (2.0, None, 3.0)
    assert rewards.tally.failed == 1
    assert rewards.tally.failures == {"fixed": 1}
    assert rewards.tally.first_failure == 'reward "fixed" on row 7: broken'
    rewards.score([group("5")])
    assert rewards.tally.failed == 0  # counts of the last call


def test_a_failed_log_only_reward_is_counted_and_costs_nothing() -> None:
    rewards = RewardSet([Fixed([Score(failure="broken")], weight=0), reward("numeric")])
    (scored,) = rewards.score([group("5")])
    assert scored.rewards_G == (1.0,)
    assert (rewards.tally.failed, rewards.tally.failures) == (0, {"fixed": 1})


def test_a_rollout_that_failed_has_no_score_and_is_shown_to_nobody() -> None:
    fixed = Fixed([Score(1.0)])
    (scored,) = RewardSet([fixed]).score([group("5", error="the engine broke")])
    assert scored.rewards_G == (None,)
    assert scored.scores_G_K[0][0].failure == "the rollout failed: the engine broke"
    assert fixed.sizes == [0]


@pytest.mark.parametrize(
    ("answers", "message"),
    [([Score(1.0)], "1 scores came back for 2 rollouts"), (KeyError("x"), "KeyError: 'x'")],
)
def test_a_reward_from_outside_that_breaks_its_word_has_failed(answers: list[Score] | Exception, message: str) -> None:
    rewards = RewardSet([Fixed(answers)])
    (scored,) = rewards.score([group("5", "6")])
    assert scored.rewards_G == (None, None)
    assert message in (rewards.tally.first_failure or "")


def test_group_rewards_see_whole_groups() -> None:
    whole = Fixed([Score(1.0), Score(2.0)], unit="group")
    rewards = RewardSet([whole])
    assert [g.rewards_G for g in rewards.score([group("a", "b"), group("c"), group("d", "e")])] == [
        *((1.0, 2.0), (1.0,), (1.0, 2.0))
    ]
    assert whole.sizes == [2, 1, 2]


def test_a_sum_that_overflows_is_no_number() -> None:
    rewards = RewardSet([Fixed([Score(1e308)], weight=1e10)])
    (scored,) = rewards.score([group("5")])
    assert scored.rewards_G == (None,)
    assert rewards.tally.failed == 1


def test_no_rewards_and_nothing_to_train_on() -> None:
    with pytest.raises(ConfigError, match="rewards is empty"):
        RewardSet([])
    with pytest.raises(ConfigError, match="every reward has weight 0"):
        RewardSet([reward("exact", weight=0)]).check([])


def test_no_groups() -> None:
    assert RewardSet([reward("exact")]).score([]) == []


def test_references_are_checked_by_row() -> None:
    texts = ["5", "1/2", None, "7", "", *["ten"] * 12]
    prompts = [Prompt((), text, {"level": "hard"}, index) for index, text in enumerate(texts)]
    with pytest.raises(RewardError) as caught:
        RewardSet(as_rewards(["numeric", "exact"])).check(prompts)
    assert str(caught.value).splitlines() == [
        'reward "numeric" cannot use 15 of 17 references (rows are counted from 1, without the header):',
        f"  row 2: the reference '1/2' is a fraction, not a plain number{HINT}",
        "  row 3: the reference is missing",
        "  row 5: the reference '' is empty",
        *[f"  row {n}: the reference 'ten' holds no number{HINT}" for n in range(6, 13)],
        "  and 5 more",
        "  correct these rows, or leave them out with when:",
        'reward "exact" cannot use 2 of 17 references (rows are counted from 1, without the header):',
        "  row 3: the reference is missing",
        "  row 5: the reference '' is empty",
        "  correct these rows, or leave them out with when:",
    ]
    RewardSet(as_rewards(["numeric", {"type": "length", "max_chars": 3}])).check([prompts[0], prompts[3]])
    RewardSet(as_rewards([{"type": "length", "max_chars": 3}])).check(prompts)
