"""Prompts as JSON and back, equal: what a run keeps as data/train.jsonl and data/eval.jsonl.

Pure functions; writing the file is the run folder's work. JSON has no place for a number's text or for infinity, so
these stand beside the row, by their path in it, and the lines stay readable for every other tool.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from dragonet.data.values import LiteralFloat, number_text
from dragonet.errors import DataError
from dragonet.types import Prompt

__all__ = ["prompt_from_json", "prompt_to_json", "prompts_from_jsonl", "prompts_to_jsonl"]

Path = tuple[str | int, ...]


def prompt_to_json(prompt: Prompt) -> dict[str, Any]:
    """Return the prompt as a mapping that strict JSON can hold; raises DataError for a value that it cannot."""
    literals: list[list[Any]] = []
    result = {
        "index": prompt.index,
        "messages": [_encode(message, ("messages", i), literals) for i, message in enumerate(prompt.messages)],
        "reference": prompt.reference,
        "row": _encode(prompt.row, ("row",), literals),
    }
    return {**result, "literals": literals} if literals else result


def prompt_from_json(data: Mapping[str, Any]) -> Prompt:
    """Return the prompt that `prompt_to_json` wrote; raises DataError for anything else."""
    try:
        literals = {tuple(path): text for path, text in data.get("literals", ())}
        return Prompt(
            messages=tuple(_decode(m, ("messages", i), literals) for i, m in enumerate(data["messages"])),
            reference=data["reference"],
            row=_decode(data["row"], ("row",), literals),
            index=data["index"],
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"this is no prompt as dragonet writes it: {error}") from None


def prompts_to_jsonl(prompts: Iterable[Prompt]) -> str:
    """Return one line per prompt."""
    return "".join(json.dumps(prompt_to_json(p), ensure_ascii=False, allow_nan=False) + "\n" for p in prompts)


def prompts_from_jsonl(text: str, where: str = "the prompts") -> list[Prompt]:
    """Read what `prompts_to_jsonl` wrote; raises DataError naming the line."""
    prompts = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            prompts.append(prompt_from_json(json.loads(line)))
        except json.JSONDecodeError as error:
            raise DataError(f"{where}, line {number}, column {error.colno}: {error.msg}") from None
        except DataError as error:
            raise DataError(f"{where}, line {number}: {error}") from None
    return prompts


def _encode(value: Any, path: Path, literals: list[list[Any]]) -> Any:
    if isinstance(value, float):
        plain = float(value)
        finite = math.isfinite(plain)
        if not finite or (isinstance(value, LiteralFloat) and value.text != repr(plain)):
            literals.append([list(path), number_text(value)])
        return plain if finite else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {key: _encode(item, (*path, key), literals) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(item, (*path, i), literals) for i, item in enumerate(value)]
    raise DataError(f"{'/'.join(map(str, path))} holds a {type(value).__name__}, which JSON cannot hold")


def _decode(value: Any, path: Path, literals: Mapping[Path, str]) -> Any:
    if path in literals:
        return LiteralFloat(literals[path])
    if not literals:
        return value
    if isinstance(value, dict):
        return {key: _decode(item, (*path, key), literals) for key, item in value.items()}
    if isinstance(value, list):
        return [_decode(item, (*path, i), literals) for i, item in enumerate(value)]
    return value
