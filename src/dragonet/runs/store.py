"""Creating run folders: a run exists whole or not at all.

Owns where runs live, how an id is made, what every run holds from its first moment, and the clean-up after creators
that died. A run is filled in a hidden folder beside its place and renamed into it. It refuses to know what the
configuration means.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from dragonet.errors import RunError
from dragonet.runs import failpoints, files, jsontext
from dragonet.runs.environment import environment
from dragonet.runs.files import Where
from dragonet.runs.folder import RunFolder
from dragonet.runs.lineage import lineage
from dragonet.runs.process import process_alive, this_process
from dragonet.runs.status import initial_status

__all__ = ["FileContent", "create_run", "create_run_at", "default_runs_dir", "read_config", "run_id", "write_config"]

FileContent = bytes | str | Mapping[str, Any]
"""What goes into a file of a new run; a mapping becomes a JSON document."""

_FOLDERS: Final = ("data", "rewards", "checkpoints", "rollouts")
_NAME_CHARS: Final = 40
_CREATING: Final = re.compile(r"\.creating-(\d+)-(\d+)-[0-9a-f]+@(.*)")
_HEADER: Final = f"# configuration of a dragonet run, schema {jsontext.SCHEMA}\n"
_FOREIGN_LEFTOVER_S: Final = 7 * 24 * 3600.0
_TAKEN: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})


def default_runs_dir(passed: Where | None = None) -> Path:
    """Return where runs live: what was passed, else $DRAGONET_RUNS_DIR, else ./dragonet_runs; absolute."""
    chosen = os.fspath(passed) if passed is not None else os.environ.get("DRAGONET_RUNS_DIR", "")
    return Path(chosen.strip() or "dragonet_runs").expanduser().absolute()


def run_id(name: str | None, stage: str, now: datetime) -> str:
    """Return `<YYYYMMDD-HHMMSS>-<name>-<stage>`, the name brought down to what is safe in a file name."""
    slug = re.sub(r"[^\w.]+", "-", unicodedata.normalize("NFKC", name or "").lower())[:_NAME_CHARS].strip("-._")
    return "-".join(part for part in (now.strftime("%Y%m%d-%H%M%S"), slug, stage) if part)


def create_run(
    runs_dir: Where | None,
    *,
    name: str | None,
    stage: str,
    config: Mapping[str, Any],
    files: Mapping[str, FileContent] | None = None,
    now: datetime | None = None,
) -> RunFolder:
    """Create a run under a fresh id in `runs_dir`; of several in one second the later get -2, -3 and so on.

    `files` maps paths inside the run, such as `data/train.jsonl`, to their content. environment.json and lineage.json
    are written unless they are among them. Raises RunError when the place cannot be written.
    """
    parent = default_runs_dir(runs_dir)
    base = run_id(name, stage, now or datetime.now().astimezone())
    hidden = _fill(parent, name=name, stage=stage, config=config, contents=files or {})
    try:
        for attempt in range(1, 10_000):
            target = parent / (base if attempt == 1 else f"{base}-{attempt}")
            if _take_place(hidden, target):
                return RunFolder(target)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    raise RunError(f"{parent} already holds {attempt} runs named {base}; pass another name")


def create_run_at(
    folder: Where,
    *,
    name: str | None,
    stage: str,
    config: Mapping[str, Any],
    files: Mapping[str, FileContent] | None = None,
) -> RunFolder:
    """Create a run in exactly this folder, which must not exist."""
    target = Path(folder).expanduser().absolute()
    problem = (
        f"{target} exists already; a run never writes into a folder that is there. Choose another folder, or go on "
        f"with that run by: dragonet resume {target}"
    )
    if os.path.lexists(target):
        raise RunError(problem)
    hidden = _fill(target.parent, name=name, stage=stage, config=config, contents=files or {})
    try:
        if not _take_place(hidden, target):
            raise RunError(problem)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return RunFolder(target)


def read_config(folder: Where) -> dict[str, Any]:
    """Return the resolved configuration of a run."""
    path = RunFolder(folder).config
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    header = re.match(r"# configuration of a dragonet run, schema (\d+)", text)
    if header and int(header[1]) > jsontext.SCHEMA:
        raise RunError(f"{path} was written by a newer dragonet (schema {header[1]}); upgrade dragonet to read it")
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(config, dict):
        raise RunError(f"{path} is damaged: expected keys and values, got {type(config).__name__}")
    return config


def _fill(
    parent: Path, *, name: str | None, stage: str, config: Mapping[str, Any], contents: Mapping[str, FileContent]
) -> Path:
    """Write everything a run starts with into a hidden folder in `parent`."""
    me = this_process()
    with files.writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(parent)
        token = secrets.token_hex(4)
        hidden = parent / f".creating-{me.pid}-{round(me.started * 1000)}-{token}@{me.host.replace('/', '_')}"
        hidden.mkdir()
    try:
        failpoints.hit("create.begin")
        model = config.get("model")
        label = model.get("id") if isinstance(model, Mapping) else model
        everything: dict[str, FileContent] = {
            "config.yaml": _config_text(config),
            "environment.json": environment(),
            "lineage.json": lineage(model=label),
            **contents,
            "status.json": initial_status(stage, name, None if label is None else str(label)),
        }
        with files.writing(hidden):
            for folder in _FOLDERS:
                (hidden / folder).mkdir()
        for relative, content in everything.items():
            _write_inside(hidden, relative, content)
            failpoints.hit("create.after_file")
        with files.writing(hidden):
            files.sync_tree(hidden)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return hidden


def _write_inside(root: Path, relative: str, content: FileContent) -> None:
    path = root / relative
    if Path(relative).is_absolute() or ".." in Path(relative).parts:
        raise ValueError(f"{relative!r} does not lie inside the run folder")
    if isinstance(content, Mapping):
        content = jsontext.document(content)
    with files.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def _take_place(hidden: Path, target: Path) -> bool:
    """Rename the filled folder into its place; False when the place is taken."""
    # no run's folder is empty and a rename replaces only empty ones, so of two creators exactly one wins
    if os.path.lexists(target):
        return False
    failpoints.hit("create.before_rename")
    with files.writing(target):
        try:
            os.rename(hidden, target)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise
        failpoints.hit("create.after_rename")
        files.sync(target.parent)
    return True


def _remove_leftovers(parent: Path) -> None:
    """Delete the hidden folders of creators that died; those of other hosts only when they are a week old."""
    here = this_process().host
    for path in parent.glob(".creating-*"):
        match = _CREATING.fullmatch(path.name)
        if match is None:
            continue
        pid, started, host = int(match[1]), int(match[2]) / 1000, match[3]
        if host == here:
            dead = not process_alive(pid, started)
        else:
            try:
                dead = time.time() - path.stat().st_mtime > _FOREIGN_LEFTOVER_S
            except OSError:
                continue
        if dead:
            shutil.rmtree(path, ignore_errors=True)


def _yaml_plain(value: Any) -> Any:
    """Bring a configuration down to what safe YAML knows; NaN and infinities have their own spelling there."""
    return jsontext.restore(jsontext.plain(value, exact=True))


def write_config(folder: Where, config: Mapping[str, Any]) -> None:
    """Replace the resolved configuration of a run, whole or not at all; only its owner may."""
    files.write_bytes(RunFolder(folder).config, _config_text(config).encode())


def _config_text(config: Mapping[str, Any]) -> str:
    return _HEADER + yaml.safe_dump(_yaml_plain(config), sort_keys=False, allow_unicode=True, width=120)
