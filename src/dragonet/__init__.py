"""Train small language models from rewards that can be checked, and routers that pick the worker that earns the most.

Public names are resolved on first use: importing dragonet loads neither torch nor transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# public name -> module that defines it; a test holds it, `__all__` and the typing imports together
_HOMES = {
    "NA": "dragonet.types",
    "Dataset": "dragonet.data",
    "DragonetError": "dragonet.errors",
    "Run": "dragonet.runs",
    "Score": "dragonet.types",
    "load_config": "dragonet.config",
    "load_dataset": "dragonet.data",
    "reinforce": "dragonet.assemble",
    "reward": "dragonet.rewards",
    "score": "dragonet.rewards",
}

__all__ = [
    "NA",
    "Dataset",
    "DragonetError",
    "Run",
    "Score",
    "__version__",
    "load_config",
    "load_dataset",
    "reinforce",
    "reward",
    "score",
]

if TYPE_CHECKING:
    from dragonet.assemble import reinforce
    from dragonet.config import load_config
    from dragonet.data import Dataset, load_dataset
    from dragonet.errors import DragonetError
    from dragonet.rewards import reward, score
    from dragonet.runs import Run
    from dragonet.types import NA, Score


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dragonet' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
