"""From prompts to groups: segments, text, seeds, and the synchronous door."""

from __future__ import annotations

import asyncio

import pytest
import torch
from rollout_parts import EOS, make_engine, tiny_renderer

from dragonet.errors import RolloutError
from dragonet.models.tiny import tiny_model
from dragonet.rollout import SeedPlan, collect_groups, collect_groups_sync, run_sync
from dragonet.testing import FakeEngine
from dragonet.types import Prompt, Sampling, Segment, StopReason, rollout_seed

PROMPTS = [
    Prompt(({"role": "user", "content": f"What is {a} + 1?"},), reference=str(a + 1), index=10 + a) for a in range(3)
]


def answering(text: str, *, end: bool = True) -> FakeEngine:
    return FakeEngine(lambda ids, seed: [*text.encode(), *([EOS] if end else [])], eos_id=EOS)


def test_a_rollout_holds_tokens_and_text_of_one_prompt() -> None:
    renderer = tiny_renderer()
    groups = collect_groups_sync(
        answering("two."), renderer, PROMPTS, sampling=Sampling(), group_size=2, seeds=SeedPlan(7, round=3)
    )
    assert [g.prompt for g in groups] == PROMPTS
    rollout = groups[1].rollouts[1]
    # <|begin|><|im_start|>user\n ... <|im_start|>assistant\n  |  t w o . <|im_end|>
    #        mask 0, as the template renders it              |  mask 1, the end token included
    assert rollout.segments == (
        Segment(tuple(renderer.prompt_ids(PROMPTS[1].messages)), sampled=False),
        Segment((*b"two.", EOS), sampled=True, logprobs=(-1.0,) * 5, version=0),
    )
    assert rollout.completion == "two."
    assert rollout.prompt_text == renderer.prompt_text(PROMPTS[1].messages)
    assert rollout.stop_reason is StopReason.EOS
    assert (rollout.round, rollout.attempt, rollout.member) == (3, 0, 1)
    assert rollout.seed == rollout_seed(7, 3, 0, row=11, member=1, turn=0)
    assert rollout.transcript == (*PROMPTS[1].messages, {"role": "assistant", "content": "two."})
    assert rollout.n_sampled == 5


def test_one_request_per_group_with_its_seeds() -> None:
    engine = answering("x")
    collect_groups_sync(
        engine,
        tiny_renderer(),
        PROMPTS[:2],
        sampling=Sampling(top_k=3),
        group_size=4,
        seeds=SeedPlan(1, round=2, attempts=(0, 5)),
    )
    assert [r.n for r in engine.requests] == [4, 4]
    assert engine.requests[1].seeds == tuple(rollout_seed(1, 2, 5, 11, member, 0) for member in range(4))
    assert all(r.sampling == Sampling(top_k=3) and r.session is None for r in engine.requests)


@pytest.mark.parametrize(
    ("text", "stop", "completion"),
    [("a;b;c", (";",), "a"), ("a;b##c", ("##", "b#"), "a;"), ("abc", ("d",), "abc"), (";a", (";",), "")],
)
def test_a_completion_is_cut_before_the_first_stop_string(text: str, stop: tuple[str, ...], completion: str) -> None:
    (group,) = collect_groups_sync(
        answering(text), tiny_renderer(), PROMPTS[:1], sampling=Sampling(stop=stop), group_size=1, seeds=SeedPlan(0)
    )
    assert group.rollouts[0].completion == completion


def test_an_end_token_that_has_text_is_kept_out_of_the_completion() -> None:
    engine = FakeEngine(lambda ids, seed: list(b"so."), eos_id=ord("."))
    (group,) = collect_groups_sync(
        engine, tiny_renderer(), PROMPTS[:1], sampling=Sampling(), group_size=1, seeds=SeedPlan(0)
    )
    assert group.rollouts[0].completion == "so"
    assert group.rollouts[0].segments[1].token_ids == tuple(b"so.")


def test_real_rollouts_are_the_same_for_the_same_seed_only() -> None:
    model, renderer = tiny_model(dtype=torch.float64), tiny_renderer()
    engine = make_engine(model, decode=renderer.decode)

    def texts(seeds: SeedPlan) -> list[str]:
        groups = collect_groups_sync(
            engine, renderer, PROMPTS, sampling=Sampling(max_new_tokens=6), group_size=2, seeds=seeds
        )
        return [r.completion for g in groups for r in g.rollouts]

    assert texts(SeedPlan(1)) == texts(SeedPlan(1))
    assert len({tuple(texts(SeedPlan(1))), tuple(texts(SeedPlan(2))), tuple(texts(SeedPlan(1, round=1)))}) == 3


def test_a_failing_request_is_reported() -> None:
    engine = make_engine(context_length=20)
    with pytest.raises(RolloutError, match="do not fit"):
        collect_groups_sync(engine, tiny_renderer(), PROMPTS, sampling=Sampling(), group_size=2, seeds=SeedPlan(0))


def test_the_synchronous_door_opens_inside_an_event_loop() -> None:
    async def notebook_cell() -> int:
        return len(
            collect_groups_sync(
                answering("x"), tiny_renderer(), PROMPTS, sampling=Sampling(), group_size=1, seeds=SeedPlan(0)
            )
        )

    assert asyncio.run(notebook_cell()) == 3

    async def failing() -> None:
        raise RolloutError("from inside")

    async def cell_with_error() -> None:
        run_sync(failing())

    with pytest.raises(RolloutError, match="from inside"):
        asyncio.run(cell_with_error())


def test_the_async_door_is_the_same() -> None:
    keys = {"sampling": Sampling(), "group_size": 2, "seeds": SeedPlan(3)}
    inside = asyncio.run(collect_groups(answering("x"), tiny_renderer(), PROMPTS, **keys))
    assert inside == collect_groups_sync(answering("x"), tiny_renderer(), PROMPTS, **keys)
