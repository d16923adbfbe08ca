"""The public names, where they live, and one version in three places."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import dragonet

ROOT = Path(__file__).resolve().parent.parent
HOMES: dict[str, str] = vars(dragonet)["_HOMES"]


def test_the_list_is_sorted_and_complete() -> None:
    def order(name: str) -> tuple[int, str]:  # constants, classes, functions: the order that ruff keeps
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert list(dragonet.__all__) == sorted(dragonet.__all__, key=order)
    assert len(set(dragonet.__all__)) == len(dragonet.__all__)
    assert set(dragonet.__all__) == {*HOMES, "__version__"}


def test_each_name_resolves_to_what_its_home_defines() -> None:
    for name, home in HOMES.items():
        assert getattr(dragonet, name) is getattr(importlib.import_module(home), name)
        assert name in dir(dragonet)


def test_type_checkers_see_the_same_homes() -> None:
    tree = ast.parse((ROOT / "src" / "dragonet" / "__init__.py").read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname or alias.name: node.module for node in imports for alias in node.names}
    assert seen == HOMES


def test_unknown_names_are_attribute_errors() -> None:
    assert not hasattr(dragonet, "no_such_name")


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert project["version"] == dragonet.__version__
    assert headings[0] == dragonet.__version__
