"""The error tree: everything that is meant for the user to read.

    DragonetError
    ├── ConfigError          a configuration that cannot work: unknown key, wrong type, crossed bounds
    ├── DataError            a table, column, template or row that cannot be used
    ├── ModelError           a model that is missing, unreadable, or unfit for what was asked
    ├── RewardError          a reward that cannot start, or failed on too many rollouts
    │   └── UserCodeError    the user's own Python raised, hung, or returned what is not a score
    ├── RolloutError         sampling or an environment failed
    ├── TrainingError        the update could not go on: non-finite losses, no gradient
    ├── RunError             a run folder that is missing, busy, finished, full or unreadable
    │   └── RunNotFound      no run, or several, under the name that was given
    └── MissingExtra         an optional package is not installed; names the extra to install

Each message says what, where and what next. Anything that is not a DragonetError is a bug in dragonet.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "ConfigError",
    "DataError",
    "DragonetError",
    "MissingExtra",
    "ModelError",
    "RewardError",
    "RolloutError",
    "RunError",
    "RunNotFound",
    "TrainingError",
    "UserCodeError",
    "did_you_mean",
]


class DragonetError(Exception):
    """Base of every error that is meant for the user."""


class ConfigError(DragonetError):
    """A configuration that cannot work."""


class DataError(DragonetError):
    """A table, column, template or row that cannot be used."""


class ModelError(DragonetError):
    """A model that is missing, unreadable, or unfit for what was asked."""


class RewardError(DragonetError):
    """A reward that cannot start, or that failed on too many rollouts."""


class UserCodeError(RewardError):
    """The user's own Python raised, hung, or returned what is not a score."""


class RolloutError(DragonetError):
    """Sampling or an environment failed."""


class TrainingError(DragonetError):
    """The update could not go on."""


class RunError(DragonetError):
    """A run folder that is missing, busy, finished, full or unreadable."""


class RunNotFound(RunError):
    """No run, or several, under the name that was given."""


class MissingExtra(DragonetError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}; install it with: pip install 'dragonet[{extra}]'")
        self.package = package
        self.extra = extra


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the nearest known name, or the list of all of them when none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""
