"""The optimizer step every trainer of dragonet shares: AdamW, learning-rate schedule, clipping, the non-finite guard.

Owns the moments, the schedule's counter and the count of skipped steps, and gives them out for exact resume. A step
whose loss or gradient is not finite leaves parameters and moments as they are. Knows no loss, no batch and no model,
only named parameters whose `.grad` somebody has filled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from dragonet.errors import ConfigError, TrainingError, did_you_mean

__all__ = ["SCHEDULES", "OptimizerSettings", "OptimizerStep", "StepReport", "learning_rate", "load_tensor"]

SCHEDULES: Final = ("cosine", "linear", "constant")

_MOMENTS: Final = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """How parameters move; raises ConfigError for values that cannot work.

    `warmup` below 1 is a fraction of `total_steps`, from 1 on a number of steps. `max_grad_norm` 0 does not clip.
    Betas and eps are Adam's usual ones (arXiv 1412.6980, decoupled decay from arXiv 1711.05101). After `max_skips`
    non-finite steps in a row training stops.
    """

    learning_rate: float
    total_steps: int
    warmup: float = 0.03
    schedule: str = "cosine"
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    max_skips: int = 5

    def __post_init__(self) -> None:
        if not 0 <= self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate must be a finite number of at least 0, got {self.learning_rate}")
        if self.schedule not in SCHEDULES:
            raise ConfigError(f"unknown schedule {self.schedule!r}{did_you_mean(self.schedule, SCHEDULES)}")
        if not 0 <= self.warmup < math.inf or (self.warmup >= 1 and self.warmup != int(self.warmup)):
            raise ConfigError(f"warmup is a fraction below 1 or a whole number of steps, got {self.warmup}")
        for name in ("weight_decay", "max_grad_norm"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be a finite number of at least 0, got {getattr(self, name)}")
        if self.total_steps < 1 or self.max_skips < 1:
            raise ConfigError(f"total_steps and max_skips must be at least 1, got {self.total_steps}, {self.max_skips}")

    @property
    def warmup_steps(self) -> int:
        """Number of steps with a rising rate."""
        return int(self.warmup) if self.warmup >= 1 else math.ceil(self.warmup * self.total_steps)


def learning_rate(settings: OptimizerSettings, step: int) -> float:
    """Return the rate of step `step`, counted from 0.

    It rises in equal parts over the warm-up, whose last step has the full rate, and then falls towards 0, which it
    would reach one step after the last.
    """
    warm, total = settings.warmup_steps, settings.total_steps
    if step < warm:
        return settings.learning_rate * (step + 1) / warm
    if settings.schedule == "constant":
        return settings.learning_rate
    done = min((step - warm) / max(total - warm, 1), 1.0)
    factor = 1.0 - done if settings.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return settings.learning_rate * factor


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did: the gradient's norm before clipping (0.0 when skipped), the rate it used, if it was skipped."""

    grad_norm: float
    lr: float
    skipped: bool


class OptimizerStep:
    """One AdamW over named parameters, with everything around a step."""

    def __init__(self, parameters: Mapping[str, torch.Tensor], settings: OptimizerSettings) -> None:
        if not parameters:
            raise TrainingError("the model has no trainable parameters; check lora.targets")
        self._parameters = dict(parameters)
        self._settings = settings
        self._adam = torch.optim.AdamW(
            list(self._parameters.values()),
            lr=settings.learning_rate,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )
        self.steps = 0
        self.skipped = 0
        self._skipped_in_a_row = 0

    @property
    def lr(self) -> float:
        """The learning rate the next step will use."""
        return learning_rate(self._settings, self.steps)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self._adam.zero_grad(set_to_none=True)

    def apply(self, *, loss_is_finite: bool = True) -> StepReport:
        """Move the parameters along their gradients and forget these; raises TrainingError after too many skips.

        A parameter without a gradient counts as one whose gradient is 0. A skipped step still advances the schedule.
        """
        lr, norm = self.lr, self._grad_norm() if loss_is_finite else math.nan
        self.steps += 1
        if not math.isfinite(norm):
            self.zero_grad()
            self._count_skip()
            return StepReport(0.0, lr, True)
        self._skipped_in_a_row = 0
        limit = self._settings.max_grad_norm
        if 0 < limit < norm:
            for parameter in self._parameters.values():
                if parameter.grad is not None:
                    parameter.grad.mul_(limit / norm)
        for group in self._adam.param_groups:
            group["lr"] = lr
        self._adam.step()
        self.zero_grad()
        return StepReport(norm, lr, False)

    def _grad_norm(self) -> float:
        for parameter in self._parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return float(torch.nn.utils.get_total_norm([p.grad for p in self._parameters.values() if p.grad is not None]))

    def _count_skip(self) -> None:
        self.skipped += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= self._settings.max_skips:
            raise TrainingError(
                f"the loss or its gradient was not finite for {self._skipped_in_a_row} steps in a row, so training "
                "stopped; the weights are those before the first of them. Lower train.learning_rate, use dtype "
                "float32 instead of a 16-bit one, and look for extreme rewards"
            )

    def state(self) -> dict[str, Any]:
        """Return copies of the moments by parameter name, and the counters, as tensors and plain values."""
        found: dict[str, Any] = {
            "steps": self.steps,
            "skipped": self.skipped,
            "skipped_in_a_row": self._skipped_in_a_row,
            "adam_steps": 0,
        }
        for name, parameter in self._parameters.items():
            moments = self._adam.state.get(parameter)
            if moments:
                found["adam_steps"] = int(moments["step"])
                found |= {f"{key}/{name}": moments[key].detach().cpu().clone() for key in _MOMENTS}
        return found

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`; raises TrainingError when it belongs to other parameters."""
        adam_steps = int(state["adam_steps"])
        fresh: dict[torch.Tensor, dict[str, Any]] = {}
        for name, parameter in self._parameters.items() if adam_steps else ():
            moments = {key: load_tensor(state, f"{key}/{name}", parameter) for key in _MOMENTS}
            fresh[parameter] = {"step": torch.tensor(float(adam_steps)), **moments}
        self._adam.state.clear()
        self._adam.state.update(fresh)
        self.steps = int(state["steps"])
        self.skipped = int(state["skipped"])
        self._skipped_in_a_row = int(state["skipped_in_a_row"])


def load_tensor(state: Mapping[str, Any], key: str, like: torch.Tensor) -> torch.Tensor:
    """Return a copy of `state[key]` on the device of `like`; raises TrainingError when missing or of another shape."""
    value = state.get(key)
    if not isinstance(value, torch.Tensor) or value.shape != like.shape or value.dtype != like.dtype:
        found = "missing" if value is None else f"{getattr(value, 'dtype', '')} {list(getattr(value, 'shape', ()))}"
        raise TrainingError(
            f"the saved state does not fit this model: {key} is {found}, expected {like.dtype} {list(like.shape)}; "
            "resume with the model, dtype and lora settings the run was started with"
        )
    return value.detach().to(like.device, copy=True)
