"""The state of a run: what status.json says, and whether to believe it.

Owns the five states, the record of the process behind a run, and the verdict on a run whose process is gone: that is
read as failed, with the last log lines, without touching the file. A folder opened on another host is not judged by
its pid. It refuses to know how a run is started or stopped.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from dragonet.errors import RunError
from dragonet.runs import failpoints, files, jsontext
from dragonet.runs.files import Where
from dragonet.runs.folder import RunFolder
from dragonet.runs.lock import is_held, short_lock
from dragonet.runs.log import tail
from dragonet.runs.process import process_alive, process_started, this_process

__all__ = [
    "FINAL",
    "STATES",
    "Status",
    "finish",
    "hand_over",
    "initial_status",
    "now_text",
    "queue",
    "read_status",
    "start",
    "update_status",
]

STATES: Final = ("queued", "running", "succeeded", "failed", "cancelled")
FINAL: Final = frozenset({"succeeded", "failed", "cancelled"})
_LOG_LINES: Final = 10


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of a run. `state` is one of STATES, or unknown when status.json is missing or damaged.

    `reward` holds before, after, ci95 and n on the held-out prompts. `pid_started` is in seconds since the epoch, times
    of day are ISO 8601 in UTC. `gone` and `notes` are the reader's verdict and are not stored.
    """

    state: str
    stage: str | None = None
    name: str | None = None
    model: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    updated_at: str | None = None
    pid: int | None = None
    pid_started: float | None = None
    host: str | None = None
    boot: str | None = None
    detached: bool = False
    step: int = 0
    total_steps: int | None = None
    error: str | None = None
    reason: str | None = None
    device: str | None = None
    dtype: str | None = None
    trainable_params: int | None = None
    total_params: int | None = None
    latest_checkpoint: str | None = None
    reward: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    gone: bool = False
    notes: tuple[str, ...] = ()

    @property
    def final(self) -> bool:
        """Whether nothing will happen any more unless somebody resumes the run."""
        return self.state in FINAL

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, in a fixed order, for `--json`."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | {"notes": list(self.notes)}


_VERDICT: Final = frozenset({"gone", "notes"})
_KEYS: Final = tuple(f.name for f in dataclasses.fields(Status) if f.name not in _VERDICT)


def now_text() -> str:
    """Return the time of day in UTC as it stands in every file of a run."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def initial_status(stage: str, name: str | None, model: str | None) -> dict[str, Any]:
    """Return the status of a run that was just created by this process."""
    now = now_text()
    known = {"state": "queued", "stage": stage, "name": name, "model": model, "created_at": now, "updated_at": now}
    return _ordered(known | _process())


def update_status(folder: Where, **changes: Any) -> Status:
    """Change some keys of status.json, leave the others, and return the result."""
    return _change(RunFolder(folder), lambda _: changes)


def start(folder: Where, **changes: Any) -> Status:
    """Record that this process runs the run from now on."""

    def running(stored: Mapping[str, Any]) -> dict[str, Any]:
        first = stored.get("started_at") or now_text()
        fresh = {"state": "running", "started_at": first, "finished_at": None, "error": None, "reason": None}
        return {**fresh, **_process(), **changes}

    return _change(RunFolder(folder), running)


def queue(folder: Where) -> Status:
    """Record that this process is about to start another one for the run."""
    fresh = {"state": "queued", "detached": False, "finished_at": None, "error": None, "reason": None}
    return _change(RunFolder(folder), lambda _: {**fresh, **_process()})


def hand_over(folder: Where, pid: int) -> None:
    """Record the process that this one has queued the run for, unless that has spoken for itself already."""
    started = process_started(pid)

    def handed(stored: Mapping[str, Any]) -> Mapping[str, Any]:
        mine = stored.get("state") == "queued" and stored.get("pid") == os.getpid()
        return {"pid": pid, "pid_started": started, "detached": True} if mine else {}

    if started is not None:
        _change(RunFolder(folder), handed)


def finish(folder: Where, state: str, **changes: Any) -> Status:
    """Record that the run ended: succeeded, failed or cancelled, with `error` and `reason` where there is one."""
    if state not in FINAL:
        raise ValueError(f"a run ends as one of {sorted(FINAL)}, not as {state!r}")
    run = RunFolder(folder)
    status = _change(run, lambda _: {"state": state, "finished_at": now_text(), **changes})
    run.cancel_request.unlink(missing_ok=True)
    return status


def read_status(folder: Where) -> Status:
    """Read and judge the state of a run; RunError when the folder is not that of a run.

    A run that says queued or running while its process is gone reads as failed, with the reason and the log's end.
    """
    run = RunFolder(folder)
    if not run.path.is_dir():
        raise RunError(f"{run} is not a folder; `dragonet runs` lists the runs there are")
    try:
        status = _parse(files.read_json(run.status))
        verdict = status if status.final else _judge(run, status)
        # the process may have spoken its last word between our reading the file and our looking for it
        return read_status(run) if verdict.gone and _parse(files.read_json(run.status)) != status else verdict
    except (RunError, TypeError, ValueError) as error:
        if not run.status.exists() and not run.config.exists():
            raise RunError(f"{run} is not a run: it holds neither status.json nor config.yaml") from None
        note = f"the state cannot be told: {error}. Checkpoints and metrics are not touched by this; see {run.log}"
        return Status(state="unknown", reason=str(error), notes=(note,))


def _judge(run: RunFolder, status: Status) -> Status:
    here = this_process()
    if status.host is not None and status.host != here.host:
        note = (
            f"the run was started on host {status.host}; whether its process lives cannot be seen from {here.host}, "
            f"so the state is shown as last written, {status.updated_at}"
        )
        return dataclasses.replace(status, notes=(*status.notes, note))
    rebooted = None not in (status.boot, here.boot) and status.boot != here.boot
    if not rebooted and (process_alive(status.pid, status.pid_started) or is_held(run.lock)):
        return status
    what = "no process was recorded" if status.pid is None else f"process {status.pid} is gone"
    if rebooted:
        what += ", the machine was restarted since"
    reason = (
        f"{what} and left no word (killed, or out of memory?); last state: {status.state} at step {status.step}; "
        f"continue with: dragonet resume {run.id}"
    )
    lines = tail(run, _LOG_LINES)
    if lines:
        reason += "\nlast lines of log.txt:\n" + "\n".join(f"  {line}" for line in lines)
    return dataclasses.replace(status, state="failed", reason=reason, gone=True)


def _change(run: RunFolder, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Status:
    """Apply `change(stored) -> new values`; writers of several processes take turns."""
    if not run.path.is_dir():
        raise RunError(f"cannot write {run.status}: {run} is not a folder (was it moved or deleted?)")
    with short_lock(run.path):
        stored = _stored(run)
        changes = change(stored)
        if not changes:
            return _parse(stored)
        unknown = set(changes) - set(_KEYS)
        if unknown:
            raise ValueError(f"status.json has no key {sorted(unknown)}; use `extra` for what is not in {_KEYS}")
        if changes.get("state", "queued") not in STATES:
            raise ValueError(f"{changes['state']!r} is not one of {STATES}")
        merged = _ordered({**stored, **changes, "updated_at": now_text()})
        failpoints.hit("status.before_write")
        files.write_json(run.status, merged)
        failpoints.hit("status.after_write")
    return _parse(merged)


def _stored(run: RunFolder) -> dict[str, Any]:
    """Read status.json for a change; a damaged one is started over, so that its run can be resumed."""
    try:
        stored = files.read_json(run.status)
        _parse(stored)
        return stored
    except (RunError, TypeError, ValueError) as error:
        if isinstance(error.__cause__, jsontext.TooNew):
            raise
        return {"state": "running"}


def _process() -> dict[str, Any]:
    me = this_process()
    return {"pid": me.pid, "pid_started": me.started, "host": me.host, "boot": me.boot}


def _ordered(values: Mapping[str, Any]) -> dict[str, Any]:
    empty = {f.name: f.default for f in dataclasses.fields(Status)} | {"extra": {}}
    return {key: values.get(key, empty[key]) for key in _KEYS}


def _parse(stored: Mapping[str, Any]) -> Status:
    if stored.get("state") not in STATES:
        raise ValueError(f"status.json says state {stored.get('state')!r}, which is not one of {', '.join(STATES)}")
    pid, started, step = stored.get("pid"), stored.get("pid_started"), stored.get("step", 0)
    if not isinstance(pid, int | None) or not isinstance(started, float | int | None) or not isinstance(step, int):
        raise ValueError("status.json holds something else than numbers in pid, pid_started or step")
    return Status(**{key: stored[key] for key in _KEYS if key in stored})
