"""The `data` section: where the rows come from, how they become prompts, and what is held out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from dragonet.config.values import STRICT, Conflict, Count, Real, Seed, Text, refuse


class DataSection(BaseModel):
    """`prompt`, `reference` and `system` are column names or `{column}` templates; null means found by name."""

    model_config = STRICT

    source: Text | None = None
    prompt: Text | None = None
    reference: Text | None = None
    system: str | None = None
    eval: Annotated[Real, Field(ge=0, lt=1)] = 0.1  # share of the rows; 0 holds out none
    min_eval: Count = 16
    max_eval: Count = 200
    seed: Seed = 42
    long_prompts: Literal["error", "skip", "truncate_left"] = "error"

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(self._conflicts())
        return self

    def ignored(self) -> dict[str, Conflict]:
        """Return the keys that have no effect beside the others, each with the reason."""
        if self.eval != 0:
            return {}
        why = "would be ignored: eval is 0, so no rows are held out; remove it or give eval a share"
        return {key: Conflict((key, "eval"), why) for key in ("min_eval", "max_eval")}

    def _conflicts(self) -> Iterator[Conflict]:
        yield from (c for key, c in self.ignored().items() if key in self.model_fields_set)
        if self.min_eval > self.max_eval:
            yield Conflict(
                ("min_eval", "max_eval"), f"{self.min_eval} is above max_eval {self.max_eval}; swap or change one"
            )
