"""Which prompts are held out: chosen by a seeded hash of what the model sees; equal prompts stay on one side.

The choice does not depend on the order of the table, and rows that are added later move few others. Knows prompts
only.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dragonet.errors import DataError
from dragonet.types import Prompt

__all__ = ["Split", "prompt_hash", "split_prompts"]


@dataclass(frozen=True, slots=True)
class Split:
    """Prompts to train on and prompts held out, each in the order of the table."""

    train: list[Prompt]
    eval: list[Prompt]
    notices: tuple[str, ...] = ()


def prompt_hash(prompt: Prompt, seed: int) -> bytes:
    """Return a digest of the messages under a seed; equal messages have equal digests."""
    text = json.dumps([seed, [dict(message) for message in prompt.messages]], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def split_prompts(
    prompts: Sequence[Prompt], eval: float = 0.1, min_eval: int = 16, max_eval: int = 200, seed: int = 42
) -> Split:
    """Hold out the share `eval`, at least `min_eval` and at most `max_eval` rows; 0 holds out none.

    A small table gives at most half of its rows to reach `min_eval`. Raises DataError for bounds that cannot hold.
    """
    _check_bounds(eval, min_eval, max_eval)
    if eval == 0:
        return Split(list(prompts), [], ("no prompts are held out (eval is 0), so nothing is measured on unseen ones",))
    total = len(prompts)
    target = min(max(round(eval * total), min(min_eval, total // 2)), max_eval, total - 1)
    held = _choose(prompts, target, min(target, min_eval), seed)
    chosen = [prompt for index, prompt in enumerate(prompts) if index in held]
    notices = []
    if not chosen:
        notices.append(f"no prompts are held out: {total} rows are too few to leave different prompts on both sides")
    elif len(chosen) < min_eval:
        notices.append(
            f"only {len(chosen)} of {total} rows are held out (min_eval is {min_eval}), so the interval will be wide; "
            f"{2 * min_eval} rows or more would do"
        )
    elif len(chosen) > target:
        notices.append(f"{len(chosen)} rows are held out instead of {target}, since equal prompts stay on one side")
    return Split([prompt for index, prompt in enumerate(prompts) if index not in held], chosen, tuple(notices))


def _choose(prompts: Sequence[Prompt], target: int, needed: int, seed: int) -> set[int]:
    """Return the rows held out: whole classes of equal prompts in the order of their hashes, as far as they fit."""
    classes: dict[bytes, list[int]] = {}
    for index, prompt in enumerate(prompts):
        classes.setdefault(prompt_hash(prompt, seed), []).append(index)
    held: set[int] = set()
    left = []
    for digest in sorted(classes):
        if len(held) + len(classes[digest]) <= target:
            held.update(classes[digest])
        else:
            left.append(digest)
    # many repeats and a small target: rather some rows too many than nothing to measure
    for digest in sorted(left, key=lambda digest: (len(classes[digest]), digest)):
        if len(held) < needed and len(held) + len(classes[digest]) < len(prompts):
            held.update(classes[digest])
    return held


def _check_bounds(share: float, min_eval: int, max_eval: int) -> None:
    if not (math.isfinite(share) and 0 <= share < 1):
        raise DataError(f"eval is the share of rows to hold out, from 0 (none) to below 1, got {share!r}")
    if not 1 <= min_eval <= max_eval:
        raise DataError(
            f"1 <= min_eval <= max_eval must hold, got {min_eval} and {max_eval}; for no held-out rows set eval=0"
        )
