"""Python functions as rewards: the source that is kept is enough to run them somewhere else."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragonet.errors import UserCodeError
from dragonet.rewards import as_rewards, score
from dragonet.rewards.typed import TypedReward

WORDS = ("yes", "no")
NUMBER = re.compile(r"\d+")
LOCK = open  # a builtin function


class Unwritable:
    pass


THING = Unwritable()


def top_level(completion: str) -> float:
    return float(len(NUMBER.findall(completion)))


def made_from(function: Callable[..., Any]) -> TypedReward:
    (made,) = as_rewards(function)
    assert isinstance(made, TypedReward)
    return made


def test_a_function_of_a_module_is_named_by_its_file() -> None:
    made = made_from(top_level)
    assert (made.name, made.keys["file"], made.keys["fn"]) == ("top_level", str(Path(__file__).resolve()), "top_level")
    assert score(made, "1 and 2").value == 2
    made.close()


def test_a_function_in_a_function_is_cut_out_with_what_it_uses() -> None:
    bonus = 0.5

    def helper(text: str) -> bool:
        return any(word in text for word in WORDS)

    def local(completion: str, row: dict[str, Any], scale: float = 1.0) -> float:
        return (
            scale * 2 * bonus * len(NUMBER.findall(completion))
            + Path("x").exists()
            + helper(completion)
            + functools.reduce(max, [0])
        )

    made = made_from(local)
    text = made.keys["source"]
    assert "bonus = 0.5" in text
    assert " import Path" in text
    assert "import functools" in text
    assert "WORDS = ('yes', 'no')" in text
    assert "Unwritable" not in text
    assert score(made, "1 yes 2").value == 2 * 0.5 * 2 + 1
    made.close()


def test_what_cannot_be_kept_says_to_use_a_file() -> None:
    def uses_a_thing(completion: str) -> float:
        return 1.0 if THING else 0.0

    bonus = 0.5

    def around(completion: str, scale: float = bonus) -> float:
        return scale

    namespace: dict[str, Any] = {}
    exec("def typed(completion): return 1.0", namespace)
    for function, message in (
        (lambda completion: 1.0, "a lambda cannot be kept as a reward"),
        (functools.partial(top_level), "'partial', partial cannot be kept"),
        (len, "'len', builtin_function_or_method cannot be kept"),
        (around, "uses 'bonus', a variable of the function around it"),
        (uses_a_thing, r"uses 'THING' \(Unwritable\), which cannot be copied to a worker"),
        (namespace["typed"], "the source of 'typed' cannot be found"),
    ):
        with pytest.raises(UserCodeError, match=message) as caught:
            as_rewards(function)
        assert 'file="my_reward.py"' in str(caught.value)


SCRIPT = '''
"""A training script without a guard: running it again in a worker would train again."""
import math
from collections import Counter
from dataclasses import dataclass
from dragonet.rewards import RewardSet, as_rewards, score
import dragonet

print("script runs")
LIMITS = {"low": 1}

@dataclass
class Box:
    n: int

def shared(n):
    return Box(n + LIMITS["low"])

async def mine(completion, **rest):
    if not completion:
        return dragonet.NA
    return math.sqrt(shared(Counter(completion)["a"]).n)

rewards = RewardSet(as_rewards([mine]))
rewards.check([])
print(rewards.names, score(mine, "aaa"), score(mine, "").status)
print(rewards.pack()[1]["rewards/mine/mine.py"].decode())
rewards.close()
'''


def test_a_function_of_the_main_script_is_cut_out(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, "utf-8")
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    first, second, *source = result.stdout.splitlines()
    assert first == "script runs"
    assert second.startswith("['mine'] Score(value=2.0")
    assert second.endswith("not_applicable")
    assert "script runs" not in source
    assert source.count("import math") == source.count("@dataclass") == source.count("import dragonet") == 1
