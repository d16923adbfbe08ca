"""What is optimised: the settings of one policy objective, checked, and said in words and numbers.

Owns the `Objective` and its sentence for the start of a run. Refuses combinations in which an option would be ignored.
Knows no model and no optimizer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dragonet.errors import ConfigError, did_you_mean
from dragonet.learn.advantages import Estimator
from dragonet.learn.kl import KL_KINDS
from dragonet.learn.losses import AGGREGATES, LOSSES
from dragonet.protocols import LossFn

__all__ = ["Objective", "describe_objective"]

_HIGHEST = 1000.0
"""Of clip, delta and dual_clip: far above what any method asks for, far below what float32 overflows at."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The policy objective of a run; raises ConfigError where it cannot work or an option would be ignored.

    `aggregate` and `kl` left at None take what fits: sequence_mean for the loss rloo and token_mean otherwise; k3 in
    the loss and k1 in the reward. `updates` optimizer steps are made on each round's batch.
    """

    loss: str = "ppo_clip"
    clip: tuple[float, float] = (0.2, 0.2)
    delta: float | None = None
    dual_clip: float | None = None
    aggregate: str | None = None
    beta: float = 0.0
    kl: str | None = None
    kl_in: str = "loss"
    importance_corrected: bool = False
    temperature: float = 1.0
    max_new_tokens: int = 128
    updates: int = 1

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ConfigError(f"unknown loss {self.loss!r}{did_you_mean(self.loss, LOSSES)}")
        aggregates = LOSSES[self.loss].aggregates
        if self.aggregate is None:
            object.__setattr__(self, "aggregate", aggregates[0])
        if self.kl is None:
            object.__setattr__(self, "kl", "k1" if self.kl_in == "reward" else "k3")
        bounds: tuple[float, ...] = tuple(self.clip)
        if len(bounds) != 2 or not (0 <= bounds[0] < 1 and 0 <= bounds[1] <= _HIGHEST):
            raise ConfigError(
                f"clip is [low, high] with 0 <= low < 1 and 0 <= high <= {_HIGHEST:g}, got {list(bounds)}"
            )
        object.__setattr__(self, "clip", bounds)
        self._check_choices(aggregates)
        self._check_numbers()
        self._check_ignored()

    def _check_choices(self, aggregates: tuple[str, ...]) -> None:
        if self.aggregate not in AGGREGATES:
            name = str(self.aggregate)
            raise ConfigError(f"unknown aggregate {name!r}{did_you_mean(name, AGGREGATES)}")
        if self.aggregate not in aggregates:
            raise ConfigError(
                f"loss {self.loss!r} is one number per sequence and needs aggregate {' or '.join(aggregates)}, "
                f"got {self.aggregate!r}; set aggregate: {aggregates[0]}, or loss: ppo_clip"
            )
        if self.kl not in KL_KINDS:
            raise ConfigError(f"unknown kl {self.kl!r}{did_you_mean(str(self.kl), KL_KINDS)}")
        if self.kl_in not in ("loss", "reward"):
            raise ConfigError(f"kl_in is loss or reward, got {self.kl_in!r}")

    def _check_numbers(self) -> None:
        high = self.clip[1]
        if self.delta is not None and not 1 + high < self.delta <= _HIGHEST:
            raise ConfigError(
                f"delta must be above 1 + the upper clip ({1 + high:g}) and to {_HIGHEST:g}, got {self.delta}"
            )
        if self.dual_clip is not None and not 1 < self.dual_clip <= _HIGHEST:
            raise ConfigError(f"dual_clip must be above 1 (3 is usual) and to {_HIGHEST:g}, got {self.dual_clip}")
        if not 0 <= self.beta < math.inf:
            raise ConfigError(f"beta must be a finite number of at least 0, got {self.beta}")
        if not 0 < self.temperature < math.inf:
            raise ConfigError(
                f"temperature must be above 0 to train (0 is greedy: all rollouts equal), got {self.temperature}"
            )
        if self.max_new_tokens < 1 or self.updates < 1:
            raise ConfigError(
                f"max_new_tokens and updates must be at least 1, got {self.max_new_tokens}, {self.updates}"
            )

    def _check_ignored(self) -> None:
        if self.delta is not None and self.dual_clip is not None:
            raise ConfigError(
                "delta and dual_clip limit the same thing, so the larger would be ignored; keep one of them"
            )
        if self.importance_corrected and (self.beta == 0 or self.kl_in == "reward"):
            raise ConfigError(
                "importance_corrected concerns a KL in the loss; set beta above 0 and kl_in: loss, or drop it"
            )
        if self.kl_in == "reward" and self.beta == 0:
            raise ConfigError("kl_in: reward does nothing while beta is 0; set beta above 0, or drop kl_in")

    @property
    def kl_in_loss(self) -> bool:
        """Whether the loss has a KL term."""
        return self.beta > 0 and self.kl_in == "loss"

    @property
    def kl_in_reward(self) -> bool:
        """Whether the KL is subtracted from the reward."""
        return self.beta > 0 and self.kl_in == "reward"

    @property
    def needs_reference(self) -> bool:
        """Whether reference log-probabilities are needed at all."""
        return self.beta > 0

    @property
    def needs_old(self) -> bool:
        """Whether log-probabilities before the first update must be kept."""
        return self.updates > 1 or self.kl_in_reward

    def loss_fn(self) -> LossFn:
        """Return the per-token loss with its settings fixed."""
        return LOSSES[self.loss].bind(self.clip, self.delta, self.dual_clip)


def describe_objective(objective: Objective, estimator: Estimator | None = None) -> str:
    """Return the exact formula that is optimised, numbers filled in, as a few lines of plain text."""
    entry, (low, high) = LOSSES[objective.loss], objective.clip
    rho = "R" if objective.loss == "rloo" else "rho"
    unclipped = rho if objective.delta is None else f"min({rho}, {objective.delta:g})"
    term = f"-min({unclipped} A, clip({rho}, {1 - low:g}, {1 + high:g}) A)"
    if objective.dual_clip is not None:
        term += f" (at most {objective.dual_clip:g} |A| where A < 0)"
    if objective.kl_in_loss:
        corrected = "rho " if objective.importance_corrected else ""
        term += f" + {objective.beta:g} {corrected}{objective.kl}"
    weight = {
        "token_mean": "mean over all trained tokens of the step",
        "sequence_mean": "mean over tokens of a rollout, then over rollouts",
        "constant": f"sum / (rollouts x {objective.max_new_tokens})",
    }[str(objective.aggregate)]
    lines = [f"minimise {objective.aggregate} [ {term} ]; {objective.aggregate}: {weight}"]
    old = "the round's start" if objective.updates > 1 else "this very step, so the ratio is 1 and clipping is idle"
    lines.append(
        f"{entry.ratio} at temperature {objective.temperature:g}; old: {old}; updates per round: {objective.updates}"
    )
    if estimator is not None:
        reward = f"; r = reward - {objective.beta:g} x sum of {objective.kl}" if objective.kl_in_reward else ""
        lines.append(f"{estimator.formula}{reward} ({estimator.name}; {estimator.paper})")
    elif objective.kl_in_reward:
        lines.append(f"r = reward - {objective.beta:g} x sum of {objective.kl}")
    if objective.needs_reference:
        lines.append("KL to the policy at the start (adapter off): " + _KL_TEXT[str(objective.kl)])
        if objective.kl_in_loss and objective.kl == "k1" and not objective.importance_corrected:
            lines.append("note: plain k1 in the loss has a gradient of zero on average; use k3, k2 or kl_in: reward")
    return "\n".join(lines)


_KL_TEXT = {
    "k1": "k1 = logp - ref",
    "k2": "k2 = (logp - ref)^2 / 2",
    "k3": "k3 = exp(ref - logp) - (ref - logp) - 1",
}
