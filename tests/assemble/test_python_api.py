"""`dragonet.reinforce` and `Run` from a script, as a user would write it."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from assemble.forking import Server
from dragonet.runs import RunFolder, find_run, read_json, read_status

HEAD = """
import json, sys
import dragonet

ROWS = [{"question": f"say word {i}", "answer": chr(97 + i % 26), "n": i} for i in range(40)]
TINY = dict(
    model="tiny-random",
    reinforce={"group_size": 4, "max_new_tokens": 8},
    train={"batch_size": 2, "max_steps": 2, "learning_rate": 0.01},
)
WANTED = set("abcdefghijklm")

def letters(completion, row):
    print("asked about", row.get("n"))
    return min(len(WANTED & set(completion)), 3) / 3

def say(**facts):
    print(json.dumps(facts))
"""


def script(forks: Server, place: Path, body: str, code: int = 0) -> Any:
    """Run a user's script; return what it says last, or its stderr when it is to end otherwise."""
    path = place / "train_it.py"
    path.write_text(HEAD + textwrap.dedent(body), "utf-8")
    done = forks.run(script=str(path), cwd=place)
    assert done.code == code, done
    return json.loads(done.out.splitlines()[-1]) if code == 0 else done.err


def test_a_list_of_dicts_and_a_function_are_enough(forks: Server, place: Path, runs_dir: Path) -> None:
    said = script(
        forks,
        place,
        """
        run = dragonet.reinforce(ROWS, rewards=letters, name="mine", **TINY)
        status = run.status()
        say(id=run.id, folder=str(run.dir), state=status.state, step=status.step, reward=dict(status.reward),
            steps=[row["step"] for row in run.progress()], report=run.report()["reward"], logs=run.logs(1000),
            waited=run.wait().id, same=dragonet.Run("last") == run, again=eval(repr(run), {"Run": dragonet.Run}) == run)
        """,
    )
    folder = find_run("last")
    assert (said["id"], said["folder"], said["state"], said["step"]) == (folder.id, str(folder), "succeeded", 2)
    assert said["steps"] == [1, 2]
    assert said["waited"] == folder.id
    assert said["same"]
    assert said["again"]
    assert said["reward"] == said["report"] == read_json(folder, "eval.json")["reward"]
    assert any("asked about" in line for line in said["logs"])
    (source,) = folder.rewards.rglob("*.py")
    assert "WANTED = {" in source.read_text("utf-8") or "WANTED = set" in source.read_text("utf-8")
    assert folder.id.endswith("-mine-reinforce")
    assert forks.run("evaluate", folder, "--json").json["reward"] == said["reward"]


def test_a_type_name_a_mapping_and_a_list_of_both_are_rewards(forks: Server, place: Path, runs_dir: Path) -> None:
    said = script(
        forks,
        place,
        """
        one = dragonet.reinforce(ROWS, rewards="contains", **TINY)
        both = dragonet.reinforce(
            dragonet.load_dataset(ROWS).map_prompts("Now {question}!", "answer", "Be brief."),
            rewards=["contains", {"type": "length", "max_chars": 6}, dragonet.reward("regex", pattern="a"), letters],
            **TINY,
        )
        say(one=one.config["rewards"], both=sorted(key for key in both.progress()[0] if key.startswith("reward/")))
        """,
    )
    assert [reward["type"] for reward in said["one"]] == ["contains"]
    assert said["both"] == ["reward/contains", "reward/length", "reward/letters", "reward/regex"]
    rows = [json.loads(line) for line in (find_run("last").data / "train.jsonl").read_text("utf-8").splitlines()]
    assert rows[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert rows[0]["messages"][1]["content"].startswith("Now say word")


def test_a_config_file_and_changes_of_it(forks: Server, place: Path, config: Path, runs_dir: Path) -> None:
    said = script(
        forks,
        place,
        """
        run = dragonet.reinforce(config="config.yaml", train={"max_steps": 1}, rewards=letters, name="a=b: c")
        say(steps=run.status().step, rewards=[r["type"] for r in run.config["rewards"]], name=run.config["name"])
        """,
    )
    assert said == {"steps": 1, "rewards": ["custom"], "name": "a=b: c"}


def test_it_works_where_an_event_loop_runs_already_as_in_a_notebook(forks: Server, place: Path, runs_dir: Path) -> None:
    said = script(
        forks,
        place,
        """
        import asyncio

        async def cell():
            return dragonet.reinforce(ROWS, rewards="contains", **TINY)

        say(state=asyncio.run(cell()).status().state)
        """,
    )
    assert said == {"state": "succeeded"}


def test_errors_are_of_the_public_tree_and_leave_nothing(forks: Server, place: Path, runs_dir: Path) -> None:
    said = script(
        forks,
        place,
        """
        def failure(**keys):
            try:
                dragonet.reinforce(**{"dataset": ROWS, "rewards": "contains", **TINY, **keys})
            except dragonet.DragonetError as error:
                return f"{type(error).__name__}: {error}"
        say(
            typo=failure(trian={"max_steps": 3}),
            nan=failure(train={"learning_rate": float("nan")}),
            empty=failure(dataset=[]),
            lonely=failure(reinforce={"group_size": 1}),
            unfit=failure(rewards=lambda completion: 1),
            none=failure(rewards=None),
        )
        """,
    )
    assert "did you mean 'train'?" in said["typo"]
    assert "train.learning_rate: expected a finite number, got nan" in said["nan"]
    assert said["empty"].startswith("DataError: ")
    assert "reinforce.group_size: expected a whole number from 2 to 64" in said["lonely"]
    assert "a lambda cannot be kept as a reward" in said["unfit"]
    assert "rewards is empty" in said["none"]
    assert not runs_dir.exists()


def test_a_reward_that_raises_raises_here_and_the_run_can_be_looked_at(
    forks: Server, place: Path, runs_dir: Path
) -> None:
    said = script(
        forks,
        place,
        """
        def broken(completion):
            return {}["score"]
        try:
            dragonet.reinforce(ROWS, rewards=broken, **TINY)
        except dragonet.DragonetError as error:
            run = dragonet.Run("last")
            say(kind=type(error).__name__, text=str(error), state=run.status().state, error=run.status().error)
        """,
    )
    assert (said["kind"], said["state"]) == ("RewardError", "failed")
    assert "KeyError: 'score'" in said["text"]
    assert said["text"] in said["error"]


@pytest.mark.slow
def test_a_run_in_the_background_and_all_that_a_handle_can_do(forks: Server, place: Path, runs_dir: Path) -> None:
    said = script(
        forks,
        place,
        """
        import time
        TINY["train"] = {**TINY["train"], "max_steps": 5000, "eval_steps": 5000, "schedule": "constant", "warmup": 0.0}
        run = dragonet.reinforce(ROWS, rewards=letters, wait=False, **TINY)
        queued = run.status().state
        while not run.progress() and not run.status().final:
            time.sleep(0.05)
        cancelled = run.cancel()
        made = len(run.progress())
        run.resume(train={"max_steps": made + 2})
        reward = run.report()["reward"]
        evaluated = run.evaluate()
        run.resume(wait=False, train={"max_steps": made + 3})
        run.wait(120)
        say(queued=queued, cancelled=[cancelled.state, cancelled.reason], made=made, steps=len(run.progress()),
            reward=reward, evaluated=evaluated["reward"], state=run.status().state)
        """,
    )
    assert said["queued"] in ("queued", "running")
    assert said["cancelled"] == ["cancelled", "a request to cancel"]
    assert (said["state"], said["steps"]) == ("succeeded", said["made"] + 3)
    assert said["evaluated"] == said["reward"]


@pytest.mark.slow
def test_a_background_run_that_fails_raises_from_wait(forks: Server, place: Path, runs_dir: Path) -> None:
    said = script(
        forks,
        place,
        """
        def broken(completion):
            raise ValueError("no mood")
        run = dragonet.reinforce(ROWS, rewards=broken, wait=False, **TINY)
        try:
            run.wait(120)
        except dragonet.DragonetError as error:
            say(text=str(error))
        """,
    )
    assert "ValueError: no mood" in said["text"]


# --- a finished run as the model of the next ---

# folding an adapter into bfloat16 weights rounds them; in float32 a child begins just where its parent ended
EXACT = ("model.dtype=float32", "train.max_steps=2")


@pytest.fixture
def parent(forks: Server, config: Path, runs_dir: Path) -> RunFolder:
    """A finished run that others build on."""
    assert forks.run("reinforce", config, *EXACT, "name=parent", "--json").code == 0
    return find_run("last")


@pytest.mark.slow
def test_a_finished_run_is_a_model_wherever_it_is_moved_later(
    forks: Server, config: Path, parent: RunFolder, place: Path
) -> None:
    after = read_status(parent).reward
    by_id = forks.run("reinforce", config, f"model={parent.id}", *EXACT, "name=child", "--json")
    by_folder = forks.run("reinforce", config, f"model={parent.path}", *EXACT, "name=twin", "--json")
    assert by_id.json["state"] == by_folder.json["state"] == "succeeded", by_id.err
    assert by_id.json["reward"] == by_folder.json["reward"]
    assert by_id.json["reward"]["before"] == pytest.approx((after or {})["after"])  # it starts where the parent ended
    child = find_run(by_id.json["run"])
    grandchild = forks.run("reinforce", config, f"model={child.id}", *EXACT, "name=grandchild", "--json")
    assert grandchild.json["reward"]["before"] == pytest.approx(by_id.json["reward"]["after"])

    parent.path.rename(place / "moved away")
    moved = child.path.rename(place / "moved too")
    assert forks.run("evaluate", moved, "--json").json["reward"] == by_id.json["reward"]
    resumed = forks.run("resume", grandchild.json["run"], "train.max_steps=3", "--json")
    assert resumed.json["state"] == "succeeded", resumed.err
    again = forks.run("reinforce", config, f"model={moved}", *EXACT, "name=late", "--json")
    assert again.json["reward"] == grandchild.json["reward"]


def test_a_run_without_an_adapter_is_no_model_yet(forks: Server, config: Path, runs_dir: Path) -> None:
    assert forks.run("reinforce", config, env={"DRAGONET_FAILPOINT": "metrics.after_append:1"}).code == -9
    done = forks.run("reinforce", config, f"model={find_run('last').path}")
    assert done.code == 2
    assert "no finished adapter" in done.err
