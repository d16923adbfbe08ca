"""Small things several files of this room need: quiet loading, the first line of an error, JSON that may be absent."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["first_line", "quiet", "read_json"]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars, and what peft and transformers deprecate in each other, off the terminal."""
    from transformers.utils import logging

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, with its type where the text alone says little."""
    text = str(error).strip()
    if not text:
        return type(error).__name__
    line = text.splitlines()[0]
    return f"{type(error).__name__}: {line}" if isinstance(error, LookupError) else line


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one when it is absent or something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
