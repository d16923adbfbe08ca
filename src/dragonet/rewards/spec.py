"""The table of reward types and their keys, and `reward`, which turns keys into a reward.

Owns every check of a key: unknown, of another type, of the wrong kind, missing. Types that the reward engine brings
are known by name and keys, so that a config written for it gets a clear answer.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonet.errors import ConfigError, UserCodeError, did_you_mean
from dragonet.rewards import custom, structured, text
from dragonet.rewards.answer import Answer
from dragonet.rewards.condition import Condition
from dragonet.rewards.judge import Judge
from dragonet.rewards.shown import shown
from dragonet.rewards.typed import TypedReward

__all__ = ["TYPES", "reward"]

Parse = Callable[[Any], Any]

_MAX_WEIGHT = 1e6


@dataclass(frozen=True, slots=True)
class _Key:
    parse: Parse
    default: Any = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class _Type:
    build: Callable[..., Judge]
    keys: Mapping[str, _Key]
    raw: bool = False  # sees the whole completion, reasoning too, unless `answer` is given
    is_text: bool = True  # takes `answer`


def _text(value: Any) -> str:
    if not isinstance(value, str):
        quoted = f"; in YAML put it in quotes: '{shown(value)}'" if isinstance(value, bool | int | float) else ""
        raise ConfigError(f"must be text, got {shown(value)}{quoted}")
    return value


def _filled(value: Any) -> str:
    if not _text(value).strip() or "\n" in value:
        raise ConfigError(f"must be text on one line, got {shown(value)}")
    return str(value)


def _texts(value: Any) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not values:
        raise ConfigError(f"must be a list of at least one text, got {shown(value)}")
    return tuple(_text(v) for v in values)


def _number(value: Any) -> float:
    if isinstance(value, str):
        raise ConfigError(f"must be a number, got the text {shown(value)} (YAML reads 1e-3 as text; write 1.0e-3)")
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number beyond every float
        pass
    raise ConfigError(f"must be a finite number, got {shown(value)}")


def _weight(value: Any) -> float:
    number = _number(value)
    if abs(number) > _MAX_WEIGHT:
        raise ConfigError(f"must be from -1e6 to 1e6, got {shown(value)}; what counts is how weights compare")
    return number


def _at_least(low: int) -> Parse:
    def parse(value: Any) -> int:
        number = _number(value)
        if number != int(number):
            raise ConfigError(f"must be a whole number, got {shown(value)}")
        if number < low:
            raise ConfigError(f"must be at least {low}, got {shown(value)}")
        return int(number)

    return parse


def _tolerance(value: Any) -> float:
    number = _number(value)
    if not 0 <= number < 1:
        raise ConfigError(f"is a share of the reference (0.01 is one percent) from 0 to below 1, got {shown(value)}")
    return number


def _seconds(value: Any) -> float:
    number = _number(value)
    if number <= 0:
        raise ConfigError(f"must be above 0, got {shown(value)}")
    return number


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"must be true or false, got {shown(value)}")
    return value


def _mode(value: Any) -> str:
    if value not in ("any", "all"):
        raise ConfigError(f"must be any or all, got {shown(value)}")
    return str(value)


def _schema(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"must be a JSON Schema (a mapping), got {shown(value)}")
    return dict(value)


def _path(value: Any) -> str:
    if not isinstance(value, str | Path) or not str(value).strip():
        raise ConfigError(f"must be the path of a Python file, got {shown(value)}")
    if "\0" in str(value):
        raise ConfigError(f"holds a NUL character, which no path can: {shown(value)}")
    return str(Path(os.path.expanduser(value)).absolute())


def _clip(value: Any) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ConfigError(f"must be two numbers [low, high], got {shown(value)}")
    low, high = map(_number, value)
    if low >= high:
        raise ConfigError(f"leaves no room: low {low:g} is not below high {high:g}")
    return low, high


_COMMON = {"weight": _weight, "name": _filled, "answer": _text, "when": _text, "clip": _clip}

_TYPES = {
    "exact": _Type(text.exact, {}),
    "contains": _Type(text.contains, {}),
    "numeric": _Type(text.numeric, {"tolerance": _Key(_tolerance)}),
    "regex": _Type(
        structured.regex, {"pattern": _Key(_text, required=True), "case_sensitive": _Key(_flag, False)}, raw=True
    ),
    "json": _Type(structured.json_, {"keys": _Key(_texts, ()), "schema": _Key(_schema)}),
    "length": _Type(text.length, {"min_chars": _Key(_at_least(0)), "max_chars": _Key(_at_least(1))}, raw=True),
    "keyword": _Type(text.keyword, {"words": _Key(_texts, required=True), "mode": _Key(_mode, "any")}),
    "custom": _Type(
        custom.custom,
        {"file": _Key(_path), "source": _Key(_text), "fn": _Key(_filled, "reward"), "timeout_s": _Key(_seconds, 30.0)},
        raw=True,
        is_text=False,
    ),
}
TYPES = tuple(_TYPES)
"""The types that can be used."""

_WITH_THE_ENGINE = {
    "math": (),
    "command": (
        *("command", "input", "score_from", "min_score", "max_score", "timeout_s"),
        *("suffix", "cwd", "files", "env", "network"),
    ),
    "code": ("tests", "runner", "timeout_s"),
    "model": (),
    "judge": (),
    "remote": (),
}


def reward(type: str, **keys: Any) -> TypedReward:
    """Make a reward from its type and keys; a key that is None counts as not given.

    Raises ConfigError for keys that cannot work, UserCodeError for a reward file that cannot be used.
    """
    if not isinstance(type, str):
        raise ConfigError(f"the type of a reward is text, one of {', '.join(_TYPES)}; got {shown(type)}")
    if type in _WITH_THE_ENGINE:
        raise ConfigError(
            f"the reward type {type!r} comes with the reward engine, which this version does not have; "
            f"available: {', '.join(_TYPES)}"
        )
    if type not in _TYPES:
        raise ConfigError(
            f"there is no reward type {shown(type)}{did_you_mean(type[:100], [*_TYPES, *_WITH_THE_ENGINE])}"
        )
    given = {key: value for key, value in keys.items() if value is not None}
    kind = _TYPES[type]
    for key in given:
        if key not in kind.keys and key not in _COMMON:
            raise ConfigError(f'reward "{type}": {_stray(key, type)}')
    try:
        return _build(type, kind, given)
    except (ConfigError, UserCodeError) as error:
        error.args = (f'reward "{type}": {error}',)
        raise


def _build(type: str, kind: _Type, given: Mapping[str, Any]) -> TypedReward:
    own = {}
    for key, rule in kind.keys.items():
        if rule.required and key not in given:
            raise ConfigError(f"{key} is missing")
        own[key] = _parsed(key, rule.parse, given[key]) if key in given else rule.default
    common = {key: _parsed(key, parse, given[key]) for key, parse in _COMMON.items() if key in given}
    weight, name = common.pop("weight", 1.0), common.pop("name", type)
    picked = common.get("answer", "whole")
    if picked != "whole" and not kind.is_text:
        raise ConfigError("answer belongs to the types that read text; the function sees the raw completion")
    shown = {key: own.get(key, common.get(key)) for key in given if key in own or key in common}
    labels = {"weight": weight, "name": name}
    default = {"weight": 1.0, "name": type} | {key: rule.default for key, rule in kind.keys.items()}
    shown = {key: value for key, value in (shown | labels).items() if default.get(key) != value}
    return TypedReward(
        type=type,
        name=name,
        weight=weight,
        keys=own,
        judge=kind.build(**own),
        answer=None if kind.raw and picked == "whole" else Answer(picked),
        common=common,
        when=Condition.parse(common["when"]) if "when" in common else None,
        shown=tuple((key, list(v) if isinstance(v, tuple) else v) for key, v in shown.items()),
    )


def _parsed(key: str, parse: Parse, value: Any) -> Any:
    try:
        return parse(value)
    except ConfigError as error:
        raise ConfigError(f"{key} {error}") from None


def _stray(key: str, type: str) -> str:
    homes = [name for name, kind in _TYPES.items() if key in kind.keys]
    homes += [name for name, keys in _WITH_THE_ENGINE.items() if key in keys]
    if homes:
        return f"{key} belongs to {' and '.join(homes)}, not to {type}"
    return f"there is no key {shown(key)}{did_you_mean(key[:100], [*_TYPES[type].keys, *_COMMON])}"
