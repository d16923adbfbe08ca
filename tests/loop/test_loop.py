"""The loop over fakes: the order of acts, when it looks and saves, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dragonet.errors import RewardError, RolloutError, TrainingError
from dragonet.learn.batch import TrainBatch
from dragonet.learn.evaluate import Evaluation, evaluation
from dragonet.learn.loop import Parts, Plan, Progress, train
from dragonet.rewards import RewardSet
from dragonet.testing import FakeLearner, FakeReward, FakeSource, centred_estimator, scored_group
from dragonet.types import Group, Prompt, Rollout, Score, ScoredGroup, StopReason

PLAN = Plan(
    total_steps=6,
    rounds_per_epoch=2.0,
    save_steps=2,
    eval_steps=3,
    max_minutes=None,
    max_failed_fraction=0.2,
    reward_names=("fake",),
    reward_range=(0.0, 1.0),
)
PROMPTS = [Prompt(messages=({"role": "user", "content": f"{n}?"},), index=n) for n in range(2)]


class Run:
    """Parts that write down what they are asked to do, in order; also the journal."""

    def __init__(
        self,
        *,
        reward: Callable[[Rollout], Score | float] = lambda rollout: float(rollout.member),
        learner: FakeLearner | None = None,
        stop: Callable[[Run], str | None] = lambda run: None,
        fail_at: int | None = None,
        stop_reason: StopReason = StopReason.EOS,
    ) -> None:
        self.acts: list[Any] = []
        self.rows: list[Mapping[str, Any]] = []
        self.batches: list[TrainBatch] = []
        self.notes: list[str] = []
        self.saved: list[dict[str, Any]] = []
        self.learner = learner or FakeLearner()
        self._rewards = RewardSet([FakeReward(reward)])
        self._source = FakeSource(PROMPTS, lambda prompt, seed: f"{seed % 7}")
        self._stop, self._fail_at, self._stop_reason = stop, fail_at, stop_reason

    # source, learner and scorer
    def next(self, round: int) -> list[Group]:
        self.acts.append(("sample", round))
        if round == self._fail_at:
            raise RolloutError("the engine is gone")
        groups = self._source.next(round)
        return [
            replace(g, rollouts=tuple(replace(r, stop_reason=self._stop_reason) for r in g.rollouts)) for g in groups
        ]

    def state(self) -> dict[str, Any]:
        return self._source.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._source.load(state)

    def score(self, groups: Sequence[Group]) -> list[ScoredGroup]:
        self.acts.append("score")
        return self._rewards.score(groups)

    def annotate(self, batch: TrainBatch) -> None:
        self.acts.append("annotate")
        assert batch.advantages is None
        self.learner.annotate(batch)

    def update(self, batch: TrainBatch) -> list[dict[str, float]]:
        self.acts.append("update")
        assert batch.advantages is not None
        return self.learner.update(batch)

    # journal
    def record(self, rows: Sequence[Mapping[str, Any]], batch: TrainBatch, scored: Sequence[ScoredGroup]) -> None:
        self.acts.append("record")
        self.rows += rows
        self.batches.append(batch)

    def evaluated(self, evaluation: Evaluation) -> None:
        self.acts.append("evaluated")

    def save(self, progress: Progress) -> None:
        self.acts.append(("save", progress.step))
        self.saved.append(progress.to_json())

    def note(self, text: str) -> None:
        self.notes.append(text)

    def look(self, step: int) -> Evaluation:
        self.acts.append(("evaluate", step))
        return evaluation(step, [scored_group([1.0])], ["fake"])

    def train(self, plan: Plan = PLAN, progress: Progress | None = None) -> str | None:
        self.progress = progress or Progress()
        parts = Parts(
            source=self,
            score=self.score,
            estimator=centred_estimator,
            learner=self,
            publish=lambda version: self.acts.append(("publish", version)),
            evaluate=self.look,
            journal=self,
            stop=lambda: self._stop(self),
        )
        return train(parts, plan, self.progress)


def test_a_round_does_its_acts_in_this_order() -> None:
    run = Run()
    assert run.train(replace(PLAN, total_steps=1)) is None
    assert run.acts == [
        *(("evaluate", 0), "evaluated"),
        *(("sample", 0), "score", "annotate", "update", ("publish", 1), "record"),
        ("save", 1),
        *(("evaluate", 1), "evaluated"),
    ]


def test_it_looks_and_saves_as_planned_and_at_the_end() -> None:
    run = Run()
    run.train(replace(PLAN, total_steps=7))
    marks = [act for act in run.acts if act[0] in ("evaluate", "save")]
    assert marks == [
        ("evaluate", 0),
        ("save", 2),
        ("evaluate", 3),
        ("save", 4),
        *(("evaluate", 6), ("save", 6)),  # a checkpoint of a step comes after everything else of that step
        *(("save", 7), ("evaluate", 7)),
    ]


def test_eval_steps_zero_looks_at_the_start_and_the_end_only() -> None:
    run = Run()
    run.train(replace(PLAN, eval_steps=0))
    assert [act for act in run.acts if act[0] == "evaluate"] == [("evaluate", 0), ("evaluate", 6)]


class TwoSteps(FakeLearner):
    def update(self, batch: Any) -> list[dict[str, float]]:
        return [*super().update(batch), {"loss": 0.25, "grad_norm": 2.0, "lr": 1e-5}]


def test_a_round_of_several_updates_makes_as_many_rows_and_no_cadence_is_missed() -> None:
    run = Run(learner=TwoSteps())
    run.train(replace(PLAN, save_steps=3))
    assert [(row["step"], row["round"], row["epoch"]) for row in run.rows] == [
        *((1, 0, 0.25), (2, 0, 0.5)),
        *((3, 1, 0.75), (4, 1, 1.0)),
        *((5, 2, 1.25), (6, 2, 1.5)),
    ]
    assert [row["loss"] for row in run.rows] == [0.5, 0.25] * 3
    assert [act for act in run.acts if act[0] == "save"] == [("save", 4), ("save", 6)]  # 3 fell into a round
    assert [act for act in run.acts if act[0] == "evaluate"] == [("evaluate", 0), ("evaluate", 4), ("evaluate", 6)]


def test_every_row_says_where_and_how_long() -> None:
    run = Run()
    run.train()
    for row in run.rows:
        assert row["reward"] == 0.5
        assert row["reward/fake"] == 0.5
        assert row["elapsed_s"] > 0
        assert row["eta_s"] >= 0
        assert row["time_sample"] + row["time_score"] + row["time_update"] + row["time_sync"] == pytest.approx(1.0)
    assert run.rows[-1]["eta_s"] == 0
    assert [row["elapsed_s"] for row in run.rows] == sorted(row["elapsed_s"] for row in run.rows)


def test_what_is_saved_continues_the_run() -> None:
    whole, first = Run(), Run(stop=lambda run: "enough" if len(run.rows) == 3 else None)
    whole.train()
    assert first.train() == "enough"
    second = Run(learner=first.learner)
    assert second.train(progress=Progress(**first.saved[-1])) is None
    clocks = {
        "elapsed_s",
        "eta_s",
        "tokens_per_s",
        "time_sample",
        "time_score",
        "time_update",
        "time_sync",
        "time_save",
    }
    told = [{k: v for k, v in row.items() if k not in clocks} for row in [*first.rows, *second.rows]]
    assert told == [{k: v for k, v in row.items() if k not in clocks} for row in whole.rows]
    assert ("evaluate", 0) not in second.acts
    assert ("publish", 4) in second.acts
    assert second.saved[-1]["source"] == {"rounds": 3}  # the fake counts its own rounds
    assert first.saved[-1]["version"] == 3


def test_a_finished_run_is_only_looked_at() -> None:
    run = Run()
    run.train(progress=Progress(step=6, round=6, had_gradient=True))
    assert run.acts == [("evaluate", 6), "evaluated"]


def test_a_request_to_stop_finishes_the_step_and_saves() -> None:
    run = Run(stop=lambda run: "Ctrl-C" if ("sample", 2) in run.acts else None)
    assert run.train() == "Ctrl-C"
    assert run.acts[-4:] == ["record", ("evaluate", 3), "evaluated", ("save", 3)]
    assert len(run.rows) == 3
    assert run.learner.updates == 3


def test_a_request_to_stop_before_the_first_step_saves_nothing() -> None:
    run = Run(stop=lambda run: "SIGTERM")
    assert run.train() == "SIGTERM"
    assert run.acts == [("evaluate", 0), "evaluated"]


def _slow(rollout: Rollout) -> float:
    time.sleep(0.002)
    return float(rollout.member)


def test_minutes_that_are_used_up_end_the_run_as_a_finished_one() -> None:
    run = Run(reward=_slow)
    before = Progress(step=1, round=1, elapsed_s=59.995, had_gradient=True)
    reason = run.train(replace(PLAN, max_minutes=1.0), before)
    assert (reason or "").startswith("max_minutes: 1 minutes")
    assert run.acts[-3:] == [("save", 2), ("evaluate", 2), "evaluated"]
    assert len(run.rows) == 1


def test_a_step_is_not_looked_at_twice() -> None:
    run = Run(reward=_slow)
    assert run.train(replace(PLAN, max_minutes=1.0), Progress(step=2, round=2, elapsed_s=59.995, had_gradient=True))
    assert run.acts[-3:] == [("evaluate", 3), "evaluated", ("save", 3)]


def _broken(share: int) -> Callable[[Rollout], Score | float]:
    """A reward that fails on the first `share` of the four rollouts of a round."""

    def reward(rollout: Rollout) -> Score | float:
        place = 2 * rollout.prompt.index + rollout.member
        return Score(failure=f"Traceback of rollout {place}") if place < share else float(rollout.member)

    return reward


def test_too_many_failed_rewards_end_it_with_the_first_traceback_and_save_the_steps_before() -> None:
    run = Run()
    run.train(replace(PLAN, total_steps=3, save_steps=100))
    later = Run(reward=_broken(2))
    with pytest.raises(RewardError, match="failed on 50%") as caught:
        later.train(progress=Progress(**run.saved[-1]))
    assert "Traceback of rollout 0" in str(caught.value)
    assert "on row 1" in str(caught.value)
    assert "max_failed_fraction is 0.2" in str(caught.value)
    assert later.saved[-1]["step"] == 3
    assert later.saved[-1]["source"] == run.saved[-1]["source"]
    assert later.learner.updates == 0


def test_failed_rewards_up_to_the_limit_are_left_out_and_counted() -> None:
    run = Run(reward=_broken(1))
    run.train(replace(PLAN, max_failed_fraction=0.25))
    assert [row["failed"] for row in run.rows] == [0.25] * 6
    with pytest.raises(RewardError):
        Run(reward=_broken(1)).train(replace(PLAN, max_failed_fraction=0.24))


def test_failed_rewards_at_the_very_start_save_nothing() -> None:
    run = Run(reward=_broken(4))
    with pytest.raises(RewardError):
        run.train()
    assert run.saved == []


def test_a_failing_engine_saves_what_was_learned() -> None:
    run = Run(fail_at=3)
    with pytest.raises(RolloutError, match="the engine is gone"):
        run.train(replace(PLAN, save_steps=100))
    assert [state["step"] for state in run.saved] == [3]


def test_ten_steps_without_a_gradient_are_a_failure() -> None:
    run = Run(reward=lambda rollout: 1.0, learner=FakeLearner({"loss": 0.0, "grad_norm": 0.0, "lr": 1e-5}))
    with pytest.raises(TrainingError, match=r"nothing was learned: in 10 steps .*reinforce\.group_size"):
        run.train(replace(PLAN, total_steps=10))
    assert run.saved[-1]["step"] == 10


def test_nine_steps_without_a_gradient_are_a_warning() -> None:
    run = Run(reward=lambda rollout: 1.0, learner=FakeLearner({"loss": 0.0, "grad_norm": 0.0, "lr": 1e-5}))
    assert run.train(replace(PLAN, total_steps=9)) is None
    assert "nothing was learned: in 9 steps" in run.notes[-1]
    assert run.acts[-1] == "evaluated"


def test_one_step_with_a_gradient_is_enough_also_when_it_was_before_a_resume() -> None:
    quiet = FakeLearner({"loss": 0.0, "grad_norm": 0.0, "lr": 1e-5})
    run = Run(learner=quiet)
    assert run.train(replace(PLAN, total_steps=12), Progress(step=2, round=2, had_gradient=True)) is None


def test_flat_rounds_are_explained_when_they_happen_and_not_at_each_step() -> None:
    run = Run(reward=lambda rollout: 0.0)
    run.train()
    told = [note for note in run.notes if "every group was flat" in note]
    assert len(told) == 2  # at the first and at the third
    assert "raise reinforce.temperature" in told[0]
    assert "3 steps in a row" in told[1]
    assert run.saved[-1]["flat_streak"] == 6


@pytest.mark.parametrize(("policy", "tokens", "spread"), [("train", 4, True), ("mask", 0, True), ("zero", 4, False)])
def test_how_truncated_rollouts_are_trained_is_passed_through(policy: str, tokens: int, spread: bool) -> None:
    run = Run(stop_reason=StopReason.LENGTH)
    run.train(replace(PLAN, total_steps=1, truncated=policy))
    (batch,) = run.batches
    assert [row["truncated"] for row in run.rows] == [1.0]
    assert sum(batch.loss_lengths().values()) == tokens
    assert any(batch.row_advantages(i).any() for i in range(len(batch.rows))) is spread


def test_a_reward_that_fails_on_the_held_out_prompts_stops_before_the_first_step() -> None:
    run = Run()
    run.look = lambda step: evaluation(step, [scored_group([None]), scored_group([1.0])], ["fake"])  # type: ignore[method-assign]
    with pytest.raises(RewardError, match=r"50% of the held-out prompts .*first failure: fake"):
        run.train()
    assert ("sample", 0) not in run.acts
    assert "evaluated" in run.acts  # what was measured is kept
    assert run.progress.step == 0
