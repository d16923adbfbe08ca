"""The fixtures of the whole command, as in the tests of `assemble`."""

from __future__ import annotations

from assemble.conftest import config, forks, place, runs_dir

__all__ = ["config", "forks", "place", "runs_dir"]
