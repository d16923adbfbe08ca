"""A name to files on this machine: bundled name, folder, GGUF file, hub id, finished run or adapter.

The order is fixed: bundled names, then what exists on disk, then runs, then the hub; a text that can only be a path
never reaches the hub. Loads no weights.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from dragonet.errors import ModelError, did_you_mean
from dragonet.models.bundled import bundled_entry, bundled_folder, bundled_names
from dragonet.models.convert import Notice, gguf_folder
from dragonet.models.finished import is_adapter, is_run, read_adapter, read_run
from dragonet.models.folder import weights_problem
from dragonet.models.hub import hub_folder
from dragonet.models.ref import Kind, ModelRef
from dragonet.models.tiny import TINY_NAME, tiny_folder

__all__ = ["resolve"]

_HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+")
_MAX_CHAIN: Final = 32  # stages on top of each other; more is a circle


def resolve(
    model: str | Path,
    *,
    revision: str | None = None,
    runs_dir: str | Path | None = None,
    trust_remote_code: bool = False,
    on_notice: Notice | None = None,
) -> ModelRef:
    """Return where the files of `model` are, converting or downloading them on first use.

    `runs_dir` (default `$DRAGONET_RUNS_DIR`, then `./dragonet_runs`) is where run ids are looked up. `on_notice` is
    told of conversions and downloads. Raises ModelError, saying what to put where, for a model that cannot be had.
    """
    runs = Path(runs_dir) if runs_dir is not None else _runs_dir()
    name = str(model)
    adapters: tuple[Path, ...] = ()
    kind: Kind | None = None
    for _ in range(_MAX_CHAIN):  # from the last stage down to the model that all of them stand on
        place = _run_or_adapter(name, runs)
        if place is None:
            break
        _no_revision(name, revision)
        origin = read_run(place) if is_run(place) else read_adapter(place)
        kind = kind or ("run" if is_run(place) else "folder")
        name, revision, adapters = origin.base, origin.revision, (*origin.adapters, *adapters)
    else:
        raise ModelError(f"model {model!s}: more than {_MAX_CHAIN} runs build on each other; they form a circle")
    try:
        base = _whole(name, revision, on_notice)
    except ModelError as error:
        raise error if name == str(model) else ModelError(f"the base of {model!s}: {error}") from error
    return replace(base, adapters=adapters, kind=kind or base.kind, trust_remote_code=trust_remote_code)


def _run_or_adapter(model: str, runs_dir: Path) -> Path | None:
    """The folder of the run or bare adapter that `model` names, or None when it names something else."""
    if model in bundled_names():
        return None
    path = Path(model).expanduser()
    if path.exists():
        return path.absolute() if is_run(path) or is_adapter(path) else None
    run = runs_dir / model
    return run if _is_plain_name(model) and is_run(run) else None


def _whole(model: str, revision: str | None, on_notice: Notice | None) -> ModelRef:
    """A model with weights of its own: on this machine first, else from the hub."""
    local = _local(model, on_notice)
    if local is None:
        return _from_hub(model, revision, on_notice)
    _no_revision(model, revision)
    return local


def _local(model: str, on_notice: Notice | None) -> ModelRef | None:
    if model == TINY_NAME:
        return ModelRef(TINY_NAME, tiny_folder(), kind="tiny")
    entry = bundled_entry(model)
    if entry is not None:
        return ModelRef(model, bundled_folder(entry, on_notice=on_notice), kind="bundled")
    path = Path(model).expanduser()
    if path.is_dir():
        problem = weights_problem(path)
        if problem:
            raise ModelError(f"the folder {path.absolute()} is not a usable model: {problem}")
        return ModelRef(str(path.absolute()), path.absolute(), kind="folder")
    if path.suffix.lower() == ".gguf" and (path.exists() or not _HUB_ID.fullmatch(model)):
        return ModelRef(str(path.absolute()), gguf_folder(path, on_notice=on_notice), kind="gguf")
    if path.exists():
        raise ModelError(f"model {model!r} is a file; give a folder with config.json and weights, or a .gguf file")
    return None


def _from_hub(model: str, revision: str | None, on_notice: Notice | None) -> ModelRef:
    name, _, inline = model.partition("@")
    if not _HUB_ID.fullmatch(name) or name.startswith(("./", "../", "~")):
        raise _unknown(model)
    if inline and revision and inline != revision:
        raise ModelError(
            f"model {model!r} names the revision {inline!r} and model.revision says {revision!r}; keep one"
        )
    folder = hub_folder(name, inline or revision, on_notice=on_notice)
    problem = weights_problem(folder)
    if problem:
        raise ModelError(f"hub model {name!r} in {folder} is not usable: {problem}")
    return ModelRef(name, folder, kind="hub", revision=folder.name)


def _unknown(model: str) -> ModelError:
    if "/" in model or os.sep in model or model.startswith(("~", ".")):
        return ModelError(f"no model at {Path(model).expanduser().absolute()}: there is no such folder or file")
    near = did_you_mean(model, bundled_names())
    return ModelError(
        f"no model is called {model!r}{near}; a model is a bundled name, a folder, a .gguf file, a hub id such as "
        "owner/name, or a finished run"
    )


def _is_plain_name(model: str) -> bool:
    return bool(model) and model not in (".", "..") and not any(sign in model for sign in "/\\@")


def _no_revision(model: str, revision: str | None) -> None:
    if revision is not None:
        raise ModelError(
            f"model.revision {revision!r} has no meaning for {model!r}: only hub ids have revisions; drop it"
        )


def _runs_dir() -> Path:
    return Path(os.environ.get("DRAGONET_RUNS_DIR") or "dragonet_runs")
