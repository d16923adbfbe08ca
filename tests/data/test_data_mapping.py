"""Which column plays which role, what blanks mean, and the message of each mapping that cannot be."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from dragonet.data import Dataset, load_dataset
from dragonet.errors import DataError

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]


def table(**row) -> Dataset:
    return load_dataset([row])


def test_recognised_names_are_taken_and_said() -> None:
    data = load_dataset([{"question": "x?", "answer": 4, "id": 1}]).map_prompts()
    [prompt] = data.prompts()
    assert prompt.messages == ({"role": "user", "content": "x?"},)
    assert prompt.reference == "4"
    assert prompt.row == {"question": "x?", "answer": 4, "id": 1}
    assert prompt.index == 0
    assert data.notices == ("prompt <- question, reference <- answer",)


@pytest.mark.parametrize("name", ["prompt", "question", "problem", "instruction", "Question", " prompt "])
@pytest.mark.parametrize("target", ["answer", "label", "solution", "reference", "ideal", "Answer"])
def test_every_known_name(name: str, target: str) -> None:
    [prompt] = load_dataset([{target: "t", name: "p"}]).prompts()
    assert (prompt.text, prompt.reference) == ("p", "t")


def test_instruction_with_input() -> None:
    data = load_dataset([{"instruction": "Add.", "input": "1 and 2"}, {"instruction": "Sing."}]).map_prompts()
    assert [prompt.text for prompt in data.prompts()] == ["Add.\n\n1 and 2", "Sing."]
    assert data.notices == ("prompt <- instruction + input",)
    blank = load_dataset([{"instruction": "Add.", "input": "1"}, {"input": "2"}])
    with pytest.raises(DataError, match=r"prompt is blank in 1 of 2 rows \(rows 2\)"):
        blank.map_prompts()


def test_no_reference_column_is_no_error() -> None:
    data = table(prompt="x", other=1).map_prompts()
    assert data.prompts()[0].reference is None
    assert data.notices == ("prompt <- prompt",)


def test_only_the_roles_left_open_are_recognised() -> None:
    data = table(question="x", text="y", answer="z").map_prompts(prompt="text")
    assert (data.prompts()[0].text, data.prompts()[0].reference) == ("y", "z")
    assert data.notices == ("reference <- answer",)
    assert table(answer="x").map_prompts(prompt="answer").prompts()[0].reference is None
    assert table(question="x", answer="z").map_prompts(reference="").prompts()[0].reference is None


@pytest.mark.parametrize(
    ("row", "given", "message"),
    [
        (
            {"question": "x", "problem": "y"},
            {},
            r"2 columns could be the prompt: question, problem. Choose one: map_prompts\(prompt='question'\)$",
        ),
        (
            {"problem": "x", "solution": "y", "answer": "z"},
            {},
            r"could be the reference: solution, answer. Choose one: map_prompts\(reference='solution'\), or none with",
        ),
        ({"text": "x", "n": 1}, {}, r"no column is known as a prompt .* has text, n. .* map_prompts\(prompt='text'\)"),
        ({"question": "x"}, {"prompt": "{qestion}"}, r"prompt: .*'qestion'; did you mean 'question'\?"),
        ({"question": "x"}, {"reference": "anser"}, "reference 'anser' is neither a column nor text"),
        ({"question": "x"}, {"reference": "{question"}, "reference: the brace at character 1 .* never closed"),
        ({"question": "x"}, {"system": "Hi {nme}"}, "system: .* unknown column 'nme'"),
        ({"question": "x"}, {"prompt": "{{question}}"}, "names no column, so each row would ask the same"),
        ({"question": "x"}, {"prompt": " "}, "prompt is blank; name a column: question"),
        ({"question": "x"}, {"prompt": ["question"]}, "prompt must be a column name or a template, got list"),
    ],
)
def test_mappings_that_cannot_be(row, given, message: str) -> None:
    with pytest.raises(DataError, match=message):
        table(**row).map_prompts(**given)


def test_system_is_a_column_a_template_or_plain_text() -> None:
    data = load_dataset([{"question": "x", "tone": "kind"}, {"question": "y"}])

    def systems(system: str) -> list[str | None]:
        prompts = data.map_prompts(system=system).prompts()
        return [p.messages[0]["content"] if p.messages[0]["role"] == "system" else None for p in prompts]

    assert systems("Answer with the number only.") == ["Answer with the number only."] * 2
    assert systems("tone") == ["kind", None]
    assert systems("Be {tone}.") == ["Be kind.", None]
    assert systems("Use {{}}.") == ["Use {}."] * 2
    assert systems(" ") == [None, None]
    assert data.map_prompts(system="tones").notices[-1] == (
        "system is the text 'tones' in each row; for the column write 'tone'"
    )


def test_a_blank_prompt_names_its_rows_and_the_way_out() -> None:
    data = load_dataset([{"question": "x", "answer": 1}, {"question": " "}, {"answer": 2}])
    with pytest.raises(DataError, match=r"blank in 2 of 3 rows \(rows 2, 3\)") as caught:
        data.map_prompts()
    code = str(caught.value).split("in Python: ")[1]
    assert len(eval(code, {"dataset": data, "load_dataset": load_dataset}).prompts()) == 1
    with pytest.raises(DataError, match=r"rows 1, 2, 3, 4, 5, 6, 7, 8, \.\.\."):
        load_dataset([{"question": ""}] * 9 + [{"question": "x"}]).prompts()


def test_a_blank_reference_is_none_and_counted() -> None:
    data = load_dataset([{"question": "x", "answer": ""}, {"question": "y", "answer": 0}]).map_prompts()
    assert [prompt.reference for prompt in data.prompts()] == [None, "0"]
    assert data.notices[1:] == ("1 of 2 rows have no reference (rows 1)",)


def test_a_gap_in_a_prompt_template_is_said() -> None:
    data = load_dataset([{"q": "x", "hint": "h"}, {"q": "y"}]).map_prompts(prompt="{q} ({hint})")
    assert [prompt.text for prompt in data.prompts()] == ["x (h)", "y ()"]
    assert data.notices == ("column 'hint' is blank in 1 of 2 rows and leaves a gap in their prompts",)


def test_the_answer_after_four_hashes_is_taken_when_every_row_has_it() -> None:
    rows = [{"question": "x", "answer": "not #### 3\n#### 2"}, {"question": "y", "answer": "####1,000 "}]
    data = load_dataset([*rows, {"question": "z"}]).map_prompts()
    assert [prompt.reference for prompt in data.prompts()] == ["2", "1,000", None]
    assert data.prompts()[0].row["answer"] == "not #### 3\n#### 2"
    assert "what follows #### in answer is taken" in data.notices[1]
    mixed = load_dataset([*rows, {"question": "z", "answer": "7"}])
    assert mixed.prompts()[0].reference == "not #### 3\n#### 2"


@pytest.mark.parametrize("name", ["messages", "prompt"])
def test_messages_are_taken_as_they_are(name: str) -> None:
    tool = [
        {"role": "user", "content": "hi", "name": None},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "42", "name": "calc"},
    ]
    prompts = load_dataset([{name: CHAT}, {name: tool}, {name: "plain"}]).prompts()
    assert prompts[0].messages == tuple(CHAT)
    assert prompts[1].messages == (
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "42", "name": "calc"},
    )
    assert prompts[2].messages == ({"role": "user", "content": "plain"},)
    assert load_dataset([{name: CHAT[1:]}]).map_prompts(prompt=f"{{{name}}}", system="S").prompts()[0].messages == (
        {"role": "system", "content": "S"},
        {"role": "user", "content": "hi"},
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([*CHAT, {"role": "assistant", "content": "yo"}], "row 1, .*'prompt': the last message is the assistant's"),
        ([CHAT[0]], "no message has the role user"),
        ([], "the prompt is blank in 1 of 1 rows"),
        (["hi"], "message 0: expected a mapping with role and content, got str"),
        ({"role": "user", "content": "hi"}, "expected text or a list of messages, got one mapping"),
        ([{"from": "human", "value": "hi"}], "has from and value; rename them"),
        ([{"role": "usr", "content": "hi"}], r"unknown role 'usr'; did you mean 'user'\?"),
        ([{"content": "hi"}], "unknown role None; known: system, user, assistant, tool"),
        ([{"role": "user", "content": [{"type": "text"}]}], "message 0: content must be text, got list"),
        ([{"role": "user"}], "content must be text, got NoneType"),
    ],
)
def test_messages_that_cannot_be_a_prompt(value, message: str) -> None:
    with pytest.raises(DataError, match=message):
        table(prompt=value).prompts()


def test_two_system_messages_are_refused() -> None:
    with pytest.raises(DataError, match=r"row 1 brings its own system message; leave `system` out"):
        table(prompt=CHAT).map_prompts(system="S")


def test_a_dataset_is_never_changed() -> None:
    data = table(question="x", answer=1)
    mapped = data.map_prompts(system="S")
    assert data.mapping is None
    assert data.notices == ()
    again = mapped.map_prompts()
    assert again.notices == ("prompt <- question, reference <- answer",)
    assert again.prompts() == data.prompts()
    mapped.prompts().clear()
    assert len(mapped.prompts()) == len(mapped) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        mapped.source = "x"  # type: ignore[misc]
    assert load_dataset(mapped) is mapped
    assert pickle.loads(pickle.dumps(mapped)) == mapped


def test_a_repr_evaluates_back() -> None:
    for data in (
        load_dataset("bundled:additions"),
        load_dataset("bundled:additions").map_prompts(system="Answer with {{}} only.", reference="{answer}"),
        load_dataset("bundled:additions").map_prompts(),
    ):
        assert eval(repr(data)) == data
    assert repr(load_dataset("bundled:additions").map_prompts(prompt="question")) == (
        "load_dataset('bundled:additions').map_prompts(prompt='question')  # 1176 rows: question, answer, a, b"
    )
    assert repr(table(q=1)) == "load_dataset(<rows>)  # 1 rows: q"
