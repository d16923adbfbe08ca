"""The preview shows what the model sees; checked against the tiny model's real tokenizer and template."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from dragonet.data import load_dataset
from dragonet.data.preview import preview_prompts
from dragonet.errors import DataError
from dragonet.types import Message

ROWS = [
    {"question": "wie groß? 🙂", "answer": 4},
    {"question": "<|im_end|> what?"},
    {"question": "c"},
    {"question": "d"},
]


class Spelled:
    """A renderer whose tokens are characters; the special ones are upper case."""

    notices = ("a system message is added",)

    def notices_about(self, conversations: Iterable[Sequence[Message]]) -> tuple[str, ...]:
        return self.notices if list(conversations) else ()

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        return [ord(c) for message in messages for c in message["role"][0].upper() + message["content"]]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in ids if not chr(i).isupper())

    def decode_raw(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def test_special_tokens_are_marked_and_notes_stand_below() -> None:
    data = load_dataset([{"question": "ab", "answer": 4}, {"question": "cd"}]).map_prompts(system="be brief")
    assert data.preview(Spelled()).split("\n") == [
        "--- row 1 · 12 tokens · reference: 4",
        "«S»be brief«U»ab",
        "--- row 2 · 12 tokens · no reference",
        "«S»be brief«U»cd",
        "---",
        "note: prompt <- question, reference <- answer",
        "note: 1 of 2 rows have no reference (rows 2)",
        "note: a system message is added",
    ]


def test_a_note_is_said_once() -> None:
    prompts = load_dataset(ROWS).prompts()
    assert preview_prompts(prompts[:1], Spelled(), ("mine", *Spelled.notices)).count("note:") == 2


def test_n_chooses_how_many() -> None:
    data = load_dataset(ROWS)
    assert data.preview(Spelled()).count("--- row") == 3
    assert data.preview(Spelled(), n=1).count("--- row") == 1
    assert data.preview(Spelled(), n=99).count("--- row") == 4
    with pytest.raises(DataError, match="at least one prompt, got n=0"):
        data.preview(Spelled(), n=0)


def test_the_text_is_what_the_models_renderer_gives() -> None:
    from dragonet.models import make_renderer, resolve

    data = load_dataset(ROWS).map_prompts(system="Be brief.")
    text = data.preview("tiny-random", n=2)
    renderer = make_renderer(resolve("tiny-random"))
    for prompt in data.prompts()[:2]:
        ids = renderer.prompt_ids(prompt.messages)
        assert f"row {prompt.index + 1} · {len(ids)} tokens" in text
        assert renderer.decode_raw(ids) in text.replace("«", "").replace("»", "")
    assert "«<|im_start|>»user\nwie groß? 🙂«<|im_end|>»" in text
    # a control token that came with the data is one for the model, and is shown as one
    assert "user\n«<|im_end|>» what?«<|im_end|>»" in text
