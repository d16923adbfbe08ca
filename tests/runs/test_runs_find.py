"""From what a user types to a run, and the list of runs with broken ones in it."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from dragonet.errors import RunError, RunNotFound
from dragonet.runs import RunFolder, create_run, find_run, finish, list_runs, start, summarize, update_status


def make(runs_dir: Path, name: str, minute: int) -> RunFolder:
    """Create a run at a minute of one hour, also by its status."""
    now = datetime(2031, 5, 6, 12, minute)
    run = create_run(runs_dir, name=name, stage="reinforce", config={"model": "tiny-random"}, now=now)
    update_status(run, created_at=f"2031-05-06T12:{minute:02}:00.000+00:00")
    return run


@pytest.fixture
def three(runs_dir: Path) -> list[RunFolder]:
    return [make(runs_dir, name, minute) for minute, name in enumerate(["apples", "pears", "plums"])]


def test_a_run_is_a_folder_an_id_a_prefix_or_last(
    three: list[RunFolder], runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apples, pears, plums = three
    assert find_run(apples.path) == find_run(str(apples.path)) == find_run(apples) == apples
    assert find_run(apples.id) == apples
    assert find_run("20310506-1201") == pears
    assert find_run("last") == plums
    monkeypatch.chdir(runs_dir)
    assert find_run(apples.id, tmp_path) == apples, "a folder right here needs no runs_dir"
    monkeypatch.chdir(runs_dir.parent)
    assert find_run(f"./runs/{apples.id}/") == apples
    monkeypatch.delenv("DRAGONET_RUNS_DIR")
    assert find_run(pears.id, runs_dir) == pears


def test_an_id_that_is_a_prefix_of_another_is_itself(runs_dir: Path) -> None:
    first = make(runs_dir, "a", 1)
    second = make(runs_dir, "a", 1)
    assert second.id == f"{first.id}-2"
    assert find_run(first.id) == first


def test_ambiguity_lists_the_candidates(three: list[RunFolder]) -> None:
    with pytest.raises(RunNotFound, match=r"fits 3 runs: .*plums.*pears.*apples.*type more"):
        find_run("2031")


def test_a_miss_lists_the_near_ones(three: list[RunFolder], runs_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match=r"no run 'pears' in .*near: 20310506-120100-pears-reinforce$"):
        find_run("pears")
    with pytest.raises(RunNotFound, match=r"near: .*apples"):
        find_run("20310506-120000-aples-reinforce")
    with pytest.raises(RunNotFound, match=r"no run 'zzz' in .*newest: .*plums"):
        find_run("zzz")
    with pytest.raises(RunNotFound, match=r"no run 'x' in .*none; set \$DRAGONET_RUNS_DIR"):
        find_run("x", tmp_path / "none")
    with pytest.raises(RunNotFound, match="there are no runs in"):
        find_run("last", tmp_path / "none")
    with pytest.raises(RunNotFound, match="no run was named"):
        find_run(" ")


def test_a_path_that_is_no_run_says_what_it_is(tmp_path: Path, runs_dir: Path) -> None:
    with pytest.raises(RunNotFound, match="not one of a run"):
        find_run(tmp_path)
    with pytest.raises(RunNotFound, match="none does not exist; `dragonet runs`"):
        find_run(tmp_path / "none")


def test_the_list_is_newest_first_with_what_was_gained(three: list[RunFolder], runs_dir: Path) -> None:
    _, pears, plums = three
    start(pears, total_steps=40, step=40)
    finish(pears, "succeeded", reward={"before": 0.1, "after": 0.9, "ci95": [0.7, 0.85], "n": 16})
    finish(plums, "failed", error="no gradient\ntraceback")
    shown = list_runs(runs_dir)
    assert [summary.name for summary in shown] == ["plums", "pears", "apples"]
    assert (shown[0].state, shown[0].note) == ("failed", "no gradient")
    assert (shown[1].reward_before, shown[1].reward_after, shown[1].ci95) == (0.1, 0.9, (0.7, 0.85))
    assert (shown[1].step, shown[1].total_steps, shown[1].model, shown[1].stage) == (40, 40, "tiny-random", "reinforce")
    assert (shown[2].state, shown[2].reward_after, shown[2].ci95) == ("queued", None, None)


def test_broken_folders_are_shown_and_others_are_not(three: list[RunFolder], runs_dir: Path) -> None:
    apples, pears, plums = three
    apples.status.write_text("{")
    pears.status.unlink()
    plums.status.unlink()
    plums.config.unlink()
    (runs_dir / "notes").mkdir()
    (runs_dir / "file.txt").write_text("x")
    (runs_dir / ".creating-1-1-aa@elsewhere").mkdir()
    weird = runs_dir / "20310506-130000-weird-sft"
    weird.mkdir()
    (weird / "status.json").write_text('{"state": "succeeded", "reward": [1], "created_at": 7, "step": 0}')
    os.symlink("nowhere", runs_dir / "20310506-140000-dangling-sft")
    shown = {summary.id: summary for summary in list_runs(runs_dir)}
    assert set(shown) == {apples.id, pears.id, plums.id, weird.name}
    assert [shown[run.id].state for run in three] == ["unknown"] * 3
    assert "damaged" in (shown[apples.id].note or "")
    assert "does not exist" in (shown[pears.id].note or "")
    assert "not a run" in (shown[plums.id].note or "")
    assert shown[pears.id].created_at is not None
    assert find_run(weird.name).path == weird


def test_a_run_in_a_folder_of_any_name_is_listed(runs_dir: Path, three: list[RunFolder]) -> None:
    three[0].path.rename(runs_dir / "my favourite")
    assert summarize(runs_dir / "my favourite").name == "apples"
    assert [summary.id for summary in list_runs(runs_dir)][-1] == "my favourite"
    assert find_run("my fav").id == "my favourite"


def test_no_folder_is_no_runs(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "none") == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="cannot read the runs in"):
        list_runs(tmp_path / "file")
