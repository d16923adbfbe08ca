"""The Learner seam in one process: a round with advantages -> optimizer steps on a LoRA policy.

Owns the passes through the model, the split into micro-batches and the metrics of a step. The reference is the policy
with its adapter switched off. Weights of tokens come from the whole step before it is split, so the split does not
change the update. Knows no rewards, no estimators and no run folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch

from dragonet.errors import ConfigError, TrainingError
from dragonet.learn.batch import TrainBatch, pack
from dragonet.learn.kl import kl_per_token, sequence_penalty
from dragonet.learn.losses import aggregate, aggregate_weights
from dragonet.learn.objective import Objective
from dragonet.learn.policy import split_model, token_logprobs
from dragonet.learn.step import OptimizerSettings, OptimizerStep, load_tensor
from dragonet.models.adapter import adapter_tensors, reference_mode
from dragonet.protocols import FloatArray, LossInput

__all__ = ["LocalLearner"]

FORMAT: Final = 1  # of the state
# Padded tokens of an automatic micro-batch. Two cores were as fast with 512 as with 2048 (135M parameters, bf16), in a
# quarter of the memory (about 2 MB a token); accelerators want wider batches.
AUTO_TOKENS_CPU: Final = 512
AUTO_TOKENS: Final = 2048


class LocalLearner:
    """Trains the adapter of one peft model in place, on the device it lies on.

    `micro_batch` is the number of rows per pass, or `auto` for as many as fit into a number of tokens. `seed` draws
    LoRA dropout, the only random thing here, from (seed, step, micro-batch); torch's global generators stay untouched.
    """

    def __init__(
        self,
        model: Any,
        objective: Objective,
        optimizer: OptimizerSettings,
        *,
        micro_batch: int | str = "auto",
        seed: int = 0,
        chunk: int | None = None,
    ) -> None:
        if micro_batch != "auto" and (not isinstance(micro_batch, int) or micro_batch < 1):
            raise ConfigError(f"micro_batch is auto or a number of rows from 1 on, got {micro_batch!r}")
        self._model = model
        self._objective = objective
        self._loss_fn = objective.loss_fn()
        self._micro_batch = micro_batch
        self._seed = seed
        self._chunk = chunk
        self._adapter = adapter_tensors(model)
        self._step = OptimizerStep(self._adapter, optimizer)
        self._dropouts = _lora_dropouts(model)
        self._device = split_model(model)[1].device

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the adapter's live tensors by name."""
        return dict(self._adapter)

    def annotate(self, batch: TrainBatch) -> None:
        """Fill in old and reference log-probabilities and the KL penalty, where the objective asks for them."""
        indices = [i for i, row in enumerate(batch.rows) if row.scored and row.n_sampled]
        plan = self._pack(batch, indices)
        self._model.eval()
        with torch.no_grad():
            if self._objective.needs_old:
                self._fill(batch, plan, batch.old_logp)
            if self._objective.needs_reference:
                with reference_mode(self._model):
                    self._fill(batch, plan, batch.ref_logp)
        if self._objective.kl_in_reward:
            batch.penalty = np.zeros(len(batch.rows))
            for i in indices:
                old, ref = _known(batch.old_logp, i), _known(batch.ref_logp, i)
                batch.penalty[i] = sequence_penalty(old, ref, self._objective.beta, str(self._objective.kl))

    def update(self, batch: TrainBatch) -> list[dict[str, float]]:
        """Make `updates` optimizer steps on the batch; return the metrics of each, every one of them finite.

        Raises TrainingError when too many steps in a row were not finite.
        """
        objective = self._objective
        lengths = batch.loss_lengths()
        per_token = aggregate_weights(str(objective.aggregate), list(lengths.values()), objective.max_new_tokens)
        weights = dict(zip(lengths, per_token.tolist(), strict=True))
        # a row whose advantages are all 0 has a gradient of exactly 0, unless the loss also has a KL term
        trained = [i for i in lengths if weights[i] > 0 and (objective.kl_in_loss or np.any(batch.row_advantages(i)))]
        plan = self._pack(batch, trained)
        self._model.eval()
        return [self._one_step(batch, plan, weights) for _ in range(objective.updates)]

    def state(self) -> dict[str, Any]:
        """Return copies of adapter, moments and counters as a flat mapping of tensors and plain values."""
        adapter = {f"adapter/{name}": t.detach().cpu().clone() for name, t in self._adapter.items()}
        return {"format": FORMAT, **adapter, **self._step.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from `state` bit for bit; raises TrainingError, before anything changes, when it does not fit."""
        if state.get("format") != FORMAT:
            raise TrainingError(
                f"the saved state has format {state.get('format')!r}, this version reads {FORMAT}; "
                "resume with the version of dragonet that wrote it"
            )
        fresh = {name: load_tensor(state, f"adapter/{name}", t) for name, t in self._adapter.items()}
        self._step.load(state)
        with torch.no_grad():
            for name, tensor in fresh.items():
                self._adapter[name].copy_(tensor)

    def _one_step(
        self, batch: TrainBatch, plan: Sequence[Sequence[int]], weights: Mapping[int, float]
    ) -> dict[str, float]:
        sums = dict.fromkeys(("loss", "tokens", "clip_fraction", "ratio", "kl", "gap", "gap_tokens"), 0.0)
        finite = True
        self._step.zero_grad()
        for number, indices in enumerate(plan):
            with self._dropout(number):
                loss = self._micro_loss(batch, indices, weights, sums)
            finite = bool(torch.isfinite(loss))
            if not finite:
                break
            loss.backward()  # type: ignore[no-untyped-call]
            sums["loss"] += float(loss.detach())
        report = self._step.apply(loss_is_finite=finite)
        tokens = max(sums["tokens"], 1.0)
        metrics = {
            "loss": 0.0 if report.skipped else sums["loss"],
            "kl": self._kl_in_reward(batch) if self._objective.kl_in_reward else sums["kl"] / tokens,
            "grad_norm": report.grad_norm,
            "lr": report.lr,
            "clip_fraction": sums["clip_fraction"] / tokens,
            "ratio": sums["ratio"] / tokens if sums["tokens"] else 1.0,
            "sampler_gap": sums["gap"] / max(sums["gap_tokens"], 1.0),
            "trained_tokens": 0.0 if report.skipped else sums["tokens"],
            "skipped": float(report.skipped),
        }
        return {name: value if np.isfinite(value) else 0.0 for name, value in metrics.items()}

    def _micro_loss(
        self, batch: TrainBatch, indices: Sequence[int], weights: Mapping[int, float], sums: dict[str, float]
    ) -> torch.Tensor:
        """Return the micro-batch's share of the step's loss and add its metrics to `sums`."""
        rows = [batch.rows[i] for i in indices]
        logp = self._logprobs(batch, indices)  # (B, T)
        mask = self._padded([row.mask for row in rows], logp) > 0
        before = logp.detach()
        if self._objective.needs_old:
            before = self._padded([_known(batch.old_logp, i) for i in indices], logp)
        advantages = self._padded([batch.row_advantages(i) for i in indices], logp)
        per_token, loss_sums = self._loss_fn(LossInput(logp, before, advantages, mask))
        if self._objective.kl_in_loss:
            ref = self._padded([_known(batch.ref_logp, i) for i in indices], logp)
            kind, corrected = str(self._objective.kl), before if self._objective.importance_corrected else None
            per_token = per_token + self._objective.beta * kl_per_token(logp, ref, mask, kind, old_logp=corrected)
            sums["kl"] += float(kl_per_token(logp.detach(), ref, mask, kind).sum())
        gap = (before - self._padded([row.sampler_logp for row in rows], logp)).abs()
        known = mask & torch.isfinite(gap)
        sums["gap"] += float(torch.where(known, gap, 0.0).sum())
        sums["gap_tokens"] += float(known.sum())
        sums["tokens"] += float(mask.sum())
        for name, value in loss_sums.items():
            sums[name] += float(value)
        row_weights = torch.tensor([weights[i] for i in indices], dtype=logp.dtype, device=logp.device)
        return aggregate(per_token, mask, row_weights)

    def _kl_in_reward(self, batch: TrainBatch) -> float:
        """Return the mean estimate per sampled token of the annotated rows."""
        if batch.penalty is None:
            return 0.0
        tokens = sum(row.n_sampled for row in batch.rows if row.scored)
        return float(batch.penalty.sum() / self._objective.beta / max(tokens, 1))

    def _logprobs(self, batch: TrainBatch, indices: Sequence[int]) -> torch.Tensor:
        rows = [batch.rows[i] for i in indices]
        return token_logprobs(self._model, rows, temperature=self._objective.temperature, chunk=self._chunk)

    def _fill(self, batch: TrainBatch, plan: Sequence[Sequence[int]], slots: list[FloatArray | None]) -> None:
        for indices in plan:
            values = self._logprobs(batch, indices).cpu().double().numpy()  # (B, T)
            for i, row_values in zip(indices, values, strict=True):
                mask = batch.rows[i].mask
                slots[i] = np.where(mask, row_values[: mask.size], np.nan)

    def _padded(self, arrays: Sequence[Any], like: torch.Tensor) -> torch.Tensor:
        """Stack ragged arrays (T_i,) into (B, T) in the dtype and on the device of `like`, zeros behind."""
        out = np.zeros(tuple(like.shape))
        for b, array in enumerate(arrays):
            out[b, : array.size] = array
        return torch.from_numpy(out).to(like.dtype).to(like.device)

    def _pack(self, batch: TrainBatch, indices: Sequence[int]) -> list[list[int]]:
        budget = AUTO_TOKENS_CPU if self._device.type == "cpu" else AUTO_TOKENS
        return pack(indices, {i: batch.rows[i].ids.size for i in indices}, self._micro_batch, budget)

    @contextmanager
    def _dropout(self, number: int) -> Iterator[None]:
        """Switch LoRA dropout on, drawn from (seed, step, micro-batch) alone; nothing happens without dropout."""
        if not self._dropouts:
            yield
            return
        cuda = self._device.type == "cuda"
        devices = [] if self._device.type == "cpu" else [self._device.index or 0]
        with torch.random.fork_rng(devices=devices, device_type="cuda" if cuda or not devices else self._device.type):
            torch.manual_seed(_seed(self._seed, self._step.steps, number))
            for module in self._dropouts:
                module.training = True
            try:
                yield
            finally:
                for module in self._dropouts:
                    module.training = False


def _known(slots: Sequence[FloatArray | None], index: int) -> FloatArray:
    values = slots[index]
    if values is None:
        raise ValueError(f"row {index} has no log-probabilities yet; call annotate before update")
    return values


def _lora_dropouts(model: Any) -> list[torch.nn.Module]:
    found = [m for name, m in model.named_modules() if ".lora_dropout." in name and isinstance(m, torch.nn.Dropout)]
    return [module for module in found if module.p > 0]


def _seed(run_seed: int, step: int, micro_batch: int) -> int:
    digest = hashlib.blake2b(f"dropout/{run_seed}/{step}/{micro_batch}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
