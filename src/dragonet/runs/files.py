"""How bytes get onto the disk: whole or not at all, and what the user reads when they cannot.

Owns the atomic write (hidden temporary file, fsync, rename, fsync of the folder), the append of one row by one write
call, reading rows while the last one may be half, and the swap of a folder. It refuses to know what the files mean.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dragonet.errors import RunError
from dragonet.runs import jsontext

__all__ = [
    "Where",
    "append_bytes",
    "keep_rows",
    "read_json",
    "read_rows",
    "recover_folders",
    "remove_folder",
    "swap_folder",
    "sync",
    "sync_tree",
    "write_bytes",
    "write_json",
    "writing",
]

Where = str | os.PathLike[str]
"""A run folder, as a path or a RunFolder."""

_WHY: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "it is on a read-only file system",
    errno.EACCES: "writing there is not permitted",
    errno.EPERM: "writing there is not permitted",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "something else is in its place",
    errno.EFBIG: "the file would exceed the size limit of this process or file system",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ENOENT: "its folder does not exist, or was removed meanwhile",
}
_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextlib.contextmanager
def writing(path: Where) -> Iterator[None]:
    """Turn an operating-system error into a RunError that says what cannot be written, why, and what to do."""
    try:
        yield
    except OSError as error:
        why = _WHY.get(error.errno or 0, "the operating system refused")
        if error.errno in _SPACE:
            then = "free some space there; what was written before is whole, and `dragonet resume RUN` goes on from it"
        else:
            then = "choose another place with runs_dir or $DRAGONET_RUNS_DIR, or make this one writable"
        raise RunError(f"cannot write {os.fspath(path)}: {why} ({error.strerror or error}); {then}") from error


def sync(path: Where) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        # some network file systems cannot sync a folder; the rename itself is still atomic there
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def sync_tree(path: Path) -> None:
    """Sync a file, or everything below a folder and the folder itself."""
    if path.is_dir():
        for child in sorted(path.iterdir()):
            sync_tree(child)
    sync(path)


def write_bytes(path: Where, data: bytes) -> None:
    """Replace a file: readers see the old bytes or the new ones, never half."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    with writing(path):
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with open(fd, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(fd)
            os.replace(temporary, path)
            sync(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def write_json(path: Where, value: Mapping[str, Any]) -> None:
    """Replace a JSON document; the schema version is put in."""
    write_bytes(path, jsontext.document(value))


def read_json(path: Where) -> dict[str, Any]:
    """Read a JSON document, without its schema version; RunError when missing, damaged or too new."""
    try:
        return jsontext.stripped(Path(path).read_bytes())
    except FileNotFoundError:
        raise RunError(f"{os.fspath(path)} does not exist") from None
    except OSError as error:
        raise RunError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from error
    except jsontext.TooNew as error:
        raise RunError(f"{os.fspath(path)}: {error}; upgrade dragonet to read it") from error
    except ValueError as error:
        raise RunError(f"{os.fspath(path)} is damaged: {error}") from error


def append_bytes(path: Where, data: bytes) -> None:
    """Append to a file of one writer by one write call, and wait for the disk.

    Half a line left by a process that died is cut off first; when the disk is full nothing of `data` stays.
    """
    path = Path(path)
    with writing(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            end = _cut_half_line(fd)
            try:
                view = memoryview(data)
                while view:  # a second turn happens only when the disk took a part, and then it raises
                    view = view[os.write(fd, view) :]
                os.fsync(fd)
            except OSError:
                os.ftruncate(fd, end)
                raise
        finally:
            os.close(fd)
        if end == 0:
            sync(path.parent)


def _cut_half_line(fd: int) -> int:
    end = size = os.fstat(fd).st_size
    block = 65536
    while end > 0:
        start = max(0, end - block)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        os.ftruncate(fd, end)
    return end


def read_rows(path: Where) -> list[dict[str, Any]]:
    """Read a JSONL file without the schema versions; none when it does not exist; a half last line is left out."""
    return [row for _, row in _lines(Path(path))]


def keep_rows(path: Where, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Drop the rows of a JSONL file that `keep` turns down, and a half last line; the others keep their bytes."""
    path = Path(path)
    if not path.exists():
        return
    kept = b"".join(line for line, row in _lines(path) if keep(row))
    if len(kept) != path.stat().st_size:
        write_bytes(path, kept)


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):  # what follows the last line end is half a row
        if not line.strip():
            continue
        try:
            yield line + b"\n", jsontext.stripped(line)
        except jsontext.TooNew as error:
            raise RunError(f"{path}, line {number}: {error}; upgrade dragonet to read it") from error
        except ValueError as error:
            raise RunError(f"{path}, line {number} is damaged ({error}); remove that line to go on") from error


def swap_folder(new: Path, target: Path, between: Callable[[], object] | None = None) -> None:
    """Put the complete folder `new` in the place of `target`, on the same file system.

    `between` is called while neither is in place; a death there is mended by `recover_folders`.
    """
    old = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.old")
    replaced = target.exists()
    if replaced:
        os.rename(target, old)
    if between is not None:
        between()
    os.rename(new, target)
    sync(target.parent)
    if replaced:
        shutil.rmtree(old, ignore_errors=True)


def recover_folders(parent: Path) -> None:
    """Undo what a dead process left beside the files of `parent`: temporary files and folders, unfinished swaps."""
    if not parent.is_dir():
        return
    for path in sorted(parent.glob(".*.old")):
        target = path.with_name(path.name[1:].rsplit(".", 2)[0])
        if not target.exists():
            os.rename(path, target)
    for path in [*parent.glob(".*.old"), *parent.glob(".*.tmp")]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remove_folder(path: Path, between: Callable[[], object] | None = None) -> None:
    """Delete a folder so that no reader takes a half-deleted one for whole; a death leaves only a hidden rest."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    os.rename(path, hidden)
    if between is not None:
        between()
    shutil.rmtree(hidden, ignore_errors=True)
