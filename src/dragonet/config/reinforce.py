"""The `reinforce` section: estimator, loss, KL and sampling of the policy-gradient stage.

Owns which of these go together, which would be ignored, and the recipe of each choice: values that stand unless the
user wrote others. Formulas and papers live with the learn room; sampling with the rollout room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from dragonet.config.values import STRICT, Conflict, Count, Real, Texts, refuse

_WHITENED = ("reinforce", "reinforce_baseline")


def _both_sides(value: Any) -> Any:
    """Read one number as the same clip on both sides."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (value, value)
    return value


def _recipe(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a choice brings along.

    RLOO (Ahmadian et al. 2024, arXiv:2402.14740) takes the ratio of whole sequences, so it has a loss of its own. As
    a penalty in the reward only k1 has the gradient of the KL itself; k2 and k3 are made for the loss.
    """
    values: dict[str, Any] = {}
    if written.get("estimator") == "rloo" and written.get("loss", "rloo") == "rloo":
        values |= {"loss": "rloo", "aggregate": "sequence_mean"}
    if written.get("kl_in") == "reward" and written.get("beta") != 0:
        values |= {"kl": "k1"}
    return values


class ReinforceSection(BaseModel):
    """`clip` is [below, above]; `temperature` is the one tokens are drawn at and probabilities are taken at."""

    model_config = STRICT

    estimator: Literal["grpo", "dr_grpo", "rloo", "reinforce", "reinforce_baseline"] = "grpo"
    loss: Literal["ppo_clip", "rloo"] = "ppo_clip"
    clip: Annotated[
        tuple[Annotated[Real, Field(gt=0, lt=1)], Annotated[Real, Field(gt=0, le=1000)]],
        Field(strict=False, description="[below, above], two numbers above 0, the first below 1, the second to 1000"),
        BeforeValidator(_both_sides),
    ] = (0.2, 0.2)
    delta: Annotated[Real, Field(gt=1, le=1000)] | None = None
    dual_clip: Annotated[Real, Field(gt=1, le=1000)] | None = None
    aggregate: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    beta: Annotated[Real, Field(ge=0, le=10)] = 0.04
    kl: Literal["k1", "k2", "k3"] = "k3"
    kl_importance_corrected: bool = False
    kl_in: Literal["loss", "reward"] = "loss"
    variance: Literal["biased", "unbiased"] = "biased"
    group_size: Annotated[int, Field(ge=2, le=64)] = 4
    temperature: Annotated[Real, Field(ge=0.05, le=3)] = 1.0
    top_p: Annotated[Real, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    min_p: Annotated[Real, Field(ge=0, lt=1)] = 0.0
    max_new_tokens: Count = 128
    stop: Texts = ()
    updates: Annotated[int, Field(ge=1, le=1000)] = 1
    truncated: Literal["train", "mask", "zero"] = "train"
    max_failed_fraction: Annotated[Real, Field(ge=0, le=1)] = 0.2

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, value: Any) -> Any:
        return {**_recipe(value), **value} if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(self._conflicts())
        return self

    def ignored(self) -> dict[str, Conflict]:
        """Return the keys that have no effect beside the others, each with the reason."""
        found: dict[str, Conflict] = {}

        def mark(keys: tuple[str, ...], cause: str, why: str) -> None:
            for key in keys:
                found.setdefault(key, Conflict((key, cause), f"would be ignored: {why}"))

        if self.loss == "rloo":
            mark(("delta", "dual_clip"), "loss", "loss rloo has no such bound; remove it or use loss ppo_clip")
        if self.beta == 0:
            why = "beta is 0, so there is no KL term; remove it or give beta a value above 0"
            mark(("kl", "kl_in", "kl_importance_corrected"), "beta", why)
        if self.kl_in == "reward":
            why = "it corrects the KL in the loss, and kl_in is reward; remove one of the two"
            mark(("kl_importance_corrected",), "kl_in", why)
        if self.estimator not in _WHITENED:
            why = f"only {' and '.join(_WHITENED)} whiten, and the estimator is {self.estimator}; remove it"
            mark(("variance",), "estimator", why)
        return found

    def _conflicts(self) -> Iterator[Conflict]:
        for key, conflict in self.ignored().items():
            if key in self.model_fields_set and getattr(self, key) not in (None, False):
                yield conflict
        if self.loss == "rloo" and self.estimator != "rloo":
            text = f"goes with estimator rloo, not {self.estimator}; use loss ppo_clip or write estimator: rloo"
            yield Conflict(("loss", "estimator"), text)
        elif self.loss == "rloo" and self.aggregate != "sequence_mean":
            text = f"{self.aggregate} would be ignored: loss rloo has one ratio per sequence; use sequence_mean"
            yield Conflict(("aggregate", "loss"), text)
        if self.delta is not None and self.dual_clip is not None:
            text = "both bound the loss where the advantage is negative, and the smaller would win; keep one"
            yield Conflict(("delta", "dual_clip"), text)
        if self.delta is not None and self.delta <= 1 + self.clip[1]:
            text = f"{self.delta:g} must lie above 1 + the upper clip, {1 + self.clip[1]:g}"
            yield Conflict(("delta", "clip"), text)
