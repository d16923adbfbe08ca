"""Files stay below 400 lines and functions below 60, docstring aside, so that each can be read at once."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE, MAX_FUNCTION = 400, 60


def too_long(name: str, text: str) -> list[str]:
    """What is too long in one file."""
    found = []
    lines = len(text.splitlines())
    if lines > MAX_FILE:
        found.append(f"{name}: {lines} lines, above {MAX_FILE}; split it by duty")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = length_of(node)
            if length > MAX_FUNCTION:
                found.append(f"{name}:{node.lineno}: {node.name} has {length} lines, above {MAX_FUNCTION}")
    return found


def length_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        length -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
    return length


def test_no_file_and_no_function_is_too_long() -> None:
    wrong = [
        line
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line in too_long(str(path.relative_to(ROOT)), path.read_text("utf-8"))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_measure_itself() -> None:
    def body(lines: int, doc: str = "") -> str:
        return "def f():\n" + doc + "    x = 1\n" * lines

    assert too_long("a.py", body(59)) == []
    assert too_long("a.py", body(60)) == ["a.py:1: f has 61 lines, above 60"]
    assert too_long("a.py", body(59, '    """One.\n\n    Two.\n    """\n')) == []
    assert too_long("a.py", "x = 1\n" * 400) == []
    assert too_long("a.py", "x = 1\n" * 401) == ["a.py: 401 lines, above 400; split it by duty"]
    assert too_long("a.py", "async def g():\n" + "    x = 1\n" * 60) == ["a.py:1: g has 61 lines, above 60"]
