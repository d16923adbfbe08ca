"""What a resumed run may change: how long it trains and what it keeps, never what it optimises or on what.

A change is written into the run's config, so that the next resume knows it too. Anything else would make one run out
of two, and is refused with the way to start a new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragonet import runs
from dragonet.assemble.fixed import CHANGEABLE, differences, fixed_values
from dragonet.assemble.prepare import total_steps
from dragonet.config import RunConfig, load_config
from dragonet.config.run import values_of
from dragonet.errors import ConfigError
from dragonet.runs import RunFolder


def _check_untouched(folder: RunFolder) -> None:
    """Raise when config.yaml no longer says what the run was started with."""
    started_with = runs.read_json(folder, "lineage.json").get("config")
    if started_with is None:
        return
    edited = sorted(differences(started_with, fixed_values(runs.read_config(folder))))
    if edited:
        raise ConfigError(
            f"{folder.config} was edited since the run began: {', '.join(edited)}. A run keeps what it was started "
            f"with; change it back (it stands in {folder.lineage}), or start a new run"
        )


def run_config(folder: RunFolder, overrides: Sequence[str] = ()) -> RunConfig:
    """Return a run's config as it stands in its folder, its reward files as absolute paths."""
    return load_config(folder.config, overrides)


def changed_config(folder: RunFolder, overrides: Sequence[str]) -> RunConfig:
    """Apply overrides to a run's config and write them down. Raises ConfigError for what a resume must not change."""
    _check_untouched(folder)
    before = run_config(folder)
    if not overrides:
        return before
    after = run_config(folder, overrides)
    changed = differences(values_of(before), values_of(after))
    refused = sorted(set(changed) - CHANGEABLE)
    if refused:
        raise ConfigError(
            f"a resumed run cannot change {', '.join(refused)}: it would no longer be the same run. It may change "
            f"{', '.join(sorted(CHANGEABLE))}. Start a new run for the rest; `model: {folder.id}` builds on this one"
        )
    _check_length(folder, after)
    stored = runs.read_config(folder)
    for path, value in changed.items():
        section, key = path.split(".")
        stored.setdefault(section, {})[key] = value
    runs.write_config(folder, stored)
    return after


def _check_length(folder: RunFolder, config: RunConfig) -> None:
    """Raise for a number of steps at which the run cannot end."""
    made = runs.read_status(folder).step
    if config.train.max_steps is not None and total_steps(config, n_train=1) < made:
        raise ConfigError(
            f"train.max_steps is {config.train.max_steps}, but the run has made {made} steps already; ask for more, or "
            f"start a new run"
        )
