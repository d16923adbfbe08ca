from __future__ import annotations

import pytest
from rollout_parts import tiny_renderer

from dragonet.errors import DataError
from dragonet.rollout import TruncatedRenderer, check_lengths, prompt_room
from dragonet.types import Prompt

HEADER = len(tiny_renderer().prompt_ids([{"role": "user", "content": ""}]))


def prompts(*lengths: int) -> list[Prompt]:
    return [Prompt(({"role": "user", "content": "x" * n},), index=i) for i, n in enumerate(lengths)]


def test_prompts_that_fit_pass_untouched() -> None:
    renderer = tiny_renderer(context_length=HEADER + 10 + 16)
    assert check_lengths(prompts(1, 10), renderer, 16) == (prompts(1, 10), ())


def test_error_names_rows_counts_and_the_context() -> None:
    context = HEADER + 10 + 16
    with pytest.raises(DataError) as caught:
        check_lengths(prompts(1, 11, 5, 300), tiny_renderer(context), 16)
    text = str(caught.value)
    assert "2 of 4 prompts" in text
    assert f"row 2 ({HEADER + 11} tokens), 4 ({HEADER + 300} tokens)" in text
    assert f"the {HEADER + 10} tokens that a context of {context} leaves beside 16" in text
    assert "data.long_prompts" in text


def test_many_rows_are_counted_not_listed() -> None:
    with pytest.raises(DataError, match=r"row 1 .* and 35 more"):
        check_lengths(prompts(*[200] * 40), tiny_renderer(100), 16)


def test_skip_leaves_out_with_a_notice() -> None:
    kept, notices = check_lengths(prompts(1, 300, 5), tiny_renderer(100), 16, "skip")
    assert [p.index for p in kept] == [0, 2]
    assert len(notices) == 1
    assert "row 2" in notices[0]
    assert "left out" in notices[0]
    with pytest.raises(DataError, match="leaves none"):
        check_lengths(prompts(300), tiny_renderer(100), 16, "skip")


def test_truncate_left_keeps_the_end_of_what_is_rendered() -> None:
    renderer = tiny_renderer(100)
    given = [Prompt(({"role": "user", "content": "first " + "x" * 200 + " question?"},)), *prompts(3)]
    kept, notices = check_lengths(given, renderer, 16, "truncate_left")
    assert kept == given
    assert "cut on the left" in notices[0]
    cut = TruncatedRenderer(renderer, prompt_room(renderer, 16))
    ids = cut.prompt_ids(given[0].messages)
    assert ids == renderer.prompt_ids(given[0].messages)[-84:]
    text = cut.prompt_text(given[0].messages)
    assert text == renderer.decode_raw(ids)
    assert text.endswith(" question?<|im_end|>\n<|im_start|>assistant\n")
    assert "first" not in text
    assert cut.prompt_ids(given[1].messages) == renderer.prompt_ids(given[1].messages)
    assert cut.prompt_text(given[1].messages) == renderer.prompt_text(given[1].messages)
    assert cut.decode(list(b"hi")) == "hi"


def test_an_answer_that_fills_the_context_is_an_error() -> None:
    with pytest.raises(DataError, match="max_new_tokens 100 leaves no room"):
        check_lengths(prompts(1), tiny_renderer(100), 100, "truncate_left")


def test_an_unknown_policy_is_answered_with_the_near_one() -> None:
    with pytest.raises(DataError, match="did you mean 'truncate_left'"):
        check_lengths(prompts(1), tiny_renderer(), 16, "truncate")
