"""Templates: what they render and how a bad one is answered."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragonet.data.templates import Column, Template, parse_template
from dragonet.errors import DataError

COLUMNS = ("question", "answer", "odd name", "{braced}")


def render(text: str, **row) -> str:
    return parse_template(text, COLUMNS, "prompt").render(row)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("question", "6 x 7"),
        ("{question}", "6 x 7"),
        ("Q: {question}\nA: {answer}", "Q: 6 x 7\nA: 42"),
        ("{question}{answer}{question}", "6 x 7426 x 7"),
        ("{{{question}}}", "{6 x 7}"),
        ("{{}} {question} }}", "{} 6 x 7 }"),
        ('{{"a": "{answer}"}}', '{"a": "42"}'),
        ("{ question }", "6 x 7"),
    ],
)
def test_rendering(text: str, expected: str) -> None:
    assert render(text, question="6 x 7", answer=42) == expected


def test_values_are_never_read_as_templates() -> None:
    assert render("{question} {answer}", question="{answer} {{", answer="}") == "{answer} {{ }"


def test_a_column_name_wins_over_everything() -> None:
    assert parse_template("{braced}", COLUMNS, "prompt").parts == (Column("{braced}"),)
    assert parse_template("odd name", COLUMNS, "prompt").column == "odd name"
    assert render("{odd name}!", **{"odd name": "x"}) == "x!"


def test_blanks_leave_a_gap_and_nothing_when_all_are_blank() -> None:
    assert render("Q: {question} ({answer})", question="x") == "Q: x ()"
    assert render("Q: {question} ({answer})") == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{qestion}", r"the brace at character 1 .* unknown column 'qestion'; did you mean 'question'\?"),
        ("Q: {zzz}", "unknown column 'zzz'; known: answer, odd name, question, {braced}"),
        ("qestion", r"'qestion' is neither a column nor text .* '\{question\}'; did you mean 'question'\?"),
        ("Answer: {question", "the brace at character 9 .* is never closed; write {{ for a literal brace"),
        ("{question {answer}", "the brace at character 1 .* is never closed"),
        ("{question}}", "the brace at character 11 .* closes nothing; write }} for a literal brace"),
        ("a } b", "the brace at character 3 .* closes nothing"),
        ("{}", "names no column"),
        ("{question!r}", "unknown column 'question!r'; did you mean 'question'.*; for literal braces write {{ and }}"),
        ('{"a": 1} {question}', "for literal braces write"),
        ("one\ntwo {x}", r"in 'one\\ntwo \{x\}'"),
    ],
)
def test_bad_templates_say_what_and_where(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        parse_template(text, COLUMNS, "reference")
    assert str(caught.value).startswith("reference")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(), st.text())
def test_escaped_text_comes_back_as_it_was(before: str, after: str) -> None:
    escaped = [part.replace("{", "{{").replace("}", "}}") for part in (before, after)]
    template = parse_template("{question}".join(escaped), ("question",), "prompt")
    assert template.render({"question": "{x}"}) == before + "{x}" + after


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet="{}ab "))
def test_any_text_is_read_or_refused_by_a_message(text: str) -> None:
    try:
        template = parse_template(text, ("a", "b"), "prompt")
    except DataError:
        return
    assert isinstance(template, Template)
    literal = "".join(part for part in template.parts if isinstance(part, str))
    names = sum(isinstance(part, Column) for part in template.parts)
    if text not in ("a", "b"):
        # each literal brace was written twice, each column brought a pair of its own
        assert text.count("{") == 2 * literal.count("{") + names
        assert text.count("}") == 2 * literal.count("}") + names
