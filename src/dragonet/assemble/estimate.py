"""About how long a run takes and how much memory it needs, before anything is loaded.

Counts FLOPs of the dense layers and divides by what this machine's matrix product reaches at the model's shapes, times
the share of it that sampling and updating were measured to reach. Right within a factor of two, and says so.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

from dragonet import models
from dragonet.assemble.prepare import Prepared

BURSTS, BURST_S = 6, 0.03  # how often and how long the matrix product is measured; the best burst counts
SAMPLING_SHARE = 0.2  # of the probe's speed, measured on the bundled model with 32 to 64 rows
UPDATE_SHARE = 0.35
MEASURED_PROMPTS = 64
ADAM_BYTES = 16  # per trained parameter: float32 value, gradient and two moments
ACTIVATION_BYTES = 34  # per token, layer and hidden unit, at two bytes a number (Korthikanti et al. 2022, section 4.1)
MICRO_BATCH_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Estimate:
    """Rough cost of a run; `gflops` is the probe's speed in 1e9 multiply-adds x 2 per second."""

    prompt_tokens: float
    step_s: float
    run_minutes: float
    memory_gb: float
    gflops: float
    device: str
    dtype: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def text(self) -> str:
        """Say it in two lines."""
        return (
            f"about {self.step_s:.0f} s a step and {self.run_minutes:.0f} min in all, without evaluations, if every "
            f"answer used all its tokens; about {self.memory_gb:.1f} GB of memory (within a factor of two)\n"
            f"{self.prompt_tokens:.0f} tokens in a prompt on average; this machine multiplies matrices of the model's "
            f"shape at {self.gflops:.0f} GFLOP/s on {self.device} in {self.dtype}"
        )


def estimate(prepared: Prepared, steps: int) -> Estimate:
    """Estimate the cost of `steps` optimizer steps."""
    config = prepared.config
    shape = _shape(prepared)
    device = models.pick_device(config.model.device)
    dtype = models.pick_dtype(config.model.dtype, device)
    rows = config.train.batch_size * config.reinforce.group_size
    counted = prepared.train[:MEASURED_PROMPTS]
    prompt = statistics.mean(len(prepared.renderer.prompt_ids(p.messages)) for p in counted)
    new = config.reinforce.max_new_tokens
    speed = _matrix_speed(shape["hidden"], shape["inner"], rows, device, dtype)
    forward = 2.0 * shape["parameters"]  # FLOPs per token
    sample = (config.train.batch_size * prompt + rows * new) * forward / (speed * SAMPLING_SHARE)
    passes = 2.0 * config.reinforce.updates + (config.reinforce.beta > 0) + (config.reinforce.updates > 1)
    update = rows * (prompt + new) * forward * passes / (speed * UPDATE_SHARE)
    step_s = (sample + update) / config.reinforce.updates
    return Estimate(
        prompt_tokens=prompt,
        step_s=step_s,
        run_minutes=step_s * steps / 60,
        memory_gb=_memory(shape, rows * (prompt + new), config.lora.r, dtype.itemsize) / 1e9,
        gflops=speed / 1e9,
        device=str(device),
        dtype=str(dtype).removeprefix("torch."),
    )


def _shape(prepared: Prepared) -> dict[str, int]:
    """Count the model's parameters without loading them."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    trust = prepared.ref.trust_remote_code
    config = AutoConfig.from_pretrained(str(prepared.ref.folder), trust_remote_code=trust)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust)
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    linear = sum(m.in_features + m.out_features for m in model.modules() if isinstance(m, torch.nn.Linear))
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "hidden": text.hidden_size,
        "inner": getattr(text, "intermediate_size", 4 * text.hidden_size),
        "layers": text.num_hidden_layers,
        "cache": 2 * heads * head_dim,
        "linear": linear,
        "vocabulary": text.vocab_size,
    }


def _memory(shape: dict[str, int], sampled_tokens: float, rank: int, item: int) -> float:
    weights = shape["parameters"] * item
    adapter = shape["linear"] * rank * ADAM_BYTES
    cache = sampled_tokens * shape["layers"] * shape["cache"] * item
    held = MICRO_BATCH_TOKENS * shape["layers"] * shape["hidden"] * ACTIVATION_BYTES * item / 2
    return weights + adapter + max(cache, held) + 0.6e9  # the last term: Python with torch loaded


def _matrix_speed(hidden: int, inner: int, rows: int, device: Any, dtype: Any) -> float:
    """Measure one matrix product of the model's shape, in FLOP/s."""
    import torch

    a, b = torch.randn(max(rows, 1), hidden), torch.randn(hidden, inner)
    a, b = a.to(device, dtype), b.to(device, dtype)
    best = 0.0
    for _ in range(BURSTS):
        done, started = 0, time.perf_counter()
        while (spent := time.perf_counter() - started) < BURST_S or not done:
            float((a @ b)[0, 0])  # reading one number waits for the device
            done += 1
        best = max(best, done / spent)
    return 2.0 * a.shape[0] * hidden * inner * best
