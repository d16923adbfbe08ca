"""Rewards about form: regex and json.

regex asks whether a pattern is found in the raw completion. json asks whether the whole answer is one strict JSON
value (RFC 8259), alone or as the one fenced block; nothing is repaired. Depth is no limit: what Python's own parser
refuses as too deep is read here without recursion.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dragonet.errors import ConfigError, MissingExtra
from dragonet.host.pool import Pool
from dragonet.rewards.judge import TOO_LATE, Judge, by_text
from dragonet.rewards.matching import Matcher
from dragonet.rewards.normalise import EDGES
from dragonet.types import Rollout, Score

__all__ = ["json_", "regex", "schema_checker"]

_FENCE = re.compile(r"(`{3,}|~{3,})(?i:json(?!\w))?")
_TOKEN = re.compile(
    r"[ \t\n\r]*+(?:"
    r'(?P<string>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
    r"|(?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)"
    r"|(?P<word>true|false|null)"
    r"|(?P<mark>[\[\]{},:]))"
)
_SCHEMA_LIMIT_S = 1.5


def regex(pattern: str, case_sensitive: bool = False) -> Judge:
    """1 if the pattern is found."""
    matcher = Matcher(pattern, case_sensitive=case_sensitive)

    def score(texts: Sequence[str], rollouts: Sequence[Rollout]) -> list[Score]:
        return [TOO_LATE if found is None else Score(float(found)) for found in matcher.found(texts)]

    return Judge(score, close=matcher.close)


def json_(keys: Sequence[str] = (), schema: Mapping[str, Any] | None = None) -> Judge:
    """1 for strict JSON; with `keys` the share of them that a top-level object has; 0 where `schema` is not met."""
    asked = list(dict.fromkeys(keys))

    def worth(text: str) -> float:
        found = _top_level_keys(_body(text))
        if found is None:
            return 0.0
        return sum(key in found for key in asked) / len(asked) if asked else 1.0

    if schema is None:
        return Judge(by_text(worth))
    _check_schema(schema)
    # a schema may hold patterns, so it meets model text in a worker that can be killed
    pool = Pool("dragonet.rewards.structured:schema_checker", {"schema": schema})
    shape = by_text(worth)

    def score(texts: Sequence[str], rollouts: Sequence[Rollout]) -> list[Score]:
        scores = shape(texts, rollouts)
        promising = [i for i, s in enumerate(scores) if s.value]
        for i, outcome in zip(promising, pool.call([_body(texts[i]) for i in promising], _SCHEMA_LIMIT_S), strict=True):
            if outcome.status == "raised":
                scores[i] = Score(failure=f"the schema cannot be applied: {outcome.detail}")
            elif outcome.value is None:
                scores[i] = TOO_LATE
            elif not outcome.value:
                scores[i] = Score(0.0)
        return scores

    return Judge(score, start=pool.start, close=pool.close)


def schema_checker(schema: Mapping[str, Any]) -> tuple[Callable[[str], bool | None], None]:
    """Return, in a worker, a handler that says whether a JSON text meets a schema; None when it is too deep to say."""
    # an empty registry: a `$ref` to somewhere else is not fetched
    registry = importlib.import_module("referencing").Registry()
    validator = importlib.import_module("jsonschema").validators.validator_for(schema)(schema, registry=registry)

    def handle(text: str) -> bool | None:
        try:
            return bool(validator.is_valid(json.loads(text, parse_constant=_refuse, parse_int=_whole)))
        except RecursionError:
            return None

    return handle, None


def _check_schema(schema: Mapping[str, Any]) -> None:
    try:
        jsonschema = importlib.import_module("jsonschema")
    except ImportError:
        raise MissingExtra("jsonschema", "schema", "the key schema of a json reward") from None
    try:
        jsonschema.validators.validator_for(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        where = "/".join(map(str, error.absolute_path)) or "its top"
        raise ConfigError(f"schema is not a JSON Schema: {error.message} (at {where})") from None


def _body(text: str) -> str:
    """Return the trimmed answer, or the content of the one fenced block that it is."""
    text = text.strip(EDGES)
    fence = _FENCE.match(text)
    if fence is None or len(text) < fence.end() + len(fence[1]) or not text.endswith(fence[1]):
        return text
    return text[fence.end() : -len(fence[1])].strip(EDGES)


def _top_level_keys(text: str) -> Sequence[str] | Mapping[str, Any] | None:
    """Return the keys of a JSON object, nothing for another JSON value, None for what is not JSON."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_int=str)
    except RecursionError:
        return _scan(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else ()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < 4000 else float(digits)  # Python refuses to convert longer ones


def _scan(text: str) -> list[str] | None:
    """Read JSON of any depth with a stack; return like _top_level_keys."""
    keys: list[str] = []
    stack: list[str] = []
    want, at = "value", 0  # value | first (a value or ]) | key | first_key (a key or }) | colon | next
    while True:
        token = _TOKEN.match(text, at)
        if token is None:
            return keys if want == "next" and not stack and not text[at:].strip(" \t\n\r") else None
        at, mark = token.end(), token["mark"]
        if want in ("key", "first_key") and token["string"]:
            if len(stack) == 1:
                keys.append(json.loads(token["string"]))
            want = "colon"
        elif want == "colon" and mark == ":":
            want = "value"
        elif want in ("value", "first") and mark in ("[", "{"):
            stack.append(mark)
            want = "first" if mark == "[" else "first_key"
        elif want in ("value", "first") and mark is None:
            want = "next"
        elif want == "next" and mark == "," and stack:
            want = "value" if stack[-1] == "[" else "key"
        elif stack and mark == {"[": "]", "{": "}"}[stack[-1]] and want in ("next", "first", "first_key"):
            stack.pop()
            want = "next"
        else:
            return None
