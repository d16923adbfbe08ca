"""The `model` section: which model, at which revision, with which template, on which device.

A bare text is short for `{id: text}`. Whether the model exists is for the models room to find out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from dragonet.config.values import STRICT, Conflict, Text, refuse
from dragonet.config.words import brief


def spelled_out(value: Any) -> Any:
    """Turn the short form, a bare name, into the section it stands for."""
    return {"id": value} if isinstance(value, str) else value


class ModelSection(BaseModel):
    """Bundled name, hub id[@revision], folder, GGUF file or finished run."""

    model_config = STRICT

    id: Text = "smollm2-135m-instruct"
    revision: Text | None = None
    trust_remote_code: bool = False
    chat_template: Text = "auto"  # auto is the model's own; none; or a jinja file
    device: Annotated[
        str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, mps, cuda or cuda:N")
    ] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16", "float64"] = "auto"

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return spelled_out(value)

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(self._conflicts())
        return self

    def _conflicts(self) -> Iterator[Conflict]:
        if self.revision is not None and "@" in self.id:
            yield Conflict(("revision", "id"), f"the id {brief(self.id)} names a revision already; keep one of them")
