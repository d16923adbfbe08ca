"""The page about rewards: every example runs and gives what its comment says, every type and key is there."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from dragonet.rewards import TYPES, reward, score
from dragonet.types import NA

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text("utf-8")
EXAMPLE = re.compile(r"^(dragonet\.score\(.*\))(?:  # (\S+)|\n# (Score.*))$", re.MULTILINE)


def polite(completion: str) -> float:
    return float("please" in completion.lower())


def test_examples_give_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (file,) = [block for block in blocks if block.startswith("# my_reward.py")]
    (tmp_path / "my_reward.py").write_text(file, "utf-8")
    monkeypatch.chdir(tmp_path)
    names = {"dragonet": SimpleNamespace(score=score, reward=reward, NA=NA), "polite": polite}
    examples = EXAMPLE.findall(PAGE)
    assert len(examples) == PAGE.count("dragonet.score(")
    for line, value, shown in examples:
        got = eval(line, names)
        assert repr(got) == shown if shown else got.value == float(value), line


def test_every_type_has_a_section_with_an_example() -> None:
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
    for kind in TYPES:
        assert f'dragonet.reward("{kind}"' in sections[kind]
