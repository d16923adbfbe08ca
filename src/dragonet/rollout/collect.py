"""Prompts in, groups of rollouts out: one request per group, text beside the tokens.

Owns how a sample becomes a `Rollout`: its segments, its text without the end token and cut at a stop string, its seed.
Knows no weights and no rewards. Async, with one synchronous door, since everything above the engine is sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from dragonet.protocols import RolloutEngine
from dragonet.rollout.lengths import PromptRenderer
from dragonet.types import (
    Group,
    Prompt,
    Rollout,
    Sample,
    SampleRequest,
    Sampling,
    Segment,
    StopReason,
    rollout_seed,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """What the seeds of a collection are derived from; `attempts` holds one number per prompt, 0 where it is absent.

    A prompt that is sampled a second time in a round takes the next attempt, or it would get the same rollouts again.
    """

    run_seed: int
    round: int = 0
    attempts: tuple[int, ...] = ()

    def attempt(self, place: int) -> int:
        """Return the attempt of the prompt in this place."""
        return self.attempts[place] if self.attempts else 0


async def collect_groups(
    engine: RolloutEngine,
    renderer: PromptRenderer,
    prompts: Sequence[Prompt],
    *,
    sampling: Sampling,
    group_size: int,
    seeds: SeedPlan,
) -> list[Group]:
    """Sample `group_size` rollouts of each prompt, in order; all requests wait together, so the engine batches them."""

    async def one(place: int, prompt: Prompt) -> Group:
        attempt = seeds.attempt(place)
        drawn = tuple(
            rollout_seed(seeds.run_seed, seeds.round, attempt, prompt.index, member, 0) for member in range(group_size)
        )
        ids = tuple(renderer.prompt_ids(prompt.messages))
        text = renderer.prompt_text(prompt.messages)
        samples = await engine.sample(SampleRequest(sampling, drawn, prompt_ids=ids, n=group_size))
        given = Segment(ids, sampled=False)
        rollouts = []
        for member, (seed, sample) in enumerate(zip(drawn, samples, strict=True)):
            completion = completion_text(renderer, sample, sampling.stop)
            rollouts.append(
                Rollout(
                    prompt=prompt,
                    segments=(given, Segment(sample.token_ids, True, sample.logprobs, sample.version)),
                    completion=completion,
                    stop_reason=sample.stop_reason,
                    prompt_text=text,
                    seed=seed,
                    round=seeds.round,
                    attempt=attempt,
                    member=member,
                    transcript=(*prompt.messages, {"role": "assistant", "content": completion}),
                )
            )
        return Group(prompt, tuple(rollouts))

    return list(await asyncio.gather(*(one(place, prompt) for place, prompt in enumerate(prompts))))


def collect_groups_sync(
    engine: RolloutEngine,
    renderer: PromptRenderer,
    prompts: Sequence[Prompt],
    *,
    sampling: Sampling,
    group_size: int,
    seeds: SeedPlan,
) -> list[Group]:
    """Do what `collect_groups` does and wait for it; also where an event loop is running, as in a notebook."""
    return run_sync(collect_groups(engine, renderer, prompts, sampling=sampling, group_size=group_size, seeds=seeds))


def completion_text(renderer: PromptRenderer, sample: Sample, stop: Sequence[str]) -> str:
    """Return what rewards see of a sample: no end token, no special tokens, cut before the first stop string."""
    ids = sample.token_ids[:-1] if sample.stop_reason is StopReason.EOS else sample.token_ids
    text = renderer.decode(ids)
    found = [place for s in stop if (place := text.find(s)) >= 0]
    return text[: min(found)] if found else text


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a thread of its own when this one is inside an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    with ThreadPoolExecutor(1, thread_name_prefix="dragonet-collect") as pool:
        return pool.submit(_run, work).result()


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Do what asyncio.run does, but drop the event loop when a signal's handler raises in the middle of it.

    The interrupt may have cost a task its wake-up; asyncio.run would cancel that task and then wait for it for good.
    """
    runner = asyncio.Runner()
    try:
        result = runner.run(work)
    except KeyboardInterrupt:
        _drop(runner.get_loop())
        work.close()
        raise
    except BaseException:
        runner.close()
        raise
    runner.close()
    return result


def _drop(loop: asyncio.AbstractEventLoop) -> None:
    loop.set_exception_handler(lambda loop, context: None)  # that tasks are left pending is meant
    for task in asyncio.all_tasks(loop):
        task.cancel()  # what it waits for is given up too, so that nobody answers it later
        coroutine = task.get_coro()
        if coroutine is not None:
            coroutine.close()
    asyncio.set_event_loop(None)
    loop.close()
