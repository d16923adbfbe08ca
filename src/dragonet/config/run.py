"""The root of the schema: one RunConfig holds every section, and `resolved_yaml` writes it so that it reads back equal.

Reading files, overrides and error reports live in `load`; this file knows values only.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, PrivateAttr, model_validator

from dragonet.config.data import DataSection
from dragonet.config.lora import LoraSection
from dragonet.config.model import ModelSection
from dragonet.config.reinforce import ReinforceSection
from dragonet.config.rewards import Rewards
from dragonet.config.train import TrainSection
from dragonet.config.values import STRICT, Conflict, Text, refuse


class RunConfig(BaseModel):
    """Everything one run is told, with every default filled in. Equal when all values are, whatever the notices."""

    model_config = STRICT

    name: Text | None = None
    model: ModelSection = Field(default=ModelSection(), description="a model's name, or a section with keys")
    data: DataSection = DataSection()
    rewards: Rewards = ()
    reinforce: ReinforceSection = ReinforceSection()
    lora: LoraSection = LoraSection()
    train: TrainSection = TrainSection()
    track: tuple[Any, ...] = Field(default=(), strict=False, description="an empty list")
    runs_dir: Text | None = None

    _notices: tuple[str, ...] = PrivateAttr(default=())

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know about how the config was read."""
        return self._notices

    @model_validator(mode="after")
    def _check(self) -> RunConfig:
        if self.track:
            refuse([Conflict(("track",), "trackers come with a later release; leave it empty")])
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunConfig) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]


def config_schema() -> dict[str, Any]:
    """Return the JSON schema of a config file, for editors."""
    return RunConfig.model_json_schema()


def values_of(config: RunConfig) -> dict[str, Any]:
    """Return plain values, without the keys that have no effect beside the others."""
    silent = {"data": set(config.data.ignored()), "reinforce": set(config.reinforce.ignored())}
    return config.model_dump(mode="json", exclude=silent)
