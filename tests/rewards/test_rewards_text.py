"""Comparing text: what normalising makes equal, where words end, and bounded cost."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonet.rewards import reward, score
from dragonet.rewards.normalise import canonical, fold

EQUAL = [
    ("\ufeffLima\u200b", "lima"),
    ("“Lima”", '"Lima"'),
    ("**Lima.**", "Lima"),
    ("**Lima**.", "Lima"),
    ("'Lima'", "Lima"),
    ("*Lima*", "Lima"),
    ("«Lima»", "Lima"),
    ("Lima!", "Lima"),
    ("Lima?!", "Lima"),
    ("Lima .", "Lima"),
    ("San\u00a0 Juan", "san juan"),
    ("cafe\u0301", "CAFÉ"),
    ("STRASSE", "straße"),
    ("北京。", "北京"),
    ("it’s", "it's"),
    ("\u200e Lima \r\n", "Lima"),
]
DIFFERENT = [
    ("C", "C++"),
    ("5", "5!"),
    ("n!", "n"),
    ("...", "!!!"),
    ("Lima...", "Lima.."),
    ('""Lima""', "Lima"),
    ('"a" or "b"', 'a" or "b'),
    ("*2*3*", "2*3"),
    ("* Lima *", "Lima"),
    ("1.5", "15"),
    (".", ""),
    ("Li\u200bma", "Lima"),
]


@pytest.mark.parametrize(("text", "reference"), EQUAL)
def test_exact_spelling_variants(text: str, reference: str) -> None:
    assert score("exact", text, reference=reference).value == 1
    assert score("exact", reference, reference=text).value == 1


@pytest.mark.parametrize(("text", "reference"), DIFFERENT)
def test_exact_keeps_what_carries_meaning(text: str, reference: str) -> None:
    assert canonical(text) != canonical(reference)


@pytest.mark.parametrize("kind", ["exact", "contains"])
@pytest.mark.parametrize(
    ("reference", "reason"), [(None, "is missing"), ("", "is empty"), ("\ufeff \u200b", "is empty")]
)
def test_references_that_are_nothing(kind: str, reference: str | None, reason: str) -> None:
    got = score(kind, "anything", reference=reference)
    assert got.status == "failed"
    assert reason in (got.failure or "")


@given(st.text())
def test_folding_twice_changes_nothing_and_no_text_becomes_nothing(text: str) -> None:
    folded = fold(text)
    assert fold(folded) == folded
    assert bool(canonical(text)) == bool(folded)


@given(st.text(alphabet="a\u0315\u0300\u0f73\u0f71\u0345\u0344\u0308ΐİßﬁ ", max_size=150))
def test_folding_long_runs_of_marks_follows_unicode(text: str) -> None:
    folded = fold(text)
    assert fold(folded) == folded
    assert fold(unicodedata.normalize("NFD", text)) == folded == fold(unicodedata.normalize("NFC", text))


CONTAINS = [
    ("It is Lima.", "lima", 1),
    ("fitted", "fit", 0),
    ("It determines", "MI", 0),
    ("答案是Lima。", "Lima", 1),
    ("ตอบว่ากรุงเทพครับ", "กรุงเทพ", 1),
    ("정답은 서울입니다", "서울", 1),
    ("snake_case", "case", 0),
    ("an _important_ word", "important", 1),
    ("x\u0302y", "x", 0),
    ("कमी", "कम", 0),
    ("It is 15", "5", 0),
    ("It is 3.5", "3", 0),
    ("It is 1,500", "500", 0),
    ("It is 1\u202f500", "1", 0),
    ("It is -5", "5", 0),
    ("It is -$5", "$5", 0),
    ("pages 1-5", "5", 1),
    ("It is .5", "5", 0),
    ("3/4", "3", 0),
    ("It is 5.", "5", 1),
    ("It costs $5, no more", "5", 1),
    ("5% of it", "5", 1),
    ("10-5", "-5", 0),
    ("use C++ here", "C++", 1),
    ('He said "yes."', "Yes", 1),
    ("", "Lima", 0),
]


@pytest.mark.parametrize(("text", "reference", "expected"), CONTAINS)
def test_contains_ends_at_word_edges(text: str, reference: str, expected: int) -> None:
    assert score("contains", text, reference=reference).value == expected


@given(st.text(min_size=1).filter(lambda t: bool(fold(t))), st.text())
def test_contains_finds_what_was_put_in_at_edges(needle: str, rest: str) -> None:
    assert score("contains", f"{rest} | {needle} | {rest}", reference=canonical(needle)).value == 1


def test_keyword_counts_different_words_at_edges() -> None:
    both = reward("keyword", words=["Sum", "total", "sum"], mode="all")
    assert [score(both, t).value for t in ("The sum, or TOTAL.", "totals sum", "summary")] == [1.0, 0.5, 0.0]
    assert score(reward("keyword", words="total"), "in total").value == 1
    assert score(reward("keyword", words=["5"]), "15 or 5.2").value == 0


@pytest.mark.parametrize(
    ("low", "high", "n", "expected"),
    [
        (4, None, 2, 0.5),
        (4, None, 4, 1.0),
        (None, 10, 15, 0.5),
        (None, 10, 20, 0.0),
        (None, 10, 99, 0.0),
        (0, 1, 0, 1.0),
    ],
)
def test_length_falls_in_proportion(low: int | None, high: int | None, n: int, expected: float) -> None:
    assert score(reward("length", min_chars=low, max_chars=high), f" \n{'a' * n}\u200b ").value == expected


@pytest.mark.parametrize(
    "part", ["a\u0315\u0300", "\u0315\u0300", "\u0f73", "*", "'a", '"', "!", " \u200b", "a 5", "5", "ﬁ"]
)
def test_cost_is_bounded(part: str) -> None:
    text = part * (60_000 // len(part))
    began = time.monotonic()
    for kind, keys in (("exact", {}), ("contains", {}), ("keyword", {"words": ["a", "5"], "mode": "all"})):
        assert score(reward(kind, **keys), text, reference="a 5").status == "scored"
    score("exact", "a", reference=text)
    score("contains", text + "b", reference=text)
    assert time.monotonic() - began < 15  # a hang guard: linear takes some 0.5 s
