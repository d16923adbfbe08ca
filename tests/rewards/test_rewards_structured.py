"""Form: strict JSON of any depth, and patterns that end."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonet.errors import ConfigError, MissingExtra
from dragonet.rewards import reward, score
from dragonet.rewards.structured import _scan, _top_level_keys

JSON = [
    ("42", 1),
    ('```json\n{"a": 1}\n```', 1),
    ("```\n[1]\n```", 1),
    ("~~~JSON\n[1]\n~~~", 1),
    ('\ufeff{"a": 1}', 1),
    ('```js\n{"a": 1}\n```', 0),
    ("```json5\n1\n```", 0),
    ('Here: ```json\n{"a": 1}\n```', 0),
    ('```json\n{"a": 1}\n```\n```json\n{"a": 1}\n```', 0),
    ("```", 0),
    ("``````", 0),
    ('{"a": 1,}', 0),
    ("[1 2]", 0),
    ("{'a': 1}", 0),
    ("Infinity", 0),
    ('"\\ud800"', 1),
    ("1e999", 1),
    ("<think>{}</think>[]", 1),
    ("<think>[]", 0),
]


@pytest.mark.parametrize(("text", "expected"), JSON)
def test_json_is_strict_and_the_whole_answer(text: str, expected: int) -> None:
    assert score("json", text).value == expected


def test_json_keys_are_shared_out() -> None:
    asked = reward("json", keys=["a", "b", "c", "a"])
    assert score(asked, '{"a": 1, "b": null, "x": {"c": 1}}').value == pytest.approx(2 / 3)
    assert score(asked, '["a", "b", "c"]').value == 0


values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_reading_without_recursion_agrees_with_the_parser(value: object, ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    assert _scan(text) == (list(value) if isinstance(value, dict) else [])


@given(st.text(alphabet='[]{},:"\\a1-0.e \n', max_size=12))
def test_reading_without_recursion_refuses_what_the_parser_refuses(text: str) -> None:
    parsed = _top_level_keys(text)
    assert (_scan(text) is None) == (parsed is None)


@pytest.mark.parametrize("opening", ["[", '{"a":', "[[],"])
def test_json_of_any_depth(opening: str) -> None:
    closing = {"[": "]", '{"a":': "}", "[[],": "]"}[opening]
    deep = opening * 20_000 + "1" + closing * 20_000
    assert score("json", deep).value == 1
    assert score("json", deep[:-1]).value == 0
    assert score(reward("json", keys=["a"]), deep).value == (1 if opening == '{"a":' else 0)


@pytest.mark.parametrize("part", ["`", " ", "[", '"', "\\", "1", '{"a":', "```\n"])
def test_json_cost_is_bounded(part: str) -> None:
    began = time.monotonic()
    for text in (part * (60_000 // len(part)), "```" + part * (60_000 // len(part)) + "x```"):
        assert score("json", text).status == "scored"
    assert time.monotonic() - began < 10  # a hang guard


def test_json_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}}, "required": ["n"]}
    try:
        import jsonschema  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtra, match=r"pip install 'dragonet\[schema\]'"):
            reward("json", schema=schema)
        return
    checked = reward("json", schema=schema, keys=["n", "m"])
    texts = ['{"n": 3, "m": 1}', '{"n": 3}', '{"n": 9, "m": 1}', '{"n": "3"}', "no", '{"n": ' + "[" * 9999]
    assert [score(checked, text).value for text in texts] == [1.0, 0.5, 0.0, 0.0, 0.0, 0.0]
    slow = reward("json", schema={"type": "string", "pattern": "^(a|aa)+$"})
    assert score(slow, json.dumps("a" * 60 + "b")).logs == {"timeout": 1.0}
    with pytest.raises(ConfigError, match="schema is not a JSON Schema"):
        reward("json", schema={"type": "objekt"})
    elsewhere = score(reward("json", schema={"$ref": "http://localhost:1/x"}), "{}")
    assert "the schema cannot be applied" in (elsewhere.failure or "")
    checked.close()
    slow.close()


def test_regex_sees_the_raw_text_and_keeps_its_worker() -> None:
    tagged = reward("regex", pattern="^<think>.*</think>$")
    texts = ["<think>a</think>", "<THINK></THINK>", "a", "\ud83d", ""]
    assert [score(tagged, text).value for text in texts] == [1, 1, 0, 0, 0]
    assert score(reward("regex", pattern="A", case_sensitive=True), "a").value == 0
    tagged.close()


def test_regex_that_backtracks_is_worth_nothing_and_counted() -> None:
    evil = reward("regex", pattern=r"^(\w+\s?)*$")
    began = time.monotonic()
    got = score(evil, "word " * 30 + "!")
    assert time.monotonic() - began < 4  # a hang guard: 0.5 s and the start of a worker
    assert (got.value, got.logs) == (0.0, {"timeout": 1.0})
    assert score(evil, "word word").value == 1
    evil.close()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("[a-", r"unterminated character set at position 0\n    \[a-\n    \^"),
        ("ab(?P<n>a)(?P<n>b)", "at position 14"),
        ("", "an empty pattern matches every text"),
        ("a{99999999999}", "not a usable regular expression"),
        ("x(?i)y", "global flags not at the start"),
    ],
)
def test_patterns_that_cannot_work(pattern: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reward("regex", pattern=pattern)
