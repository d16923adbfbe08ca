"""Named places where a test can kill the process, to prove that no moment of death damages a run.

Owns the list of names and the switch, the environment variable DRAGONET_FAILPOINT=name[:nth], which only tests set.
The nth hit (the first unless told) sends SIGKILL to the process itself: no handler, no flush, no clean-up.
It refuses to know what the places do. The count lives in the variable, so that this file holds no state.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

from dragonet.errors import ConfigError, did_you_mean

__all__ = ["NAMES", "VARIABLE", "hit"]

VARIABLE: Final = "DRAGONET_FAILPOINT"

NAMES: Final = (
    "create.begin",  # the hidden folder of a new run exists and is empty
    "create.after_file",  # one file of the new run is written (nth: which one)
    "create.before_rename",
    "create.after_rename",
    "status.before_write",
    "status.after_write",
    "metrics.before_append",
    "metrics.half_row",  # half a row is on disk
    "metrics.after_append",
    "samples.before_append",
    "samples.after_append",
    "rollouts.before_write",
    "rollouts.after_write",
    "checkpoint.before_file",  # nth: which file of which checkpoint
    "checkpoint.after_file",  # the file is written, but not yet fsynced
    "checkpoint.between_files",  # one file is on disk and the next is not begun: optimizer and adapter
    "checkpoint.before_manifest",
    "checkpoint.before_rename",
    "checkpoint.after_rename",
    "checkpoint.prune",  # an old checkpoint is renamed away and not yet deleted
    "adapter.before_publish",
    "adapter.between_renames",  # the old adapter is renamed away, the new one is not yet in place
    "adapter.after_publish",
    "rewind.between_files",  # resume has cut some files back and not the others
)


def hit(name: str, last_act: Callable[[], object] | None = None) -> None:
    """Die here, after `last_act`, when this failpoint is switched on and its turn has come; else do nothing."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    if name not in NAMES:
        raise ValueError(f"{name!r} is not in failpoints.NAMES")
    target, nth = _parse(wanted)
    if target != name:
        return
    if nth > 1:
        os.environ[VARIABLE] = f"{target}:{nth - 1}"
        return
    if last_act is not None:
        last_act()
    os.kill(os.getpid(), signal.SIGKILL)


def _parse(wanted: str) -> tuple[str, int]:
    target, _, nth = wanted.partition(":")
    if target not in NAMES:
        raise ConfigError(f"{VARIABLE}={wanted!r}: there is no failpoint {target!r}{did_you_mean(target, NAMES)}")
    if nth and (not nth.isdecimal() or int(nth) < 1):
        raise ConfigError(f"{VARIABLE}={wanted!r}: after the colon goes the number of the hit, from 1")
    return target, int(nth or 1)
