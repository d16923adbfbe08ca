"""Runs that are killed and resumed, and the run that was left alone to compare them with."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from assemble.forking import Done, Server
from assemble.tiny_run import outcome
from dragonet.runs import RunFolder, failpoints, list_runs

CREATION = tuple(name for name in failpoints.NAMES if name.startswith("create."))
UNSEEN = ("create.begin", "create.after_file", "create.before_rename")  # a death here leaves no run


class Deaths:
    """Starts, kills and resumes runs of one config; each run lives in a folder of its own."""

    def __init__(self, forks: Server, config: Path, home: Path) -> None:
        self.config = config
        self._forks, self._home = forks, home

    def runs_dir(self, label: str) -> Path:
        """Where the run of this label lives."""
        return self._home / label.replace(":", "-")

    def go(self, label: str, failpoint: str | None = None) -> Done:
        """Start the run, or resume it where there is one; with a failpoint it is to die there."""
        env = self.env(label, failpoint)
        if list_runs(self.runs_dir(label)):
            return self._forks.run("resume", "last", "--quiet", env=env)
        return self._forks.run("reinforce", self.config, "--json", env=env)

    def env(self, label: str, failpoint: str | None = None) -> dict[str, str]:
        """What a process of this run finds in its environment."""
        switch = {failpoints.VARIABLE: failpoint} if failpoint else {}
        return {"DRAGONET_RUNS_DIR": str(self.runs_dir(label)), **switch}

    def dies(self, label: str, failpoint: str) -> None:
        """Run until the failpoint kills it."""
        done = self.go(label, failpoint)
        assert done.code == -signal.SIGKILL, f"{failpoint} was not reached: {done}"

    def visible(self, label: str) -> list[dict[str, Any]]:
        """Return what `dragonet runs` shows."""
        done = self._forks.run("runs", "--json", env=self.env(label))
        assert done.code == 0, done
        found: list[dict[str, Any]] = json.loads(done.out)
        return found

    def survives(self, label: str) -> dict[str, Any]:
        """Resume to the end, or start anew when no run came to be; return the outcome of the only run there is."""
        states = [summary.state for summary in list_runs(self.runs_dir(label))]
        assert set(states) <= {"failed", "succeeded"}
        if states != ["succeeded"]:
            done = self.go(label)
            assert done.code == 0, done
        summaries = list_runs(self.runs_dir(label))
        assert [path.name for path in self.runs_dir(label).iterdir()] == [s.id for s in summaries], "leftovers"
        assert len(summaries) == 1
        return outcome(RunFolder(summaries[0].path))


def later_hits() -> list[str]:
    """Return the checkpoint failpoints with the number of each later hit: three checkpoints of three files."""
    per_file, per_checkpoint = (
        ("before_file", "after_file", "between_files"),
        ("before_manifest", "before_rename", "after_rename"),
    )
    wanted = [(place, nth) for place in per_file for nth in range(2, 7)]
    wanted += [(place, nth) for place in per_checkpoint for nth in (2, 3)]
    return [f"checkpoint.{place}:{nth}" for place, nth in wanted]
