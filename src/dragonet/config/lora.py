"""The `lora` section: rank, scale, dropout and targets of the low-rank adapter (Hu et al. 2021, arXiv:2106.09685)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from dragonet.config.values import STRICT, Count, Real, Text


class LoraSection(BaseModel):
    """The update is scaled by alpha / r. Dropout is off: it would make sampled and trained probabilities differ."""

    model_config = STRICT

    r: Annotated[int, Field(ge=1, le=4096)] = 16
    alpha: Count = 32
    dropout: Annotated[Real, Field(ge=0, lt=1)] = 0.0
    targets: Literal["all-linear"] | Annotated[tuple[Text, ...], Field(min_length=1, strict=False)] = Field(
        default="all-linear", description="all-linear, or a list of module names"
    )
