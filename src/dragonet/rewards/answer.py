"""What part of a completion is the answer: reasoning is cut off, then `answer:` picks.

The answer is what follows the last `</think>`; a reasoning that was begun, by the completion or by the prompt's
template, and not ended leaves none. An answer that is not found is an empty text, which no text reward pays for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from dragonet.errors import ConfigError, did_you_mean
from dragonet.rewards.matching import Matcher
from dragonet.rewards.normalise import EDGES
from dragonet.types import Rollout

__all__ = ["Answer", "after_reasoning"]

_OPEN, _CLOSE = "<think>", "</think>"
_FORMS = ("whole", "after:TEXT", "tag:NAME", "boxed", "last_line", "regex:PATTERN")


def after_reasoning(rollout: Rollout) -> str:
    """Return the completion without its reasoning; empty while the reasoning goes on."""
    _, closed, text = rollout.completion.rpartition(_CLOSE)
    opened = not closed and rollout.prompt_text.rstrip().endswith(_OPEN)
    return "" if opened or _OPEN in text else text


class Answer:
    """One way to pick the answer, from its text. Raises ConfigError for a form that does not exist."""

    def __init__(self, form: str) -> None:
        kind, colon, rest = form.partition(":")
        known = {f.partition(":")[0]: ":" in f for f in _FORMS}
        if kind not in known:
            raise ConfigError(f"answer: there is no {form!r}{did_you_mean(kind, known)} (of {' | '.join(_FORMS)})")
        if known[kind] != bool(colon) or (colon and not rest):
            want = next(f for f in _FORMS if f.partition(":")[0] == kind)
            raise ConfigError(f"answer: write {want!r}, got {form!r}")
        self._matcher: Matcher | None = None
        self._pick: Callable[[str], str] | None = None
        if kind == "regex":
            self._matcher = Matcher(rest, case_sensitive=False, last=True, what="answer: regex")
        elif kind == "after":
            marker = re.compile(re.escape(rest), re.IGNORECASE)
            self._pick = lambda text: _after(marker, text)
        elif kind == "tag":
            self._pick = lambda text: _tagged(rest.strip("<>/ "), text)
        elif kind != "whole":
            self._pick = {"boxed": _boxed, "last_line": _last_line}[kind]

    def of(self, rollouts: Sequence[Rollout]) -> list[str | None]:
        """Return each rollout's answer, "" where there is none, None where finding it took too long."""
        texts = [after_reasoning(rollout) for rollout in rollouts]
        if self._matcher is not None:
            return self._matcher.captured(texts)
        pick = self._pick
        return list(texts) if pick is None else [pick(text) for text in texts]

    def close(self) -> None:
        """End the worker that matches a pattern."""
        if self._matcher is not None:
            self._matcher.close()


def _after(marker: re.Pattern[str], text: str) -> str:
    end = None
    for match in marker.finditer(text):
        end = match.end()
    return "" if end is None else text[end:]


def _tagged(name: str, text: str) -> str:
    end = text.rfind(f"</{name}>")
    start = text.rfind(f"<{name}>", 0, max(end, 0))
    return text[start + len(name) + 2 : end] if start >= 0 else ""


def _last_line(text: str) -> str:
    lines = text.strip(EDGES).splitlines()
    return lines[-1].strip(EDGES) if lines else ""


def _boxed(text: str) -> str:
    """Return what the last \\boxed{...} or \\fbox{...} holds, braces counted; nothing if it is not closed."""
    opening = None
    for match in re.finditer(r"\\(?:boxed|fbox)\s*\{", text):
        opening = match
    if opening is None:
        return ""
    depth = 1
    for brace in re.finditer(r"\\.|[{}]", text[opening.end() :], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return text[opening.end() : opening.end() + brace.start()]
    return ""
