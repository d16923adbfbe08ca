"""Bad reward files: each message names the thing, its place and the next step."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragonet.errors import ConfigError, UserCodeError
from dragonet.rewards import RewardSet, as_rewards, reward
from dragonet.types import Group, Prompt, Rollout, StopReason

PROMPT = Prompt(({"role": "user", "content": "q"},), "5", {}, index=16)


def write(tmp_path: Path, text: str) -> str:
    file = tmp_path / "my_reward.py"
    file.write_text(text, "utf-8")
    return str(file)


def scored(file: str, **keys: object) -> RewardSet:
    """Check and score three rollouts of one prompt."""
    rewards = RewardSet(as_rewards([{"type": "custom", "file": file, **keys}, "numeric"]))
    try:
        rewards.check([PROMPT])
        rollout = Rollout(PROMPT, (), "5", StopReason.EOS)
        (group,) = rewards.score([Group(PROMPT, (rollout,) * 3)])
        assert group.rewards_G == (None, None, None)
        assert rewards.tally.failed == rewards.tally.failures["custom"] == 3
    finally:
        rewards.close()
    return rewards


def test_no_file(tmp_path: Path) -> None:
    write(tmp_path, "def reward(): return 1")
    with pytest.raises(
        UserCodeError, match=r'^reward "custom": .*my_rewards\.py does not exist; did you mean .my_reward\.py.'
    ):
        reward("custom", file=str(tmp_path / "my_rewards.py"))


def test_a_syntax_error(tmp_path: Path) -> None:
    file = write(tmp_path, "\n\ndef reward(completion)\n    return 1\n")
    with pytest.raises(UserCodeError) as caught:
        reward("custom", file=file)
    assert str(caught.value) == (
        "reward \"custom\": my_reward.py, line 3: expected ':' (the file does not parse as Python)\n"
        "    def reward(completion)\n"
        "                          ^"
    )


def test_no_such_function(tmp_path: Path) -> None:
    file = write(tmp_path, "def rewards(completion):\n    return 1\n")
    with pytest.raises(UserCodeError, match=r"my_reward\.py has no function 'reward'; did you mean 'rewards'\?"):
        reward("custom", file=file)
    file = write(tmp_path, "import os\nscore = 3\n")  # only running it can tell
    with pytest.raises(UserCodeError, match=r"my_reward\.py has no function 'reward'; it defines no function at all"):
        scored(file)
    with pytest.raises(UserCodeError, match=r"'score' in my_reward\.py is a int, not a function"):
        scored(file, fn="score")


def test_a_file_that_does_not_load(tmp_path: Path) -> None:
    file = write(tmp_path, "import not_there_at_all\ndef reward(): return 1\n")
    with pytest.raises(UserCodeError) as caught:
        scored(file)
    assert str(caught.value).splitlines() == [
        "reward \"custom\": my_reward.py cannot be loaded: ModuleNotFoundError: No module named 'not_there_at_all'",
        "  my_reward.py, line 1, in <module>: import not_there_at_all",
        "(modules beside the file are found by themselves; others must be installed)",
    ]
    file = write(tmp_path, "import os\nos._exit(5)\n")
    with pytest.raises(
        UserCodeError, match=r'reward "custom": my_reward\.py: the worker exited with code 5 while loading'
    ):
        scored(file)


def test_an_argument_nobody_provides(tmp_path: Path) -> None:
    file = write(tmp_path, "def reward(completion, solution): return 1\n")
    with pytest.raises(
        UserCodeError, match=r"reward\(\) in my_reward\.py requires 'solution', which no reward is given"
    ):
        scored(file)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1 / 0", "raised ZeroDivisionError: division by zero\n  my_reward.py, line 2, in reward: return 1 / 0"),
        ("int(completion)", "returned None; is a `return` missing? To abstain, return dragonet.NA"),
        ("return completion", "returned a str, not a number: '5'"),
        ("return float('nan')", "returned nan (a float); a score is a finite number"),
        ("return [1.0]", "returned a list, not a number: [1.0]"),
        ("__import__('os')._exit(3)", "ended its process: the worker exited with code 3"),
        ("exit('bye')", "raised SystemExit: bye\n  my_reward.py, line 2, in reward: exit('bye')"),
    ],
)  # fmt: skip
def test_a_function_that_gives_no_score(tmp_path: Path, body: str, message: str) -> None:
    file = write(tmp_path, f"def reward(completion):\n    {body}\n")
    first = scored(file).tally.first_failure
    assert first == f'reward "custom" on row 17: reward() in my_reward.py {message}'


def test_a_function_that_hangs(tmp_path: Path) -> None:
    file = write(tmp_path, "import time\ndef reward(completion):\n    time.sleep(600)\n")
    rewards = scored(file, timeout_s=0.2)
    assert rewards.tally.first_failure == (
        'reward "custom" on row 17: reward() in my_reward.py took longer than 0.2 s and was stopped'
    )
    assert rewards.tally.timeouts == {"custom": 3}


def test_keys_of_a_custom_reward(tmp_path: Path) -> None:
    file = write(tmp_path, "def reward(): return 1")
    for keys, message in (
        ({}, "give file, the Python file with the function"),
        ({"file": file, "source": "x"}, "give file"),
        ({"file": file, "timeout_s": 0}, "timeout_s must be above 0, got 0"),
        ({"file": file, "timeout": 3}, "there is no key 'timeout'; did you mean 'timeout_s'"),
        ({"file": 3}, "file must be the path of a Python file, got 3"),
        ({"file": file, "fn": ""}, "fn must be text on one line"),
    ):
        with pytest.raises(ConfigError, match=f'^reward "custom": {message}'):
            reward("custom", **keys)
