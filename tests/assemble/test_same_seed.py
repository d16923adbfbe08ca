"""The same config twice is the same run; another seed is another; more steps continue it bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assemble.conftest import scratch
from assemble.forking import Server
from assemble.tiny_run import MANY_OPTIONS, STEPS, adapter_bytes, difference, merged, metrics_of, outcome, write_config
from dragonet.runs import RunFolder, find_run, read_json, read_status

Train = Callable[..., RunFolder]


@pytest.fixture(scope="module")
def train(forks: Server) -> Iterator[Train]:
    """Run the command on a config with changes; each run has a folder of its own."""
    with scratch() as home:
        count = 0

        def start(changes: dict[str, Any] | None = None, *overrides: str) -> RunFolder:
            nonlocal count
            count += 1
            config = write_config(home / str(count), changes)
            done = forks.run("reinforce", config, *overrides, "--json", env=place(config))
            assert done.code == 0, done
            return find_run("last", config.parent / "runs")

        yield start


def place(config: Path) -> dict[str, str]:
    """Where the runs of a config live."""
    return {"DRAGONET_RUNS_DIR": str(config.parent / "runs")}


def resume(forks: Server, folder: RunFolder, *overrides: str) -> None:
    """Go on with a run by the real command."""
    done = forks.run("resume", folder, *overrides, "--json")
    assert done.code == 0, done


@pytest.fixture(scope="module")
def first(train: Train) -> RunFolder:
    return train()


def test_the_same_seed_gives_the_same_run(first: RunFolder, train: Train) -> None:
    assert difference(outcome(first), outcome(train())) == []


def test_the_run_learns_at_all(first: RunFolder) -> None:
    rows = metrics_of(first)
    assert len(rows) == STEPS
    assert all(row["grad_norm"] > 0 for row in rows)
    assert len({row["reward"] for row in rows}) > 1


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_with_dropout_and_several_updates_too(train: Train) -> None:
    assert difference(outcome(train(MANY_OPTIONS)), outcome(train(MANY_OPTIONS))) == []


def test_another_seed_gives_another_run(first: RunFolder, train: Train) -> None:
    other = train({"train": {"seed": 43}})
    assert adapter_bytes(other) != adapter_bytes(first)
    assert metrics_of(other) != metrics_of(first)


@pytest.mark.slow
def test_another_seed_of_the_split_holds_out_other_rows(first: RunFolder, train: Train) -> None:
    other = train({"data": {"seed": 7}, "train": {"max_steps": 2}})
    assert (other.data / "eval.jsonl").read_bytes() != (first.data / "eval.jsonl").read_bytes()


def test_a_finished_run_that_is_given_more_steps_equals_one_that_had_them_from_the_start(
    first: RunFolder, train: Train, forks: Server
) -> None:
    short = train({"train": {"max_steps": 2}})
    adapter = adapter_bytes(short)
    resume(forks, short, f"train.max_steps={STEPS}")
    assert adapter_bytes(short) != adapter
    assert difference(outcome(first), outcome(short)) == []


@pytest.mark.slow
def test_a_run_whose_minutes_are_used_up_goes_on_when_it_is_given_more(
    train: Train, forks: Server, tmp_path: Path
) -> None:
    text = "import time\ndef reward(completion):\n    time.sleep(0.05)\n    return sum(map(ord, completion)) % 3\n"
    (tmp_path / "slow.py").write_text(text, "utf-8")
    changes = {"rewards": [{"type": "custom", "file": str(tmp_path / "slow.py")}], "train": {"max_steps": 2}}
    unseen = ("data.eval=0", "data.min_eval=null", "data.max_eval=null")  # an evaluation would use up the minutes
    straight = train(changes, *unseen)
    short = train(changes, *unseen, "train.max_minutes=0.005")  # a step takes 0.4 s and more
    assert (read_status(short).state, read_status(short).step) == ("succeeded", 1)
    refused = forks.run("resume", short)
    assert (refused.code, "give it more time" in refused.err, "train.max_minutes=MORE" in refused.err) == (
        2,
        True,
        True,
    )
    resume(forks, short, "train.max_minutes=null")
    assert adapter_bytes(short) == adapter_bytes(straight)
    assert metrics_of(short) == metrics_of(straight)


@pytest.mark.slow
def test_extending_by_epochs_goes_on_where_the_data_stood(train: Train, forks: Server) -> None:
    whole = {"data": {"eval": 0.8, "max_eval": 32}, "train": {"max_steps": None, "epochs": 2}}
    straight = train(whole)  # 8 prompts, 2 a round
    short = train(merged(whole, {"train": {"epochs": 1}}))
    assert [row["epoch"] for row in metrics_of(short)] == [0.25, 0.5, 0.75, 1.0]
    resume(forks, short, "train.epochs=2")
    assert difference(outcome(straight), outcome(short)) == []


@pytest.mark.slow
def test_micro_batches_change_the_last_bits_only(first: RunFolder, train: Train) -> None:
    exact = {"model": {"id": "tiny-random", "dtype": "float64"}, "train": {"max_steps": 2}}
    one = metrics_of(train(merged(exact, {"train": {"micro_batch": 1}})))
    auto = metrics_of(train(exact))
    assert [row["reward"] for row in one] == [row["reward"] for row in auto]
    for a, b in zip(one, auto, strict=True):
        for column in ("loss", "kl", "grad_norm"):
            assert a[column] == pytest.approx(b[column], rel=1e-6, abs=1e-9), column


def test_the_threads_of_the_first_start_are_set_again(first: RunFolder) -> None:
    assert read_json(first, "environment.json")["torch_threads"] == 1
