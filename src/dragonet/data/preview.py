"""What the model will see: prompts through the model's own tokenizer and chat template, special tokens marked.

Asks a renderer and shows its answer; knows nothing of templates and tokenizers itself. This is the one place of the
room that loads a model's tokenizer, and only when it is called with a model's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from dragonet.types import Message, Prompt

__all__ = ["PreviewRenderer", "preview_prompts"]


class PreviewRenderer(Protocol):
    """The part of `dragonet.models.Renderer` that a preview needs."""

    def notices_about(self, conversations: Iterable[Sequence[Message]]) -> tuple[str, ...]: ...
    def prompt_ids(self, messages: Sequence[Message]) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def decode_raw(self, ids: Sequence[int]) -> str: ...


def preview_prompts(prompts: Sequence[Prompt], model: str | PreviewRenderer, notices: Sequence[str] = ()) -> str:
    """Return a block per prompt: row, number of tokens, reference, and the text with special tokens as «token»."""
    renderer = _renderer(model) if isinstance(model, str) else model
    blocks = []
    for prompt in prompts:
        ids = renderer.prompt_ids(prompt.messages)
        reference = "no reference" if prompt.reference is None else f"reference: {prompt.reference}"
        blocks.append(f"--- row {prompt.index + 1} · {len(ids)} tokens · {reference}\n{_marked(ids, renderer)}")
    about = renderer.notices_about([prompt.messages for prompt in prompts])
    said = [f"note: {notice}" for notice in dict.fromkeys((*notices, *about))]
    return "\n".join([*blocks, *(["---", *said] if said else [])])


def _marked(ids: Sequence[int], renderer: PreviewRenderer) -> str:
    """Decode runs of ordinary tokens whole, since a character may span several, and special tokens one by one."""
    special = {i for i in set(ids) if renderer.decode([i]) == "" and renderer.decode_raw([i]) != ""}
    text = ""
    run: list[int] = []
    for token in ids:
        if token not in special:
            run.append(token)
            continue
        text += renderer.decode_raw(run) if run else ""
        text += f"«{renderer.decode_raw([token])}»"
        run = []
    return text + (renderer.decode_raw(run) if run else "")


def _renderer(model: str) -> PreviewRenderer:
    from dragonet.models import make_renderer, resolve

    return make_renderer(resolve(model))
