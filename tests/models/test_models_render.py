"""Rendering: what the model sees, what ends an answer, and what templates do behind the user's back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dragonet.errors import ModelError
from dragonet.models import ModelRef, Renderer, load_tokenizer, make_renderer
from dragonet.models.tiny import tiny_tokenizer

USER = ({"role": "user", "content": "What is 2 + 3?"},)
BOS, EOS, PAD, START = 256, 257, 258, 259
CHATML = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
OPENING = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
DEFAULT_SYSTEM = "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nBe nice.<|im_end|>\n' }}{% endif %}"


def custom(template: str, **keys: object) -> Renderer:
    return Renderer(tiny_tokenizer(), chat_template=template, name="custom", **keys)  # type: ignore[arg-type]


def test_a_prompt_has_one_begin_token_and_opens_the_answer(tiny: ModelRef) -> None:
    renderer = make_renderer(tiny)
    ids = renderer.prompt_ids(USER)
    text = "<|begin|><|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n"
    assert renderer.prompt_text(USER) == text
    assert ids.count(BOS) == 1
    assert ids[0] == BOS
    assert ids == [BOS, START, *b"user\nWhat is 2 + 3?", EOS, *b"\n", START, *b"assistant\n"]
    assert renderer.decode_raw(ids) == text
    assert (renderer.eos_ids, renderer.pad_id, renderer.context_length) == (frozenset({EOS}), PAD, 512)
    assert renderer.notices == ()


def test_without_a_template_contents_are_joined_after_the_tokenizers_own_begin_token(tiny: ModelRef) -> None:
    renderer = make_renderer(tiny, chat_template="none")
    messages = ({"role": "system", "content": "Add."}, *USER)
    assert renderer.prompt_text(messages) == "<|begin|>Add.\n\nWhat is 2 + 3?"
    assert renderer.prompt_ids(messages) == [BOS, *b"Add.\n\nWhat is 2 + 3?"]
    assert renderer.prompt_ids(({"role": "user", "content": [{"type": "text", "text": "a"}]},)) == [BOS, *b"a"]


def test_a_model_without_a_template_renders_plainly(tiny: ModelRef, tmp_path: Path) -> None:
    folder = tmp_path / "base"
    shutil.copytree(tiny.folder, folder)
    (folder / "chat_template.jinja").unlink()
    renderer = make_renderer(ModelRef("base", folder))
    assert renderer.chat_template is None
    assert renderer.prompt_ids(USER) == [BOS, *b"What is 2 + 3?"]


def test_a_template_from_a_file(tiny: ModelRef, tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("Q: {{ messages[-1].content }}\nA:", encoding="utf-8")
    assert make_renderer(tiny, chat_template=str(path)).prompt_text(USER) == "Q: What is 2 + 3?\nA:"
    with pytest.raises(ModelError, match=r"chat_template 'nowhere\.jinja' cannot be read .* give auto, none"):
        make_renderer(tiny, chat_template="nowhere.jinja")


@pytest.mark.parametrize(
    "text", [" leading", "trailing ", "a , b .", "日本語 🦎 é\u0301", "\n\n", "don ' t", "\x00\ufeff"]
)
def test_decoding_strips_and_cleans_nothing(tiny: ModelRef, text: str) -> None:
    renderer = make_renderer(tiny)
    assert renderer.decode(renderer.encode(text)) == text
    assert renderer.decode([START, *renderer.encode(text), EOS]) == text


@pytest.mark.parametrize(("given", "shown"), [("a\ud800b", "a\ufffdb"), ("\ud83e\udd8e", "🦎"), ("\udc00", "\ufffd")])
def test_lone_surrogates_become_replacement_characters(tiny: ModelRef, given: str, shown: str) -> None:
    renderer = make_renderer(tiny)
    for content in (given, [{"type": "text", "text": given}]):
        plain = make_renderer(tiny, chat_template="none").prompt_ids(({"role": "user", "content": content},))
        assert plain == [BOS, *shown.encode()]
    assert shown in renderer.prompt_text(({"role": "user", "content": given},))
    assert renderer.encode(given) == list(shown.encode())


def test_end_ids_come_from_tokenizer_generation_config_and_template(tiny: ModelRef, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny.folder, folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [65, 66]}), encoding="utf-8")
    assert make_renderer(ModelRef("m", folder)).eos_ids == {EOS, 65, 66}
    # a template that ends turns with another control token than the tokenizer's end token
    turns = "{% for m in messages %}{{ m.content }} <|im_start|>\n{% endfor %}"
    assert custom(turns).eos_ids == {EOS, START}
    # ordinary text after an answer is no control token
    assert custom("{% for m in messages %}{{ m.content }}.{% endfor %}").eos_ids == {EOS}


def test_an_end_token_that_is_not_marked_special_is_not_text(tiny: ModelRef) -> None:
    renderer = Renderer(load_tokenizer(tiny), chat_template=None, extra_eos_ids=frozenset({33}))
    assert renderer.decode([72, 105, 33]) == "Hi"
    assert renderer.decode_raw([72, 105, 33]) == "Hi!"


def test_a_model_without_any_end_token_is_refused(tiny: ModelRef, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny.folder, folder)
    (folder / "generation_config.json").unlink()
    for name in ("config.json", "tokenizer_config.json"):
        values = json.loads((folder / name).read_text(encoding="utf-8"))
        kept = {key: value for key, value in values.items() if "eos" not in key}
        (folder / name).write_text(json.dumps(kept), encoding="utf-8")
    (folder / "chat_template.jinja").write_text("{{ messages[-1].content }}", encoding="utf-8")
    with pytest.raises(ModelError, match="names an end token"):
        make_renderer(ModelRef("m", folder))


def test_a_default_system_message_is_noticed_with_its_words() -> None:
    renderer = custom(DEFAULT_SYSTEM + CHATML + OPENING)
    (notice,) = renderer.notices
    assert "custom adds its own system message when none is given: 'Be nice.'" in notice
    assert renderer.notices_about([({"role": "system", "content": "x"}, *USER), USER]) == (notice,)
    assert renderer.notices_about([({"role": "system", "content": "x"}, *USER)]) == ()


def test_a_dropped_system_message_is_noticed() -> None:
    template = "{% for m in messages if m.role != 'system' %}{{ m.content }}<|im_end|>{% endfor %}"
    renderer = custom(template)
    (notice,) = renderer.notices
    assert "leaves out the system message" in notice
    assert renderer.notices_about([({"role": "system", "content": "x"}, *USER)]) == (notice,)
    assert renderer.notices_about([USER]) == ()


@pytest.mark.parametrize("prefix", ["", "{{ bos_token }}", "{{ bos_token }}{{ '\n' }}"])
def test_templates_that_add_nothing_give_no_notice(prefix: str) -> None:
    assert custom(prefix + CHATML + OPENING).notices == ()


def test_a_template_that_refuses_a_system_message_says_so_when_one_is_given() -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}" + CHATML
    renderer = custom(template)
    assert renderer.notices == ()
    with pytest.raises(ModelError, match=r"custom refuses .* roles system, user: no system here; .*chat_template"):
        renderer.prompt_ids(({"role": "system", "content": "x"}, *USER))


def test_bad_templates_and_empty_prompts_are_errors_for_the_user() -> None:
    with pytest.raises(ModelError, match="the chat template of custom, line 1: not a Jinja template"):
        custom("{% for %}").prompt_text(USER)
    with pytest.raises(ModelError, match="at least one user message"):
        custom(CHATML).prompt_text(())


@pytest.mark.parametrize(
    "expression",
    [
        "1 / 0",
        "10.0 ** 1000",
        "messages.nope.deeper",
        "range(10 ** 9) | list",
        "messages + 1",
    ],
)
def test_whatever_a_template_ends_in_is_an_error_for_the_user(tiny: ModelRef, tmp_path: Path, expression: str) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("{{ " + expression + " }}" + CHATML, encoding="utf-8")
    renderer = make_renderer(tiny, chat_template=path)
    with pytest.raises(ModelError, match=r"refuses messages with the roles user: .+; change the messages"):
        renderer.prompt_text(USER)


def test_a_template_without_end_in_itself_is_an_error_for_the_user() -> None:
    with pytest.raises(ModelError, match="refuses messages with the roles user: maximum recursion depth"):
        custom("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").prompt_text(USER)


def test_a_template_file_that_does_not_parse_is_named_with_its_line(tiny: ModelRef, tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("Q:\n{{ messages[-1].content\nA:", encoding="utf-8")
    with pytest.raises(ModelError, match=r"mine\.jinja, line 3: not a Jinja template: .*; correct the line"):
        make_renderer(tiny, chat_template=path)


@pytest.mark.parametrize("text", ["x", "", "{% for m in messages %}{{ m.role }}: {{ m.text }}{% endfor %}"])
def test_a_template_in_which_all_prompts_are_equal_is_refused(tiny: ModelRef, tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=r"mine\.jinja leaves out what the user says, so all prompts would be equal"):
        make_renderer(tiny, chat_template=path)


@pytest.mark.parametrize("path", ["a\0b", "~nobody-of-this-name/a.jinja"])
def test_a_template_path_that_cannot_be_one_is_an_error_for_the_user(tiny: ModelRef, path: str) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        make_renderer(tiny, chat_template=path)


def test_the_context_length_of_nested_and_older_configs(tiny: ModelRef, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny.folder, folder)
    for config, expected in (
        ({"model_type": "llama", "n_positions": 77}, 77),
        ({"model_type": "llama", "text_config": {"max_position_embeddings": 99}}, 99),
        ({"model_type": "llama"}, 512),  # the tokenizer's own limit
    ):
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        assert make_renderer(ModelRef("m", folder)).context_length == expected


def test_a_folder_without_a_tokenizer_lists_what_it_holds(tiny: ModelRef, tmp_path: Path) -> None:
    shutil.copy(tiny.folder / "config.json", tmp_path / "config.json")
    with pytest.raises(ModelError, match=r"no tokenizer can be loaded from .* holds config\.json; put tokenizer\.json"):
        load_tokenizer(ModelRef("m", tmp_path))
