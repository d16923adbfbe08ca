"""The reader of numbers in text: one reader for completions and references.

It reads the last number as it is printed: sign, currency, grouped thousands, decimals, exponents (kept as exponents,
never expanded), decimal digits of any script. It refuses to compute: fractions, powers and roots are not plain
numbers, and a text that ends in one has no number here. Dates, clock times, versions and digits inside a word are
passed over. Values are exact (digits and an exponent), so nothing is lost to floats, and cost is linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal

from dragonet.rewards.normalise import INVISIBLE, UNSPACED

__all__ = ["Number", "Reading", "equal", "read", "unusable"]

_DASHES = "-‐‑‒–—―−﹣－"
_DASH = "\\-\u2010-\u2015\u2212\ufe63\uff0d"
_CURRENCY = "$¢£¤¥֏؋৲৳৻૱௹฿៛﷼\u20a0-\u20c0\ufe69\uff04\uffe0\uffe1\uffe5\uffe6"
_GROUPING = {",", "'", "’", "ʼ", "\u00a0", "\u2007", "\u2009", "\u202f", "{,}", ",\\!", "\\,", "\\!"}
_SLASHES = "/⁄∕"
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_VULGAR = "¼-¾⅐-⅞↉"
_LETTER = rf"[^\W\d_{UNSPACED}]"

_JOIN = rf"(?:\{{,\}}|,\\!|\\[,!]|[.,'’ʼ{_SLASHES}:^_\u00a0\u2007\u2009\u202f{_DASH}])"
# A run is digits and single joiners, taken whole and never given back, so that no text is scanned twice.
_TOKEN = re.compile(
    rf"(?<![0-9])(?<![0-9]\.)(?:(?<!{_LETTER})(?<!{_LETTER}_)|(?<=USD)|(?<=EUR)|(?<=GBP)|(?<=JPY)|(?<=CNY)|(?<=INR)|(?<=CHF)|(?<=Rs))"
    rf"(?P<run>[0-9]++(?:{_JOIN}[0-9]++)*+)"
    rf"(?:[eE](?P<e>[+{_DASH}]?[0-9]++)(?![^\W_])"
    rf"|\s?(?:[×x*·⋅]|\\times|\\cdot)\s?10(?:\^\{{?(?P<power>[+{_DASH}]?[0-9]++)\}}?|(?P<raised>[⁺⁻]?[{_SUPERSCRIPTS}]++)))?"
)
_SPLIT = re.compile(f"({_JOIN})")
# After a digit, a word or a bracket it is a hyphen or an operator.
_SIGN = re.compile(
    rf"(?<![\w)\]}}%°{_DASH}])(?<![0-9][{_CURRENCY}])"
    rf"(?P<sign>[+{_DASH}])(?:(?:[A-Z]{{0,3}}\\?[{_CURRENCY}]|USD|EUR|GBP|JPY|CNY|INR|CHF|Rs)\s?)?\Z"
)
_UNSPACED_SIGN = re.compile(rf"[{UNSPACED}](?P<sign>[+{_DASH}])\Z")
_PASSED_OVER = re.compile(rf"(?:\^\{{?[+{_DASH}]?|_\{{)\Z")  # exponents of units, indices
_NOT_PLAIN = re.compile(
    rf"(?:\\[dtc]?frac\s?\{{?|\}}\s?\{{|\\sqrt\s?(?:\[[0-9]+\])?\{{?|√\(?|[0-9)}}]\s?[{_SLASHES}÷]\s?)[+{_DASH}]?\Z"
)
_NOT_PLAIN_AFTER = re.compile(rf"\^(?!\{{?\\?circ)|[{_SUPERSCRIPTS}⁻]|[{_VULGAR}]")
_HALF_DAY = re.compile(r"\s?[ap]\.?m\b", re.IGNORECASE)
_HEXADECIMAL = re.compile(r"[xX][0-9a-fA-F]")
_LEADING_POINT = re.compile(rf"(?<![0-9.)\]}}])(?<!{_LETTER})\.\Z")
_SPACED_RANGE = re.compile(rf"[0-9%]\s+[{_DASH}]\s*\Z")
_FOLD = {"．": ".", "－": "-", "＋": "+", "٫": ".", "٬": ","} | dict.fromkeys(INVISIBLE)
_ENDINGS = dict.fromkeys(_SLASHES, "a fraction") | {"^": "a power", "_": "a number with underscores"}
_PARTS = dict.fromkeys([*_GROUPING, "."], "a list or a decimal comma") | {":": "a ratio"}
_KEPT_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Number:
    """sign x digits x 10^exponent, exactly; `digits` has no zeros at either end and is empty for zero."""

    negative: bool
    digits: str
    exponent: int

    @property
    def whole(self) -> bool:
        return self.exponent >= 0

    @property
    def magnitude(self) -> int:
        """The power of ten of the first digit."""
        return self.exponent + len(self.digits)

    def __str__(self) -> str:
        return f"{'-' if self.negative else ''}{self.digits or '0'}e{self.exponent}"


@dataclass(frozen=True, slots=True)
class Reading:
    """The last number of a text, or what stands in its place; `part_of` says what a number was taken out of.

    `final`: what stands in its place is an answer, though not a plain number, so nothing before it counts.
    """

    number: Number | None = None
    instead: str | None = None
    part_of: str | None = None
    final: bool = False


def read(text: str) -> Reading:
    """Return the last number of a text."""
    text = _plain(text)
    recent = deque(_TOKEN.finditer(text), maxlen=_KEPT_TOKENS)
    reading = _latest(text, recent)
    if reading.number is None and not reading.final and len(recent) == _KEPT_TOKENS:
        reading = _latest(text, list(_TOKEN.finditer(text)))
    return reading


def equal(answer: Number, reference: Number, tolerance: float | None) -> bool:
    """Whole numbers are equal when identical; others, and all with a `tolerance`, when close to the reference."""
    if answer == reference:
        return True
    if tolerance is None and answer.whole and reference.whole:
        return False
    if not answer.digits or not reference.digits or abs(answer.magnitude - reference.magnitude) > 20:
        # relative to 0 nothing is close, and with a tolerance below 1 nothing is close to 0
        return False
    shift, context = reference.magnitude, Context(prec=60)
    a, r = (
        Decimal(f"{'-' if n.negative else ''}{n.digits}e{n.exponent - shift}", context) for n in (answer, reference)
    )
    limit = context.multiply(abs(r), Decimal(repr(1e-6 if tolerance is None else tolerance)))
    return context.subtract(a, r).copy_abs() < limit


def unusable(reference: str) -> str | None:
    """Say why a reference cannot be used, or None."""
    if not reference.strip():
        return "is empty"
    reading = read(reference)
    what = reading.part_of or reading.instead
    if what:
        return f"is {what}, not a plain number"
    return "holds no number" if reading.number is None else None


def _plain(text: str) -> str:
    """Return the text with ASCII digits and signs, without invisible characters."""
    if text.isascii():
        return text
    table = {}
    for c in set(text):
        if c in _FOLD:
            table[ord(c)] = _FOLD[c]
        elif c.isdecimal():
            table[ord(c)] = str(unicodedata.decimal(c))
    return text.translate(table)


def _latest(text: str, tokens: Iterable[re.Match[str]]) -> Reading:
    """Walk back from the last token to the first that is a number or blocks the way."""
    passed: str | None = None
    for token in reversed(list(tokens)):
        pieces = _SPLIT.split(token["run"])
        tail = True  # whether the piece at the end of the run is still there
        if _HALF_DAY.match(text, token.end()):
            del pieces[-2:]
            passed, tail = passed or "a clock time", False
        elif pieces == ["0"] and _HEXADECIMAL.match(text, token.end()):
            del pieces[-2:]
        while pieces:
            skipped = _skipped(pieces)
            if skipped is None:
                reading = _assemble(text, token, pieces, tail)
                if reading.number or reading.final:
                    return reading
                skipped = reading.instead, len(pieces)
            passed, tail = passed or skipped[0], False
            del pieces[-skipped[1] - 1 :]
    return Reading(instead=passed)


def _skipped(pieces: list[str]) -> tuple[str | None, int] | None:
    """Say which date, time or version ends the run, and of how many pieces it is made."""
    if len(pieces) < 3:
        return None
    marks, last = pieces[-2:-8:-2], pieces[-1]
    if marks[0] == ":" or (marks[0] == "." and marks[1:] == [":", ":"]):
        size = 7 if marks[0] == "." else 5 if marks[1:2] == [":"] else 3
        clock = pieces[-size::2][:3]
        if len(clock[0]) <= 2 and int(clock[0]) <= 24 and all(len(p) == 2 and p < "60" for p in clock[1:]):
            return "a clock time", size
    if len(marks) < 2 or marks[0] != marks[1]:
        return None
    first, second = pieces[-5], pieces[-3]
    dated = marks[0] in "/." or marks[0] in _DASHES
    if dated and (_is_date(first, second, last) or _is_date(last, second, first)):
        return "a date", 5
    if marks[0] == ".":
        at = len(pieces) - 1
        while at and pieces[at - 1] == ".":
            at -= 2
        return "a version or an address", len(pieces) - at
    return None


def _is_date(year: str, a: str, b: str) -> bool:
    if len(year) not in (2, 4) or not (len(a) <= 2 and len(b) <= 2):
        return False
    return 1 <= int(a) <= 31 and 1 <= int(b) <= 31 and (int(a) <= 12 or int(b) <= 12)


def _assemble(text: str, token: re.Match[str], pieces: list[str], tail: bool) -> Reading:
    """Read the number at the end of a run; `tail` says whether it is also the end of the token."""
    at = len(pieces) - 1
    mark = pieces[at - 1] if at else ""
    if mark in _ENDINGS:
        return Reading(instead=_ENDINGS[mark], final=True)
    exponent = _exponent(text, token) if tail else 0
    if isinstance(exponent, str):
        return Reading(instead=exponent, final=True)
    fraction = ""
    if mark == ".":
        fraction, at = pieces[at], at - 2
    before = text[max(0, token.start() - 24) : token.start()]
    point = bool(_LEADING_POINT.search(before))
    first = _group_start(pieces, at, point)
    whole = "".join(pieces[first : at + 1 : 2])
    if first:
        joined = _PARTS.get(pieces[first - 1], "a range")
        return Reading(_number(False, whole, fraction, exponent), part_of=joined)
    if _PASSED_OVER.search(before):
        return Reading()
    if _NOT_PLAIN.search(before):
        return Reading(instead="a fraction or a root", final=True)
    if point and fraction:
        return Reading(instead="a version or an address")
    if point:
        whole, fraction, before = "", whole, before[:-1]
    sign = _SIGN.search(before) or _UNSPACED_SIGN.search(before)
    negative = sign is not None and sign["sign"] != "+"
    part_of = "a range or a difference" if sign is None and _SPACED_RANGE.search(before) else None
    return Reading(_number(negative, whole, fraction, exponent), part_of=part_of)


def _exponent(text: str, token: re.Match[str]) -> int | str:
    """Return the power of ten written after a token, or what follows it that makes it no plain number."""
    written = token["e"] or token["power"] or token["raised"]
    if written is None:
        after = _NOT_PLAIN_AFTER.match(text, token.end())
        return ("a power" if after[0] in "^⁻" + _SUPERSCRIPTS else "a fraction") if after else 0
    if len(written) > 16:
        return "a number too large to be compared"
    digits = int("".join(str(unicodedata.digit(c)) for c in written if c.isdigit()))
    return digits if written[0].isdigit() or written[0] in "+⁺" else -digits


def _group_start(pieces: list[str], at: int, point: bool) -> int:
    """Return where the integer part that ends at `at` begins: earlier when strict groups of three lead up to it."""
    if at < 2 or len(pieces[at]) != 3 or pieces[at - 1] not in _GROUPING:
        return at
    separator, start = pieces[at - 1], at
    while start >= 2 and pieces[start - 1] == separator:
        start -= 2
    lead = pieces[start]
    strict = len(lead) <= 3 and lead[0] != "0" and all(len(p) == 3 for p in pieces[start + 2 : at : 2])
    free = not point if start == 0 else pieces[start - 1] != "."
    return start if strict and free else at


def _number(negative: bool, whole: str, fraction: str, exponent: int) -> Number:
    digits = (whole + fraction).lstrip("0")
    short = digits.rstrip("0")
    if not short:
        return Number(False, "", 0)
    return Number(negative, short, exponent - len(fraction) + len(digits) - len(short))
