"""The `train` section: optimizer, schedule, length of the run, checkpoints and evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from dragonet.config.values import STRICT, Count, Real, Seed


class TrainSection(BaseModel):
    """`batch_size` counts prompts, `micro_batch` completions; `max_steps` wins over `epochs`."""

    model_config = STRICT

    learning_rate: Annotated[Real, Field(ge=0, le=1)] = 1.0e-5
    batch_size: Count = 4
    micro_batch: Literal["auto"] | Count = "auto"
    epochs: Count = 1
    max_steps: Count | None = None
    max_minutes: Annotated[Real, Field(gt=0, le=1_000_000)] | None = None
    warmup: Annotated[Real, Field(ge=0, le=1, description="a share of all steps from 0 to 1, such as 0.03")] = 0.03
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    weight_decay: Annotated[Real, Field(ge=0, le=1)] = 0.0
    max_grad_norm: Annotated[Real, Field(gt=0)] = 1.0
    seed: Seed = 42
    save_steps: Count = 20
    keep_checkpoints: Count = 2
    keep: Literal["last"] = "last"
    eval_steps: Literal["auto"] | Count = "auto"
    n_samples: Annotated[int, Field(ge=0, le=1_000_000)] = 10

    def notices(self) -> tuple[str, ...]:
        """Say which of two lengths holds. An `epochs` of 1 is what a resolved config always writes, so it is silent."""
        if self.max_steps is None or self.epochs == 1:
            return ()
        return (f"train.max_steps {self.max_steps} wins over train.epochs {self.epochs}, which has no effect",)
