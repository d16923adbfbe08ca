"""The bundled task set: its bytes, its sums, and that no sum stands on both sides of a split."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from dragonet.data import load_dataset
from dragonet.data.additions import additions_csv, write_table
from dragonet.errors import DataError


def test_the_table_is_what_the_generator_writes(tmp_path: Path) -> None:
    shipped = (resources.files("dragonet.data") / "tables" / "additions.csv").read_bytes()
    assert shipped == additions_csv().encode()
    write_table(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_bytes() == shipped


def test_every_row_is_right_and_every_pair_stands_once() -> None:
    pairs = set()
    for row in load_dataset("bundled:additions").rows:
        a, b = (int(n) for n in re.fullmatch(r"What is (\d+) \+ (\d+)\?", row["question"]).groups())
        assert (int(row["a"]), int(row["b"]), int(row["answer"])) == (a, b, a + b)
        assert 2 <= min(a, b) <= max(a, b) <= 49
        pairs.add(frozenset((a, b)))
    assert len(pairs) == len(load_dataset("bundled:additions")) == 48 * 49 // 2


def test_rows_stand_in_no_order_and_both_orientations() -> None:
    rows = load_dataset("bundled:additions").rows
    larger_first = sum(int(row["a"]) > int(row["b"]) for row in rows)
    assert 500 < larger_first < 676
    sums = [int(row["answer"]) for row in rows]
    quarter = len(sums) // 4
    assert abs(sum(sums[:quarter]) / quarter - sum(sums) / len(sums)) < 4


def test_a_sum_never_stands_on_both_sides() -> None:
    split = load_dataset("bundled:additions").map_prompts().split()
    train, held = ({frozenset((p.row["a"], p.row["b"])) for p in side} for side in (split.train, split.eval))
    assert len(held) == 118  # at least 100 questions to measure on
    assert not train & held
    assert split.notices == ()


def test_an_unknown_name_is_answered_with_the_near_one() -> None:
    with pytest.raises(DataError, match=r"no bundled table is called 'aditions'; did you mean 'additions'\?"):
        load_dataset("bundled:aditions")
    with pytest.raises(DataError, match="no bundled table is called ''; known: additions"):
        load_dataset("bundled:")
