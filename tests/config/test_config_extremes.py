"""Values no run can use: without bound, unprintable or undecodable. Each is one short line that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragonet.config import load_config
from dragonet.errors import ConfigError


def refusal(values: Any, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(values, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "high"),
    [
        ("train.batch_size", 1_000_000),
        ("train.micro_batch", 1_000_000),
        ("train.max_steps", 1_000_000),
        ("train.epochs", 1_000_000),
        ("train.save_steps", 1_000_000),
        ("train.max_minutes", 1_000_000),
        ("train.n_samples", 1_000_000),
        ("data.max_eval", 1_000_000),
        ("reinforce.max_new_tokens", 1_000_000),
        ("reinforce.updates", 1000),
        ("reinforce.top_k", 1_000_000),
        ("reinforce.delta", 1000),
        ("reinforce.dual_clip", 1000),
        ("lora.r", 4096),
        ("lora.alpha", 1_000_000),
    ],
)
def test_every_count_and_factor_has_an_upper_bound(key: str, high: int) -> None:
    section, name = key.split(".")
    held = getattr(getattr(load_config({}, [f"{key}={high}"]), section), name)
    assert held == high
    for value in (high + 1, 10**26):
        message = refusal({}, f"{key}={value}")
        assert message.startswith(f"command line: {key}: expected ")
        assert f"to {high}" in message
        assert f"got the number {value}" in message


def test_the_upper_clip_has_an_upper_bound() -> None:
    message = refusal({"reinforce": {"clip": [1e-300, 1e308]}})
    assert message == "config: reinforce.clip.1: expected a number above 0 and to 1000, got the number 1e+308"


LONG = "x" * 5000


@pytest.mark.parametrize(
    "overrides",
    [
        ["reinforce.group_size=0x" + "f" * 5000],
        ["model=0x" + "f" * 5000],
        ["train.seed=" + "9" * 5000],
        ["num_generations=[0x" + "f" * 5000 + "]"],
        [f"reinforce.estimator={LONG}"],
        [f"reinforce.{LONG}=1"],
        [f"{LONG}=1"],
        [LONG],
        [f"model.id={LONG}@a", "model.revision=b"],
        ["name=a", f"name.{LONG}=1"],
        ["rewards." + "9" * 5000 + ".weight=1"],
        ["name=a", "name." + "9" * 5000 + "=1"],
    ],
)
def test_a_long_value_or_key_makes_no_long_message(overrides: list[str]) -> None:
    assert len(refusal({}, *overrides)) < 500


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "9" * 5000])
def test_a_number_too_long_to_print_is_refused_wherever_it_stands(tmp_path: Path, number: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(f"rewards: [{{type: length, max_chars: {number}}}]\n", encoding="utf-8")
    message = refusal(path)
    assert "line 1: rewards.0.max_chars: expected a number below 1e308, got" in message
    assert "digits" in message
    path.write_text(f"? {number}\n: a\n", encoding="utf-8")
    message = refusal(path)
    assert "digits" in message
    assert len(message) < 500
    toml = tmp_path / "run.toml"
    toml.write_text(f"name = {number}\n", encoding="utf-8")
    assert len(refusal(toml)) < 500
    assert "keys are text, got a number of about 6021 digits" in refusal({int("0x" + "f" * 5000, 0): 1})


@pytest.mark.parametrize(
    "values",
    [
        {"runs_dir": "a\0b"},
        {"name": "a\0b"},
        {"data": {"system": "a\0b"}},
        {"reinforce": {"stop": ["a\0b"]}},
        {"rewards": [{"type": "custom", "file": "a\0b"}]},
    ],
)
def test_a_nul_character_is_named(values: dict[str, Any]) -> None:
    message = refusal(values)
    assert message.endswith("the text 'a\\x00b' holds a NUL character; take it out")
    assert "\n" not in message


def test_a_path_of_a_config_with_a_nul_character_cannot_be_read() -> None:
    assert "cannot be read" in refusal("a\0b.yaml")


@pytest.mark.parametrize("text", ["\ud800", "caf\udce9"])  # half a character; an undecoded byte of the command line
def test_text_that_is_no_unicode_says_so(tmp_path: Path, text: str) -> None:
    assert refusal({}, f"model={text}") == (
        f"command line: model: the text {text!r} is not valid Unicode (undecoded bytes, or half a character); "
        "write it in UTF-8"
    )
    path = tmp_path / "run.yaml"
    path.write_text('model: "\\uD800"\n', encoding="utf-8")
    assert "line 1: model: the text '\\ud800' is not valid Unicode" in refusal(path)
    refusal({text: 1}).encode()  # and every message can be printed


@pytest.mark.parametrize(
    ("values", "overrides", "message"),
    [
        ({}, ["train.learning_rate=.nan"], "command line: train.learning_rate: expected a finite number, got nan"),
        ({"reinforce": {"clip": [0.2, float("nan")]}}, [], "reinforce.clip.1: expected a finite number, got nan"),
        ({"lora": {"targets": [""]}}, [], "lora.targets.0: expected text that is not empty, got text ''"),
        ({"rewards": [{"type": float("inf")}]}, [], "rewards.0.type: expected a finite number, got inf"),
        ({"name": b"a"}, [], "name: expected text, a number, true, false, a list or a mapping, got an object of type"),
    ],
)
def test_one_wrong_value_is_one_problem(values: dict[str, Any], overrides: list[str], message: str) -> None:
    found = refusal(values, *overrides)
    assert message in found
    assert "\n" not in found


def test_an_override_that_crosses_keys_of_the_file_says_how_to_drop_them(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("data: {min_eval: 2, max_eval: 4}\n", encoding="utf-8")
    reset = ["data.min_eval=null", "data.max_eval=null"]
    assert f"(or add {' '.join(reset)})" in refusal(path, "data.eval=0")
    assert load_config(path, ["data.eval=0", *reset]).data.eval == 0
    path.write_text("data: {min_eval: 2, eval: 0}\n", encoding="utf-8")
    assert "or add" not in refusal(path)


def test_of_two_lengths_a_notice_says_which_holds() -> None:
    config = load_config({"train": {"max_steps": 5}}, ["train.epochs=3"])
    assert config.notices == ("train.max_steps 5 wins over train.epochs 3, which has no effect",)
    assert load_config({"train": {"max_steps": 5}}).notices == ()
    assert load_config({"train": {"epochs": 3}}).notices == ()
