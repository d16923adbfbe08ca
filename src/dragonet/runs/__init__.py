"""What happened, on disk: run folders, their state, their records, and the processes behind them.

Only this room writes run files; others hand it plain state. It loads no torch and never calls back into what trains.
"""

from __future__ import annotations

from dragonet.runs.checkpoint import (
    Checkpoint,
    checkpoint_steps,
    latest_checkpoint,
    load_checkpoint,
    prune_checkpoints,
    publish_adapter,
    save_checkpoint,
)
from dragonet.runs.environment import environment
from dragonet.runs.find import RunSummary, find_run, list_runs, summarize
from dragonet.runs.folder import RunFolder
from dragonet.runs.launch import StopSignal, cancel, launch_detached, request_cancel, wait
from dragonet.runs.lineage import lineage, sha256_of
from dragonet.runs.log import RunLog, follow, tail
from dragonet.runs.metrics import WALL_CLOCK, append_metrics, is_wall_clock, read_metrics, truncate_metrics
from dragonet.runs.ownership import Ownership, acquire, prepare_resume
from dragonet.runs.process import process_alive
from dragonet.runs.records import (
    append_samples,
    read_json,
    read_rollouts,
    read_samples,
    rewind,
    write_json,
    write_rollouts,
)
from dragonet.runs.run import Run
from dragonet.runs.status import FINAL, STATES, Status, finish, read_status, start, update_status
from dragonet.runs.store import create_run, create_run_at, default_runs_dir, read_config, write_config
from dragonet.runs.tracker import ConsoleTracker, FencedTrackers

__all__ = [
    "FINAL",
    "STATES",
    "WALL_CLOCK",
    "Checkpoint",
    "ConsoleTracker",
    "FencedTrackers",
    "Ownership",
    "Run",
    "RunFolder",
    "RunLog",
    "RunSummary",
    "Status",
    "StopSignal",
    "acquire",
    "append_metrics",
    "append_samples",
    "cancel",
    "checkpoint_steps",
    "create_run",
    "create_run_at",
    "default_runs_dir",
    "environment",
    "find_run",
    "finish",
    "follow",
    "is_wall_clock",
    "latest_checkpoint",
    "launch_detached",
    "lineage",
    "list_runs",
    "load_checkpoint",
    "prepare_resume",
    "process_alive",
    "prune_checkpoints",
    "publish_adapter",
    "read_config",
    "read_json",
    "read_metrics",
    "read_rollouts",
    "read_samples",
    "read_status",
    "request_cancel",
    "rewind",
    "save_checkpoint",
    "sha256_of",
    "start",
    "summarize",
    "tail",
    "truncate_metrics",
    "update_status",
    "wait",
    "write_config",
    "write_json",
    "write_rollouts",
]
