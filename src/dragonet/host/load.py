"""A user's Python file: read it, look into it without running it, load it as a module, blame its lines.

Owns every message about a file that is missing, does not parse or lacks a function, and knows which modules lie
beside it. It refuses to know what the functions are for. Looking runs in the parent, loading in a worker only.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import linecache
import re
import sys
import tokenize
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from dragonet.errors import UserCodeError, did_you_mean

__all__ = [
    "find_function",
    "functions",
    "load_file",
    "load_source",
    "local_modules",
    "parse",
    "printable",
    "read_source",
    "user_traceback",
]

_MAX_MODULES = 500


def read_source(path: Path) -> str:
    """Return the text of a Python file. Raises UserCodeError when there is none to read."""
    if path.is_dir():
        raise UserCodeError(f"{path} is a folder; name the Python file in it")
    try:
        with tokenize.open(path) as file:  # honours an encoding line
            return file.read()
    except FileNotFoundError:
        folder = path.parent
        near = did_you_mean(path.name, [p.name for p in folder.glob("*.py")]) if folder.is_dir() else ""
        raise UserCodeError(f"{path} does not exist{near}") from None
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise UserCodeError(f"{path} cannot be read as Python: {error}") from None


def parse(source: str, filename: str) -> ast.Module:
    """Parse without running. Raises UserCodeError with the line and a caret under the place."""
    try:
        return ast.parse(source, filename)
    except SyntaxError as error:
        shown = (error.text or "").rstrip()
        lead = len(shown) - len(shown.lstrip())
        caret = " " * max(0, (error.offset or 1) - 1 - lead) + "^"
        text = f"\n    {shown.strip()}\n    {caret}" if shown.strip() else ""
        where = f"{Path(filename).name}, line {error.lineno}"
        raise UserCodeError(f"{where}: {error.msg} (the file does not parse as Python){text}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserCodeError(f"{Path(filename).name} does not parse as Python: {error}") from None


def functions(tree: ast.Module) -> list[str]:
    """Return the names of the functions defined at the top of a module."""
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def load_file(path: Path) -> ModuleType:
    """Run a file as a module, with its siblings importable. Raises UserCodeError with the user's own lines."""
    source = read_source(path)
    tree = parse(source, str(path))
    folder, name = _home(path, tree)
    sys.path.insert(0, str(path.parent))
    if folder != path.parent:
        sys.path.insert(0, str(folder))
        with _blaming(str(path)):
            importlib.import_module(name.rpartition(".")[0])  # relative imports need their package
    return _run(compile(tree, str(path), "exec", dont_inherit=True), name, str(path))


def load_source(source: str, name: str) -> ModuleType:
    """Run a text as a module; its lines show up in tracebacks as those of a file would."""
    filename = f"{name}.py"
    tree = parse(source, filename)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return _run(compile(tree, filename, "exec", dont_inherit=True), _free_name(name), filename)


def find_function(module: ModuleType, name: str) -> Any:
    """Return a module's function. Raises UserCodeError naming the near one, or all there are."""
    value = getattr(module, name, None)
    where = Path(module.__file__ or module.__name__).name
    if value is None:
        own = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", None) == module.__name__]
        hint = did_you_mean(name, own) or "; it defines no function at all"
        raise UserCodeError(f"{where} has no function {name!r}{hint}")
    if not callable(value):
        raise UserCodeError(f"{name!r} in {where} is a {type(value).__name__}, not a function")
    return value


def user_traceback(error: BaseException, filename: str, limit: int = 5) -> str:
    """Describe an exception with the lines that lie in the user's file or beside it, innermost last."""
    folder = str(Path(filename).parent)
    try:
        message = printable(str(error))
    except Exception:
        message = "(its message cannot be shown)"
    kind = type(error).__name__
    lines = [f"{kind}: {message}"[:500] if message else kind]
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename == filename or _beside(f.filename, folder)]
    for frame in own[-limit:]:
        lines.append(f"  {Path(frame.filename).name}, line {frame.lineno}, in {frame.name}: {(frame.line or '')[:200]}")
    return printable("\n".join(lines))


def _beside(file: str, folder: str) -> bool:
    return folder != "." and file.startswith(folder + "/") and "site-packages" not in file


def printable(text: str) -> str:
    """Return text that can be written anywhere: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def local_modules(path: Path) -> dict[str, Path]:
    """Return the files that a module needs from its own folder: relative name -> path, the file itself first.

    Follows import statements through local files, in functions too, without running anything. Modules that are
    installed elsewhere, and names computed at run time, are left out.
    """
    tree = parse(read_source(path), str(path))
    root, _ = _home(path, tree)
    roots = (root, path.parent)
    found: dict[str, Path] = {}
    waiting = [path]
    while waiting and len(found) < _MAX_MODULES:
        file = waiting.pop()
        key = file.relative_to(root).as_posix() if file.is_relative_to(root) else ""
        if not key or key in found:
            continue
        found[key] = file
        inits = (folder / "__init__.py" for folder in file.parents if folder != root and folder.is_relative_to(root))
        waiting += [init for init in inits if init.is_file()]
        if file != path:
            try:
                tree = parse(read_source(file), str(file))
            except UserCodeError:
                continue  # copied as it is; importing it will say what is wrong
        for base, dotted in _imports(tree, file, roots):
            waiting += _resolve(base, dotted)
    return found


def _home(path: Path, tree: ast.Module) -> tuple[Path, str]:
    """Return the folder that imports start from and the module's name: a package's, if it imports relatively."""
    relative = any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))
    if not relative or not (path.parent / "__init__.py").exists():
        return path.parent, _free_name(path.stem)
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _free_name(stem: str) -> str:
    """Return a module name that takes no other module's place, so that pickling by name works."""
    name = re.sub(r"\W", "_", stem)
    taken = name in sys.stdlib_module_names or name in sys.modules
    return f"user_{name}" if taken or not name.isidentifier() else name


def _run(code: Any, name: str, filename: str) -> ModuleType:
    spec = importlib.util.spec_from_loader(name, loader=None, origin=filename)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = filename
    if "." in name:
        module.__package__ = name.rpartition(".")[0]
    sys.modules[name] = module  # before it runs: dataclasses and pickle look themselves up
    with _blaming(filename):
        exec(code, module.__dict__)
    return module


@contextlib.contextmanager
def _blaming(filename: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:  # a file may call sys.exit
        hint = ""
        if isinstance(error, ModuleNotFoundError):
            hint = "\n(modules beside the file are found by themselves; others must be installed)"
        what = user_traceback(error, filename)
        raise UserCodeError(f"{Path(filename).name} cannot be loaded: {what}{hint}") from None


def _imports(tree: ast.Module, file: Path, roots: tuple[Path, ...]) -> list[tuple[Path, list[str]]]:
    """Return (folder to start from, dotted name in parts) for every import statement of one file."""
    out: list[tuple[Path, list[str]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            out += [(root, alias.name.split(".")) for alias in node.names for root in roots]
        elif isinstance(node, ast.ImportFrom):
            stem = node.module.split(".") if node.module else []
            bases = (file.parents[node.level - 1],) if node.level and node.level <= len(file.parents) else roots
            # `from a import b` may mean the module a.b
            out += [(base, [*stem, alias.name]) for alias in node.names for base in bases]
            out += [(base, stem) for base in bases if stem]
    return out


def _resolve(base: Path, dotted: list[str]) -> list[Path]:
    """Return the files that importing a dotted name would run, as far as they lie under `base`."""
    files = []
    for end in range(1, len(dotted) + 1):
        place = base.joinpath(*dotted[:end])
        for candidate in (place / "__init__.py", place.with_suffix(".py")):
            if candidate.is_file():
                files.append(candidate)
                break
        else:
            if not place.is_dir():
                break
    return files
