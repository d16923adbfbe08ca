"""Where the rooms meet: from a config to prompts, parts, a run folder and a finished run.

Calls each room's build function in order and owns no behaviour of its own. Nobody but the command line and the public
names of `dragonet` imports it.
"""

from __future__ import annotations

from dragonet.assemble.execute import evaluate_run, execute
from dragonet.assemble.prepare import Prepared, create, prepare
from dragonet.assemble.stages import reinforce

__all__ = ["Prepared", "create", "evaluate_run", "execute", "prepare", "reinforce"]
