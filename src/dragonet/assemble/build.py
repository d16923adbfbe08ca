"""From a config and prompts to the parts of the loop: model, engine, source, rewards, estimator, learner.

One process: engine and learner share the policy's module, so publishing weights copies nothing. Each part is built by
its own room; this file only passes plain values on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dragonet import models
from dragonet.assemble.prepare import sampling_renderer, total_steps
from dragonet.config import RunConfig
from dragonet.learn.advantages import ESTIMATORS, estimator
from dragonet.learn.evaluate import Evaluation, evaluation
from dragonet.learn.learner import LocalLearner
from dragonet.learn.loop import Plan
from dragonet.learn.objective import Objective, describe_objective
from dragonet.learn.policy import check_head
from dragonet.learn.step import OptimizerSettings
from dragonet.protocols import AdvantageEstimator
from dragonet.rewards import RewardSet
from dragonet.rollout import LocalEngine, SingleTurnSource
from dragonet.rollout.collect import SeedPlan, collect_groups_sync
from dragonet.types import Group, Prompt, Sampling, ScoredGroup

EVALUATION_SEED = 0  # greedy decoding draws nothing; the seed only labels the rollouts
AUTO_EVALUATIONS = 4  # how often `eval_steps: auto` looks between the first and the last evaluation


@dataclass(frozen=True, slots=True)
class Scorer:
    """Score groups, and pass on what the user's functions printed meanwhile."""

    rewards: RewardSet
    on_output: Callable[[str], None]

    def __call__(self, groups: Sequence[Group]) -> list[ScoredGroup]:
        scored = self.rewards.score(groups)
        printed = self.rewards.take_output()
        if printed.strip():
            self.on_output("\n".join(f"printed by a reward: {line}" for line in printed.rstrip().splitlines()))
        return scored


@dataclass(frozen=True, slots=True)
class Built:
    """The parts of one run, and the facts that its start line tells."""

    model: Any
    engine: LocalEngine
    source: SingleTurnSource
    scorer: Scorer
    estimator: AdvantageEstimator
    learner: LocalLearner
    evaluate: Callable[[int], Evaluation | None]
    plan: Plan
    device: str
    dtype: str

    def publish(self, version: int) -> None:
        """Let the engine sample from the learner's weights."""
        self.engine.load_weights(self.learner.weights(), version)

    def close(self) -> None:
        """End the rewards' workers and the engine."""
        self.scorer.rewards.close()
        self.engine.close()


def objective_of(config: RunConfig) -> Objective:
    """Return what the run optimises."""
    section = config.reinforce
    return Objective(
        loss=section.loss,
        clip=section.clip,
        delta=section.delta,
        dual_clip=section.dual_clip,
        aggregate=section.aggregate,
        beta=section.beta,
        kl=section.kl,
        kl_in=section.kl_in if section.beta > 0 else "loss",
        importance_corrected=section.kl_importance_corrected,
        temperature=section.temperature,
        max_new_tokens=section.max_new_tokens,
        updates=section.updates,
    )


def describe(config: RunConfig) -> str:
    """Return the exact objective of a run in words and numbers."""
    return describe_objective(objective_of(config), ESTIMATORS[config.reinforce.estimator])


def build(
    config: RunConfig,
    ref: models.ModelRef,
    renderer: models.Renderer,
    scorer: Scorer,
    train: Sequence[Prompt],
    held_out: Sequence[Prompt],
) -> Built:
    """Load the model and connect the parts. Raises ModelError when the architecture is not supported."""
    reinforce, schedule = config.reinforce, config.train
    device = models.pick_device(config.model.device)
    dtype = models.pick_dtype(config.model.dtype, device)
    lora = models.LoraSpec(config.lora.r, config.lora.alpha, config.lora.dropout, config.lora.targets)
    sampled = sampling_renderer(config, renderer)
    longest = reinforce.max_new_tokens + max(len(sampled.prompt_ids(p.messages)) for p in (*train, *held_out))
    model = models.load_policy(ref, device=device, dtype=dtype, lora=lora, seed=schedule.seed, longest=longest)
    check_head(model)
    engine = LocalEngine(
        model,
        eos_ids=renderer.eos_ids,
        pad_id=renderer.pad_id,
        decode=renderer.decode,
        context_length=renderer.context_length,
    )
    source = SingleTurnSource(
        train,
        engine=engine,
        renderer=sampled,
        sampling=sampling_of(config, temperature=reinforce.temperature),
        group_size=reinforce.group_size,
        batch_size=schedule.batch_size,
        seed=schedule.seed,
    )
    plan = plan_of(config, len(train), source.rounds_per_epoch, scorer.rewards)
    settings = OptimizerSettings(
        learning_rate=schedule.learning_rate,
        total_steps=plan.total_steps,
        warmup=schedule.warmup if schedule.warmup < 1 else plan.total_steps,  # there, 1 is one step
        schedule=schedule.schedule,
        weight_decay=schedule.weight_decay,
        max_grad_norm=schedule.max_grad_norm,
    )
    learner = LocalLearner(model, objective_of(config), settings, micro_batch=schedule.micro_batch, seed=schedule.seed)
    return Built(
        model=model,
        engine=engine,
        source=source,
        scorer=scorer,
        estimator=estimator_of(config),
        learner=learner,
        evaluate=evaluator(config, engine, sampled, scorer, held_out),
        plan=plan,
        device=str(device),
        dtype=str(dtype).removeprefix("torch."),
    )


def estimator_of(config: RunConfig) -> AdvantageEstimator:
    """Return the estimator with its options bound; those it does not know stand at their defaults in a config."""
    section = config.reinforce
    known = ESTIMATORS[section.estimator].options
    return estimator(section.estimator, **{name: getattr(section, name) for name in known})


def sampling_of(config: RunConfig, *, temperature: float) -> Sampling:
    """Return how tokens are drawn; greedy evaluation cuts nothing off the distribution."""
    section = config.reinforce
    if temperature == 0:
        return Sampling(section.max_new_tokens, 0.0, stop=section.stop)
    return Sampling(section.max_new_tokens, temperature, section.top_p, section.top_k, section.min_p, stop=section.stop)


def evaluator(
    config: RunConfig, engine: LocalEngine, renderer: Any, scorer: Scorer, held_out: Sequence[Prompt]
) -> Callable[[int], Evaluation | None]:
    """Return a function that looks at the held-out prompts, greedily; it gives None when there are none."""
    greedy = sampling_of(config, temperature=0.0)

    def evaluate(step: int) -> Evaluation | None:
        if not held_out:
            return None
        groups = collect_groups_sync(
            engine, renderer, held_out, sampling=greedy, group_size=1, seeds=SeedPlan(EVALUATION_SEED)
        )
        return evaluation(step, scorer(groups), scorer.rewards.names, config.train.n_samples)

    return evaluate


def plan_of(config: RunConfig, n_train: int, rounds_per_epoch: float, rewards: RewardSet) -> Plan:
    """Return how long to train and how often to look."""
    steps = total_steps(config, n_train)
    chosen = config.train.eval_steps
    return Plan(
        total_steps=steps,
        rounds_per_epoch=rounds_per_epoch,
        save_steps=config.train.save_steps,
        eval_steps=max(10, math.ceil(steps / (AUTO_EVALUATIONS + 1))) if chosen == "auto" else chosen,
        max_minutes=config.train.max_minutes,
        max_failed_fraction=config.reinforce.max_failed_fraction,
        reward_names=tuple(rewards.names),
        reward_range=(sum(min(w, 0.0) for w in rewards.weights), sum(max(w, 0.0) for w in rewards.weights)),
        truncated=config.reinforce.truncated,
    )
