"""Is this good? Rewards that can be checked, their weighted sum, and the three outcomes of a score.

`reward` makes one, `as_rewards` reads what a config or a Python call gives, `score` tries one on one text, `RewardSet`
scores groups. spec.py lists the types and their keys, typed.py what all types share, judge.py the seam of a type;
text.py, structured.py and custom.py hold the types, combine.py the sum. No torch is loaded here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonet.errors import ConfigError, DragonetError
from dragonet.rewards.callables import keys_of
from dragonet.rewards.combine import RewardSet, Tally
from dragonet.rewards.shown import shown
from dragonet.rewards.spec import TYPES, reward
from dragonet.rewards.typed import TypedReward
from dragonet.types import Prompt, Rollout, Score, StopReason

if TYPE_CHECKING:
    from dragonet.protocols import Reward

__all__ = ["TYPES", "RewardSet", "Tally", "TypedReward", "as_rewards", "reward", "score"]


def as_rewards(value: Any, *, base: Path | None = None) -> list[Reward]:
    """Return rewards for one or a list of: reward objects, type names, mappings with `type`, Python functions.

    A relative `file` in a mapping is looked for under `base` (default: the current folder). Raises ConfigError, with
    the place in the list, and UserCodeError.
    """
    several = isinstance(value, Sequence) and not isinstance(value, str)
    out = []
    for place, item in enumerate(value if several else [value]):
        try:
            out.append(_as_reward(item, base))
        except DragonetError as error:
            if not several:
                raise
            error.args = (f"rewards[{place}]: {error}",)
            raise
    return out


def _as_reward(value: Any, base: Path | None) -> Reward:
    if isinstance(value, str):
        return reward(value)
    if isinstance(value, Mapping):
        keys = dict(value)
        if "type" not in keys:
            raise ConfigError(f"type is missing in {shown(keys)}; one of {', '.join(TYPES)}")
        if base is not None and isinstance(keys.get("file"), str | Path):
            keys["file"] = base / keys["file"]
        return reward(**{str(key): item for key, item in keys.items()})
    if isinstance(value, TypedReward) or all(hasattr(value, part) for part in ("name", "weight", "unit", "score")):
        known: Reward = value
        return known
    if callable(value):
        return reward("custom", **keys_of(value))
    raise ConfigError(f"expected a reward, a type name, a mapping with type, or a function; got {shown(value)}")


def score(
    reward: Any,
    completion: str,
    *,
    reference: str | float | None = None,
    prompt: str = "",
    row: Mapping[str, Any] | None = None,
) -> Score:
    """Try one reward on one text. `reward` is anything `as_rewards` takes one of.

    A reference that is a number is read as its text. Raises ConfigError for an argument of another type.
    """
    for name, value, kinds in (("completion", completion, str), ("prompt", prompt, str), ("row", row, Mapping | None)):
        if not isinstance(value, kinds):
            wanted = "a mapping of columns" if name == "row" else "text"
            raise ConfigError(f"{name} must be {wanted}, got {shown(value)}")
    if not isinstance(reference, str | int | float | None):
        raise ConfigError(f"reference must be text, a number or None, got {shown(reference)}")
    try:
        text = None if reference is None else str(reference)
    except ValueError:  # Python writes no longer number
        raise ConfigError(
            f"reference must be text, a number of less than 4300 digits or None, got {shown(reference)}"
        ) from None
    rewards = as_rewards(reward)
    if len(rewards) != 1:
        raise ConfigError(f"score tries one reward, got {len(rewards)}; use RewardSet for their sum")
    asked = Prompt(
        messages=({"role": "user", "content": prompt},),
        reference=text,
        row=dict(row or {}),
    )
    rollout = Rollout(prompt=asked, segments=(), completion=completion, stop_reason=StopReason.EOS)
    try:
        return rewards[0].score([rollout])[0]
    finally:
        if rewards[0] is not reward:
            rewards[0].close()
