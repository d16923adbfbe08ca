"""The reader of numbers: a table by hand, properties for any text, and bounded cost."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonet.rewards import reward, score
from dragonet.rewards.numbers import Number, equal, read, unusable

READ = {
    # signs
    "-$5": -5, "−$3.50": Fraction(-7, 2), "$-5": -5, "-US$5": -5, "- $5": 5, "(−5)": -5, "+5": 5, "x=-5": -5,
    "答案是-5": -5, "10-12": 12, "297–348": 348, "5€-10€": 10, "x-5": 5, "total—42": 42, "5%-10%": 10, "--5": 5,
    "3 - -4": -4, "(3)-5": 5,
    # grouping
    "1,234.50": Fraction(2469, 2), "12\u202f345": 12345, "12\u00a0345": 12345, "1'234'567": 1234567, "1’234": 1234,
    "1{,}234": 1234, "$1,234,567.89": Fraction(123456789, 100), "1,2,3": 3, "(3,4)": 4, "0,1": 1, "12,34": 34,
    "007,123": 123, "1234,567": 567, "1,2345": 2345, "1.234,56": 56, "12 345": 345, "1,234, 5,678": 5678,
    # decimals and exponents
    ".5": Fraction(1, 2), "-.5": Fraction(-1, 2), "...5": 5, "No.5": 5, "5.": 5, "1e5": 100000, "1E+03": 1000,
    "2.5e−3": Fraction(1, 400), "6.02 × 10^23": 602 * 10**21, "3\\times 10^{-2}": Fraction(3, 100), "2×10⁵": 200000,
    "12em": 12,
    # signs of money and share, units, marks
    "50%": 50, "5 €": 5, "12km": 12, "2nd": 2, "45^\\circ": 45, "**42**": 42, "_42_": 42, "\\boxed{42}": 42,
    "#### 42": 42, "USD42": 42, "42!": 42,
    # digits of any script, invisible marks
    "١٢٬٣٤٥٫٥": Fraction(24691, 2), "１２３": 123, "\u200e42": 42, "-\u200b5": -5,
    # passed over
    "9 m2": 9, "9 cm^2": 9, "7 at 12:30": 7, "7 on 2024-03-05": 7, "7 (05.03.2024)": 7, "7, from v1.2.3": 7,
    "7 at 5 pm": 7, "7 (0x1F)": 7, "7 H_2O": 7, "7 x_{12}": 7, "12,2024-03-05": 12, "7 at 2024-03-05T10:00:00Z": 7,
    "7 " + "1:30 " * 99: 7,
}  # fmt: skip

NOT_PLAIN = [
    "",
    "no",
    "1/2",
    "3 1/2",
    "3½",
    "\\frac{1}{2}",
    "\\frac12",
    "\\frac{\\sqrt{2}}{2}",
    "\\sqrt{2}",
    "√2",
    "2^10",
]
NOT_PLAIN += ["10²", "84 / 2", "- . , -", "²", "inf", "nan", "1_000", "1e" + "9" * 40]

UNUSABLE = {
    "": "is empty",
    " ": "is empty",
    "ten": "holds no number",
    "1/2": "is a fraction",
    "10-12": "is a range",
    "10 – 12": "is a range or a difference",
    "2024-03-05": "is a date",
    "12:30": "is a clock time",
    "3 p.m.": "is a clock time",
    "2^10": "is a power",
    "1,5": "is a list or a decimal comma",
    "3:4": "is a ratio",
    "1.2.3": "is a version or an address",
}


def value(number: Number | None) -> Fraction | None:
    if number is None:
        return None
    return Fraction(-1 if number.negative else 1) * int(number.digits or "0") * Fraction(10) ** number.exponent


@pytest.mark.parametrize(("text", "expected"), READ.items())
def test_what_is_read(text: str, expected: int | Fraction) -> None:
    assert value(read(text).number) == expected


@pytest.mark.parametrize("text", NOT_PLAIN)
def test_what_is_no_plain_number(text: str) -> None:
    assert read(text).number is None
    assert score("numeric", text, reference="2").value == 0


@pytest.mark.parametrize(("reference", "reason"), UNUSABLE.items())
def test_references_that_cannot_be_used(reference: str, reason: str) -> None:
    assert (unusable(reference) or "").startswith(reason)
    got = score("numeric", "5", reference=reference)
    assert got.status == "failed"
    assert got.failure is not None
    assert ("math reward" in got.failure) == (reason != "is empty")


@pytest.mark.parametrize(
    "reference", ["#### -3", "He ate 1/2 of 10-12 pies on 2024-03-05.\n#### 7", "$1,000.00", "1e+05"]
)
def test_references_that_can_be_used(reference: str) -> None:
    assert unusable(reference) is None


@pytest.mark.parametrize(
    ("answer", "reference", "tolerance", "expected"),
    [
        ("9007199254740993", "9007199254740992", None, False),
        ("1e400", "2e400", None, False),
        ("1e999999999999", "10e999999999998", None, True),
        ("42.0000001", "42", None, True),
        ("42.0001", "42", None, False),
        ("41.9", "42", 0.01, True),
        ("41", "42", 0.01, False),
        ("-42", "42", 0.99, False),
        ("0.0000001", "0", None, False),
        ("0", "1e-9", 0.5, False),
        ("3", "2", 0.5, False),  # the difference must stay below
        ("2.5", "2.5", 0.0, True),
        ("1e-400", "1.0000001e-400", None, True),
    ],
)
def test_equality(answer: str, reference: str, tolerance: float | None, expected: bool) -> None:
    a, r = read(answer).number, read(reference).number
    assert a is not None
    assert r is not None
    assert equal(a, r, tolerance) is expected


@given(st.text() | st.text(alphabet="0123456789.,-−–/:^_eE %$€{}\\½²x\u202f'"))
def test_any_text_is_read_without_an_error(text: str) -> None:
    number = read(text).number
    if number is not None:
        assert read(str(number)).number == number  # what it writes, it reads


@given(st.integers())
def test_whole_numbers_survive_every_spelling(n: int) -> None:
    for text in (str(n), f"{n:,}", f"The total is {n:,}.", f"{n:,}".replace(",", "\u202f"), f"{n}.0", f"{n}e0"):
        assert value(read(text).number) == n
    assert score("numeric", f"{n:,} km", reference=str(n)).value == 1
    assert score("numeric", str(n + 1), reference=str(n)).value == 0


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_decimals_are_exact(d: object) -> None:
    assert value(read(f"{d:f}").number) == Fraction(f"{d}")


HOSTILE = [
    "1",
    "1,",
    "1 ",
    ",234",
    "1:00:",
    "1e",
    "2024-03-05-",
    "1×10",
    "٣",
    "-",
    ".1",
    "^1",
    "\\frac",
    "{,}111",
    "1/",
    "½",
]


@pytest.mark.parametrize("part", HOSTILE)
def test_cost_is_bounded(part: str) -> None:
    text = "1" + part * (100_000 // len(part)) + "2345"
    began = time.monotonic()
    read(text)
    score("numeric", "5", reference=text)
    assert time.monotonic() - began < 10  # a hang guard: linear takes some 0.1 s


def test_long_text_is_worth_nothing_and_counted() -> None:
    got = score("numeric", "5" * 600_000, reference="5")
    assert (got.value, got.logs) == (0.0, {"timeout": 1.0})
    assert score("json", "5" * 600_000) == got
    assert score("numeric", "0" * 5000 + "7", reference="7").value == 1


def test_the_default_and_the_given_tolerance_are_different_things() -> None:
    assert score(reward("numeric"), "1000001", reference="1000000").value == 0
    assert score(reward("numeric", tolerance=1e-5), "1000001", reference="1000000").value == 1
