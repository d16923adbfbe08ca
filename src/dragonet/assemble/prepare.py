"""Everything that can go wrong before a run exists: model, table, lengths and rewards, checked in this order.

What passes is written into a run folder that needs nothing else: prompts, reward files, the resolved config. Loads a
tokenizer and no weights.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonet import data, models, runs
from dragonet.assemble.fixed import fixed_values
from dragonet.config import RunConfig
from dragonet.config.run import values_of
from dragonet.errors import ConfigError
from dragonet.protocols import Reward
from dragonet.rewards import RewardSet, as_rewards
from dragonet.rollout.lengths import TruncatedRenderer, check_lengths, prompt_room
from dragonet.types import Prompt

STAGE = "reinforce"

_RUN_ID = re.compile(r"\d{8}-\d")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can start: its prompts on both sides of the split, its rewards, and what the user should know."""

    config: RunConfig
    ref: models.ModelRef
    renderer: models.Renderer
    train: list[Prompt]
    held_out: list[Prompt]
    rewards: RewardSet
    notices: tuple[str, ...]


def prepare(
    config: RunConfig,
    *,
    dataset: data.Dataset | None = None,
    reward_objects: Sequence[Reward] | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Prepared:
    """Check a config against its model, its table and its rewards.

    `dataset` and `reward_objects` take the place of the config's when given. Raises the DragonetError of whatever
    cannot work, before anything is written.
    """
    config = _with_named_run(config)
    ref = _resolve(config, on_notice)
    renderer = models.make_renderer(ref, config.model.chat_template)
    mapped = _mapped(config, dataset)
    rewards = RewardSet(reward_objects if reward_objects is not None else as_rewards(list(config.rewards)))
    split = mapped.split(config.data.eval, config.data.min_eval, config.data.max_eval, config.data.seed)
    total_steps(config, len(split.train))
    limit, policy = config.reinforce.max_new_tokens, config.data.long_prompts
    train, cut = check_lengths(split.train, renderer, limit, policy)
    held_out, cut_held_out = check_lengths(split.eval, renderer, limit, policy) if split.eval else ([], ())
    try:
        rewards.check([*train, *held_out])
    finally:
        rewards.close()
    about = renderer.notices_about([prompt.messages for prompt in [*train, *held_out]])
    batch = config.train.batch_size
    repeats = f"train.batch_size {batch} is above the {len(train)} training prompts, so a round repeats some"
    large = (repeats,) if batch > len(train) else ()
    notices = (*config.notices, *large, *mapped.notices, *split.notices, *about, *cut, *cut_held_out)
    return Prepared(config, ref, renderer, train, held_out, rewards, tuple(dict.fromkeys(notices)))


def create(prepared: Prepared) -> runs.RunFolder:
    """Write a run folder that holds all the run needs; its state is queued."""
    config = values_of(prepared.config)
    config["rewards"], reward_files = prepared.rewards.pack()
    prompts = {
        "data/train.jsonl": data.prompts_to_jsonl(prepared.train),
        "data/eval.jsonl": data.prompts_to_jsonl(prepared.held_out),
    }
    earlier = {f"earlier/{place}": folder for place, folder in enumerate(prepared.ref.adapters)}
    adapters = {f"{home}/{file.name}": file.read_bytes() for home, folder in earlier.items() for file in _files(folder)}
    lineage = runs.lineage(
        model={"name": prepared.ref.name, "kind": prepared.ref.kind, "revision": prepared.ref.revision},
        parents=[prepared.config.model.id] if prepared.ref.kind == "run" else [],
        adapters=list(earlier),
        data=prompts,
        rewards=reward_files,
    )
    return runs.create_run(
        prepared.config.runs_dir,
        name=prepared.config.name,
        stage=STAGE,
        config=config,
        files={**prompts, **reward_files, **adapters, "lineage.json": {**lineage, "config": fixed_values(config)}},
    )


def total_steps(config: RunConfig, n_train: int) -> int:
    """Return the number of optimizer steps: max_steps, or what the epochs come to."""
    updates = config.reinforce.updates
    if config.train.max_steps is None:
        return math.ceil(config.train.epochs * n_train / config.train.batch_size) * updates
    if config.train.max_steps % updates:
        raise ConfigError(
            f"train.max_steps is {config.train.max_steps}, but a round makes reinforce.updates = {updates} steps; "
            f"take a multiple of {updates}"
        )
    return config.train.max_steps


def model_of(folder: runs.RunFolder, config: RunConfig) -> models.ModelRef:
    """Return the model of a run that exists: its base, and the earlier adapters from the run's own folder.

    The runs it builds on may have moved or gone since.
    """
    lineage = runs.read_json(folder, "lineage.json")
    if not lineage["adapters"]:
        return _resolve(config)
    base = models.resolve(
        lineage["model"]["name"],
        revision=lineage["model"]["revision"],
        trust_remote_code=config.model.trust_remote_code,
    )
    return replace(base, adapters=tuple(folder.path / adapter for adapter in lineage["adapters"]))


def sampling_renderer(config: RunConfig, renderer: models.Renderer) -> Any:
    """Return the renderer that sampling uses: the model's own, or one that cuts long prompts when told to."""
    if config.data.long_prompts != "truncate_left":
        return renderer
    return TruncatedRenderer(renderer, prompt_room(renderer, config.reinforce.max_new_tokens))


def _with_named_run(config: RunConfig) -> RunConfig:
    """Write out a model that names a run as every command may: `last`, or the start of an id."""
    name = config.model.id
    if name != "last" and not _RUN_ID.match(name):
        return config
    found = runs.find_run(name, config.runs_dir)
    return config.model_copy(update={"model": config.model.model_copy(update={"id": str(found.path)})})


def _resolve(config: RunConfig, on_notice: Callable[[str], None] | None = None) -> models.ModelRef:
    section = config.model
    return models.resolve(
        section.id,
        revision=section.revision,
        runs_dir=config.runs_dir,
        trust_remote_code=section.trust_remote_code,
        on_notice=on_notice,
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _mapped(config: RunConfig, dataset: data.Dataset | None) -> data.Dataset:
    section = config.data
    if dataset is not None:
        return dataset
    if section.source is None:
        raise ConfigError("data.source is missing; name a table, such as data.source=questions.csv")
    return data.load_dataset(section.source).map_prompts(section.prompt, section.reference, section.system)
