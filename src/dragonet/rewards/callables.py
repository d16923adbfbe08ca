"""A Python callable as a custom reward: find the source that a worker, and a run folder, can keep.

A function of an importable module is named by its file. One of the main script, a notebook or another function is cut
out together with the imports, helpers and plain constants it uses. What cannot be written down that way is an error
that says to put the function into a file; nothing is pickled.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from dragonet.errors import UserCodeError

__all__ = ["keys_of"]


def keys_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return the keys (`file` or `source`, `fn`, `name`) of a custom reward that calls this function."""
    name = getattr(function, "__name__", type(function).__name__)
    if not isinstance(function, FunctionType) or not name.isidentifier():
        what = "a lambda" if name == "<lambda>" else f"{name!r}, {type(function).__name__}"
        raise UserCodeError(
            f"{what} cannot be kept as a reward; write a function (def) in a Python file and use "
            'reward("custom", file="my_reward.py", fn="its_name")'
        )
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None)
    if file and function.__module__ != "__main__" and getattr(module, name, None) is function:
        if _installed(file):
            return {"source": f"from {function.__module__} import {name}\n", "fn": name, "name": name}
        return {"file": str(Path(file).resolve()), "fn": name, "name": name}
    return {"source": _Cutting(function).text(), "fn": name, "name": name}


def _installed(file: str) -> bool:
    paths = sysconfig.get_paths()
    return any(Path(file).is_relative_to(paths[key]) for key in ("stdlib", "purelib", "platlib"))


class _Cutting:
    """The lines that one function needs, gathered by following the global names it uses."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._imports: list[str] = []
        self._constants: list[str] = []
        self._definitions: list[str] = []
        self._seen: set[str] = {function.__name__}
        self._define(function, _scope(function))

    def text(self) -> str:
        """Return one Python module."""
        head = ["from __future__ import annotations", *sorted(self._imports), *self._constants]
        return "\n".join(head) + "\n\n\n" + "\n\n".join(self._definitions)

    def _define(self, thing: Any, scope: Mapping[str, Any]) -> None:
        try:
            source = textwrap.dedent(inspect.getsource(thing))
            tree = ast.parse(source)
        except (OSError, TypeError, SyntaxError):
            raise UserCodeError(
                f"the source of {thing.__name__!r} cannot be found (typed into an interpreter, perhaps); put it into a "
                'Python file and use reward("custom", file="my_reward.py", fn=...)'
            ) from None
        inside, around = _names(tree, thing)
        for name in sorted(inside | around):
            if name in around and name not in scope:
                raise UserCodeError(self._unkept(f"{name!r}, a variable of the function around it,"))
            if name not in self._seen and name in scope:
                self._seen.add(name)
                self._keep(name, scope[name])
        self._definitions.append(source)

    def _keep(self, name: str, value: Any) -> None:
        home, real = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if isinstance(value, ModuleType):
            self._imports.append(f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}"))
        elif (inspect.isfunction(value) or inspect.isclass(value)) and home == self._function.__module__:
            self._define(value, _scope(value) if inspect.isfunction(value) else self._function.__globals__)
            if value.__name__ != name:
                self._definitions.append(f"{name} = {value.__name__}\n")
        elif real and home != "__main__" and getattr(sys.modules.get(home or ""), real, None) is value:
            self._imports.append(f"from {home} import {real}" + ("" if real == name else f" as {name}"))
        else:
            self._constants.append(f"{name} = {self._written(name, value)}")

    def _written(self, name: str, value: Any) -> str:
        if isinstance(value, re.Pattern):
            return f"__import__('re').compile({value.pattern!r}, {value.flags})"
        try:
            if ast.literal_eval(repr(value)) == value:
                return repr(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            pass
        raise UserCodeError(self._unkept(f"{name!r} ({type(value).__name__}), which cannot be copied to a worker"))

    def _unkept(self, what: str) -> str:
        name = self._function.__name__
        return (
            f"the reward function {name!r} uses {what}; put the function and what it needs into a Python file and use "
            f'reward("custom", file="my_reward.py", fn={name!r})'
        )


def _scope(function: FunctionType) -> Mapping[str, Any]:
    """Return what a function's free names mean: its closure, then its globals."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closed = {}
    for name, cell in cells:
        try:
            closed[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return {**function.__globals__, **closed}


def _names(tree: ast.Module, thing: Any) -> tuple[set[str], set[str]]:
    """Return the free names that a definition reads when it is called, and those it reads when it is defined."""
    read = _read(tree) - set(dir(builtins))
    if not inspect.isfunction(thing):
        return read, set()
    around = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
            around = set().union(*map(_read, parts)) & read
    return read & _code_names(thing.__code__), around


def _read(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _code_names(code: CodeType) -> set[str]:
    inner = (_code_names(const) for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names) | set(code.co_freevars) | set().union(*inner)
