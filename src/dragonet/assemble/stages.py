"""The stages as Python functions; they mirror the command line and go through the same run folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dragonet import runs
from dragonet.assemble.execute import execute
from dragonet.assemble.prepare import create, prepare
from dragonet.config import load_config
from dragonet.data import Dataset, load_dataset
from dragonet.protocols import Reward
from dragonet.rewards import as_rewards
from dragonet.runs.run import override_arguments

RewardLike = Reward | str | Mapping[str, Any] | Callable[..., Any]


def reinforce(
    dataset: Any = None,
    model: str | None = None,
    rewards: RewardLike | Sequence[RewardLike] | None = None,
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    wait: bool = True,
    **sections: Any,
) -> runs.Run:
    """Train a LoRA adapter by reinforcement learning and return the run.

    `dataset` is a Dataset, or whatever `load_dataset` takes; unmapped columns are found by their names. `rewards` is
    one or a list of reward objects, type names, mappings or Python functions. `config` is a file or mapping to start
    from; further keywords are its keys, such as `train={"max_steps": 40}` or `name="sums"`. `wait` blocks and shows
    progress on stderr; False trains in the background. Raises the DragonetError of what failed.
    """
    changes = {**({"model": {"id": model}} if model is not None else {}), **sections}
    chosen = load_config({} if config is None else config, override_arguments(changes))
    mapped = dataset if dataset is None or isinstance(dataset, Dataset) else load_dataset(dataset)
    given = None if rewards is None else as_rewards(rewards)
    prepared = prepare(chosen, dataset=mapped, reward_objects=given, on_notice=_say)
    for notice in prepared.notices:
        _say(notice)
    folder = create(prepared)
    if wait:
        execute(folder, stream=sys.stderr)
    else:
        runs.launch_detached(folder, background_command(folder))
    return runs.Run(folder.path)


def background_command(folder: runs.RunFolder) -> list[str]:
    """Return the command line that trains a run from where it stands, in a process of its own."""
    return [sys.executable, "-m", "dragonet", "resume", str(folder.path), "--quiet"]


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
