"""Several rewards as one number: the weighted sum, and the three outcomes kept apart.

A rollout whose reward failed, or to which none applies, has no number. Log-only rewards (weight 0) take no part in
either decision. Counts what happened in the last call; the training loop decides what to make of it. This file refuses
to know any type of reward.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dragonet.errors import ConfigError, DragonetError, RewardError, did_you_mean
from dragonet.rewards.custom import packed
from dragonet.rewards.typed import TypedReward
from dragonet.types import Group, Prompt, Rollout, Score, ScoredGroup

if TYPE_CHECKING:
    from dragonet.protocols import Reward

__all__ = ["RewardSet", "Tally"]

_SHOWN_ROWS = 10


@dataclass(frozen=True, slots=True)
class Tally:
    """What one call of `RewardSet.score` counted.

    `failed` and `unscored` count rollouts (a weighted reward failed; none applied), the others single scores by the
    name of the reward. `first_failure` names the reward and the row, with the user's own lines where there are some.
    """

    rollouts: int = 0
    failed: int = 0
    unscored: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    not_applicable: Mapping[str, int] = field(default_factory=dict)
    timeouts: Mapping[str, int] = field(default_factory=dict)
    first_failure: str | None = None


class RewardSet:
    """Rewards that are summed by weight, under unique names. Raises ConfigError when there is none."""

    def __init__(self, rewards: Sequence[Reward]) -> None:
        if not rewards:
            raise ConfigError("rewards is empty; give at least one, for instance {type: numeric}")
        self.names = _unique([reward.name for reward in rewards])
        self.weights = [float(reward.weight) for reward in rewards]
        self.tally = Tally()
        self._rewards = list(rewards)

    def __len__(self) -> int:
        return len(self._rewards)

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Find what would make rewards fail, before the first step.

        Raises UserCodeError for a function that cannot be loaded, RewardError for references that cannot be used (by
        row, counted from 1 without the header) and for a condition on a column that no row has.
        """
        if not any(self.weights):
            raise ConfigError("every reward has weight 0, so there is nothing to train on; give one a weight")
        problems = []
        for name, reward in zip(self.names, self._rewards, strict=True):
            if isinstance(reward, TypedReward):
                try:
                    reward.start()
                except DragonetError as error:
                    error.args = (f'reward "{name}": {error}',)
                    raise
                problems += _condition_problems(name, reward, prompts) or _reference_problems(name, reward, prompts)
        if problems:
            raise RewardError("\n".join(problems))

    def score(self, groups: Sequence[Group]) -> list[ScoredGroup]:
        """Score every rollout with every reward; `tally` then says what happened."""
        scores_K = [self._ask(k, groups) for k in range(len(self))]
        counts: dict[str, Counter[str]] = {"failed": Counter(), "not_applicable": Counter(), "timeout": Counter()}
        ends: Counter[str] = Counter()
        first: str | None = None
        out: list[ScoredGroup] = []
        rows = zip(*scores_K, strict=True)
        for group in groups:
            table = tuple(self._summable(next(rows)) for _ in group.rollouts)
            totals = [self._total(row) for row in table]
            ends.update(status for _, status in totals)
            for rollout, row in zip(group.rollouts, table, strict=True):
                self._count(row, counts)
                first = first or self._failure(row, rollout)
            out.append(ScoredGroup(group, table, tuple(total for total, _ in totals)))
        self.tally = Tally(
            rollouts=ends.total(),
            failed=ends["failed"],
            unscored=ends["not_applicable"],
            failures=dict(counts["failed"]),
            not_applicable=dict(counts["not_applicable"]),
            timeouts=dict(counts["timeout"]),
            first_failure=first,
        )
        return out

    def describe(self) -> str:
        """Return one line: the sum that training uses."""
        parts = []
        for name, weight, reward in zip(self.names, self.weights, self._rewards, strict=True):
            kind = f" ({reward.type})" if isinstance(reward, TypedReward) and reward.type != name else ""
            parts.append(f"{name}{kind}" if weight == 1 else f"{weight:g} x {name}{kind}")
        return " + ".join(parts).replace("+ -", "- ")

    def pack(self, folder: str = "rewards") -> tuple[list[dict[str, Any]], dict[str, bytes]]:
        """Return specs whose files are relative names under `folder`, and those files: name -> content.

        Written below one place, `as_rewards(specs, base=place)` makes the same rewards there. Raises ConfigError for a
        reward that has no spec.
        """
        specs, files = [], {}
        for name, reward in zip(self.names, self._rewards, strict=True):
            if not isinstance(reward, TypedReward):
                raise ConfigError(
                    f"the reward {name!r} ({type(reward).__name__}) is not of a known type, so it has no spec"
                )
            spec = reward.spec() | {"name": name}
            if reward.type == "custom":
                own, contents = packed(spec.get("file"), spec.pop("source", None), spec["fn"])
                place = f"{folder}/{re.sub(r'[^A-Za-z0-9_.-]', '_', name).lstrip('.') or 'custom'}"
                files.update({f"{place}/{file}": content for file, content in contents.items()})
                spec["file"] = f"{place}/{own}"
            specs.append(spec)
        return specs, files

    def take_output(self) -> str:
        """Return what user functions printed since the last call."""
        return "".join(reward.take_output() for reward in self._rewards if isinstance(reward, TypedReward))

    def close(self) -> None:
        """End all workers."""
        for reward in self._rewards:
            reward.close()

    def _ask(self, k: int, groups: Sequence[Group]) -> list[Score]:
        reward = self._rewards[k]
        if reward.unit == "group":
            return [score for group in groups for score in self._fenced(reward, group.rollouts)]
        return self._fenced(reward, [rollout for group in groups for rollout in group.rollouts])

    def _fenced(self, reward: Reward, rollouts: Sequence[Rollout]) -> list[Score]:
        """Ask about the rollouts that came to an end; a reward from outside that breaks its word has failed."""
        sound = [rollout for rollout in rollouts if rollout.error is None]
        try:
            given = reward.score(sound)
        except DragonetError:
            raise
        except Exception as error:
            if isinstance(reward, TypedReward):
                raise
            given = [Score(failure=f"{type(error).__name__}: {error}")] * len(sound)
        if len(given) != len(sound):
            given = [Score(failure=f"{len(given)} scores came back for {len(sound)} rollouts")] * len(sound)
        scores = iter(given)
        return [next(scores) if r.error is None else Score(failure=f"the rollout failed: {r.error}") for r in rollouts]

    def _summable(self, row: tuple[Score, ...]) -> tuple[Score, ...]:
        """Turn the largest part of a sum that overflows into a failure, so that it is counted and named as one."""
        parts = [w * s.value if w and s.value is not None else 0.0 for w, s in zip(self.weights, row, strict=True)]
        if math.isfinite(sum(parts)):
            return row
        worst = max(range(len(parts)), key=lambda k: abs(parts[k]))
        reason = f"{self.weights[worst]:g} x {row[worst].value:g} makes the weighted sum overflow; use smaller values"
        failed = dataclasses.replace(row[worst], value=None, failure=reason)
        return (*row[:worst], failed, *row[worst + 1 :])

    def _total(self, row: Sequence[Score]) -> tuple[float | None, str]:
        total, applied = 0.0, False
        for weight, score in zip(self.weights, row, strict=True):
            if weight and score.failure is not None:
                return None, "failed"
            if weight and score.value is not None:
                total, applied = total + weight * score.value, True
        return (total, "scored") if applied else (None, "not_applicable")

    def _count(self, row: Sequence[Score], counts: Mapping[str, Counter[str]]) -> None:
        for name, score in zip(self.names, row, strict=True):
            if score.status != "scored":
                counts[score.status][name] += 1
            if score.logs.get("timeout"):
                counts["timeout"][name] += 1

    def _failure(self, row: Sequence[Score], rollout: Rollout) -> str | None:
        for name, score in zip(self.names, row, strict=True):
            if score.failure is not None:
                return f'reward "{name}" on row {rollout.prompt.index + 1}: {score.failure}'
        return None


def _unique(names: Sequence[str]) -> list[str]:
    out: list[str] = []
    for name in names:
        number, free = 2, name
        while free in out:
            number, free = number + 1, f"{name}_{number}"
        out.append(free)
    return out


def _condition_problems(name: str, reward: TypedReward, prompts: Sequence[Prompt]) -> list[str]:
    if reward.when is None or not prompts:
        return []
    columns = {column for prompt in prompts for column in prompt.row}
    if reward.when.column in columns:
        return []
    hint = did_you_mean(reward.when.column, columns)
    return [f'reward "{name}": when names the column {reward.when.column!r}, which no row has{hint}']


def _reference_problems(name: str, reward: TypedReward, prompts: Sequence[Prompt]) -> list[str]:
    known: dict[str | None, str | None] = {}
    lines = []
    for prompt in prompts:
        if reward.when is not None and not reward.when.holds(prompt.row):
            continue
        if prompt.reference not in known:
            known[prompt.reference] = reward.check(prompt.reference)
        reason = known[prompt.reference]
        if reason is not None:
            shown = "" if prompt.reference is None else f" {prompt.reference[:80]!r}"
            lines.append(f"  row {prompt.index + 1}: the reference{shown} {reason}")
    if not lines:
        return []
    count = f"{len(lines)} of {len(prompts)} references (rows are counted from 1, without the header)"
    head = f'reward "{name}" cannot use {count}:'
    more = [f"  and {len(lines) - _SHOWN_ROWS} more"] if len(lines) > _SHOWN_ROWS else []
    return [head, *lines[:_SHOWN_ROWS], *more, "  correct these rows, or leave them out with when:"]
