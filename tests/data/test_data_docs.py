"""The Python of docs/data.md runs, and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def test_the_first_example(capsys) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    exec(code, {})
    assert capsys.readouterr().out == "() 1058 118\n"


def test_the_shown_preview_is_that_row() -> None:
    from dragonet.data import load_dataset

    [shown] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    first = load_dataset("bundled:additions").prompts()[0]
    assert first.text in shown
    assert f"reference: {first.reference}\n" in shown
