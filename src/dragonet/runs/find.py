"""From what a user types to a run, and the list of runs.

Owns the meaning of RUN in a command (a folder, an id, a unique prefix, `last`) and the summaries that a listing shows.
A broken folder is shown as unknown and never spoils the list. It refuses to change anything.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dragonet.errors import DragonetError, RunError, RunNotFound
from dragonet.runs.files import Where
from dragonet.runs.folder import RunFolder
from dragonet.runs.status import Status, read_status
from dragonet.runs.store import default_runs_dir

__all__ = ["RunSummary", "find_run", "list_runs", "summarize"]

_ID_TIME: Final = re.compile(r"(\d{8}-\d{6})(-|$)")
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of a listing. Rewards are means on the held-out prompts; `note` says what is wrong, if anything is."""

    id: str
    path: str
    state: str
    stage: str | None = None
    name: str | None = None
    model: str | None = None
    created_at: str | None = None
    step: int = 0
    total_steps: int | None = None
    reward_before: float | None = None
    reward_after: float | None = None
    ci95: tuple[float, float] | None = None
    note: str | None = None


def find_run(ref: Where, runs_dir: Where | None = None) -> RunFolder:
    """Return the run that `ref` means: a folder, an id in `runs_dir`, a prefix of one id only, or `last`.

    Raises RunNotFound, with the candidates or the near names.
    """
    if isinstance(ref, RunFolder):
        return ref
    text = os.fspath(ref).strip()
    parent = default_runs_dir(runs_dir)
    if not text:
        raise RunNotFound("no run was named; give a folder, an id, the start of an id, or `last`")
    if text == "last":
        runs = list_runs(parent)
        if not runs:
            raise RunNotFound(f"there are no runs in {parent}; {_ELSEWHERE}")
        return RunFolder(runs[0].path)
    path = Path(text).expanduser()
    if path.is_dir() and _is_run(path):
        return RunFolder(path)
    if len(Path(text).parts) > 1 or path.is_absolute():
        what = "is a folder, but not one of a run (it holds no status.json)" if path.is_dir() else "does not exist"
        raise RunNotFound(f"{path} {what}; `dragonet runs` lists the runs in {parent}")
    ids = _ids(parent)
    if text in ids:
        return RunFolder(parent / text)
    matches = [id for id in ids if id.startswith(text)]
    if len(matches) == 1:
        return RunFolder(parent / matches[0])
    if matches:
        raise RunNotFound(f"{text!r} fits {len(matches)} runs: {_some(matches)}; type more of the id")
    near = [id for id in ids if text in id] or difflib.get_close_matches(text, ids, n=_SHOWN, cutoff=0.5)
    if near:
        raise RunNotFound(f"there is no run {text!r} in {parent}; near: {_some(near)}")
    raise RunNotFound(f"there is no run {text!r} in {parent}; {f'newest: {_some(ids)}' if ids else _ELSEWHERE}")


def list_runs(runs_dir: Where | None = None) -> list[RunSummary]:
    """Return all runs of a folder, newest first; none when the folder does not exist."""
    parent = default_runs_dir(runs_dir)
    return sorted((summarize(parent / id) for id in _ids(parent)), key=_age, reverse=True)


def summarize(folder: Where) -> RunSummary:
    """Return the summary of one run; a folder that cannot be read is unknown, with a note."""
    run = RunFolder(folder)
    try:
        status = read_status(run)
    except (DragonetError, OSError) as error:
        status = Status(state="unknown", notes=(str(error),))
    reward: Mapping[str, Any] = status.reward if isinstance(status.reward, Mapping) else {}
    interval = reward.get("ci95")
    note = status.notes[0] if status.notes else status.error or status.reason
    return RunSummary(
        id=run.id,
        path=str(run),
        state=status.state,
        stage=status.stage,
        name=status.name,
        model=status.model,
        created_at=status.created_at or _created(run.path),
        step=status.step,
        total_steps=status.total_steps,
        reward_before=reward.get("before"),
        reward_after=reward.get("after"),
        ci95=(interval[0], interval[1]) if isinstance(interval, list | tuple) and len(interval) == 2 else None,
        note=note.splitlines()[0] if isinstance(note, str) and note else None,
    )


_ELSEWHERE: Final = "set $DRAGONET_RUNS_DIR when your runs live elsewhere, or give the folder of the run"


def _ids(parent: Path) -> list[str]:
    """Return the ids of all runs, newest first by name."""
    try:
        entries = [entry for entry in os.scandir(parent) if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"cannot read the runs in {parent}: {error.strerror or error}") from error
    found = [e.name for e in entries if e.is_dir() and (_ID_TIME.match(e.name) or _is_run(Path(e.path)))]
    return sorted(found, reverse=True)


def _is_run(path: Path) -> bool:
    return (path / "status.json").exists() or (path / "config.yaml").exists()


def _created(path: Path) -> str | None:
    """Tell the time of creation from the id, else from the folder."""
    match = _ID_TIME.match(path.name)
    try:
        if match:
            return datetime.strptime(match[1], "%Y%m%d-%H%M%S").astimezone(UTC).isoformat(timespec="milliseconds")
        return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="milliseconds")
    except (OSError, ValueError):
        return None


def _age(summary: RunSummary) -> tuple[datetime, str]:
    try:
        created = datetime.fromisoformat(summary.created_at or "")
    except (TypeError, ValueError):
        created = datetime.min
    return created if created.tzinfo else created.replace(tzinfo=UTC), summary.id


def _some(ids: list[str]) -> str:
    more = len(ids) - _SHOWN
    return ", ".join(ids[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
