"""A user's function: what it is given, what its answer means, and that it harms nobody."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dragonet.errors import ConfigError, UserCodeError
from dragonet.rewards import RewardSet, as_rewards, reward, score
from dragonet.rewards.typed import TypedReward
from dragonet.types import Prompt, Rollout, Score, StopReason

MENU = '''
"""Answers whatever the completion asks for."""
import decimal, fractions, json, os, signal, sys, time
import numpy as np
import dragonet


class Item:
    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value


class Unshowable:
    def __repr__(self):
        raise RuntimeError


ANSWERS = {
    "float": 0.25, "int": 3, "true": True, "false": False, "fraction": fractions.Fraction(1, 4),
    "decimal": decimal.Decimal("0.5"), "numpy": np.float32(0.5), "0d": np.array(2), "1d": np.array([[4.0]]),
    "npbool": np.bool_(True), "tensor": Item(1.5), "na": dragonet.NA,
    "none": None, "text": "1.0", "list": [1.0], "dict": {"rewards": 1}, "nan": float("nan"), "inf": float("-inf"),
    "complex": 1j, "2d": np.ones(2), "nptext": np.str_("1"), "huge": 10**400, "unshowable": Unshowable(),
    "surrogate": "\\ud83d", "item text": Item("1"),
}


def helper(x):
    return 1 / x


def reward(completion):
    if completion == "raise":
        return helper(0)
    if completion == "raise odd":
        raise ValueError("\\ud83d" * 9999)
    if completion == "hang":
        while True:
            pass
    if completion == "exit":
        os._exit(3)
    if completion == "sys.exit":
        sys.exit(2)
    if completion == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if completion == "print":
        print("hello from the reward")
        sys.stdout.write("no line end")
        return 1
    if completion == "generator":
        return (x for x in [1])
    return ANSWERS[completion]
'''


@pytest.fixture(scope="module")
def menu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedReward]:
    file = tmp_path_factory.mktemp("menu") / "menu.py"
    file.write_text(MENU, "utf-8")
    made = reward("custom", file=str(file), timeout_s=0.7)
    yield made
    made.close()


def source(body: str, **keys: Any) -> TypedReward:
    return reward("custom", source=body, **keys)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        *(("float", 0.25), ("int", 3), ("true", 1), ("false", 0), ("fraction", 0.25), ("decimal", 0.5)),
        *(("numpy", 0.5), ("0d", 2), ("1d", 4), ("npbool", 1), ("tensor", 1.5)),
    ],
)
def test_numbers_are_scores(menu: TypedReward, answer: str, value: float) -> None:
    assert score(menu, answer) == Score(value)


def test_abstaining_is_not_failing(menu: TypedReward) -> None:
    assert score(menu, "na").status == "not_applicable"


FAILURES = {
    "none": "reward() in menu.py returned None; is a `return` missing? To abstain, return dragonet.NA",
    "text": "reward() in menu.py returned a str, not a number: '1.0'",
    "list": "reward() in menu.py returned a list, not a number: [1.0]",
    "dict": "returned a dict, not a number: {'rewards': 1}",
    "nan": "reward() in menu.py returned nan (a float); a score is a finite number",
    "inf": "returned -inf (a float)",
    "complex": "returned a complex, not a number: 1j",
    "2d": "returned a ndarray, not one number: ",
    "nptext": "returned a str, not a number",
    "item text": "returned a str, not a number",
    "huge": "returned an int that is no float: ",
    "unshowable": "returned an Unshowable, not a number: (it cannot be shown)",
    "surrogate": r"returned a str, not a number: '\ud83d'",
    "generator": "returned a generator, not a number",
    "raise": "reward() in menu.py raised ZeroDivisionError: division by zero\n"
    "  menu.py, line 37, in reward: return helper(0)\n"
    "  menu.py, line 32, in helper: return 1 / x",
    "raise odd": "raised ValueError: \\ud83d\\ud83d",
    "hang": "reward() in menu.py took longer than 0.7 s and was stopped",
    "exit": "reward() in menu.py ended its process: the worker exited with code 3",
    "sys.exit": "raised SystemExit: 2\n  menu.py, line 46, in reward: sys.exit(2)",
    "segfault": "ended its process: the worker was ended by SIGSEGV",
}


@pytest.mark.parametrize(("answer", "message"), FAILURES.items())
def test_everything_else_is_a_failure_that_says_what_came(menu: TypedReward, answer: str, message: str) -> None:
    got = score(menu, answer)
    assert got.status == "failed"
    assert message in (got.failure or "")
    assert len(got.failure or "") < 3000
    (got.failure or "").encode("utf-8")  # can be written anywhere
    assert score(menu, "float").value == 0.25  # the next call is well


def test_a_bad_completion_fails_alone() -> None:
    made = source(
        "import os, time, dragonet\n"
        "def reward(completion):\n"
        "    if completion == 'exit': os._exit(3)\n"
        "    if completion == 'hang': time.sleep(600)\n"
        "    return dragonet.NA if completion == 'na' else float(completion)\n",
        timeout_s=0.8,
    )
    texts = ["1", "exit", "2", "hang", "na", "x", "3"]
    rollouts = [Rollout(Prompt(()), (), text, StopReason.EOS) for text in texts]
    scores = made.score(rollouts)
    assert [s.value for s in scores] == [1, None, 2, None, None, None, 3]
    assert [s.status for s in scores[3:6]] == ["failed", "not_applicable", "failed"]
    made.close()


def test_what_is_printed_is_log_text(menu: TypedReward) -> None:
    menu.take_output()
    assert score(menu, "print").value == 1
    assert menu.take_output() == "hello from the reward\nno line end"


def test_every_argument_is_given_by_name() -> None:
    everything = source(
        "def reward(prompt, completion, reference, row, messages, transcript):\n"
        "    print(repr((prompt, completion, reference, row, messages, transcript)))\n"
        "    return 1\n"
    )
    prompt = Prompt(({"role": "system", "content": "s"}, {"role": "user", "content": "u"}), "ref", {"n": "4"})
    turns = ({"role": "assistant", "content": "a"},)
    rollout = Rollout(prompt, (), "<think>x</think> y", StopReason.EOS, transcript=turns)
    assert everything.score([rollout]) == [Score(1.0)]
    assert everything.take_output().strip() == repr(
        ("u", "<think>x</think> y", "ref", {"n": "4"}, [dict(m) for m in prompt.messages], [dict(m) for m in turns])
    )
    everything.close()


@pytest.mark.parametrize(
    "signature",
    ["()", "(reference, completion)", "(completion, /, row)", "(*, row)", "(completion, weight=2)", "(**anything)"],
)
def test_any_subset_of_the_arguments_will_do(signature: str) -> None:
    made = source(f"def reward{signature}:\n    return 1 if len(locals()) else 2\n")
    assert score(made, "c", reference="r", row={"a": "b"}).status == "scored"
    made.close()


def test_keyword_arguments_get_all() -> None:
    made = source("def reward(completion, **rest):\n    print(sorted(rest))\n    return 1\n")
    score(made, "c")
    assert made.take_output() == "['messages', 'prompt', 'reference', 'row', 'transcript']\n"
    made.close()


def test_async_functions_share_a_loop_and_signals_work() -> None:
    made = source(
        "import asyncio, signal\nloops = set()\n"
        "async def reward(completion):\n"
        "    loops.add(id(asyncio.get_running_loop()))\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0)\n"  # only possible in a main thread
        "    await asyncio.sleep(0.001)\n"
        "    return len(loops)\n"
    )
    assert [score(made, "a").value for _ in range(3)] == [1, 1, 1]
    made.close()


@pytest.mark.parametrize(
    ("signature", "kind", "message"),
    [
        (
            "(answer_text)",
            UserCodeError,
            "requires 'answer_text', which no reward is given; known: completion, messages",
        ),
        ("(completions_text)", UserCodeError, "did you mean 'completion'"),
        ("(*args)", UserCodeError, "name the arguments it wants"),
        ("(queries, prompts, labels)", ConfigError, "batch functions come with the reward engine"),
        ("(completions, **kwargs)", ConfigError, "batch functions come with the reward engine"),
    ],
)
def test_arguments_nobody_provides_are_an_error_at_start(signature: str, kind: type, message: str) -> None:
    made = RewardSet([source(f"def reward{signature}: return 1")])
    with pytest.raises(kind, match=message):
        made.check([])
    made.close()


def test_arguments_are_copies() -> None:
    row = {"k": ["v"]}
    made = source("def reward(row, messages):\n    row['k'].append(1); row.clear(); messages.clear()\n    return 1\n")
    prompt = Prompt(({"role": "user", "content": "u"},), None, row)
    rollout = Rollout(prompt, (), "c", StopReason.EOS)
    assert made.score([rollout, rollout]) == [Score(1.0)] * 2
    assert row == {"k": ["v"]}
    made.close()


def test_state_of_the_module_lives_as_long_as_the_worker() -> None:
    made = source("calls = []\ndef reward(completion):\n    calls.append(1)\n    return len(calls)\n")
    assert [score(made, "a").value for _ in range(3)] == [1, 2, 3]
    made.close()
    assert score(made, "a").value == 1
    made.close()


def test_a_function_that_stops_loading_fails_the_rest_of_the_call(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    made = source(
        f"import os, pathlib\nflag = pathlib.Path({str(flag)!r})\n"
        "if flag.exists():\n    raise RuntimeError('no model')\n"
        "def reward(completion):\n    flag.touch()\n    os._exit(1)\n"
    )
    rollouts = [Rollout(Prompt(()), (), "c", StopReason.EOS)] * 3
    failures = [s.failure or "" for s in made.score(rollouts)]
    assert "exited with code 1" in failures[0]
    assert "RuntimeError: no model" in failures[1]
    assert "RuntimeError: no model" in failures[2]
    with pytest.raises(UserCodeError, match="RuntimeError: no model"):
        made.score(rollouts)
    made.close()


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import helper, subprocess\ndef reward():\n    return subprocess.Popen(['sleep', '300']).pid\n")
    (tmp_path / "helper.py").write_text("")
    before = dict(os.environ)
    got = score(reward("custom", file=file), "x")
    assert got.value is not None
    limit = time.monotonic() + 5
    while psutil.pid_exists(int(got.value)) and psutil.Process(int(got.value)).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["helper.py", "mine.py"]
    assert dict(os.environ) == before


def test_a_packed_reward_works_elsewhere(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "words").mkdir(parents=True)
    (here / "words" / "__init__.py").write_text("GOOD = 3\n")
    (here / "mine.py").write_text("from words import GOOD\ndef reward(): return GOOD\n")
    rewards = RewardSet(
        as_rewards(
            [
                {"type": "custom", "file": "mine.py", "name": "a/b"},
                "numeric",
                {"type": "custom", "source": "def reward(): return 4"},
            ],
            base=here,
        )
    )
    specs, files = rewards.pack()
    assert [spec.get("file") for spec in specs] == ["rewards/a_b/mine.py", None, "rewards/custom/reward.py"]
    assert set(files) == {"rewards/a_b/mine.py", "rewards/a_b/words/__init__.py", "rewards/custom/reward.py"}
    for name, content in files.items():
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_bytes(content)
    (here / "mine.py").unlink()
    again = as_rewards(specs, base=there)
    assert [score(r, "5", reference="5").value for r in again] == [3, 1, 4]
    for made in again:
        made.close()
