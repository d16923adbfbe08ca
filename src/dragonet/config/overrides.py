"""Command-line overrides: `train.max_steps=4`, `rewards.0.weight=2`, `data.prompt={question}`.

A value is a YAML scalar or list. Where the schema takes text the words stand as typed, so `{question}` is a template
and `007` a name. `key=null` takes a key back to its default, also when the file sets it.
"""

from __future__ import annotations

from typing import Any

from dragonet.config.names import alias_at, alias_notice
from dragonet.config.read import DROPPED, Draft, plain, read_value
from dragonet.config.schema import field_at
from dragonet.config.values import is_text
from dragonet.config.words import KeyPath, brief, dotted
from dragonet.errors import ConfigError

PLACE = "command line"
_NOTHING = ("", "~", "null")


def apply_override(draft: Draft, text: str) -> None:
    """Set one `key.sub=value` in the tree, or report what is wrong with it."""
    key, equals, raw = text.partition("=")
    key, raw = key.strip(), raw.strip()
    if not equals or not key or "" in key.split("."):
        raise ConfigError(f"{PLACE}: {brief(text)}: an override is written key=value, such as train.max_steps=4")
    path: KeyPath = tuple(int(part) if part.isdecimal() and len(part) < 10 else part for part in key.split("."))
    alias = alias_at(path)
    written, path = path, alias.target if alias else path
    for old in [p for p in draft.places if p[: len(path)] == path]:
        del draft.places[old]
    draft.places[path] = PLACE
    value = plain(draft, _value(draft, path, raw), path)
    if value is DROPPED:
        return
    if alias:
        draft.notices.append(alias_notice(written, alias, value))
    _put(draft, path, value)


def _value(draft: Draft, path: KeyPath, raw: str) -> Any:
    field = field_at(path)
    quoted = len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "\"'"
    if field is not None and is_text(field) and not quoted and raw not in _NOTHING:
        return raw
    try:
        value = read_value(raw)
    except (ConfigError, ValueError):
        return raw  # such as the pattern [0-9]+, which opens a YAML list and never closes it
    template = isinstance(value, dict) and all(item is None for item in value.values())
    return raw if template or (isinstance(value, str) and not quoted) else value


def _put(draft: Draft, path: KeyPath, value: Any) -> None:
    home: Any = draft.tree
    for n, key in enumerate(path):
        here = path[: n + 1]
        if isinstance(home, list):
            if not isinstance(key, int) or key >= len(home):
                last = f"0 to {len(home) - 1}" if home else "none, the list is empty"
                draft.report(path, f"no entry {dotted((key,))} in {dotted(path[:n])}; there are: {last}")
                return
        elif not isinstance(home, dict):
            draft.report(path, f"{dotted(path[:n])} holds a single value, so it has no key {brief(str(key))}")
            return
        if here == path:
            break
        if isinstance(home, dict):
            key = str(key)
            home.setdefault(key, {})
        home = home[key]
    key = path[-1]
    if isinstance(home, list):
        home[int(key)] = value
    elif value is None and _resets(path):
        home.pop(str(key), None)
    else:
        home[str(key)] = value


def _resets(path: KeyPath) -> bool:
    return field_at(path) is not None or path[0] == "rewards"
