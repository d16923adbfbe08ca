"""A run of six steps on the tiny random model that is over in a second, and what must be equal between two of them.

The rewards are about bytes, so that a random model earns some and groups differ. `outcome` leaves out what a clock or
an id decides and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dragonet.runs import WALL_CLOCK, RunFolder, checkpoint_steps, read_config, read_json, read_metrics, read_status

STEPS = 6
CLOCKS = {"elapsed_s", "rounds_s", "save_share"}  # of the progress in a checkpoint

CONFIG: dict[str, Any] = {
    "name": "tiny",
    "model": "tiny-random",
    "data": {"source": "table.csv", "prompt": "question", "reference": "answer", "min_eval": 4, "max_eval": 4},
    "rewards": [{"type": "regex", "pattern": "[a-m]"}, {"type": "length", "max_chars": 6, "weight": 0.5}],
    "reinforce": {"group_size": 4, "max_new_tokens": 8},
    "train": {
        "batch_size": 2,
        "max_steps": STEPS,
        "save_steps": 2,
        "eval_steps": 2,
        "learning_rate": 0.01,
        "warmup": 0.0,
        "schedule": "constant",
        "n_samples": 2,
    },
}

# what else must come back after a death: dropout's draws, old log-probabilities, whitening, micro-batches, epochs
MANY_OPTIONS: dict[str, Any] = {
    "data": {"eval": 0.9, "max_eval": 36},
    "reinforce": {"estimator": "reinforce", "updates": 2, "beta": 0.1, "kl_in": "reward", "aggregate": "constant"},
    "lora": {"r": 4, "dropout": 0.1},
    "train": {"micro_batch": 3, "schedule": "cosine", "warmup": 0.3, "keep_checkpoints": 1},
}


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with some keys of its sections replaced."""
    out = dict(base)
    for key, value in changes.items():
        old = out.get(key)
        out[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return out


def write_table(folder: Path, rows: int = 40) -> Path:
    """Write the table that the config names."""
    lines = [f"say word {i},{chr(97 + i % 26)}" for i in range(rows)]
    path = folder / "table.csv"
    path.write_text("\n".join(["question,answer", *lines]) + "\n", "utf-8")
    return path


def write_config(folder: Path, changes: Mapping[str, Any] | None = None, name: str = "config.yaml") -> Path:
    """Write the config, with changes, and its table beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "table.csv").exists():
        write_table(folder)
    path = folder / name
    path.write_text(yaml.safe_dump(merged(CONFIG, changes or {}), sort_keys=False), "utf-8")
    return path


def metrics_of(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the rows of metrics without the columns of the clock."""
    return [{k: v for k, v in row.items() if k not in WALL_CLOCK} for row in read_metrics(folder)]


def adapter_bytes(folder: RunFolder) -> bytes:
    """Return the published weights."""
    return (folder.adapter / "adapter_model.safetensors").read_bytes()


def outcome(folder: RunFolder) -> dict[str, Any]:
    """Return everything of a finished run that no clock and no id decides."""
    status = read_status(folder)
    report = read_json(folder, "report.json")
    report.pop("seconds")
    config = read_config(folder)
    config["data"]["source"] = Path(config["data"]["source"]).name
    return {
        "state": (status.state, status.step, status.total_steps, status.error, status.reason, status.reward),
        "metrics": metrics_of(folder),
        "eval": read_json(folder, "eval.json"),
        "report": report,
        "config": config,
        "checkpoints": {step: _checkpoint(folder.checkpoint_of(step)) for step in checkpoint_steps(folder)},
        "files": {
            str(path.relative_to(folder.path)): path.read_bytes()
            for place in (folder.adapter, folder.rollouts, folder.data, folder.rewards, folder.samples)
            for path in ([place] if place.is_file() else sorted(place.rglob("*")))
            if path.is_file()
        },
        "names": sorted(path.name for path in [*folder.path.iterdir(), *folder.checkpoints.iterdir()]),
    }


def _checkpoint(path: Path) -> dict[str, Any]:
    state = json.loads((path / "state.json").read_text("utf-8"))
    for clock in CLOCKS:
        del state["state"]["progress"][clock]
    files = {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.suffix == ".safetensors"}
    return {"state": state, "files": files}


def difference(one: Any, other: Any, place: str = "") -> list[str]:
    """Name what differs between two outcomes; a bare comparison would print megabytes of weights."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = sorted({*one, *other}, key=str)
        return [line for key in keys for line in difference(one.get(key), other.get(key), f"{place}/{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for number, (a, b) in pairs for line in difference(a, b, f"{place}[{number}]")]
    return [] if one == other else [f"{place}: {str(one)[:200]} and {str(other)[:200]}"]
