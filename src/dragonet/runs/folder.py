"""Where things stand in a run folder: the names that docs/runs.md lists and nothing else.

Owns the layout. It refuses to read or write.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RunFolder"]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run; usable wherever a path is. A moved or renamed folder stays a run."""

    path: Path

    def __init__(self, path: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "path", Path(path).expanduser().absolute())

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def id(self) -> str:
        """The run's id: the name of its folder."""
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def lineage(self) -> Path:
        return self.path / "lineage.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def samples(self) -> Path:
        return self.path / "samples.jsonl"

    @property
    def eval(self) -> Path:
        return self.path / "eval.json"

    @property
    def report(self) -> Path:
        return self.path / "report.json"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts"

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def rewards(self) -> Path:
        return self.path / "rewards"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def adapter(self) -> Path:
        return self.path / "adapter"

    @property
    def cancel_request(self) -> Path:
        return self.path / "cancel.request"

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    def rollouts_of(self, round: int) -> Path:
        return self.rollouts / f"round-{round:06d}.jsonl"

    def checkpoint_of(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:06d}"
