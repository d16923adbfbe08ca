"""A user's file: looked at without running, loaded as a module, blamed with its own lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dragonet.errors import UserCodeError
from dragonet.host import load


def run(code: str, *arguments: object) -> str:
    """Run code in a fresh interpreter: loading a file leaves modules and paths behind."""
    command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


LOAD = """
import sys
from pathlib import Path
from dragonet.errors import UserCodeError
from dragonet.host.load import find_function, load_file
try:
    module = load_file(Path(sys.argv[1]))
    print(find_function(module, sys.argv[2])())
except UserCodeError as error:
    print(error)
"""


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text("")
    with pytest.raises(UserCodeError, match=r"rewards\.py does not exist; did you mean 'reward\.py'\?"):
        load.read_source(tmp_path / "rewards.py")
    with pytest.raises(UserCodeError, match="is a folder; name the Python file in it"):
        load.read_source(tmp_path)
    (tmp_path / "bad.py").write_bytes(b"x = '\xff'\n")
    with pytest.raises(UserCodeError, match=r"bad\.py cannot be read as Python"):
        load.read_source(tmp_path / "bad.py")


def test_a_syntax_error_shows_its_place(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError) as caught:
        load.parse("def reward(x):\n    return x +\n", str(tmp_path / "mine.py"))
    first, line, caret = str(caught.value).splitlines()
    assert first == "mine.py, line 2: invalid syntax (the file does not parse as Python)"
    assert line == "    return x +"
    assert caret.index("^") == line.index("+") + 1
    with pytest.raises(UserCodeError, match="null bytes"):
        load.parse("x = 1\0", "mine.py")


def test_functions_are_listed_without_running() -> None:
    assert load.functions(load.parse("1/0\ndef a(): pass\nasync def b(): pass\n", "x.py")) == ["a", "b"]


def test_siblings_dataclasses_and_pickling_work(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("VALUE = 3\n")
    (tmp_path / "my reward.py").write_text(
        "from __future__ import annotations\n"
        "import pickle\n"
        "from dataclasses import dataclass\n"
        "from helper import VALUE\n"
        "@dataclass\n"
        "class Point:\n"
        "    x: int\n"
        "def reward():\n"
        "    copies = pickle.loads(pickle.dumps((Point(VALUE), reward)))\n"
        "    return copies[0].x, __name__, copies[1] is reward\n"
    )
    assert run(LOAD, tmp_path / "my reward.py", "reward") == "(3, 'my_reward', True)\n"


def test_a_file_named_like_a_standard_module_takes_no_place(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("def reward():\n    import csv\n    return __name__\n")
    assert run(LOAD, tmp_path / "json.py", "reward") == "user_json\n"


def test_relative_imports_find_their_package(tmp_path: Path) -> None:
    package = tmp_path / "outer" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "outer" / "__init__.py").write_text("")
    (tmp_path / "outer" / "base.py").write_text("ONE = 1\n")
    (package / "__init__.py").write_text("TWO = 2\n")
    (package / "mine.py").write_text("from . import TWO\nfrom ..base import ONE\ndef reward(): return ONE + TWO\n")
    assert run(LOAD, package / "mine.py", "reward") == "3\n"
    found = load.local_modules(package / "mine.py")
    assert next(iter(found)) == "outer/inner/mine.py"
    assert set(found) == {f"outer/{name}.py" for name in ("__init__", "base", "inner/__init__", "inner/mine")}


def test_errors_while_loading_show_the_users_lines(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def deep():\n    return 1 / 0\n")
    (tmp_path / "mine.py").write_text("import helper\nhelper.deep()\n")
    assert run(LOAD, tmp_path / "mine.py", "reward").splitlines() == [
        "mine.py cannot be loaded: ZeroDivisionError: division by zero",
        "  mine.py, line 2, in <module>: helper.deep()",
        "  helper.py, line 2, in deep: return 1 / 0",
    ]
    (tmp_path / "mine.py").write_text("import not_there_at_all\n")
    assert "ModuleNotFoundError" in run(LOAD, tmp_path / "mine.py", "reward")
    (tmp_path / "mine.py").write_text("import sys\nsys.exit(3)\n")
    assert "cannot be loaded: SystemExit: 3" in run(LOAD, tmp_path / "mine.py", "reward")


def test_a_missing_function_names_the_near_one(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from os.path import join\ndef rewards(): pass\nreward_table = {}\n")
    assert run(LOAD, tmp_path / "mine.py", "reward") == "mine.py has no function 'reward'; did you mean 'rewards'?\n"
    assert "is a dict, not a function" in run(LOAD, tmp_path / "mine.py", "reward_table")


def test_local_modules_are_followed_and_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import json\nimport a\nfrom pack import part\ndef reward():\n    import late.deep as d\n    return d\n"
    )
    (tmp_path / "a.py").write_text("import b, mine\n")
    (tmp_path / "b.py").write_text("this does not parse\n")
    (tmp_path / "unused.py").write_text("")
    for folder, names in {"pack": ["__init__", "part", "other"], "late": ["deep"]}.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / f"{name}.py").write_text("")
    found = load.local_modules(tmp_path / "mine.py")
    assert next(iter(found)) == "mine.py"
    assert set(found) == {"mine.py", "a.py", "b.py", "pack/__init__.py", "pack/part.py", "late/deep.py"}
