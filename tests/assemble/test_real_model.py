"""The bundled model, with real weights: sampler and trainer agree token by token, and training runs end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assemble.forking import Server
from assemble.tiny_run import metrics_of
from dragonet.runs import find_run

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "arithmetic.yaml"

CONFIG: dict[str, Any] = {
    "name": "real",
    "model": {"id": "smollm2-135m-instruct", "device": "cpu"},
    "data": {
        "source": "bundled:additions",
        "prompt": "question",
        "reference": "answer",
        "system": "Answer with the number only.",
        "min_eval": 8,
        "max_eval": 8,
    },
    "rewards": [{"type": "numeric"}, {"type": "length", "max_chars": 4, "weight": 0.2}],
    "reinforce": {"group_size": 2, "max_new_tokens": 8, "temperature": 0.9, "beta": 0.0},
    "train": {"batch_size": 8, "max_steps": 2, "learning_rate": 2e-4},
}


def gaps(runs_dir: Path, dtype: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Differences of the log-probabilities of 8 x 2 x up to 8 sampled tokens: the engine's and the trainer's."""
    import torch

    from dragonet.assemble import create, prepare
    from dragonet.assemble.execute import load
    from dragonet.config import load_config
    from dragonet.learn.batch import make_batch
    from dragonet.learn.policy import token_logprobs

    config = load_config({**CONFIG, "runs_dir": str(runs_dir)}, [f"model.dtype={dtype}"])
    built, _ = load(create(prepare(config)), config)
    try:
        batch = make_batch(built.scorer(built.source.next(0)))
    finally:
        built.close()
    assert len(batch.rows) == 16
    with torch.no_grad():
        logp = token_logprobs(built.model, batch.rows, temperature=0.9).double().numpy()  # (B, T)
    found = [logp[n, : row.mask.size][row.mask] - row.sampler_logp[row.mask] for n, row in enumerate(batch.rows)]
    return np.abs(np.concatenate(found))


def test_in_float32_trainer_and_engine_agree_on_every_token(runs_dir: Path) -> None:
    found = gaps(runs_dir, "float32")
    assert found.size > 32
    assert found.max() < 1e-4


def test_in_bfloat16_they_agree_but_for_rounding(runs_dir: Path) -> None:
    # Layers round to 8 bits in both, at the same places as long as attention is eager; with fused attention, which
    # rounds elsewhere for one query than for whole rows, this was 0.037. A trainer that forgot the temperature is off
    # by 0.09, one that lost the first token of the prompt by 0.12 (both were tried).
    found = gaps(runs_dir, "bfloat16")
    print(f"mean absolute difference {found.mean():.4f}, largest {found.max():.4f}, over {found.size} tokens")
    assert found.mean() < 0.02


def test_the_example_trains_and_reads_back(forks: Server, runs_dir: Path) -> None:
    done = forks.run("reinforce", EXAMPLE, "train.max_steps=4", "--json")
    assert done.code == 0, done
    folder = find_run("last")
    assert (done.json["run"], done.json["state"], done.json["steps"]) == (folder.id, "succeeded", 4)
    assert done.json["reward"]["n"] > 50
    rows = metrics_of(folder)
    assert {"reward/numeric", "reward/length"} < set(rows[0])
    assert all(row["skipped"] == 0.0 and row["sampler_gap"] < 0.02 for row in rows)
    assert forks.run("status", "last", "--json").json["step"] == 4
    assert forks.run("runs", "--json").json[0]["reward_after"] == done.json["reward"]["after"]
    first, second = (forks.run("evaluate", "last", "--json").json for _ in range(2))
    assert first == second
    assert first["reward"] == done.json["reward"]
    assert set(first["per_reward"]) == {"numeric", "length"}


def test_the_demo_prints_what_was_gained(forks: Server, runs_dir: Path) -> None:
    said = forks.run("demo", "--steps", "1", "--json")
    assert said.code == 0, said
    assert list(said.json) == ["before", "after", "ci95", "run", "steps", "seconds", "n", "well_formed", "finished"]
    assert said.json["n"] >= 100
    assert said.json["steps"] == 1
    assert 0 <= said.json["well_formed"]["before"] < 0.5
    assert find_run("last").id == said.json["run"]
