"""Rooms import only downwards; rooms of one level meet through types and protocols; nobody imports assemble or cli."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "dragonet"

# low to high; docs/design.md says why
LEVELS = (
    ("errors", "types", "stats"),
    ("protocols", "config"),
    ("host", "models"),
    ("data", "rewards", "envs", "runs"),
    ("rollout", "learn"),
    ("router", "interop", "serve", "cluster"),
    ("dashboard",),
    ("assemble",),
    ("cli",),
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
# The root resolves public names from every room, and its __main__ is the command; the public fakes may use any room
# below assemble. No room imports them.
ROOT, MAIN, FAKES = "", "__main__", "testing"


@dataclass(frozen=True)
class Import:
    """One import of a dragonet room: where, of which room, and whether only the type checker sees it."""

    path: str
    line: int
    importer: str
    imported: str
    typing_only: bool


def room_of(path: Path) -> str:
    """The room a file belongs to: its folder or, for a file at the top, its own name."""
    first = path.relative_to(PACKAGE).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def imports_of(path: Path, text: str) -> Iterator[Import]:
    """Every import of a room, wherever it stands: at the top, in a function, under TYPE_CHECKING."""
    tree = ast.parse(text, filename=str(path))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    package = ["dragonet", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(tree):
        for module in modules_of(node, package):
            if module[:1] == ["dragonet"]:
                name = module[1] if len(module) > 1 else ROOT
                yield Import(str(path.relative_to(PACKAGE)), node.lineno, room_of(path), name, id(node) in typing_only)


def modules_of(node: ast.AST, package: list[str]) -> list[list[str]]:
    """The dotted modules an import statement names; `from dragonet import x` names x where x is a room."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".") for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = package[: len(package) - node.level + 1] if node.level else []
    base = [*base, *(node.module.split(".") if node.module else [])]
    if base != ["dragonet"]:
        return [base]
    rooms = {*LEVEL, MAIN, FAKES}
    return [[*base, alias.name] if alias.name in rooms else base for alias in node.names if alias.name != "__version__"]


def complaint(found: Import) -> str | None:
    """What is wrong with an import, or None."""
    importer, imported = found.importer, found.imported
    if importer in (ROOT, imported) or (importer, imported) == (MAIN, "cli"):
        return None
    if importer not in LEVEL and importer not in (MAIN, FAKES):
        return f"the room {importer!r} stands in no level; add it to LEVELS"
    if imported == ROOT:
        return "imports a public name from dragonet itself; import it from the room that defines it"
    if imported in ("assemble", "cli") and (importer, imported) != ("cli", "assemble"):
        return f"{importer} imports {imported}, which nobody may import"
    if imported not in LEVEL:
        return f"{importer} imports {imported}, which is for users and tests"
    if importer == FAKES or LEVEL[imported] < LEVEL[importer]:
        return None
    where = "of its own level" if LEVEL[imported] == LEVEL[importer] else "above it"
    return f"{importer} imports {imported}, {where}; meet through types and protocols"


def complaints(path: Path, text: str) -> list[str]:
    """All complaints about one file, those that only the type checker sees marked as such."""
    lines = []
    for found in imports_of(path, text):
        what = complaint(found)
        if what is not None:
            lines.append(f"{found.path}:{found.line}: {what}{' (typing only)' if found.typing_only else ''}")
    return lines


def test_rooms_import_only_downwards() -> None:
    wrong = [line for path in sorted(PACKAGE.rglob("*.py")) for line in complaints(path, path.read_text("utf-8"))]
    assert not wrong, "\n" + "\n".join(wrong)


BAD = """
from __future__ import annotations
import dragonet.cli
from dragonet.types import Prompt
from dragonet import __version__, Score, assemble
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from dragonet.rollout.collect import collect_groups
def late():
    from ..runs import store
    from . import exact
    from dragonet import testing
"""


def test_a_bad_file_is_caught() -> None:
    assert complaints(PACKAGE / "rewards" / "bad.py", BAD) == [
        "rewards/bad.py:3: rewards imports cli, which nobody may import",
        "rewards/bad.py:5: imports a public name from dragonet itself; import it from the room that defines it",
        "rewards/bad.py:5: rewards imports assemble, which nobody may import",
        "rewards/bad.py:8: rewards imports rollout, above it; meet through types and protocols (typing only)",
        "rewards/bad.py:10: rewards imports runs, of its own level; meet through types and protocols",
        "rewards/bad.py:12: rewards imports testing, which is for users and tests",
    ]


@pytest.mark.parametrize(
    ("file", "text", "wrong"),
    [
        ("__main__.py", "from dragonet.cli import main", False),
        ("__init__.py", "from dragonet.rewards import reward", False),
        ("cli/train.py", "from dragonet.assemble import run", False),
        ("assemble/run.py", "from dragonet.learn import loop", False),
        ("testing.py", "from dragonet.rollout import collect", False),
        ("testing.py", "from dragonet.assemble import run", True),
        ("learn/loop.py", "from dragonet.rollout import collect", True),
        ("config/run.py", "from dragonet.protocols import Reward", True),
        ("errors.py", "import dragonet.types", True),
        ("new_room/file.py", "import dragonet.types", True),
        ("data/x.py", "import torch", False),
    ],
)
def test_the_rules_one_by_one(file: str, text: str, wrong: bool) -> None:
    assert bool(complaints(PACKAGE / file, text)) is wrong
