"""The other records of a run: samples, rollouts per round, evaluations, the report; and cutting all of them back.

Owns the file names and the rule of `rewind`: what is later than a checkpoint goes, so that a resumed run writes it
again. It takes plain dictionaries and refuses to know their columns, except `step` and, in eval.json, `history`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dragonet.errors import RunError
from dragonet.runs import failpoints, files, jsontext
from dragonet.runs.files import Where
from dragonet.runs.folder import RunFolder
from dragonet.runs.metrics import truncate_metrics

__all__ = ["append_samples", "read_json", "read_rollouts", "read_samples", "rewind", "write_json", "write_rollouts"]

_ROUND: Final = re.compile(r"round-(\d+)\.jsonl")
_CHECKPOINT: Final = re.compile(r"step-(\d+)")


def append_samples(folder: Where, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows to samples.jsonl, all of them or none; each needs `step`."""
    for row in rows:
        if not isinstance(row.get("step"), int):
            raise ValueError(f"a row of samples needs a whole number in `step`, got {row.get('step')!r}")
    if not rows:
        return
    failpoints.hit("samples.before_append")
    files.append_bytes(RunFolder(folder).samples, b"".join(map(jsontext.row, rows)))
    failpoints.hit("samples.after_append")


def read_samples(folder: Where) -> list[dict[str, Any]]:
    """Return the rows of samples.jsonl in order."""
    return files.read_rows(RunFolder(folder).samples)


def write_rollouts(folder: Where, round: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rollouts of one round as one file, whole or not at all."""
    run = RunFolder(folder)
    with files.writing(run.rollouts):
        run.rollouts.mkdir(exist_ok=True)
    failpoints.hit("rollouts.before_write")
    files.write_bytes(run.rollouts_of(round), b"".join(map(jsontext.row, rows)))
    failpoints.hit("rollouts.after_write")


def read_rollouts(folder: Where, round: int) -> list[dict[str, Any]]:
    """Return the rollouts of one round; RunError when there are none of it."""
    path = RunFolder(folder).rollouts_of(round)
    if not path.exists():
        raise RunError(f"{path} does not exist; the run wrote no round {round}")
    return files.read_rows(path)


def write_json(folder: Where, name: str, value: Mapping[str, Any]) -> None:
    """Write a JSON document of the run, such as eval.json or report.json, whole or not at all."""
    if name == "status.json":
        raise ValueError("status.json has several writers; use update_status")
    files.write_json(RunFolder(folder).path / name, value)


def read_json(folder: Where, name: str) -> dict[str, Any]:
    """Return a JSON document of the run; RunError when it is missing or damaged."""
    return files.read_json(RunFolder(folder).path / name)


def rewind(folder: Where, step: int, round: int) -> None:
    """Remove what is later than the checkpoint of `step`, whose last complete round is `round`.

    Cut back are metrics and samples (rows by `step`), rollouts (files by round), checkpoints, the history in eval.json,
    and a report.json of a later step; temporary leftovers go too. Only the owner of the run may call this. Dying on the
    way does no harm: a second call does the rest.
    """
    run = RunFolder(folder)
    for place in (run.path, run.data, run.rollouts, run.checkpoints):
        with files.writing(place):
            files.recover_folders(place)
    truncate_metrics(run, step)
    failpoints.hit("rewind.between_files")
    files.keep_rows(run.samples, lambda row: not _later(row, step))
    failpoints.hit("rewind.between_files")
    with files.writing(run.path):
        for path in sorted(run.rollouts.glob("round-*.jsonl")):
            match = _ROUND.fullmatch(path.name)
            if match and int(match[1]) > round:
                path.unlink()
                failpoints.hit("rewind.between_files")
        for path in sorted(run.checkpoints.glob("step-*")):
            match = _CHECKPOINT.fullmatch(path.name)
            if match and int(match[1]) > step:
                files.remove_folder(path)
                failpoints.hit("rewind.between_files")
    if run.eval.exists():
        evaluation = files.read_json(run.eval)
        history = evaluation.get("history")
        if isinstance(history, list) and any(_later(entry, step) for entry in history):
            files.write_json(run.eval, {**evaluation, "history": [e for e in history if not _later(e, step)]})
    if run.report.exists() and _later(files.read_json(run.report), step):
        with files.writing(run.report):
            run.report.unlink()


def _later(row: Any, step: int) -> bool:
    return isinstance(row, Mapping) and isinstance(row.get("step"), int) and row["step"] > step
