"""Small real parts for the tests of the rollout room: tiny models, engines over them, and a watch on their forwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dragonet.models import Renderer
from dragonet.models.tiny import tiny_model, tiny_tokenizer
from dragonet.rollout import LocalEngine
from dragonet.types import Sample, SampleRequest, Sampling

EOS = 257
PAD = 258


def tiny_renderer(context_length: int = 512) -> Renderer:
    tokenizer = tiny_tokenizer()
    return Renderer(tokenizer, chat_template=tokenizer.chat_template, context_length=context_length)


def as_letters(ids: Sequence[int]) -> str:
    """A text of two letters per token, so that stop strings can begin and end inside tokens."""
    return "".join(chr(97 + i % 26) + chr(97 + i // 26) for i in ids)


def make_engine(model: Any = None, **keys: Any) -> LocalEngine:
    defaults: dict[str, Any] = {
        "eos_ids": frozenset({EOS}),
        "pad_id": PAD,
        "decode": as_letters,
        "context_length": 512,
    }
    return LocalEngine(model if model is not None else tiny_model(dtype=torch.float64), **{**defaults, **keys})


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(1000 * seed + length)
    return tuple(torch.randint(0, 256, (length,), generator=generator).tolist())


def request(length: int = 5, n: int = 1, seed: int = 0, **sampling: Any) -> SampleRequest:
    seeds = tuple(100 * seed + i for i in range(n))
    return SampleRequest(Sampling(**{"max_new_tokens": 8, **sampling}), seeds, prompt_ids=prompt(length), n=n)


def sample_all(engine: LocalEngine, requests: Sequence[SampleRequest]) -> list[list[Sample]]:
    async def ask() -> list[list[Sample]]:
        return list(await asyncio.gather(*(engine.sample(r) for r in requests)))

    return asyncio.run(ask())


def tokens(samples: Sequence[Sample]) -> list[tuple[int, ...]]:
    return [sample.token_ids for sample in samples]


@contextmanager
def forwards(model: Any, then: Callable[[], None] | None = None) -> Iterator[list[tuple[int, ...]]]:
    """Record the shape of the ids in each forward of the model; `then` runs before each."""
    shapes: list[tuple[int, ...]] = []

    def look(module: Any, args: Any, kwargs: Any) -> None:
        shapes.append(tuple(kwargs["input_ids"].shape))
        if then is not None:
            then()

    handle = model.register_forward_pre_hook(look, with_kwargs=True)
    try:
        yield shapes
    finally:
        handle.remove()
