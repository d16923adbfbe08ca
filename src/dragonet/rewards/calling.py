"""Calling a user's reward function, inside a worker: arguments by name, and what its answer means.

Owns the contract of a per-completion function: any subset of the named arguments, sync or async; a finite number is a
score, dragonet.NA abstains, everything else is a failure that says what came instead. Runs in workers only.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragonet.errors import ConfigError, UserCodeError, did_you_mean
from dragonet.host.load import find_function, load_file, load_source, printable, user_traceback
from dragonet.types import NotApplicable

__all__ = ["ARGUMENTS", "serve"]

ARGUMENTS = ("prompt", "completion", "reference", "row", "messages", "transcript")
_BATCH = {"queries", "prompts", "completions", "labels"}


def serve(file: str | None, source: str | None, fn: str) -> tuple[Callable[[dict[str, Any]], list[Any]], list[str]]:
    """Load a function; return a handler of {argument: value} and the names of the arguments it wants.

    The handler answers ["value", number], ["na"] or ["failed", reason]. Raises UserCodeError or ConfigError.
    """
    module = load_file(Path(file)) if file is not None else load_source(source or "", fn)
    function = find_function(module, fn)
    label = f"{fn}() in {Path(module.__file__ or fn).name}"
    by_position, wanted = _arguments(function, label)
    waiter: list[Any] = []  # the loop, made for the first awaitable and kept: clients may be tied to it

    def handle(arguments: dict[str, Any]) -> list[Any]:
        nonlocal waiter
        positional = [arguments.pop(name) for name in by_position]
        try:
            result = function(*positional, **arguments)
            if inspect.isawaitable(result):
                import asyncio

                waiter = waiter or [asyncio.Runner()]
                result = waiter[0].run(_wait(result))
            return _meaning(result, label)
        except BaseException as error:
            return ["failed", f"{label} raised {user_traceback(error, module.__file__ or '')}"]

    return handle, wanted


async def _wait(result: Any) -> Any:
    return await result


def _arguments(function: Any, label: str) -> tuple[list[str], list[str]]:
    """Return the arguments that go by position, and all that are wanted."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise UserCodeError(f"the arguments of {label} cannot be read; write it as a plain function") from None
    by_position: list[str] = []
    wanted: list[str] = []
    for p in parameters:
        if p.kind is p.VAR_KEYWORD:
            return by_position, list(ARGUMENTS)
        if p.kind is p.VAR_POSITIONAL:
            raise UserCodeError(f"{label} takes *{p.name}; name the arguments it wants: {', '.join(ARGUMENTS)}")
        if p.name in ARGUMENTS:
            wanted.append(p.name)
            if p.kind is p.POSITIONAL_ONLY:
                by_position.append(p.name)
        elif p.default is p.empty:
            if p.name in _BATCH:
                raise ConfigError(
                    f"{label} takes {p.name!r}, so it scores a batch; batch functions come with the reward engine, "
                    f"which this version does not have: score one completion, taking any of {', '.join(ARGUMENTS)}"
                )
            raise UserCodeError(
                f"{label} requires {p.name!r}, which no reward is given{did_you_mean(p.name, ARGUMENTS)}; it may take "
                f"any of {', '.join(ARGUMENTS)}"
            )
    return by_position, wanted


def _meaning(result: Any, label: str) -> list[Any]:
    if isinstance(result, NotApplicable):
        return ["na"]
    if result is None:
        return ["failed", f"{label} returned None; is a `return` missing? To abstain, return dragonet.NA"]
    if not isinstance(result, numbers.Number) and callable(getattr(result, "item", None)):
        try:
            result = result.item()  # an array or a tensor of one element
        except Exception as error:
            return ["failed", printable(f"{label} returned {_kind(result)}, not one number: {error}"[:500])]
    if isinstance(result, complex) or not isinstance(result, numbers.Number):
        return ["failed", f"{label} returned {_kind(result)}, not a number: {_shown(result)}"]
    try:
        value = float(result)  # type: ignore[arg-type]
    except Exception as error:
        return ["failed", printable(f"{label} returned {_kind(result)} that is no float: {error}"[:500])]
    if not math.isfinite(value):
        return ["failed", f"{label} returned {value} ({_kind(result)}); a score is a finite number"]
    return ["value", value]


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _shown(value: Any) -> str:
    try:
        return printable(repr(value)[:200])
    except Exception:
        return "(it cannot be shown)"
