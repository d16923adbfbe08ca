"""The README's tree and the files are in step; `scripts/readme-tree --write` puts them there."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "readme-tree"


@pytest.fixture(scope="module")
def script() -> dict:
    return runpy.run_path(str(SCRIPT))


def test_the_readme_shows_the_tree(script: dict) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    start, end = script["block_at"](readme)
    shown, tree = readme[start:end].rstrip("\n").splitlines(), script["tree"]().splitlines()
    assert shown == tree, "the README's tree is out of step; run: scripts/readme-tree --write"


def test_every_file_has_a_line_of_duty(script: dict) -> None:
    lines = [line.split(maxsplit=1) for line in script["tree"]().splitlines()]
    silent = [words[0] for words in lines if len(words) == 1 and words[0] != "src/dragonet/"]
    assert silent == [], "these files have no docstring to take a duty from"
    shown = [words[0] for words in lines if words[0].endswith(".py")]
    files = [path.name for path in (ROOT / "src" / "dragonet").rglob("*.py") if path.name != "__init__.py"]
    assert sorted(shown) == sorted(files)


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="not a git checkout")
def test_every_folder_at_the_top_is_shown(script: dict) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    folders = {line.split("/")[0] for line in listed.stdout.splitlines() if "/" in line and not line.startswith(".")}
    assert folders - {"src"} <= set(script["TOP"])


def test_duties_are_cut_at_a_clause(script: dict, tmp_path: Path) -> None:
    def duty(docstring: str) -> str:
        path = tmp_path / "a.py"
        path.write_text(f'"""{docstring}"""\n', encoding="utf-8")
        return script["duty"](path)

    assert duty("Draw a token. Knows nothing else.") == "Draw a token"
    assert duty("Rank and scale (Hu et al. 2021).\n\nMore.") == "Rank and scale (Hu et al. 2021)"
    assert duty("Say one thing, and " + "go on " * 20) == "Say one thing"
    assert duty("") == ""


def test_writing_replaces_the_block_alone(script: dict) -> None:
    readme = "# a\n\n## The tree\n\n```\nold\n```\n\n## b\n\n```\nother\n```\n"
    start, end = script["block_at"](readme)
    assert readme[start:end] == "old\n"
    with pytest.raises(ValueError, match="no fenced block"):
        script["block_at"]("# a\n\n```\nold\n```\n")
