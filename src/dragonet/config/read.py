"""Read a config file into plain values and remember the line of every key; knows no key by name.

YAML is read by the 1.2 core rules where 1.1 surprises: `no`, `on` and `2026-01-01` are text, `1e-5` is a number, `010`
is ten. A key written twice is a problem, not a silent choice. TOML carries no line numbers.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dragonet.config.words import MAX_BITS, KeyPath, brief, name_of, show
from dragonet.errors import ConfigError, did_you_mean

_MAX_NODES = 100_000  # aliases can make a small file unfold without end
_STARTER = "a config has keys, such as `model: smollm2-135m-instruct`"
_TAG = "tag:yaml.org,2002:"
_WORDS = {"~": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where (a key, dotted when printed) and what. `place` is a line or the command line."""

    path: KeyPath
    text: str
    place: str | None = None


@dataclass(slots=True)
class Draft:
    """A config on its way from a file to a RunConfig. `base` is the folder that relative paths start from."""

    name: str
    base: Path
    tree: dict[str, Any]
    places: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def report(self, path: KeyPath, text: str) -> None:
        """Note a problem, at the place of the key or of the nearest key around it."""
        around = (path[:n] for n in range(len(path), -1, -1))
        self.problems.append(Problem(path, text, next((self.places[p] for p in around if p in self.places), None)))


class _Loader(yaml.SafeLoader):
    """Composes nodes; what unquoted text stands for is decided by _SCALARS alone."""


_Loader.yaml_implicit_resolvers = {}


_SCALARS = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN", "-+."),
)
for _kind, _pattern, _first in _SCALARS:
    _starts = ["" if c == "\0" else c for c in _first]
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_pattern})\Z"), _starts)


def reads_as_text(text: str) -> bool:
    """Whether unquoted text stays text under the rules of this file."""
    return not any(re.fullmatch(pattern, text) for _, pattern, _ in _SCALARS)


def read_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> Draft:
    """Read a YAML or TOML file, a mapping, or YAML text (a str with a line break)."""
    if isinstance(source, Mapping):
        draft = Draft("config", Path.cwd(), {})
        draft.tree = plain(draft, source)
        return draft
    if isinstance(source, str) and "\n" in source:
        return _read_yaml(source, "config", Path.cwd())
    path = Path(os.path.expanduser(source))
    text = _text_of(path)
    if path.suffix == ".toml":
        return _read_toml(text, str(source), path.absolute().parent)
    return _read_yaml(text, str(source), path.absolute().parent)


def read_value(text: str) -> Any:
    """Read one YAML value, as given on a command line; raises ValueError where it is not YAML."""
    draft = Draft("value", Path.cwd(), {})
    node = _compose(text, "value")
    value = None if node is None else _Builder(draft).build(node, ())
    if draft.problems:
        raise ValueError(draft.problems[0].text)
    return value


def plain(draft: Draft, value: Any, path: KeyPath = ()) -> Any:
    """Copy plain values; report and leave out (as DROPPED) what no key can hold: NaN, objects, text with a NUL."""
    if isinstance(value, Mapping):
        copy = {}
        for key, item in value.items():
            if isinstance(key, str):
                copy[key] = plain(draft, item, (*path, key))
            else:
                draft.report((*path, name_of(key)), f"keys are text, got {show(key)}; put it in quotes")
        return {key: item for key, item in copy.items() if item is not DROPPED}
    if isinstance(value, list | tuple):
        items = [plain(draft, item, (*path, n)) for n, item in enumerate(value)]
        return [item for item in items if item is not DROPPED]
    if isinstance(value, os.PathLike):
        return plain(draft, os.fspath(value), path)
    wrong = None if value is DROPPED else _unfit(value)
    if wrong:
        draft.report(path, wrong)
        return DROPPED
    return value


DROPPED = object()
"""Stands for a value that `plain` reported."""


def _unfit(value: Any) -> str | None:
    """Say why a single value cannot stand in a config."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"expected a finite number, got {value}"
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return f"expected a number below 1e308, got {show(value)}"
    if isinstance(value, str) and "\0" in value:
        return f"the text {brief(value)} holds a NUL character; take it out"
    if isinstance(value, str) and not _encodes(value):
        return f"the text {brief(value)} is not valid Unicode (undecoded bytes, or half a character); write it in UTF-8"
    if value is None or isinstance(value, str | bool | int | float):
        return None
    return f"expected text, a number, true, false, a list or a mapping, got {show(value)}"


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text_of(path: Path) -> str:
    if path.suffix not in (".yaml", ".yml", ".toml"):
        raise ConfigError(f"{path}: a config is a file that ends in .yaml, .yml or .toml")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8 text (byte {exc.start}); save the file as UTF-8") from None
    except FileNotFoundError:
        folder = path.absolute().parent
        if not folder.is_dir():
            raise ConfigError(f"{path}: there is no folder {folder}; check the path") from None
        near = did_you_mean(path.name, (p.name for p in folder.iterdir() if p.suffix in (".yaml", ".yml", ".toml")))
        raise ConfigError(f"{path}: no such file{near or '; check the path'}") from None
    except (OSError, ValueError) as exc:
        raise ConfigError(
            f"{brief(str(path))} cannot be read: {getattr(exc, 'strerror', exc)}; give the path of a config file"
        ) from None


def _read_toml(text: str, name: str, base: Path) -> Draft:
    try:
        tree = tomllib.loads(text)
    except ValueError as exc:  # TOMLDecodeError, or a whole number that Python refuses to read
        raise ConfigError(f"{name}: not valid TOML: {exc}") from None
    if not tree:
        raise ConfigError(
            f'{name}: the file holds no keys; a config has keys, such as `model = "smollm2-135m-instruct"`'
        )
    draft = Draft(name, base, {})
    draft.tree = plain(draft, tree)
    return draft


def _read_yaml(text: str, name: str, base: Path) -> Draft:
    node = _compose(text, name)
    if node is None:
        raise ConfigError(f"{name}: the file is empty; {_STARTER}")
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{name}: expected keys with values, got {_kind_of(node)}; {_STARTER}")
    draft = Draft(name, base, {})
    tree = _Builder(draft).build(node, ())
    draft.tree = plain(draft, tree)
    return draft


def _kind_of(node: yaml.Node) -> str:
    return "a list" if isinstance(node, yaml.SequenceNode) else "a single value"


def _compose(text: str, name: str) -> yaml.Node | None:
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        place = f", line {mark.line + 1}" if mark else ""
        problem = exc.problem or "cannot be read"
        if "\\t" in problem:
            problem = "a tab cannot indent; use blanks"
        elif "another document" in problem:
            problem = "a second document starts; a config is one document"
        raise ConfigError(f"{name}{place}: not valid YAML: {problem}") from None
    except yaml.YAMLError as exc:
        raise ConfigError(f"{name}: not valid YAML: {' '.join(str(exc).split())}") from None
    except RecursionError:
        raise ConfigError(f"{name}: lists or mappings are nested too deeply") from None


class _Builder:
    """Turns nodes into values, since PyYAML's own constructor forgets lines and lets the last duplicate win."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._left = _MAX_NODES

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self._left -= 1
        if self._left < 0 or len(path) > 100:
            raise ConfigError(f"{self._draft.name}: aliases unfold to too many values; write them out")
        self._draft.places.setdefault(path, f"line {node.start_mark.line + 1}")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, n)) for n, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._draft.report(path, f"a key is text, got {_kind_of(key_node)}; put a template in quotes")
                continue
            key = self._scalar(key_node, path)
            if key is DROPPED:
                continue
            here, line = (*path, name_of(key)), f"line {key_node.start_mark.line + 1}"
            if key in values:
                text = f"written twice, first on {self._draft.places[here]}; keep one"
                self._draft.problems.append(Problem(here, text, line))
                continue
            self._draft.places[here] = line
            values[key] = self.build(value_node, here)
        return values

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        text, kind = str(node.value), str(node.tag).removeprefix(_TAG)
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return _WORDS[text.lower()]
            if kind == "int":
                return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
            if kind == "float":
                return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
        except (KeyError, ValueError):
            if kind == "int":  # Python reads no decimal number of more than 4300 digits
                self._draft.report(path, f"expected a number below 1e308, got one of {len(text)} digits")
                return DROPPED
            kind = f"unreadable {kind}"
        if kind != "str":
            self._draft.report(path, f"the tag {node.tag} is not supported; write a plain value")
        return text
