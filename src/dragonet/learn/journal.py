"""What the loop writes down, and how it is read back: rollouts, metrics, evaluations and checkpoints of a run folder.

Order matters: a checkpoint of a step comes after everything else of that step, so that what lies beyond the latest
checkpoint can be cut off and written again. Knows files only through `dragonet.runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from dragonet import runs
from dragonet.errors import RunError
from dragonet.learn.batch import TrainBatch
from dragonet.learn.evaluate import Evaluation, gain, named_scores
from dragonet.learn.loop import Progress
from dragonet.protocols import Learner, Tracker
from dragonet.types import Rollout, ScoredGroup

OPTIMIZER = "optimizer.safetensors"
ADAPTER = "adapter"


class RunJournal:
    """Write a run's records; `save_adapter(folder)` writes the adapter in PEFT layout."""

    def __init__(
        self,
        folder: runs.RunFolder,
        *,
        tracker: Tracker,
        learner: Learner,
        save_adapter: Callable[[Path], None],
        note: Callable[[str], None],
        reward_names: Sequence[str],
        keep_checkpoints: int,
    ) -> None:
        self._folder, self._tracker, self._learner = folder, tracker, learner
        self._save_adapter, self._note = save_adapter, note
        self._names, self._keep = tuple(reward_names), keep_checkpoints

    def record(self, rows: Sequence[Mapping[str, Any]], batch: TrainBatch, scored: Sequence[ScoredGroup]) -> None:
        """Write a round: its rollouts, then a row of metrics per step."""
        runs.write_rollouts(self._folder, int(rows[0]["round"]), rollout_rows(batch, scored, self._names))
        for row in rows:
            runs.append_metrics(self._folder, row)
            self._tracker.log(int(row["step"]), row)
        runs.update_status(self._folder, step=int(rows[-1]["step"]))

    def evaluated(self, evaluation: Evaluation) -> None:
        """Write an evaluation and what was gained since the first one."""
        history = [e for e in read_history(self._folder) if e.step != evaluation.step] + [evaluation]
        gained = gain(history)
        earlier = {row["step"] for row in runs.read_samples(self._folder)}
        if evaluation.step not in earlier:
            runs.append_samples(self._folder, evaluation.samples)
        runs.write_json(self._folder, "eval.json", {**gained, "history": [e.to_json() for e in history]})
        runs.update_status(self._folder, reward=gained["reward"])
        self._note(_said(evaluation))

    def save(self, progress: Progress) -> None:
        """Write a checkpoint from which the run continues bit for bit, and drop the oldest ones."""
        tensors, plain = split_state(self._learner.state())
        writers = {ADAPTER: self._save_adapter, OPTIMIZER: lambda path: _write_tensors(path, tensors)}
        state = {"progress": progress.to_json(), "learner": plain}
        path = runs.save_checkpoint(self._folder, progress.step, writers, state)
        runs.prune_checkpoints(self._folder, self._keep)
        runs.update_status(self._folder, latest_checkpoint=path.name)

    def note(self, text: str) -> None:
        """Tell the user something, in the log and on the terminal."""
        self._note(text)


def restore(folder: runs.RunFolder, learner: Learner) -> tuple[Progress, tuple[str, ...]]:
    """Load the latest whole checkpoint into the learner and cut the run's records back to it.

    Without a checkpoint the records are emptied and training begins at step 0.
    """
    checkpoint = runs.load_checkpoint(folder)
    if checkpoint is None:
        runs.rewind(folder, -1, -1)
        return Progress(), ()
    known = {f.name for f in fields(Progress)}
    saved = checkpoint.state.get("progress", {})
    if not known <= saved.keys():
        raise RunError(
            f"the checkpoint {checkpoint.path} lacks {sorted(known - saved.keys())}; it is of another version"
        )
    progress = Progress(**{name: saved[name] for name in known})
    learner.load({**checkpoint.state["learner"], **_read_tensors(checkpoint.file(OPTIMIZER))})
    runs.rewind(folder, progress.step, progress.round - 1)
    return progress, checkpoint.notices


def read_history(folder: runs.RunFolder) -> list[Evaluation]:
    """Return the run's evaluations in the order of their steps."""
    if not folder.eval.exists():
        return []
    try:
        return [Evaluation.from_json(entry) for entry in runs.read_json(folder, "eval.json").get("history", [])]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"{folder.eval} is damaged ({type(error).__name__}: {error}); move it away, and the run is measured again"
        ) from error


def rollout_rows(batch: TrainBatch, scored: Sequence[ScoredGroup], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield one JSON row per rollout: tokens, scores per reward and advantage (the mean over its sampled tokens)."""
    flat = (
        (rollout, scores, reward)
        for g in scored
        for rollout, scores, reward in zip(g.group.rollouts, g.scores_G_K, g.rewards_G, strict=True)
    )
    for index, (rollout, scores, reward) in enumerate(flat):
        mask = batch.rows[index].mask
        advantage = float(np.mean(batch.row_advantages(index)[mask])) if mask.any() else 0.0
        yield {
            **_place(rollout),
            "prompt": rollout.prompt_text,
            "reference": rollout.prompt.reference,
            "completion": rollout.completion,
            "stop_reason": str(rollout.stop_reason),
            "error": rollout.error,
            "reward": reward,
            "advantage": advantage,
            "scores": named_scores(names, scores),
            "segments": [
                {"sampled": s.sampled, "version": s.version, "token_ids": s.token_ids, "logprobs": s.logprobs}
                for s in rollout.segments
            ],
        }


def split_state(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part a learner's state into tensors and plain values."""
    import torch

    tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    return tensors, {key: value for key, value in state.items() if key not in tensors}


def _write_tensors(path: Path, tensors: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    save_file({key: value.contiguous() for key, value in tensors.items()}, path)


def _read_tensors(path: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(path))


def _place(rollout: Rollout) -> dict[str, Any]:
    return {
        "round": rollout.round,
        "index": rollout.prompt.index,
        "attempt": rollout.attempt,
        "member": rollout.member,
        "seed": rollout.seed,
    }


def _said(evaluation: Evaluation) -> str:
    reward = "none could be scored" if evaluation.reward is None else f"{evaluation.reward:.3f}"
    parts = ", ".join(
        f"{name} {sum(known) / len(known):.3f}"
        for name, values in evaluation.scores_K_P.items()
        if (known := [v for v in values if v is not None])
    )
    text = f"held-out reward at step {evaluation.step}: {reward} on {len(evaluation.rewards_P)} prompts"
    if parts:
        text += f" ({parts})"
    if evaluation.failed:
        text += f"; {evaluation.failed} could not be scored, first reason: {evaluation.first_failure}"
    return text
