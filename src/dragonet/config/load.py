"""From a file and overrides to a RunConfig, or to one error that lists every problem with its place.

The order: read, expand short forms, rename aliases, make the file's paths absolute, apply overrides, validate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dragonet.config.model import spelled_out
from dragonet.config.names import later, rename_aliases
from dragonet.config.overrides import PLACE, apply_override
from dragonet.config.read import Draft, Problem, read_config, reads_as_text
from dragonet.config.rewards import listed
from dragonet.config.run import RunConfig, values_of
from dragonet.config.schema import known_part, unknown_key
from dragonet.config.values import Conflict, choices, expected, expected_entry, is_text, section_of
from dragonet.config.words import KeyPath, brief, dotted, show
from dragonet.errors import ConfigError, did_you_mean


def load_config(source: str | os.PathLike[str] | Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Read a config and apply `key.sub=value` overrides.

    `source` is a .yaml, .yml or .toml file, a mapping, or YAML text (a str with a line break). Paths in a file count
    from its folder, all others from the working directory. Raises ConfigError, which lists every problem.
    """
    draft = read_config(source)
    _expand(draft.tree)
    rename_aliases(draft)
    _anchor(draft.tree, draft.base)
    for override in overrides:
        apply_override(draft, override)
        _expand(draft.tree)
    _anchor(draft.tree, Path.cwd())
    config = _validate(draft)
    if config is None or draft.problems:
        raise ConfigError(_message(draft))
    config._notices = (*draft.notices, *config.train.notices())
    return config


def resolved_yaml(config: RunConfig) -> str:
    """Write a config as YAML with every value that has an effect; `load_config` reads it back equal."""
    values = values_of(config)
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4096)


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.1 or the rules of `read` would take for something else than text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = reads_as_text(text) and text.isprintable()  # rare line breaks such as U+0085 live in double quotes only
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _quoted)


def _expand(tree: dict[str, Any]) -> None:
    """Spell out short forms, and take a section whose keys are all commented out for an absent one."""
    if "model" in tree:
        tree["model"] = spelled_out(tree["model"])
    if "rewards" in tree:
        tree["rewards"] = listed(tree["rewards"])
    for key in [key for key, value in tree.items() if value is None and _optional_section(key)]:
        del tree[key]


def _optional_section(key: str) -> bool:
    field = RunConfig.model_fields.get(key)
    return field is not None and (section_of(field) is not None or key in ("rewards", "track"))


def _anchor(tree: dict[str, Any], base: Path) -> None:
    """Make relative paths absolute; names of bundled tables, models and built-in templates are left alone."""

    def at(home: Any, key: str, is_path: Callable[[str], bool]) -> None:
        value = home.get(key) if isinstance(home, dict) else None
        if isinstance(value, str) and value and is_path(value):
            home[key] = os.path.abspath(base / os.path.expanduser(value))

    def is_model_path(value: str) -> bool:
        explicit = value in (".", "..") or value.startswith(("./", "../", "~")) or value.endswith(".gguf")
        return explicit or ("/" in value and (base / value).is_dir())

    at(tree, "runs_dir", bool)
    at(tree.get("data"), "source", lambda value: not value.startswith("bundled:"))
    at(tree.get("model"), "id", is_model_path)
    at(tree.get("model"), "chat_template", lambda value: value not in ("auto", "none"))
    rewards = tree.get("rewards")
    for entry in rewards if isinstance(rewards, list) else ():
        at(entry, "file", bool)


def _validate(draft: Draft) -> RunConfig | None:
    """Validate, and once more without the keys that are wrong, so that conflicts among the others show too."""
    wrong: set[KeyPath] = {problem.path for problem in draft.problems}
    seen: set[tuple[KeyPath, str]] = set()
    config: RunConfig | None = None
    for _ in range(2):
        try:
            config = RunConfig.model_validate(draft.tree)
            break
        except ValidationError as exc:
            fields = [e for e in exc.errors() if e["type"] != "conflict"]
            conflicts = [e for e in exc.errors() if e["type"] == "conflict"]
        told = [(*_explain(error), error["type"]) for error in fields]
        around = {path[:n] for path in (*wrong, *(path for path, *_ in told)) for n in range(len(path))}
        for path, text, kind in told:  # a list with a wrong entry needs no second complaint about the list
            if path not in around and (path, "") not in seen and not (path in wrong and kind == "extra_forbidden"):
                seen.add((path, ""))
                wrong.add(path)
                draft.report(path, text)
        for error in conflicts:
            section: KeyPath = error["loc"]
            for conflict in error["ctx"]["conflicts"]:
                paths = [(*section, key) for key in conflict.keys]
                if wrong.isdisjoint(paths) and (paths[0], conflict.text) not in seen:
                    seen.add((paths[0], conflict.text))
                    draft.report(paths[0], conflict.text + _resets(draft, section, conflict, error["ctx"]["conflicts"]))
        for path in wrong:
            _remove(draft.tree, path[:2])
    return config


def _resets(draft: Draft, section: KeyPath, conflict: Conflict, others: Iterable[Conflict]) -> str:
    """Say what to type where an override crosses keys of the file: `(or add data.min_eval=null ...)`."""

    def typed(key: str) -> bool:
        return draft.places.get((*section, key)) == PLACE

    if typed(conflict.keys[0]) or not any(map(typed, conflict.keys[1:])):
        return ""
    keys = [other.keys[0] for other in others if other.keys[1:] == conflict.keys[1:] and not typed(other.keys[0])]
    return f" (or add {' '.join(f'{dotted((*section, key))}=null' for key in keys)})"


def _explain(error: ErrorDetails) -> tuple[KeyPath, str]:
    """Return the key a pydantic error is about and our words for it."""
    loc, value = error["loc"], error["input"]
    known, field = known_part(loc)
    if error["type"] == "extra_forbidden":
        return loc, later(loc, value) or unknown_key(loc)
    if error["type"] == "no_type":
        return loc, error["msg"]
    if field is None:
        return loc, f"expected keys with values, got {show(value)}"
    wanted, rest = expected(field), loc[len(known) :]
    if rest and isinstance(rest[-1], int) and error["type"] != "missing":  # one entry of a list
        known, wanted = (*known, rest[-1]), expected_entry(field, rest[-1])
    words = choices(field)
    if isinstance(value, str) and words:
        soon = later(known, value)
        if soon:
            return known, f"{soon}; now: {', '.join(words)}"
        return known, f"unknown value {brief(value)}{did_you_mean(value[:100], words)}"
    if value is None:
        return known, f"expected {wanted}, got nothing; remove the key to keep the default"
    hint = "; in quotes it is text" if is_text(field) and isinstance(value, bool | int | float) else ""
    return known, f"expected {wanted}, got {show(value)}{hint}"


def _remove(tree: Any, path: KeyPath) -> None:
    for key in path[:-1]:
        tree = tree.get(key) if isinstance(tree, dict) else None
    if isinstance(tree, dict) and path:
        tree.pop(path[-1], None)
    elif isinstance(tree, list):
        tree.clear()


def _message(draft: Draft) -> str:
    """One problem on one line; several under a heading, in the order of the file."""
    problems = sorted(draft.problems, key=_position)
    if len(problems) == 1:
        place = problems[0].place
        where = place if place == "command line" else f"{draft.name}, {place}" if place else draft.name
        return f"{where}: {_line(problems[0])}"
    lines = [f"  {p.place + ': ' if p.place else ''}{_line(p)}" for p in problems]
    return "\n".join([f"{draft.name}: {len(problems)} problems", *lines])


def _line(problem: Problem) -> str:
    return f"{dotted(problem.path)}: {problem.text}" if problem.path else problem.text


def _position(problem: Problem) -> tuple[int, str]:
    place = problem.place or ""
    number = int(place.removeprefix("line ")) if place.startswith("line ") else 10**9
    return number, ".".join(map(str, problem.path))
