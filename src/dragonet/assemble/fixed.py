"""What makes a run this run: the values of its config that no resume may change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

CHANGEABLE = frozenset(
    f"train.{key}"
    for key in ("max_steps", "epochs", "max_minutes", "save_steps", "keep_checkpoints", "eval_steps", "n_samples")
) | {"reinforce.max_failed_fraction"}


def fixed_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return, as plain JSON values, what no resume may change."""
    kept = {
        section: {k: v for k, v in value.items() if f"{section}.{k}" not in CHANGEABLE}
        if isinstance(value, Mapping)
        else value
        for section, value in config.items()
        if section not in ("name", "runs_dir")
    }
    plain: dict[str, Any] = json.loads(json.dumps(kept))
    return plain


def differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of `after` that differ, by dotted key; None for a key that is gone."""
    found: dict[str, Any] = {}
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found |= differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found[f"{prefix}{key}"] = new
    return found
