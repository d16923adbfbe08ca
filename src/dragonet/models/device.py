"""Which device and dtype `auto` means on this machine. bfloat16 only where the hardware computes in it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dragonet.errors import ModelError, did_you_mean

if TYPE_CHECKING:
    import torch

__all__ = ["DTYPES", "pick_device", "pick_dtype"]

DTYPES = ("bfloat16", "float16", "float32", "float64")
_DTYPE_ALIASES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}
_CPU_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # the last one is how arm64 says it


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """Return the device to use: cuda, then mps, then cpu for `auto`. Raises ModelError for one that is not there."""
    import torch

    if isinstance(device, torch.device):
        return device
    has_cuda, has_mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if device == "auto":
        return torch.device("cuda" if has_cuda else "mps" if has_mps else "cpu")
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not index.isdigit()):
        near = did_you_mean(kind, ["auto", "cpu", "cuda", "mps"])
        raise ModelError(f"unknown device {device!r}{near}; a number may follow, as in cuda:1")
    if kind == "cuda" and (not has_cuda or int(index or 0) >= torch.cuda.device_count()):
        raise ModelError(f"device {device!r}: torch sees {torch.cuda.device_count()} CUDA devices; use device: auto")
    if kind == "mps" and not has_mps:
        raise ModelError("device 'mps': torch finds no Apple GPU on this machine; use device: auto")
    return torch.device(device)


def pick_dtype(dtype: str | torch.dtype, device: str | torch.device) -> torch.dtype:
    """Return the dtype of the base weights: for `auto` bfloat16 where `device` computes in it, else float32."""
    import torch

    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype == "auto":
        return torch.bfloat16 if _has_bfloat16(torch.device(device)) else torch.float32
    name = _DTYPE_ALIASES.get(dtype, dtype)
    if name not in DTYPES:
        raise ModelError(f"unknown dtype {dtype!r}{did_you_mean(dtype, ['auto', *DTYPES])}")
    if name == "float64" and torch.device(device).type == "mps":
        raise ModelError("dtype 'float64' does not exist on mps; use float32")
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found


def _has_bfloat16(device: torch.device) -> bool:
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and not _CPU_BF16_FLAGS.isdisjoint(_cpu_flags())


@lru_cache(maxsize=1)
def _cpu_flags() -> frozenset[str]:
    """The processor's feature flags; empty where the system does not list them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
