"""One finished run, and every command that reads it back; real processes throughout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from assemble.conftest import scratch
from assemble.forking import Done, Server
from assemble.tiny_run import STEPS, write_config
from dragonet.runs import RunFolder, find_run, read_json, read_metrics, read_rollouts, read_samples

CHATTY = """
import sys

def reward(completion):
    print("judging", len(completion))
    print("to stderr", file=sys.stderr)
    return min(sum(c in "abcdefghijklm" for c in completion), 3) / 3
"""
REWARDS = [{"type": "custom", "file": "chatty.py"}, {"type": "length", "max_chars": 6, "weight": 0.5}]

# the columns that section 8 of the design names, and those of the learner
COLUMNS = {
    *("step", "round", "epoch", "elapsed_s", "eta_s", "loss", "kl", "reward", "reward_std"),
    *("reward/custom", "reward/length", "flat", "flat_high", "flat_low", "truncated", "failed", "not_applicable"),
    *("entropy", "grad_norm", "completion_len", "sampler_gap", "lr", "tokens_per_s"),
    *("time_sample", "time_score", "time_update", "time_sync", "time_save"),
    *("clip_fraction", "ratio", "trained_tokens", "skipped"),
}
FILES = {
    *("config.yaml", "status.json", "environment.json", "metrics.jsonl", "report.json", "eval.json", "samples.jsonl"),
    *("log.txt", "lineage.json", "rollouts", "data", "rewards", "checkpoints", "adapter"),
}


class Finished:
    """A run that the command has finished, and how it printed."""

    def __init__(self, forks: Server, home: Path) -> None:
        (home / "chatty.py").write_text(CHATTY, "utf-8")
        self.config = write_config(home, {"rewards": REWARDS})
        self.env = {"DRAGONET_RUNS_DIR": str(home / "runs")}
        self._forks = forks
        self.done = self.run("reinforce", self.config, "--json")
        assert self.done.code == 0, self.done
        self.folder: RunFolder = find_run("last", home / "runs")

    def run(self, *argv: object) -> Done:
        """Run a command where this run is."""
        return self._forks.run(*argv, env=self.env)

    def ok(self, *argv: object) -> Done:
        """Run a command that must succeed."""
        done = self.run(*argv)
        assert done.code == 0, done
        assert "Traceback" not in done.err
        return done


@pytest.fixture(scope="module")
def finished(forks: Server) -> Iterator[Finished]:
    with scratch() as home:
        yield Finished(forks, home)


def test_reinforce_prints_one_line_of_json_with_these_keys(finished: Finished) -> None:
    said = finished.done.json
    assert list(said) == ["run", "state", "steps", "reward"]
    assert list(said["reward"]) == ["before", "after", "ci95", "n"]
    assert (said["run"], said["state"], said["steps"]) == (finished.folder.id, "succeeded", STEPS)
    assert said["reward"]["n"] == 4
    low, high = said["reward"]["ci95"]
    assert low <= said["reward"]["after"] - said["reward"]["before"] <= high


def test_what_a_reward_prints_goes_to_the_log_alone(finished: Finished) -> None:
    log = finished.folder.log.read_text("utf-8")
    assert "judging 8" in log
    assert "to stderr" in log
    assert "judging" not in finished.done.out + finished.done.err
    assert "judging" not in finished.ok("evaluate", finished.folder, "--json").out


def test_the_run_folder_holds_every_file(finished: Finished) -> None:
    folder = finished.folder
    assert {path.name for path in folder.path.iterdir()} - {".lock"} == FILES
    assert {path.name for path in folder.data.iterdir()} == {"train.jsonl", "eval.jsonl"}
    assert {path.name for path in folder.rollouts.iterdir()} == {f"round-{n:06d}.jsonl" for n in range(STEPS)}
    assert {path.name for path in folder.checkpoints.iterdir()} == {"step-000004", "step-000006"}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {path.name for path in folder.adapter.iterdir()}
    assert [path.name for path in folder.rewards.rglob("*.py")] == ["chatty.py"]


def test_every_metric_is_there_at_every_step(finished: Finished) -> None:
    rows = read_metrics(finished.folder)
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    for row in rows:
        assert set(row) == COLUMNS
        assert all(isinstance(value, int | float) for value in row.values()), row
    shares = [sum(row[f"time_{phase}"] for phase in ("sample", "score", "update", "sync")) for row in rows]
    assert shares == pytest.approx([1.0] * STEPS)


def test_rollouts_hold_tokens_scores_and_advantages_that_belong_together(finished: Finished) -> None:
    rows = [row for n in range(STEPS) for row in read_rollouts(finished.folder, n)]
    assert len(rows) == STEPS * 2 * 4
    for row in rows:
        prompt, sampled = row["segments"]
        assert not prompt["sampled"]
        assert len(sampled["token_ids"]) == len(sampled["logprobs"]) <= 8
        assert row["reward"] == pytest.approx(row["scores"]["custom"] + 0.5 * row["scores"]["length"])
        assert row["prompt"].endswith("<|im_start|>assistant\n")
    assert len({row["seed"] for row in rows}) == len(rows)
    for n in range(0, len(rows), 4):
        assert sum(row["advantage"] for row in rows[n : n + 4]) == pytest.approx(0.0, abs=1e-6)


def test_evaluations_are_kept_with_their_samples(finished: Finished) -> None:
    found = read_json(finished.folder, "eval.json")
    assert [entry["step"] for entry in found["history"]] == [0, 2, 4, 6]
    assert found["reward"] == finished.done.json["reward"] == read_json(finished.folder, "report.json")["reward"]
    assert [row["step"] for row in read_samples(finished.folder)] == [0, 0, 2, 2, 4, 4, 6, 6]


def test_the_resolved_config_is_kept_and_reads_back(finished: Finished) -> None:
    kept = yaml.safe_load(finished.folder.config.read_text("utf-8"))
    assert kept["train"]["max_grad_norm"] == 1.0  # a default
    assert kept["rewards"][0]["file"] == "rewards/custom/chatty.py"
    assert finished.ok("preview", finished.folder.config, "-n", "1")


def test_evaluating_twice_gives_the_numbers_of_the_run(finished: Finished) -> None:
    before = {path: path.read_bytes() for path in finished.folder.path.rglob("*") if path.is_file()}
    first, second = (finished.ok("evaluate", finished.folder, "--json").json for _ in range(2))
    assert first == second
    kept = read_json(finished.folder, "eval.json")
    assert first == {"reward": kept["reward"], "per_reward": kept["per_reward"]}
    assert before == {path: path.read_bytes() for path in finished.folder.path.rglob("*") if path.is_file()}
    text = finished.ok("evaluate", "last").out
    assert f"{first['reward']['before']:.3f} -> {first['reward']['after']:.3f} on 4 prompts" in text
    assert "custom: " in text


def test_a_moved_run_evaluates_to_the_same_numbers(finished: Finished) -> None:
    moved = finished.folder.path.rename(finished.folder.path.parent.parent / "elsewhere")
    try:
        (finished.config.parent / "chatty.py").rename(finished.config.parent / "gone.py")
        assert finished.ok("evaluate", moved, "--json").json["reward"] == finished.done.json["reward"]
    finally:
        moved.rename(finished.folder.path)
        (finished.config.parent / "gone.py").rename(finished.config.parent / "chatty.py")


def test_status_says_where_the_run_stands(finished: Finished) -> None:
    said = finished.ok("status", "last", "--json").json
    assert said["run"] == finished.folder.id
    assert said["folder"] == str(finished.folder)
    assert (said["state"], said["step"], said["total_steps"], said["device"]) == ("succeeded", STEPS, STEPS, "cpu")
    assert said["trainable_params"] < said["total_params"]
    assert said["reward"] == finished.done.json["reward"]
    assert said["metrics"] == read_metrics(finished.folder)[-1]
    text = finished.ok("status", finished.folder.id).out
    assert f"succeeded, step {STEPS} of {STEPS}" in text
    assert "held-out reward" in text


def test_runs_lists_it(finished: Finished) -> None:
    (entry,) = finished.ok("runs", "--json").json
    assert (entry["id"], entry["state"], entry["step"]) == (finished.folder.id, "succeeded", STEPS)
    assert entry["reward_after"] == finished.done.json["reward"]["after"]
    assert finished.folder.id in finished.ok("runs").out
    assert "no runs in" in finished.ok("runs", "--runs-dir", finished.config.parent / "nothing").out


def test_logs_shows_the_end_of_the_log(finished: Finished) -> None:
    lines = finished.folder.log.read_text("utf-8").splitlines()
    assert finished.ok("logs", "last", "-n", "3").out.splitlines() == lines[-3:]
    assert finished.ok("logs", "last", "-f", "-n", "2").out.splitlines() == lines[-2:]
    assert finished.ok("logs", "last", "-n", "4", "--json").json == {"run": finished.folder.id, "lines": lines[-4:]}


def test_wait_and_watch_return_at_once_when_it_is_over(finished: Finished) -> None:
    assert finished.ok("wait", "last", "--json").json["state"] == "succeeded"
    assert finished.ok("wait", "last").out.strip() == f"{finished.folder.id}: succeeded"
    text = finished.ok("watch", "last").out
    assert all(f"step {n}/{STEPS}" in text for n in range(1, STEPS + 1))
    assert "succeeded" in text
    *steps, last = (json.loads(line) for line in finished.ok("watch", "last", "--json").out.splitlines())
    assert steps == read_metrics(finished.folder)
    assert (last["run"], last["state"]) == (finished.folder.id, "succeeded")


def test_a_dry_run_shows_everything_and_writes_nothing(finished: Finished) -> None:
    text = finished.ok("reinforce", finished.config, "--dry-run").out
    heads = [line for line in text.splitlines() if line.startswith("== ")]
    assert heads == ["== config", "== objective", "== prompts", "== plan", "== cost"]
    assert "minimise token_mean" in text
    assert text.count("«<|im_start|>»assistant") == 3
    assert "36 train prompts, 4 held out prompts, 6 steps" in text
    said = finished.ok("reinforce", finished.config, "train.max_steps=3", "--dry-run", "--json").json
    assert said["steps"] == 3
    assert yaml.safe_load(said["config"])["train"]["max_steps"] == 3
    assert {"objective", "prompts", "train_prompts", "held_out_prompts", "estimate"} <= set(said)
    assert said["estimate"]["memory_gb"] > 0
    assert len(finished.ok("runs", "--json").json) == 1


def test_the_config_that_a_dry_run_prints_is_a_config(finished: Finished) -> None:
    said = finished.ok("reinforce", finished.config, "--dry-run", "--json").json
    again = finished.config.parent / "again.yaml"
    again.write_text(said["config"], "utf-8")
    assert finished.ok("reinforce", again, "--dry-run", "--json").json["config"] == said["config"]


def test_preview_shows_what_the_model_sees(finished: Finished) -> None:
    text = finished.ok("preview", finished.config, "-n", "2").out
    assert text.count("«<|begin|>»«<|im_start|>»user\nsay word ") == 2
    said: dict[str, Any] = finished.ok("preview", finished.config, "-n", "1", "--json").json
    (prompt,) = said["prompts"]
    assert prompt["text"].startswith("<|begin|><|im_start|>user\nsay word ")
    assert prompt["token_ids"][0] == 256
    assert prompt["reference"] in "abcdefghijklmnopqrstuvwxyz"


def test_a_run_in_a_terminal_says_what_to_type_next(finished: Finished) -> None:
    done = finished.ok("reinforce", finished.config, "train.max_steps=2", "name=seen")
    assert "succeeded after 2 steps" in done.out
    assert "next: dragonet resume " in done.out
    assert "train.max_steps=4" in done.out
    assert "training 32,768 of 140,096 parameters (23.39%)" in done.out
    assert "36 prompts, 4 held out; 2 steps of 2 prompts x 4 rollouts; rewards: custom + 0.5 x length" in done.out
    (folder,) = (summary["path"] for summary in finished.ok("runs", "--json").json if summary["name"] == "seen")
    assert f"folder {folder}" in done.out
