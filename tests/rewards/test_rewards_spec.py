"""Keys: what is refused and how, and that a reward can be written down and made again."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dragonet.errors import ConfigError
from dragonet.protocols import Reward
from dragonet.rewards import TYPES, as_rewards, reward, score

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("exact", {}),
    ("contains", {"weight": 0}),
    ("numeric", {"tolerance": 0.01, "answer": "boxed", "when": "level == 3", "clip": [0, 0.5], "name": "sum"}),
    ("regex", {"pattern": r"^T-\d{4}", "weight": 2}),
    ("regex", {"pattern": "x", "case_sensitive": True}),
    ("json", {"keys": ["id", "status"]}),
    ("length", {"max_chars": 400, "weight": -0.5}),
    ("keyword", {"words": ["a'b", 'c"d'], "mode": "all"}),
    ("custom", {"source": "def f(completion):\n    return 1\n", "fn": "f", "timeout_s": 3}),
]


@pytest.mark.parametrize(("kind", "keys"), GOOD)
def test_a_reward_can_be_written_down_and_made_again(kind: str, keys: dict[str, Any]) -> None:
    made = reward(kind, **keys)
    assert isinstance(made, Reward)
    again = eval(repr(made), {"dragonet": SimpleNamespace(reward=reward)})
    (from_spec,) = as_rewards(json.loads(json.dumps(made.spec())))
    assert again == from_spec == made
    assert hash(again) == hash(made)
    assert set(made.spec()) >= {"type", "weight", "name", *keys}
    assert made.unit == "rollout"


def test_reprs_and_specs_hold_no_key_of_another_type() -> None:
    assert repr(reward("numeric")) == "dragonet.reward('numeric')"
    assert repr(reward("length", max_chars=9, weight=2)) == "dragonet.reward('length', max_chars=9, weight=2.0)"
    assert reward("numeric").spec() == {"type": "numeric", "weight": 1.0, "name": "numeric"}
    assert reward("keyword", words="a").spec() == {
        "type": "keyword",
        "weight": 1.0,
        "name": "keyword",
        "words": ["a"],
        "mode": "any",
    }
    assert reward("numeric") != reward("numeric", tolerance=1e-6)
    assert reward("numeric", name=None, tolerance=None) == reward("numeric")


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("numerik", {}, "there is no reward type 'numerik'; did you mean 'numeric'"),
    ("math", {}, "the reward type 'math' comes with the reward engine"),
    ("command", {"command": ["x"]}, "comes with the reward engine"),
    ("code", {}, "comes with the reward engine"),
    ("model", {}, "comes with the reward engine"),
    ("judge", {}, "comes with the reward engine"),
    ("remote", {}, "comes with the reward engine"),
    ("length", {"max_chars": 3, "pattern": "x"}, 'reward "length": pattern belongs to regex, not to length'),
    ("regex", {"pattern": "x", "timeout_s": 3}, "timeout_s belongs to custom and command and code, not to regex"),
    ("numeric", {"tolerence": 1}, "there is no key 'tolerence'; did you mean 'tolerance'"),
    ("length", {}, "give min_chars, max_chars or both"),
    ("length", {"min_chars": 5, "max_chars": 3}, "min_chars 5 is above max_chars 3"),
    ("length", {"max_chars": 0}, "max_chars must be at least 1, got 0"),
    ("length", {"min_chars": -1}, "min_chars must be at least 0, got -1"),
    ("length", {"max_chars": 10.5}, "max_chars must be a whole number, got 10.5"),
    ("length", {"max_chars": True}, "max_chars must be a finite number, got True"),
    ("regex", {}, "pattern is missing"),
    ("regex", {"pattern": 3}, "pattern must be text, got 3; in YAML put it in quotes: '3'"),
    ("regex", {"pattern": "x", "case_sensitive": "no"}, "case_sensitive must be true or false, got 'no'"),
    ("keyword", {}, "words is missing"),
    ("keyword", {"words": []}, "words must be a list of at least one text"),
    ("keyword", {"words": ["a", True]}, "words must be text, got True; in YAML put it in quotes"),
    ("keyword", {"words": ["a", " "]}, "an empty word is in every text"),
    ("keyword", {"words": ["a"], "mode": "most"}, "mode must be any or all, got 'most'"),
    ("json", {"keys": [1]}, "keys must be text, got 1"),
    ("json", {"schema": "x"}, "schema must be a JSON Schema"),
    ("numeric", {"tolerance": -1}, "tolerance is a share of the reference"),
    ("numeric", {"tolerance": 1}, "tolerance is a share of the reference"),
    ("numeric", {"weight": float("nan")}, "weight must be a finite number, got nan"),
    ("numeric", {"weight": float("inf")}, "weight must be a finite number, got inf"),
    ("numeric", {"weight": "1e-3"}, "YAML reads 1e-3 as text; write 1.0e-3"),
    ("numeric", {"name": " "}, "name must be text on one line"),
    ("numeric", {"name": "a\nb"}, "name must be text on one line"),
]


@pytest.mark.parametrize(("kind", "keys", "message"), BAD)
def test_keys_that_cannot_work(kind: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        reward(kind, **keys)
    assert message in str(caught.value)


def test_what_a_config_may_hold() -> None:
    assert [r.name for r in as_rewards("numeric")] == ["numeric"]
    assert [r.name for r in as_rewards(["exact", {"type": "length", "max_chars": 3}, reward("json")])] == [
        *("exact", "length", "json")
    ]
    for value, message in (
        (3, "expected a reward, a type name, a mapping with type, or a function; got 3"),
        ({"weight": 1}, "type is missing"),
        (["numeric", "regx"], r"rewards\[1\]: there is no reward type 'regx'; did you mean 'regex'"),
        (["numeric", {"type": "length"}], r'rewards\[1\]: reward "length": give min_chars'),
    ):
        with pytest.raises(ConfigError, match=message):
            as_rewards(value)


def test_one_line_tries_a_reward() -> None:
    assert score(reward("numeric"), "It is 42.", reference="42").value == 1
    assert score("exact", "a", reference="b").value == 0
    assert score({"type": "length", "max_chars": 1}, "ab").value == 0
    with pytest.raises(ConfigError, match="score tries one reward, got 2"):
        score(["exact", "json"], "a")


def test_every_type_is_listed() -> None:
    assert TYPES == ("exact", "contains", "numeric", "regex", "json", "length", "keyword", "custom")


def test_no_torch_and_no_numpy_are_loaded() -> None:
    code = "import sys, dragonet.rewards, dragonet.host.worker as w; print({'torch', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
