"""One way of making two texts comparable, used by every reward that compares text.

`fold` makes spelling variants equal (Unicode form, case, blanks, curly quotes), `canonical` also drops what wraps an
answer (one pair of quotes or emphasis, a final stop), `edged` finds a text at word edges. It refuses to know what is
scored. Cost is linear in the text whatever it holds: long runs of combining marks, which make a plain normalisation
quadratic, are sorted here instead. Unicode normalisation: UAX #15; caseless matching: Unicode core specification 3.13.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["EDGES", "INVISIBLE", "UNSPACED", "canonical", "edged", "fold", "join_groups"]

INVISIBLE = "\ufeff\u200b\u200c\u200d\u200e\u200f\u061c\u00ad\u2060\u2061\u2062\u2063\u2064\u180e" + "".join(
    map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
)
"""Byte order mark, zero-width characters and direction marks."""

_BLANKS = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
EDGES = _BLANKS + INVISIBLE
"""What is trimmed from both ends of a text."""

# Letters of these blocks stand next to each other without a space between words (or, in Korean, before particles).
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\u2e80-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua9ff\uaa60-\uaa7f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U0001b000-\U0001b16f\U00020000-\U0003fffd"
)
_MARKS = (  # combining marks of scripts that put spaces between words
    "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u20d0-\u20ff"
)
_QUOTES = str.maketrans("‘’‚‛“”„‟", "''''\"\"\"\"")
_STOPS = ".。．｡"
_CALLS = "!?！？"
_PAIRS = {'"': '"', "'": "'", "«": "»", "‹": "›", "「": "」", "『": "』"}
_LONG_RUN = re.compile(rb"[^\x00]{31,}")
_HIDDEN_MARKS = "\u0f73\u0f75\u0f81"  # of combining class 0 themselves, but made of combining marks


def fold(text: str) -> str:
    """Return the trimmed text with case, Unicode form, blanks and curly quotes made alike. Idempotent."""
    text = text.strip(EDGES)
    if text.isascii():
        text = text.lower()
    else:
        text = unicodedata.normalize("NFC", _decompose(text).casefold()).translate(_QUOTES).strip(EDGES)
    return " ".join(text.split())


def canonical(text: str) -> str:
    """Fold, then drop one pair of wrapping quotes or emphasis and one final stop; never leaves nothing of something."""
    folded = fold(text)
    bare = _without_stop(folded)
    inner = _unwrapped(bare)
    return _without_stop(inner) if bare == folded else inner


def edged(needle: str) -> re.Pattern[str]:
    """Compile a folded text to be searched in folded text: at word edges, and never inside another number."""
    before = _edge(needle[0], "(?<!{})")
    after = _edge(needle[-1], "(?!{})")
    currency = r"[$£¥€₹]"
    if needle[0].isdecimal() or (needle[0] in "$£¥€₹-−+" and needle[1:2].isdecimal()):
        before += r"(?<!\w)" if needle[0] in "-−+" else r"(?<!(?<!\w)[-−])"
        before += rf"(?<!(?<!\w)[-−]{currency})"
    if needle[0].isdecimal():
        before += r"(?<!\d[.,'/])(?<!(?<![\w.])\.)"
    if needle[-1].isdecimal():
        after += r"(?![.,'/]\d)"
    return re.compile(before + re.escape(needle) + after)


def join_groups(text: str) -> str:
    """Put commas for no-break and thin spaces between groups of digits, so that folding does not cut the number."""
    return text if text.isascii() else re.sub(r"(?<=\d)[\u00a0\u2007\u2009\u202f](?=\d{3}(?!\d))", ",", text)


def _edge(end: str, look: str) -> str:
    """Return look-arounds that forbid a word to go on beyond `end`, in scripts that put spaces between words."""
    if not (end.isalnum() or unicodedata.category(end)[0] == "M") or re.match(f"[{UNSPACED}]", end):
        return look.format(r"\d") if end.isdecimal() else ""
    letter = rf"[^\W_{UNSPACED}]"
    joined = f"{letter}_" if look.startswith("(?<") else f"_{letter}"
    return "".join(look.format(part) for part in (letter, r"\d", f"[{_MARKS}]", joined))


def _decompose(text: str) -> str:
    """NFD in linear time: only a long run of combining marks has to be sorted by hand."""
    if text.isascii():
        return text
    plain = text if not any(c in text for c in _HIDDEN_MARKS) else re.sub(f"[{_HIDDEN_MARKS}]", "\u0300", text)
    if _LONG_RUN.search(bytes(map(unicodedata.combining, plain))) is None:
        return unicodedata.normalize("NFD", text)
    letters = text.translate({ord(c): unicodedata.normalize("NFD", c) for c in set(text)})
    classes = bytes(map(unicodedata.combining, letters))
    out, at = [], 0
    for run in re.finditer(rb"[^\x00]{2,}", classes):
        out += [letters[at : run.start()], *sorted(letters[run.start() : run.end()], key=unicodedata.combining)]
        at = run.end()
    return "".join([*out, letters[at:]])


def _without_stop(text: str) -> str:
    if len(text) > 1 and text[-1] in _STOPS and text[-2] not in _STOPS + "…":
        return text[:-1].strip(EDGES) or text
    called = text.rstrip(_CALLS).rstrip(EDGES)
    if len(called) < len(text) and text[-1] in _CALLS and _ends_in_word(called):
        return called
    return text


def _ends_in_word(text: str) -> bool:
    """Whether two letters or more stand at the end; combining marks belong to their letter."""
    letters = 0
    for c in reversed(text[-60:]):
        if c.isalpha():
            letters += 1
        elif unicodedata.category(c)[0] != "M":
            break
    return letters >= 2


def _unwrapped(text: str) -> str:
    stars = len(text) - len(text.lstrip("*"))
    if 1 <= stars <= 3 and len(text) > 2 * stars and text.endswith("*" * stars):
        inner = text[stars:-stars]
        emphasised = not inner.startswith((" ", "*")) and not inner.endswith((" ", "*"))
        return inner if emphasised and "*" * stars not in inner else text
    closing = _PAIRS.get(text[:1])
    if closing is None or len(text) < 3 or not text.endswith(closing):
        return text
    inner = text[1:-1].strip(EDGES)
    rest = re.sub(r"(?<=\w)'(?=\w)", "", inner) if closing == "'" else inner
    return text if not inner or text[0] in rest or closing in rest else inner
