"""What a model's name resolves to, and what a LoRA adapter looks like. Plain values; no torch, no files opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Kind", "LoraSpec", "ModelRef"]

Kind = Literal["bundled", "tiny", "folder", "gguf", "hub", "run"]


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model whose files are on this machine.

    `folder` holds config, weights and tokenizer in the transformers layout. `adapters` are folded into those weights in
    this order (earlier stages first). `name` is what to call the base elsewhere: it names no place inside a cache.
    """

    name: str
    folder: Path
    adapters: tuple[Path, ...] = ()
    kind: Kind = "folder"
    revision: str | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class LoraSpec:
    """A LoRA adapter: W + alpha/r * B A (Hu et al. 2021). `targets` is `all-linear` or names of linear layers."""

    r: int = 16
    alpha: float = 32
    dropout: float = 0.0
    targets: str | Sequence[str] = "all-linear"
