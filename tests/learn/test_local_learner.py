"""The learner on tiny models: the formula, splits, padding, left-out rows, KL, skipped steps, dropout and resume."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from learn_helpers import batch_with, given, policy, random_round, rollout, sampled, scored

from dragonet.errors import ConfigError, TrainingError
from dragonet.learn.advantages import ESTIMATORS
from dragonet.learn.batch import TrainBatch, make_batch
from dragonet.learn.learner import LocalLearner
from dragonet.learn.objective import Objective
from dragonet.learn.policy import token_logprobs
from dragonet.learn.step import OptimizerSettings
from dragonet.types import StopReason

ROUND = random_round([[1.0, 0.0, 0.5], [0.5, 0.5, 0.5], [0.0, None, 1.0], [0.3, 0.1, 0.9]], seed=1)
# plain gradient steps, lr g / (|g| + 1e6), so that an update is proportional to the gradient
PLAIN = OptimizerSettings(
    1e4, total_steps=20, warmup=0, schedule="constant", max_grad_norm=0.0, betas=(0.0, 0.0), eps=1e6
)
ADAM = OptimizerSettings(1e-2, total_steps=20)


def learner(
    objective: Objective, optimizer: OptimizerSettings = PLAIN, model: Any = None, **settings: Any
) -> LocalLearner:
    return LocalLearner(policy(dtype=torch.float64) if model is None else model, objective, optimizer, **settings)


def train(made: LocalLearner, groups: Any = ROUND, estimator: str = "grpo", **batch: Any) -> list[dict[str, float]]:
    prepared = make_batch(groups, **batch)
    made.annotate(prepared)
    prepared.advantages = ESTIMATORS[estimator](prepared.group_batch())
    return made.update(prepared)


def flat(made: LocalLearner) -> torch.Tensor:
    return torch.cat([t.detach().flatten() for t in made.weights().values()]).clone()


OBJECTIVES = {
    "token_mean": Objective(),
    "sequence_mean": Objective(aggregate="sequence_mean"),
    "constant": Objective(aggregate="constant", max_new_tokens=6),
    "rloo": Objective(loss="rloo"),
    "kl": Objective(beta=0.3),
    "kl corrected, two updates": Objective(beta=0.3, importance_corrected=True, updates=2),
    "kl in reward": Objective(beta=0.3, kl_in="reward", updates=2),
    "two updates": Objective(updates=2, temperature=0.7),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_split_into_micro_batches_does_not_change_the_update(name: str) -> None:
    results = []
    for micro_batch in (1, 3, 8, "auto"):
        made = learner(OBJECTIVES[name], micro_batch=micro_batch)
        start = flat(made)
        metrics = train(made)
        results.append((flat(made), metrics))
        assert (results[-1][0] - start).abs().max() > 1e-4
    for weights, metrics in results[1:]:
        torch.testing.assert_close(weights, results[0][0], atol=1e-12, rtol=1e-9)
        assert metrics == [pytest.approx(m, abs=1e-9) for m in results[0][1]]


@pytest.mark.parametrize("corrected", [False, True])
def test_the_gradient_is_that_of_the_formula_written_out(corrected: bool) -> None:
    """One pass over the rows in plain torch: -mean over tokens of A logp + beta k3, as the first update of a round."""
    model = policy(dtype=torch.float64)
    batch = batch_with(ESTIMATORS["grpo"], ROUND)
    rows = [(i, row) for i, row in enumerate(batch.rows) if row.scored]
    total = sum(row.n_sampled for _, row in rows)
    loss = torch.zeros((), dtype=torch.float64)
    for i, row in rows:
        logp = token_logprobs(model, [row])[0]
        with model.disable_adapter(), torch.no_grad():
            ref = token_logprobs(model, [row])[0]
        A = torch.tensor(batch.row_advantages(i))
        rho = (logp - logp.detach()).exp() if corrected else 1.0
        loss = loss - (A * logp).sum() / total + 0.3 * (rho * ((ref - logp).exp() - (ref - logp) - 1)).sum() / total
    loss.backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    norm = math.sqrt(sum(float(g.square().sum()) for g in expected.values()))

    made = learner(Objective(beta=0.3, importance_corrected=corrected), micro_batch=2)
    start = {name: t.detach().clone() for name, t in made.weights().items()}
    metrics = train(made)[0]
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-9)
    for name, tensor in made.weights().items():
        step = (start[name] - tensor.detach()) / 1e4 * 1e6
        label = next(n for n in expected if n.replace(".default.", ".") == name)
        torch.testing.assert_close(step, expected[label], atol=1e-8, rtol=1e-5)


def test_length_and_company_of_other_rows_do_not_matter() -> None:
    """A long extra row changes the padding of the others, not their part of the update."""
    flat_long = scored([1.0, 1.0], [rollout(given(*range(40)), sampled(*range(30))) for _ in range(2)])
    constant = Objective(aggregate="constant", max_new_tokens=6)
    alone, together = learner(constant), learner(constant, micro_batch=30)
    batch = batch_with(ESTIMATORS["dr_grpo"], ROUND)
    alone.update(batch)
    longer = batch_with(ESTIMATORS["dr_grpo"], [*ROUND, flat_long])
    assert longer.advantages is not None
    longer.advantages[4] = 1e-300  # not 0, so that the rows take part in the pass
    together.update(longer)
    start = flat(learner(constant))
    n_alone, n_longer = len(batch.loss_lengths()), len(longer.loss_lengths())
    torch.testing.assert_close(
        (flat(together) - start) * n_longer, (flat(alone) - start) * n_alone, atol=1e-9, rtol=1e-6
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("optimizer", [PLAIN, ADAM])
def test_flat_groups_give_no_gradient_at_all(estimator: str, optimizer: OptimizerSettings) -> None:
    made = learner(Objective(), optimizer)
    start = flat(made)
    metrics = train(made, random_round([[0.1 + 0.2, 0.3, 0.3]] * 2), estimator)[0]
    assert torch.equal(flat(made), start)
    assert metrics["grad_norm"] == metrics["trained_tokens"] == metrics["loss"] == 0.0
    assert metrics["skipped"] == 0.0


def test_rows_without_advantage_are_left_out_but_counted() -> None:
    seen = []
    for keep in (False, True):
        made = learner(Objective())
        batch = batch_with(ESTIMATORS["grpo"], ROUND)
        assert batch.advantages is not None
        if keep:
            batch.advantages[1] = 1e-300
        metrics = made.update(batch)[0]
        seen.append((flat(made), metrics["loss"], metrics["trained_tokens"]))
    torch.testing.assert_close(seen[0][0], seen[1][0], atol=1e-14, rtol=0)
    assert seen[0][1] == pytest.approx(seen[1][1], abs=1e-14)
    assert seen[1][2] - seen[0][2] == sum(row.n_sampled for row in batch.rows if row.group == 1)


def test_unscored_rollouts_are_as_if_they_had_not_been_sampled() -> None:
    kept = [g.group.rollouts for g in ROUND]
    without = [*ROUND[:2], scored([0.0, 1.0], [kept[2][0], kept[2][2]]), ROUND[3]]
    for objective in (Objective(), Objective(aggregate="sequence_mean", beta=0.3), Objective(aggregate="constant")):
        one, other = learner(objective), learner(objective)
        train(one)
        train(other, without)
        torch.testing.assert_close(flat(one), flat(other), atol=1e-12, rtol=0)


def test_truncated_rollouts_can_be_masked_out_of_the_loss() -> None:
    def cut(stop: StopReason) -> Any:
        members = [rollout(given(1, 2), sampled(3, 4, 5)), rollout(given(1, 2), sampled(6, 7), stop=stop)]
        return [scored([1.0, 0.0], members)]

    metrics = {t: train(learner(Objective()), cut(StopReason.LENGTH), truncated=t)[0] for t in ("train", "mask")}
    assert metrics["train"]["trained_tokens"] == 5
    assert metrics["mask"]["trained_tokens"] == 3
    assert metrics["mask"]["loss"] == pytest.approx(-0.5 / (math.sqrt(0.5) + 1e-4))  # the advantage is as before
    assert train(learner(Objective()), cut(StopReason.EOS), truncated="mask")[0]["trained_tokens"] == 5


def test_annotate_computes_only_what_the_objective_needs() -> None:
    batch = make_batch(ROUND)
    learner(Objective()).annotate(batch)
    assert not any(x is not None for x in batch.old_logp + batch.ref_logp)
    learner(Objective(updates=2)).annotate(batch)
    assert all((x is not None) == row.scored for x, row in zip(batch.old_logp, batch.rows, strict=True))
    assert not any(x is not None for x in batch.ref_logp)
    learner(Objective(beta=0.1)).annotate(batch)
    assert all((x is not None) == row.scored for x, row in zip(batch.ref_logp, batch.rows, strict=True))
    assert batch.penalty is None


def test_the_reference_is_the_policy_without_its_adapter() -> None:
    made, model = learner(Objective(beta=0.1)), policy(dtype=torch.float64)
    batch = make_batch(ROUND)
    made.annotate(batch)
    base = model.unload()
    with torch.no_grad():
        for row, found in zip(batch.rows, batch.ref_logp, strict=True):
            if found is not None:
                np.testing.assert_allclose(found[row.mask], token_logprobs(base, [row])[0].numpy(), atol=1e-10)
    assert all(t.requires_grad for t in made.weights().values())


def test_kl_in_the_reward_is_subtracted_before_the_estimator() -> None:
    made = learner(Objective(beta=0.5, kl_in="reward"))
    batch = make_batch(ROUND)
    made.annotate(batch)
    i = 3
    assert batch.old_logp[i] is not None
    assert batch.ref_logp[i] is not None
    expected = 0.5 - 0.5 * float(np.nansum(batch.old_logp[i] - batch.ref_logp[i]))
    assert batch.group_batch().rewards_P_G[1, 0] == pytest.approx(expected, abs=1e-12)
    batch.advantages = ESTIMATORS["rloo"](batch.group_batch())
    assert batch.advantages[1].any()  # the flat group has a spread now
    assert made.update(batch)[0]["kl"] != 0.0


def test_metrics_by_hand() -> None:
    model = policy(dtype=torch.float64)
    rows = make_batch(ROUND).rows
    with torch.no_grad():
        logp = [token_logprobs(model, [row])[0].numpy() for row in rows]
        with model.disable_adapter():
            ref = [token_logprobs(model, [row])[0].numpy() for row in rows]
    scored_rows = [i for i, row in enumerate(rows) if row.scored]
    tokens = sum(rows[i].n_sampled for i in scored_rows)
    metrics = train(learner(Objective(beta=0.3)))[0]
    k3 = sum(float((np.exp(ref[i] - logp[i]) - (ref[i] - logp[i]) - 1).sum()) for i in scored_rows)
    gap = sum(float(np.abs(rows[i].sampler_logp - logp[i]).sum()) for i in scored_rows)
    assert metrics["kl"] == pytest.approx(k3 / tokens, rel=1e-9)
    assert metrics["sampler_gap"] == pytest.approx(gap / tokens, rel=1e-9)
    assert (metrics["ratio"], metrics["clip_fraction"]) == (pytest.approx(1.0), 0.0)
    assert metrics["trained_tokens"] == tokens
    assert metrics["lr"] == 1e4
    assert train(learner(Objective()))[0]["kl"] == 0.0


def test_later_updates_of_a_round_move_the_ratio_and_clip() -> None:
    made = learner(Objective(updates=3, clip=(0.01, 0.01)), replace(ADAM, learning_rate=0.05, warmup=0))
    first, second, third = train(made)
    assert first["ratio"] == pytest.approx(1.0)
    assert first["clip_fraction"] == 0.0
    assert abs(second["ratio"] - 1) > 1e-3
    assert second["clip_fraction"] > 0
    assert first["sampler_gap"] == pytest.approx(third["sampler_gap"])  # that of the round's start


@pytest.mark.parametrize("where", ["advantages", "adapter"])
def test_a_step_that_is_not_finite_is_skipped_counted_and_stops_in_the_end(where: str) -> None:
    made = learner(Objective(), replace(ADAM, max_skips=3), policy())
    train(made)
    good = batch_with(ESTIMATORS["grpo"], ROUND)
    batch = batch_with(ESTIMATORS["grpo"], ROUND)
    if where == "advantages":
        assert batch.advantages is not None
        batch.advantages[0, 0] = np.inf
    else:
        with torch.no_grad():
            next(iter(made.weights().values())).view(-1)[0] = math.inf
        good = batch
    before = made.state()
    metrics = made.update(batch)[0]
    assert metrics["skipped"] == 1.0
    assert all(math.isfinite(value) for value in metrics.values())
    after = made.state()
    changed = {key for key in before if not _same(before[key], after[key])}
    assert changed == {"steps", "skipped", "skipped_in_a_row"}
    if where == "advantages":
        assert made.update(good)[0]["skipped"] == 0.0
        assert made.state()["skipped_in_a_row"] == 0
        made.update(batch)
    with pytest.raises(TrainingError, match="3 steps in a row"):
        [made.update(batch) for _ in range(3)]


def test_a_loss_that_is_not_finite_is_enough_to_skip() -> None:
    made = learner(Objective(beta=0.1, kl="k1"), ADAM, micro_batch=1)
    batch = batch_with(ESTIMATORS["grpo"], ROUND, made)
    first = batch.ref_logp[0]
    assert first is not None
    first[0] = -np.inf  # k1 is infinite, its gradient is 1
    start = flat(made)
    assert made.update(batch)[0]["skipped"] == 1.0
    assert torch.equal(flat(made), start)


def _same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def rounds(made: LocalLearner, numbers: range) -> list[list[dict[str, float]]]:
    return [train(made, random_round([[1.0, 0.0, 0.5], [0.2, 0.9, None]], seed=n)) for n in numbers]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resume_continues_bit_for_bit(dropout: float, dtype: torch.dtype) -> None:
    def fresh(seed: int) -> LocalLearner:
        model = policy(dtype=dtype, seed=seed, dropout=dropout)
        return learner(Objective(beta=0.1, updates=2), ADAM, model, micro_batch=2, seed=5)

    whole = fresh(0)
    rounds(whole, range(2))
    saved = whole.state()
    ends = rounds(whole, range(2, 4))
    assert not torch.equal(
        saved[next(k for k in saved if k.startswith("adapter/"))], next(iter(whole.weights().values()))
    )

    resumed = fresh(0)
    rounds(resumed, range(9, 10))  # whatever it held before does not matter
    torch.manual_seed(123)
    resumed.load(saved)
    assert rounds(resumed, range(2, 4)) == ends
    final, again = whole.state(), resumed.state()
    assert final.keys() == again.keys()
    assert all(_same(final[k], again[k]) for k in final)


def test_same_seed_twice_and_another_seed() -> None:
    def run(seed: int) -> tuple[list[Any], torch.Tensor]:
        made = learner(Objective(), ADAM, policy(dropout=0.3), micro_batch=2, seed=seed)
        return rounds(made, range(3)), flat(made)

    (one, weights), (two, same), (_, other) = run(1), run(1), run(2)
    assert one == two
    assert torch.equal(weights, same)
    assert not torch.equal(weights, other)


def test_dropout_is_on_in_updates_only_and_leaves_the_global_generator_alone() -> None:
    model = policy(dropout=0.5)
    made = learner(Objective(updates=2), ADAM, model)
    modes: list[bool] = []
    dropout = next(m for n, m in model.named_modules() if ".lora_dropout." in n and isinstance(m, torch.nn.Dropout))
    dropout.register_forward_hook(lambda module, _in, _out: modes.append(module.training))
    torch.manual_seed(7)
    before = torch.get_rng_state()
    batch = make_batch(ROUND)
    made.annotate(batch)
    assert modes == [False]
    batch.advantages = ESTIMATORS["grpo"](batch.group_batch())
    made.update(batch)
    assert modes == [False, True, True]
    assert torch.equal(before, torch.get_rng_state())
    assert not any(module.training for module in model.modules())


def test_dropout_differs_between_steps_and_between_micro_batches() -> None:
    members = [rollout(given(1, 2), sampled(3, 4)) for _ in range(2)]
    twins = [scored([1.0, 0.0], members)] * 2
    model = policy(dropout=0.5)
    made = learner(Objective(updates=2), replace(ADAM, learning_rate=0.0), model, micro_batch=2)
    seen: list[float] = []
    head = model.get_base_model().lm_head
    head.register_forward_hook(lambda _module, _in, out: seen.append(float(out.detach().sum())))
    train(made, twins)
    assert len(seen) == 2 + 2 * 2 * 2  # annotated in two passes, then two steps of two passes, each computed twice
    assert len(set(seen)) == 1 + 2 * 2  # no dropout in the first two, and the second computation repeats the first


def test_a_state_of_another_model_is_refused_before_anything_changes() -> None:
    made = learner(Objective(), ADAM, policy())
    rounds(made, range(1))
    before = made.state()
    saved = dict(before)
    saved[next(k for k in saved if k.startswith("adapter/"))] = torch.zeros(2, 2)
    saved["steps"] = 99
    with pytest.raises(TrainingError, match="does not fit this model: adapter/"):
        made.load(saved)
    with pytest.raises(TrainingError, match="format None"):
        made.load({})
    assert all(_same(before[k], v) for k, v in made.state().items())


def test_the_state_is_a_copy_and_the_weights_are_live() -> None:
    made = learner(Objective(), ADAM, policy())
    saved, live = made.state(), made.weights()
    first = next(iter(live))
    rounds(made, range(1))
    assert not torch.equal(saved[f"adapter/{first}"], live[first])
    assert all(isinstance(v, torch.Tensor | int) for v in made.state().values())


def test_update_before_annotate_is_a_mistake_that_is_named() -> None:
    batch = batch_with(ESTIMATORS["grpo"], ROUND)
    with pytest.raises(ValueError, match="call annotate before update"):
        learner(Objective(updates=2)).update(batch)
    with pytest.raises(ValueError, match="advantages are not set"):
        learner(Objective()).update(make_batch(ROUND))


@pytest.mark.parametrize("micro_batch", [0, -1, "all", 1.5])
def test_bad_micro_batch(micro_batch: Any) -> None:
    with pytest.raises(ConfigError, match="micro_batch is auto or a number"):
        learner(Objective(), micro_batch=micro_batch)


def test_a_round_in_which_nothing_was_scored_is_an_empty_step() -> None:
    made = learner(Objective(beta=0.1))
    start = flat(made)
    metrics = train(made, random_round([[None, None]]))[0]
    assert torch.equal(flat(made), start)
    assert metrics["trained_tokens"] == 0.0
    assert made.update(_advantages(make_batch([])))[0]["grad_norm"] == 0.0


def _advantages(batch: TrainBatch) -> TrainBatch:
    batch.advantages = np.zeros((0, 0, 1))
    return batch
