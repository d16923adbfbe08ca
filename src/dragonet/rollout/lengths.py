"""Prompts that are too long for the model's context: refused, left out or cut before anything is sampled.

Knows rendered token counts and nothing of engines. A cut prompt keeps its end: the last user words and the header of
the answer matter most to what comes next; its beginning (begin token, system message) is what is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dragonet.errors import DataError, did_you_mean
from dragonet.types import Message, Prompt

POLICIES = ("error", "skip", "truncate_left")
SHOWN = 5  # rows named in a message


class PromptRenderer(Protocol):
    """The part of a renderer that sampling needs."""

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]: ...
    def prompt_text(self, messages: Sequence[Message]) -> str: ...
    def decode(self, ids: Sequence[int]) -> str: ...


class ContextRenderer(PromptRenderer, Protocol):
    """A renderer that knows the model's context and can write special tokens out."""

    context_length: int

    def decode_raw(self, ids: Sequence[int]) -> str: ...


class TruncatedRenderer:
    """Render like `renderer`, but keep only the last `max_prompt_tokens` tokens of a prompt."""

    def __init__(self, renderer: ContextRenderer, max_prompt_tokens: int) -> None:
        self._renderer, self._limit = renderer, max_prompt_tokens

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return at most the last `max_prompt_tokens` ids of the rendered prompt."""
        return self._renderer.prompt_ids(messages)[-self._limit :]

    def prompt_text(self, messages: Sequence[Message]) -> str:
        """Return the text of what is left of the prompt."""
        ids = self._renderer.prompt_ids(messages)
        if len(ids) <= self._limit:
            return self._renderer.prompt_text(messages)
        return self._renderer.decode_raw(ids[-self._limit :])

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids without special tokens."""
        return self._renderer.decode(ids)


def check_lengths(
    prompts: Sequence[Prompt], renderer: ContextRenderer, max_new_tokens: int, policy: str = "error"
) -> tuple[list[Prompt], tuple[str, ...]]:
    """Return the prompts to use and notices about those that do not fit beside `max_new_tokens`.

    `error` raises DataError with row numbers and token counts, `skip` leaves the prompts out, `truncate_left` keeps
    them: sample those through a `TruncatedRenderer` of `prompt_room(renderer, max_new_tokens)` tokens.
    """
    if policy not in POLICIES:
        raise DataError(f"data.long_prompts: unknown policy {policy!r}{did_you_mean(policy, POLICIES)}")
    room = prompt_room(renderer, max_new_tokens)
    counts = [len(renderer.prompt_ids(prompt.messages)) for prompt in prompts]
    long = [(prompt, n) for prompt, n in zip(prompts, counts, strict=True) if n > room]
    if not long:
        return list(prompts), ()
    rows = ", ".join(f"{prompt.index + 1} ({n} tokens)" for prompt, n in long[:SHOWN])
    rows += f" and {len(long) - SHOWN} more" if len(long) > SHOWN else ""
    limit = f"the {room} tokens that a context of {renderer.context_length} leaves beside {max_new_tokens} new ones"
    found = f"{len(long)} of {len(prompts)} prompts are longer than {limit}: row {rows}"
    if policy == "error":
        raise DataError(f"{found}; set data.long_prompts to skip or truncate_left, or lower reinforce.max_new_tokens")
    if policy == "truncate_left":
        return list(prompts), (f"{found}; they are cut on the left",)
    kept = [prompt for prompt, n in zip(prompts, counts, strict=True) if n <= room]
    if not kept:
        raise DataError(f"{found}; data.long_prompts: skip leaves none; shorten them or lower reinforce.max_new_tokens")
    return kept, (f"{found}; they are left out",)


def prompt_room(renderer: ContextRenderer, max_new_tokens: int) -> int:
    """Return how many tokens a prompt may have; raises DataError when the answer alone fills the context."""
    room = renderer.context_length - max_new_tokens
    if room < 1:
        raise DataError(
            f"max_new_tokens {max_new_tokens} leaves no room for a prompt in the model's context of "
            f"{renderer.context_length} tokens; lower reinforce.max_new_tokens"
        )
    return room
