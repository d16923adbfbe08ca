"""Prompts to groups of rollouts: an engine that samples token ids, and sources that say which prompts a round gets.

Importing it loads no torch; the engine's file does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# public name -> module that defines it; resolved on first use
_HOMES = {
    "LocalEngine": "dragonet.rollout.local_engine",
    "PromptRenderer": "dragonet.rollout.lengths",
    "SeedPlan": "dragonet.rollout.collect",
    "SingleTurnSource": "dragonet.rollout.source",
    "TruncatedRenderer": "dragonet.rollout.lengths",
    "check_lengths": "dragonet.rollout.lengths",
    "collect_groups": "dragonet.rollout.collect",
    "collect_groups_sync": "dragonet.rollout.collect",
    "prompt_room": "dragonet.rollout.lengths",
    "run_sync": "dragonet.rollout.collect",
}

__all__ = [
    "LocalEngine",
    "PromptRenderer",
    "SeedPlan",
    "SingleTurnSource",
    "TruncatedRenderer",
    "check_lengths",
    "collect_groups",
    "collect_groups_sync",
    "prompt_room",
    "run_sync",
]

if TYPE_CHECKING:
    from dragonet.rollout.collect import SeedPlan, collect_groups, collect_groups_sync, run_sync
    from dragonet.rollout.lengths import PromptRenderer, TruncatedRenderer, check_lengths, prompt_room
    from dragonet.rollout.local_engine import LocalEngine
    from dragonet.rollout.source import SingleTurnSource


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dragonet.rollout' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
