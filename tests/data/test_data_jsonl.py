"""Prompts written as JSON lines come back equal."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragonet.data import load_dataset, prompt_from_json, prompt_to_json, prompts_from_jsonl, prompts_to_jsonl
from dragonet.data.values import LiteralFloat, as_text
from dragonet.errors import DataError
from dragonet.types import Prompt

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LITERALS = st.sampled_from(["1.10", "1e5", "1e400", "-0", "2.50", "3.5"]).map(LiteralFloat)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | LITERALS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(TEXT, VALUES, max_size=4), TEXT, st.none() | TEXT, st.integers(0, 10**6))
def test_round_trip(row, content, reference, index) -> None:
    prompt = Prompt(({"role": "user", "content": content, "extra": [row]},), reference, row, index)
    text = prompts_to_jsonl([prompt, prompt])
    assert text.count("\n") == 2
    json.loads(text.split("\n")[0], parse_constant=pytest.fail)  # strict JSON
    back = prompts_from_jsonl(text)
    assert back == [prompt, prompt]
    assert as_text(back[0].row) == as_text(row)  # the numbers' text too
    assert prompt_from_json(prompt_to_json(prompt)) == prompt


def test_lines_are_readable_elsewhere(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"question": "größe?", "answer": 1.10, "n": 2.5}\n', encoding="utf-8")
    text = prompts_to_jsonl(load_dataset(tmp_path / "a.jsonl").prompts())
    assert json.loads(text) == {
        "index": 0,
        "messages": [{"role": "user", "content": "größe?"}],
        "reference": "1.10",
        "row": {"question": "größe?", "answer": 1.1, "n": 2.5},
        "literals": [[["row", "answer"], "1.10"]],
    }
    assert "größe" in text
    assert str(prompts_from_jsonl(text)[0].row["answer"]) == "1.10"


def test_a_split_comes_back_equal() -> None:
    split = load_dataset("bundled:additions").split()
    assert prompts_from_jsonl(prompts_to_jsonl(split.eval)) == split.eval


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n{", "data/eval.jsonl, line 2, column 2"),
        ('{"index": 0}\n', "line 1: this is no prompt as dragonet writes it: 'messages'"),
        ("[]\n", "line 1: this is no prompt"),
    ],
)
def test_other_lines_are_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        prompts_from_jsonl(text, "data/eval.jsonl")


def test_a_value_that_json_cannot_hold_is_named() -> None:
    with pytest.raises(DataError, match="row/a/0 holds a object, which JSON cannot hold"):
        prompt_to_json(Prompt((), row={"a": [object()]}))
