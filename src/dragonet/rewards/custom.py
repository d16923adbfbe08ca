"""The custom reward, on the trainer's side: a user's function in a worker process.

Owns what is sent to the function and what its end means. The file is looked at here without running it, so that a
missing file or a syntax error is found when the reward is made; it runs in a worker only (calling.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dragonet.errors import ConfigError, UserCodeError, did_you_mean
from dragonet.host import load
from dragonet.host.pool import Outcome, Pool
from dragonet.rewards.judge import Judge
from dragonet.types import Rollout, Score

__all__ = ["custom", "packed"]


def custom(file: str | None = None, source: str | None = None, fn: str = "reward", timeout_s: float = 30.0) -> Judge:
    """Ask a function of a Python file, or of a source text. Raises UserCodeError for what can be seen in it."""
    if (file is None) == (source is None):
        raise ConfigError("give file, the Python file with the function (or source, its text)")
    _look(file, source, fn)
    where = Path(file).name if file else f"{fn}.py"
    pool = Pool("dragonet.rewards.calling:serve", {"file": file, "source": source, "fn": fn})

    def start() -> list[str]:
        try:
            wanted: list[str] = pool.start()
        except UserCodeError as error:
            text = str(error)
            raise UserCodeError(text if where in text else f"{where}: {text}") from None
        return wanted

    def score(texts: Sequence[str], rollouts: Sequence[Rollout]) -> list[Score]:
        wanted = start()
        payloads = [_arguments(text, rollout, wanted) for text, rollout in zip(texts, rollouts, strict=True)]
        return [_score(outcome, f"{fn}() in {where}") for outcome in pool.call(payloads, timeout_s)]

    return Judge(score, start=start, close=pool.close, output=pool.take_output)


def packed(file: str | None, source: str | None, fn: str) -> tuple[str, dict[str, bytes]]:
    """Return the files a function needs to run elsewhere: the name of its own, and relative name -> content."""
    if file is None:
        return f"{fn}.py", {f"{fn}.py": (source or "").encode("utf-8", "surrogateescape")}
    modules = load.local_modules(Path(file))
    return next(iter(modules)), {name: path.read_bytes() for name, path in modules.items()}


def _look(file: str | None, source: str | None, fn: str) -> None:
    """Raise for what can be seen without running the code."""
    path = Path(file) if file else None
    tree = load.parse(load.read_source(path) if path else source or "", str(path or f"{fn}.py"))
    names = load.functions(tree)
    # a function may also be imported, assigned or made by a loop; only a file without any such line is certain
    plain = all(type(node).__name__ in ("FunctionDef", "AsyncFunctionDef", "Expr", "ClassDef") for node in tree.body)
    if plain and fn not in names and not any(getattr(node, "name", None) == fn for node in tree.body):
        hint = did_you_mean(fn, names) or "; it defines no function at all"
        raise UserCodeError(f"{path.name if path else 'the source'} has no function {fn!r}{hint}")


def _arguments(text: str, rollout: Rollout, wanted: Sequence[str]) -> dict[str, Any]:
    prompt = rollout.prompt
    every: Mapping[str, Any] = {
        "prompt": prompt.text,
        "completion": text,
        "reference": prompt.reference,
        "row": dict(prompt.row),
        "messages": [dict(message) for message in prompt.messages],
        "transcript": [dict(message) for message in rollout.transcript],
    }
    return {name: every[name] for name in wanted}


def _score(outcome: Outcome, label: str) -> Score:
    if outcome.status == "late":
        return Score(failure=f"{label} {outcome.detail} and was stopped", logs={"timeout": 1.0})
    if outcome.status == "died":
        return Score(failure=f"{label} ended its process: {outcome.detail}")
    if outcome.status == "raised":
        return Score(failure=f"{label}: {outcome.detail}")
    kind, *rest = outcome.value
    if kind == "value" and math.isfinite(rest[0]):
        return Score(rest[0])
    return Score() if kind == "na" else Score(failure=str(rest[0]))
