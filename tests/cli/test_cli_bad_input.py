"""Bad input: each is an error that names the thing, its place and the next step, and nothing is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assemble.forking import Done, Server
from assemble.tiny_run import difference, outcome, write_config
from dragonet.runs import RunFolder, acquire, find_run, read_config, read_status, update_status

SPREAD = 'def reward(completion):\n    return min(sum(c in "abcdefghijklm" for c in completion), 3) / 3\n'


def refused(done: Done, *words: str) -> None:
    """Fail unless the command ended as bad input does and said all this."""
    assert (done.code, done.out) == (2, ""), done
    assert done.err.startswith("dragonet: "), done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err, f"{word!r} is not in: {done.err}"


Case = tuple[dict[str, Any], tuple[str, ...], tuple[str, ...], dict[str, str]]
"""Changes of the config, overrides, words of the message, files beside the config."""

CASES: dict[str, Case] = {
    "missing file": ({"data": {"source": "qestions.csv"}}, (), ("qestions.csv does not exist", "table.csv"), {}),
    "empty table": ({"data": {"source": "e.csv"}}, (), ("e.csv is empty", "header"), {"e.csv": "\n"}),
    "no rows": (
        {"data": {"source": "e.csv"}},
        (),
        ("e.csv has a header and no rows", "at least one"),
        {"e.csv": "question,answer\n"},
    ),
    "unknown column in a template": (
        {"data": {"prompt": "Say {qestion}!"}},
        (),
        ("prompt: the brace at character 5", "unknown column 'qestion'", "did you mean 'question'?"),
        {},
    ),
    "unknown column": ({"data": {"reference": "anser"}}, (), ("reference 'anser'", "did you mean 'answer'?"), {}),
    "unclosed brace": ({"data": {"prompt": "Say {question"}}, (), ("prompt: the brace at", "never closed", "{{"), {}),
    "reference that numeric cannot read": (
        {"rewards": [{"type": "numeric"}], "data": {"source": "n.csv"}},
        (),
        ('reward "numeric"', "2 of 6 references", "row 3: the reference 'three'", "row 5: the reference '1/2'"),
        {"n.csv": "question,answer\nq1,1\nq2,2\nq3,three\nq4,4\nq5,1/2\nq6,6\n"},
    ),
    "regex that does not compile": (
        {"rewards": [{"type": "regex", "pattern": "(["}]},
        (),
        ('rewards[0]: reward "regex"', "'(['", "unterminated character set at position 1"),
        {},
    ),
    "group_size 1": ({"reinforce": {"group_size": 1}}, (), ("config.yaml, line", "group_size", "from 2 to 64"), {}),
    "temperature 0": ({}, ("reinforce.temperature=0",), ("command line: reinforce.temperature", "from 0.05 to 3"), {}),
    "unknown key": (
        {"train": {"learning_rte": 1e-4}},
        (),
        ("config.yaml, line", "train.learning_rte: unknown key; did you mean 'learning_rate'?"),
        {},
    ),
    "unknown override": ({}, ("train.max_stps=3",), ("command line", "did you mean 'max_steps'?"), {}),
    "wrong type": ({"train": {"max_steps": "many"}}, (), ("train.max_steps: expected a whole number", "'many'"), {}),
    "NaN learning rate": (
        {"train": {"learning_rate": float("nan")}},
        (),
        ("config.yaml, line", "train.learning_rate: expected a finite number, got nan"),
        {},
    ),
    "prompt longer than the context": (
        {"data": {"prompt": "{question} " + "long " * 120}},
        (),
        ("36 of 36 prompts are longer than the 504 tokens", "row 1 (", "set data.long_prompts to skip"),
        {},
    ),
    "steps that no round ends at": (
        {},
        ("reinforce.updates=4",),
        ("train.max_steps is 6", "reinforce.updates = 4", "a multiple of 4"),
        {},
    ),
    "missing reward file": ({"rewards": [{"type": "custom", "file": "r.py"}]}, (), ("r.py does not exist",), {}),
    "reward file with a syntax error": (
        {"rewards": [{"type": "custom", "file": "r.py"}]},
        (),
        ("r.py, line 1", "does not parse as Python", "def reward(completion)"),
        {"r.py": "def reward(completion)\n    return 1\n"},
    ),
    "reward file without the function": (
        {"rewards": [{"type": "custom", "file": "r.py"}]},
        (),
        ("r.py has no function 'reward'; did you mean 'rewrd'?",),
        {"r.py": "def rewrd(completion):\n    return 1\n"},
    ),
    "reward file that cannot be imported": (
        {"rewards": [{"type": "custom", "file": "r.py"}]},
        (),
        ("r.py, line 1", "No module named 'nowhere_to_be_found'", "must be installed"),
        {"r.py": "import nowhere_to_be_found\ndef reward(completion):\n    return 1\n"},
    ),
    "no rewards": ({"rewards": []}, (), ("rewards is empty", "{type: numeric}"), {}),
    "reward type of a later version": (
        {"rewards": [{"type": "math"}]},
        (),
        ("'math' comes with the reward engine",),
        {},
    ),
    "model folder without weights": (
        {"model": "./m"},
        (),
        ("/m is not a usable model: it has no weights", "it holds config.json", "model.safetensors"),
        {"m/config.json": '{"model_type": "llama"}'},
    ),
    "unknown model": ({"model": "tiny-randm"}, (), ("'tiny-randm'", "did you mean 'tiny-random'?", "a folder"), {}),
}


@pytest.mark.parametrize("label", CASES)
def test_bad_input_is_refused_before_a_run_exists(label: str, forks: Server, place: Path, runs_dir: Path) -> None:
    changes, overrides, words, files = CASES[label]
    for name, text in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text, "utf-8")
    config = write_config(place, changes)
    refused(forks.run("reinforce", config, *overrides, "--json"), *words)
    assert not runs_dir.exists()


def test_a_missing_config_names_those_that_are_there(forks: Server, place: Path, config: Path) -> None:
    refused(forks.run("reinforce", "confg.yaml", cwd=place), "confg.yaml: no such file", "config.yaml")


ANSWERS = {
    "raising": (
        "    return 1 / len(completion[:0])",
        ("ZeroDivisionError: division by zero", "reward.py, line 2", "1 / len"),
    ),
    "None": ("    pass", ("returned None; is a `return` missing?", "dragonet.NA")),
    "text": ("    return 'good'", ("returned a str, not a number: 'good'",)),
    "NaN": ("    return float('nan')", ("returned nan", "a finite number")),
    "a list": ("    return [1.0]", ("returned a list, not a number: [1.0]",)),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_reward_that_gives_no_number_ends_the_run_as_failed(
    answer: str, forks: Server, place: Path, runs_dir: Path
) -> None:
    body, words = ANSWERS[answer]
    (place / "reward.py").write_text(f"def reward(completion):\n{body}\n", "utf-8")
    config = write_config(place, {"rewards": [{"type": "custom", "file": "reward.py"}], "data": {"eval": 0}})
    # eval 0 with bounds would be refused, so the bounds go
    done = forks.run("reinforce", config, "data.min_eval=null", "data.max_eval=null", "--json")
    assert done.code == 1, done
    folder = find_run("last")
    status = read_status(folder)
    assert done.json == {"run": folder.id, "state": "failed", "steps": 0, "reward": status.reward or NOTHING}
    assert status.state == "failed"
    for text in (done.err, status.error or "", folder.log.read_text("utf-8")):
        assert "rewards failed on 100%" in text
        assert "reward() in reward.py" in text
        assert str(folder.rewards) in text
        for word in words:
            assert word in text, f"{word!r} is not in: {text}"


NOTHING = {"before": None, "after": None, "ci95": None, "n": 0}
MOODY = """
calls = 0

def reward(completion):
    global calls
    calls += 1
    if calls > 4 + 8 + 8 + 4 + 8:  # held out, two steps, held out, a third step
        raise KeyError("mood")
    return min(sum(c in "abcdefghijklm" for c in completion), 3) / 3
"""


def test_a_reward_that_breaks_later_keeps_the_steps_before_and_is_mended_in_the_run(
    forks: Server, place: Path, runs_dir: Path
) -> None:
    (place / "reward.py").write_text(MOODY, "utf-8")
    config = write_config(place, {"rewards": [{"type": "custom", "file": "reward.py"}]})
    done = forks.run("reinforce", config, "--json")
    assert (done.code, done.json["state"], done.json["steps"]) == (1, "failed", 3)
    assert "KeyError: 'mood'" in done.err
    folder = find_run("last")
    assert {path.name for path in folder.checkpoints.iterdir()} == {"step-000002", "step-000003"}
    (copy,) = folder.rewards.rglob("reward.py")
    copy.write_text(SPREAD, "utf-8")
    assert forks.run("resume", folder, "--json").json["state"] == "succeeded"

    (place / "reward.py").write_text(SPREAD, "utf-8")
    assert forks.run("reinforce", config, "--json").code == 0
    kept, whole = outcome(folder), outcome(find_run("last"))
    assert difference(kept, whole) == []


@pytest.mark.slow
def test_a_reward_that_fails_now_and_then_does_not_stop_the_run(forks: Server, place: Path, runs_dir: Path) -> None:
    text = "def reward(completion):\n    assert completion[:1] > 'c', 'now'\n    return len(completion) % 3\n"
    (place / "reward.py").write_text(text, "utf-8")
    config = write_config(place, {"rewards": [{"type": "custom", "file": "reward.py"}]})
    done = forks.run("reinforce", config, "reinforce.max_failed_fraction=1", "--json")
    assert done.json["state"] == "succeeded"


# --- run folders ---


@pytest.fixture
def finished(forks: Server, config: Path, runs_dir: Path) -> RunFolder:
    """A run of two steps that has succeeded."""
    assert forks.run("reinforce", config, "train.max_steps=2", "--json").code == 0
    return find_run("last")


def files_of(folder: RunFolder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.path.rglob("*")) if path.is_file()}


def test_a_refused_resume_leaves_a_finished_run_as_it_was(forks: Server, finished: RunFolder) -> None:
    before = files_of(finished)
    refused(forks.run("resume", finished), "succeeded after 2 of 2 steps", "nothing to resume", "train.max_steps=4")
    refused(forks.run("resume", finished, "train.seed=3"), "cannot change train.seed", "Start a new run")
    refused(forks.run("resume", finished, "train.sed=3"), "did you mean 'seed'?")
    refused(forks.run("resume", finished, "train.max_steps=1"), "train.max_steps is 1", "2 steps already")
    refused(forks.run("resume", finished, "train.seed=3", "--detach"), "cannot change train.seed")
    refused(forks.run("cancel", finished), "cannot be cancelled: it has succeeded already")
    assert files_of(finished) == before
    assert read_config(finished)["train"]["seed"] == 42


def test_a_runs_folder_that_is_a_file_is_named(forks: Server, config: Path, runs_dir: Path) -> None:
    runs_dir.write_text("mine", "utf-8")
    refused(forks.run("reinforce", config), f"cannot write {runs_dir}", "choose another place")
    assert runs_dir.read_text("utf-8") == "mine"


def test_a_name_that_no_run_has_is_answered_with_near_ones(forks: Server, finished: RunFolder) -> None:
    refused(forks.run("status", "tiny"), "there is no run 'tiny'", finished.id)
    refused(forks.run("evaluate", finished.path.parent / "nothing"), "does not exist", "`dragonet runs`")
    refused(forks.run("logs", finished.data), "not one of a run")


@pytest.fixture
def disk(place: Path) -> Iterator[Path]:
    """A file system of 700 kB in memory, where this user may mount one: room for one checkpoint and a half."""
    path = place / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(path)], capture_output=True)
    if made.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {made.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk_costs_no_step_that_was_saved(forks: Server, config: Path, disk: Path, runs_dir: Path) -> None:
    env = {"DRAGONET_RUNS_DIR": str(disk)}
    done = forks.run("reinforce", config, "--json", env=env)
    assert (done.code, done.json["state"], done.json["steps"]) == (1, "failed", 4)
    assert "the disk is full" in done.err
    assert "dragonet resume" in done.err
    folder = find_run("last", disk)
    assert read_status(folder).state == "failed"
    assert {path.name for path in folder.checkpoints.iterdir()} == {"step-000002"}
    subprocess.run(["mount", "-o", "remount,size=10M", str(disk)], check=True)
    assert forks.run("resume", folder, "--json").json["state"] == "succeeded"
    assert forks.run("reinforce", config, "--json").code == 0
    assert difference(outcome(folder), outcome(find_run("last"))) == []


def test_a_read_only_place_is_named(forks: Server, config: Path, disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    done = forks.run("reinforce", config, env={"DRAGONET_RUNS_DIR": str(disk)})
    refused(done, "read-only file system", "choose another place with runs_dir or $DRAGONET_RUNS_DIR")


def test_a_finished_run_on_a_read_only_disk_evaluates(forks: Server, config: Path, disk: Path) -> None:
    env = {"DRAGONET_RUNS_DIR": str(disk)}
    subprocess.run(["mount", "-o", "remount,size=10M", str(disk)], check=True)
    done = forks.run("reinforce", config, "train.max_steps=2", "--json", env=env)
    assert done.code == 0, done
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert forks.run("evaluate", "last", "--json", env=env).json["reward"] == done.json["reward"]


# --- processes ---


@pytest.fixture
def orphan(forks: Server, config: Path, runs_dir: Path) -> RunFolder:
    """A run whose process was killed after two steps."""
    done = forks.run("reinforce", config, env={"DRAGONET_FAILPOINT": "metrics.after_append:3"})
    assert done.code == -9
    return find_run("last")


def test_a_run_whose_process_is_gone_reads_as_failed_everywhere(forks: Server, orphan: RunFolder) -> None:
    stored = orphan.status.read_bytes()
    said = forks.run("status", orphan, "--json").json
    assert (said["state"], said["gone"], said["step"]) == ("failed", True, 2)
    assert "is gone and left no word" in said["reason"]
    assert f"dragonet resume {orphan.id}" in said["reason"]
    assert forks.run("runs", "--json").json[0]["state"] == "failed"
    waited = forks.run("wait", orphan)
    assert waited.code == 1
    assert "is gone and left no word" in waited.out
    assert "held-out reward at step 2" in waited.out  # the end of its log
    refused(forks.run("cancel", orphan), "cannot be cancelled: it is dead already", f"dragonet resume {orphan.id}")
    assert orphan.status.read_bytes() == stored


def test_a_pid_that_another_process_got_since_is_not_taken_for_the_run(forks: Server, orphan: RunFolder) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        update_status(orphan, pid=other.pid, pid_started=(read_status(orphan).pid_started or 0.0) - 60.0)
        assert forks.run("status", orphan, "--json").json["gone"]
        refused(forks.run("cancel", orphan), "it is dead already")
        assert other.poll() is None
        assert forks.run("resume", orphan, "--json").json["state"] == "succeeded"
    finally:
        other.kill()
        other.wait()


def test_a_run_of_another_host_is_shown_as_last_written(forks: Server, orphan: RunFolder) -> None:
    update_status(orphan, host="elsewhere")
    said = forks.run("status", orphan, "--json").json
    assert (said["state"], said["gone"]) == ("running", False)
    assert "was started on host elsewhere" in said["notes"][0]


def test_a_run_that_is_trained_already_is_left_alone(forks: Server, orphan: RunFolder) -> None:
    with acquire(orphan):
        refused(forks.run("resume", orphan), f"run {orphan.id} is running in process", "dragonet cancel")


def test_a_damaged_status_does_not_spoil_the_list_and_the_run_goes_on(
    forks: Server, orphan: RunFolder, config: Path
) -> None:
    orphan.status.write_text("{", "utf-8")
    assert forks.run("runs", "--json").json[0]["state"] == "unknown"
    text = forks.run("status", orphan)
    assert (text.code, "unknown" in text.out) == (0, True)
    assert forks.run("resume", orphan, "--json").json["state"] == "succeeded"


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(forks: Server, config: Path, runs_dir: Path) -> None:
    done = forks.run("reinforce", config, env={"DRAGONET_FAILPOINT": "metrics.after_append:5"})
    assert done.code == -9
    folder = find_run("last")
    weights = folder.checkpoint_of(4) / "optimizer.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    resumed = forks.run("resume", folder, "--json")
    assert resumed.json["state"] == "succeeded"
    assert "step-000004 is damaged" in resumed.err
    assert "resuming after step 2" in resumed.err
    assert forks.run("reinforce", config, "--json").code == 0
    assert difference(outcome(folder), outcome(find_run("last"))) == []
