"""Metrics, samples, rollouts, evaluations: appended, read, and cut back to a checkpoint."""

from __future__ import annotations

import json

import pytest

from dragonet.errors import RunError
from dragonet.runs import (
    WALL_CLOCK,
    RunFolder,
    append_metrics,
    append_samples,
    is_wall_clock,
    read_json,
    read_metrics,
    read_rollouts,
    read_samples,
    rewind,
    save_checkpoint,
    truncate_metrics,
    write_json,
    write_rollouts,
)


def test_metrics_read_back_in_order(run: RunFolder) -> None:
    assert read_metrics(run) == []
    rows = [{"step": n, "round": n, "loss": 0.1 * n, "reward/exact": None} for n in (1, 2, 3)]
    for row in rows:
        append_metrics(run, row)
    assert read_metrics(run) == rows
    assert all(json.loads(line)["schema"] == 1 for line in run.metrics.read_text().splitlines())


@pytest.mark.parametrize("row", [{}, {"step": None}, {"step": 1.0}, {"step": "1"}])
def test_a_row_needs_its_step(row: dict[str, object], run: RunFolder) -> None:
    with pytest.raises(ValueError, match="whole number in `step`"):
        append_metrics(run, row)
    with pytest.raises(ValueError, match="whole number in `step`"):
        append_samples(run, [{"step": 1}, row])
    assert not run.metrics.exists()
    assert not run.samples.exists()


def test_columns_of_time_are_known_by_name(run: RunFolder) -> None:
    append_metrics(run, {"step": 1, "time_sample": 0.5, "elapsed_s": 1.0, "eta_s": 2.0, "tokens_per_s": 3.0, "kl": 0})
    row = read_metrics(run)[0]
    assert {name for name in row if name not in WALL_CLOCK} == {"step", "kl"}
    assert is_wall_clock("time_update")
    assert not is_wall_clock("reward")
    with pytest.raises(ValueError, match="did you mean 'time_sample'"):
        append_metrics(run, {"step": 2, "time_samples": 0.5})


def test_metrics_are_cut_after_a_step(run: RunFolder) -> None:
    for n in range(1, 6):
        append_metrics(run, {"step": n})
    truncate_metrics(run, 3)
    assert [row["step"] for row in read_metrics(run)] == [1, 2, 3]
    truncate_metrics(run, 0)
    assert read_metrics(run) == []
    append_metrics(run, {"step": 1})
    assert json.loads(run.metrics.read_text())["schema"] == 1


def test_samples_are_appended_together(run: RunFolder) -> None:
    append_samples(run, [])
    assert not run.samples.exists()
    append_samples(run, [{"step": 0, "completion": "a\nb"}, {"step": 0, "completion": "c"}])
    append_samples(run, [{"step": 5, "completion": "d"}])
    assert [(row["step"], row["completion"]) for row in read_samples(run)] == [(0, "a\nb"), (0, "c"), (5, "d")]


def test_rollouts_are_a_file_per_round(run: RunFolder) -> None:
    write_rollouts(run, 12, [{"token_ids": [1, 2], "advantage": -0.5}, {"token_ids": []}])
    assert (run.rollouts / "round-000012.jsonl").exists()
    assert read_rollouts(run, 12) == [{"token_ids": [1, 2], "advantage": -0.5}, {"token_ids": []}]
    with pytest.raises(RunError, match="wrote no round 13"):
        read_rollouts(run, 13)


def test_documents_read_back(run: RunFolder) -> None:
    write_json(run, "report.json", {"reward": float("nan"), "n": 16})
    assert read_json(run, "report.json") == {"reward": None, "n": 16}
    with pytest.raises(RunError, match=r"eval\.json does not exist"):
        read_json(run, "eval.json")
    with pytest.raises(ValueError, match="update_status"):
        write_json(run, "status.json", {})


def test_rewind_removes_what_is_later_and_nothing_else(run: RunFolder) -> None:
    for step in range(1, 7):
        append_metrics(run, {"step": step, "round": (step + 1) // 2})
        append_samples(run, [{"step": step}])
        if step % 2 == 0:
            write_rollouts(run, step // 2, [{"step": step}])
            save_checkpoint(run, step, {"a": b"x"}, {})
    write_json(run, "eval.json", {"before": 0.1, "history": [{"step": 0}, {"step": 4}, {"step": 6}], "n": 16})
    write_json(run, "report.json", {"step": 6})
    (run.path / ".metrics.jsonl.1-ff.tmp").write_text("half")
    (run.checkpoints / ".step-000008.1.tmp").mkdir()
    (run.data / "train.jsonl").write_text("{}\n")
    for _ in range(2):  # doing it again changes nothing
        rewind(run, step=4, round=2)
        assert [row["step"] for row in read_metrics(run)] == [1, 2, 3, 4]
        assert [row["step"] for row in read_samples(run)] == [1, 2, 3, 4]
        assert sorted(p.name for p in run.rollouts.iterdir()) == ["round-000001.jsonl", "round-000002.jsonl"]
        assert sorted(p.name for p in run.checkpoints.iterdir()) == ["step-000002", "step-000004"]
        assert read_json(run, "eval.json") == {"before": 0.1, "history": [{"step": 0}, {"step": 4}], "n": 16}
        assert not run.report.exists()
        assert not list(run.path.glob(".*.tmp"))
    assert (run.data / "train.jsonl").read_text() == "{}\n"


def test_rewind_to_the_beginning_of_an_empty_run_is_nothing(run: RunFolder) -> None:
    before = sorted(p.name for p in run.path.iterdir())
    rewind(run, step=0, round=0)
    assert sorted(p.name for p in run.path.iterdir()) == before


def test_rewind_keeps_a_report_of_an_earlier_step(run: RunFolder) -> None:
    write_json(run, "report.json", {"step": 4})
    rewind(run, step=4, round=2)
    assert read_json(run, "report.json") == {"step": 4}
