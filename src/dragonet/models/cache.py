"""The user's model cache: folders that are complete or absent, however many processes build them at once.

A folder is built under a unique temporary name beside its target and renamed into place; whoever comes second discards
its own copy. Left-overs of processes that died are removed by the next build. Knows nothing of what the folders hold.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from dragonet.errors import ModelError

__all__ = ["build_folder", "cache_root", "unwritable", "write_atomic"]

_TEMP_PREFIX = ".building-"
_FOREIGN_STALE_S = 24 * 3600.0  # a build on another host cannot be judged by its pid, only by its age


def cache_root() -> Path:
    """Return the cache folder: `$DRAGONET_CACHE`, or the platform's cache folder for users."""
    given = os.environ.get("DRAGONET_CACHE")
    if given:
        return Path(given).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dragonet"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return (Path(base) if base else Path.home() / "AppData" / "Local") / "dragonet" / "cache"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dragonet"


def build_folder(target: Path, fill: Callable[[Path], None]) -> Path:
    """Return `target`, built by `fill(temporary folder)` when it does not exist yet.

    Raises ModelError when the cache cannot be written; whatever `fill` raises is passed on and leaves nothing behind.
    """
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target.parent)
        temp = target.parent / _temp_name(target.name)
        temp.mkdir()
    except OSError as error:
        raise unwritable(target, error) from error
    try:
        fill(temp)
        _share(temp)
        _rename(temp, target)
    except OSError as error:
        raise unwritable(target, error) from error
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    return target


def _share(folder: Path) -> None:
    """Give every file the rights a new file has; writers of weights make theirs private to one user."""
    probe = folder / ".rights"
    probe.touch()
    rights = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for path in folder.iterdir():
        if path.is_file():
            path.chmod(rights)


def _rename(temp: Path, target: Path) -> None:
    try:
        temp.rename(target)
    except OSError:
        if not target.is_dir():  # otherwise another process was first and its copy is as good
            raise


def _temp_name(name: str) -> str:
    started = int(psutil.Process().create_time())
    return f"{_TEMP_PREFIX}{name}~{socket.gethostname()}~{os.getpid()}~{started}~{secrets.token_hex(4)}"


def _remove_stale(parent: Path) -> None:
    for path in parent.glob(f"{_TEMP_PREFIX}*"):
        parts = path.name.split("~")
        if len(parts) == 5 and _is_stale(path, host=parts[1], pid=parts[2], started=parts[3]):
            shutil.rmtree(path, ignore_errors=True)


def _is_stale(path: Path, *, host: str, pid: str, started: str) -> bool:
    if host != socket.gethostname():
        try:
            return time.time() - path.stat().st_mtime > _FOREIGN_STALE_S
        except OSError:
            return False
    try:
        return abs(psutil.Process(int(pid)).create_time() - int(started)) > 2
    except (psutil.NoSuchProcess, ValueError):
        return True
    except psutil.Error:
        return False


def write_atomic(target: Path, text: str) -> None:
    """Write a small text file, whole or not at all. Raises ModelError when the cache cannot be written."""
    temp = target.parent / f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temp.write_text(text, encoding="utf-8")
        temp.replace(target)
    except OSError as error:
        temp.unlink(missing_ok=True)
        raise unwritable(target, error) from error


def unwritable(target: Path, error: OSError) -> ModelError:
    """Return the error for a cache that cannot be written."""
    return ModelError(
        f"cannot write the model cache at {target.parent}: {error.strerror or error}; "
        "free some space there or set DRAGONET_CACHE to a folder that can be written"
    )
