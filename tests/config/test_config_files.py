"""Reading files: YAML and TOML, their traps, lines in errors, every problem at once, paths, aliases, overrides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dragonet.config import RunConfig, load_config
from dragonet.errors import ConfigError

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def save(text: str | bytes, name: str = "run.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return save


def refusal(path: Path | str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


def test_all_problems_of_a_file_are_listed_in_its_order_with_their_lines(write: Write) -> None:
    path = write(
        "name: a run\n"
        "data: {promt: question}\n"
        "rewards:\n"
        "  - numeric\n"
        "  - {weight: .nan, type: length}\n"
        "reinforce:\n"
        "  grop_size: 8\n"
        "  temperature: 0\n"
        "  loss: rloo\n"
        "  delta: 1.5\n"
        "train: {learning_rate: fast, group_size: 4}\n"
        "max_stps: 3\n"
        "agent: {}\n"
    )
    assert refusal(path, "train.epohs=2").splitlines() == [
        f"{path}: 11 problems",
        "  line 2: data.promt: unknown key; did you mean 'prompt'?",
        "  line 5: rewards.1.weight: expected a finite number, got nan",
        "  line 7: reinforce.grop_size: unknown key; did you mean 'group_size'?",
        "  line 8: reinforce.temperature: expected a number from 0.05 to 3, got the number 0",
        "  line 9: reinforce.loss: goes with estimator rloo, not grpo; use loss ppo_clip or write estimator: rloo",
        "  line 10: reinforce.delta: would be ignored: loss rloo has no such bound; remove it or use loss ppo_clip",
        "  line 11: train.group_size: unknown key here; it is reinforce.group_size",
        "  line 11: train.learning_rate: expected a number from 0 to 1, got text 'fast'",
        "  line 12: max_stps: unknown key; did you mean 'train.max_steps'?",
        "  line 13: agent: comes with a later release; remove the section",
        "  command line: train.epohs: unknown key; did you mean 'epochs'?",
    ]


def test_a_key_that_is_wrong_itself_starts_no_second_complaint(write: Write) -> None:
    path = write("reinforce: {estimator: rlo, loss: rloo, aggregate: sequence_mean}\n")
    assert refusal(path) == f"{path}, line 1: reinforce.estimator: unknown value 'rlo'; did you mean 'rloo'?"


def test_one_problem_is_one_line(write: Write) -> None:
    path = write("train:\n  max_step: 4\n")
    assert refusal(path) == f"{path}, line 2: train.max_step: unknown key; did you mean 'max_steps'?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty; a config has keys, such as `model: smollm2-135m-instruct`"),
        ("# nothing\n", "the file is empty"),
        ("- a\n", "expected keys with values, got a list"),
        ("just text\n", "expected keys with values, got a single value"),
        ("train:\n\tepochs: 1\n", ", line 2: not valid YAML: a tab cannot indent; use blanks"),
        ("train: [1\n", ", line 2: not valid YAML: "),
        ("name: a\n---\nname: b\n", ", line 2: not valid YAML: a second document starts"),
        ("name: a\ntrain: {seed: 1}\nname: b\n", ", line 3: name: written twice, first on line 1; keep one"),
        ("train: {seed: 1, seed: 1}\n", ", line 1: train.seed: written twice, first on line 1; keep one"),
        ("1: a\n", ", line 1: 1: keys are text, got the number 1"),
        ("{a: 1}: b\n", ", line 1: a key is text, got a single value; put a template in quotes"),
        ("name: !!python/name:os.system x\n", ", line 1: name: the tag "),
        ("name: \x07\n", "not valid YAML: "),
        ("data: &a {source: *a}\n", "aliases unfold to too many values"),
        ("[" * 3000, "nested too deeply"),
        ("train: {seed: 1.5}\n", ", line 1: train.seed: expected a whole number from 0 and below "),
    ],
)
def test_files_that_cannot_be_read(write: Write, text: str, message: str) -> None:
    assert message in refusal(write(text))


def test_text_that_older_yaml_takes_for_something_else_stays_text(write: Write) -> None:
    config = load_config(
        write(
            "name: no\n"
            "data: {system: on, reference: 2026-01-01}\n"
            "rewards: {type: keyword, words: [yes, off, 12:30, 1_000]}\n"
            "train: {learning_rate: 1e-5, max_minutes: 010, weight_decay: .5}\n"
        )
    )
    assert (config.name, config.data.system, config.data.reference) == ("no", "on", "2026-01-01")
    assert config.rewards[0]["words"] == ["yes", "off", "12:30", "1_000"]
    assert (config.train.learning_rate, config.train.max_minutes, config.train.weight_decay) == (1e-5, 10.0, 0.5)


def test_numbers_too_large_to_hold_are_not_finite(write: Write) -> None:
    assert "train.learning_rate: expected a finite number, got inf" in refusal(write("train: {learning_rate: 1e999}\n"))


def test_byte_order_mark_and_windows_line_breaks(write: Write) -> None:
    assert load_config(write(b"\xef\xbb\xbfname: a\r\ntrain:\r\n  seed: 7\r\n")).train.seed == 7


def test_a_section_with_every_key_commented_out_is_absent(write: Write) -> None:
    assert load_config(write("lora:\n  # r: 8\nrewards:\ntrain:\n")) == RunConfig()


def test_toml_reads_like_yaml(write: Write) -> None:
    toml = write('model = "tiny-random"\n[train]\nlearning_rate = 1e-4\n[[rewards]]\ntype = "numeric"\n', "run.toml")
    yaml = write("model: tiny-random\ntrain: {learning_rate: 1e-4}\nrewards: numeric\n")
    assert load_config(toml) == load_config(yaml)
    assert "not valid TOML" in refusal(write("a = \n", "bad.toml"))
    assert "the file holds no keys" in refusal(write("", "empty.toml"))
    assert "bad.toml: train.learning_rate: expected a finite number, got nan" in refusal(
        write("[train]\nlearning_rate = nan\n", "bad.toml")
    )
    assert "got an object of type date" in refusal(write("name = 2026-01-01\n", "bad.toml"))


def test_a_missing_file_names_the_near_one(write: Write, tmp_path: Path) -> None:
    write("name: a\n", "arithmetic.yaml")
    assert "no such file; did you mean 'arithmetic.yaml'?" in refusal(tmp_path / "arithmetics.yaml")
    assert "there is no folder" in refusal(tmp_path / "nowhere" / "run.yaml")
    assert "ends in .yaml, .yml or .toml" in refusal(tmp_path / "run.ini")
    (tmp_path / "folder.yaml").mkdir()
    assert "cannot be read" in refusal(tmp_path / "folder.yaml")
    assert "not UTF-8 text (byte 6)" in refusal(write(b"name: \xff\n"))


def test_paths_in_a_file_count_from_its_folder(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    path = write(
        "model: {id: models/mine, chat_template: chat.jinja}\ndata: {source: tables/train.csv}\n"
        "rewards: [{type: custom, file: ../score.py}]\nruns_dir: runs\n"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    config = load_config(path)
    assert config.data.source == str(tmp_path / "tables" / "train.csv")
    assert config.rewards[0]["file"] == str(tmp_path.parent / "score.py")
    assert config.runs_dir == str(tmp_path / "runs")
    assert config.model.id == str(tmp_path / "models" / "mine")
    assert config.model.chat_template == str(tmp_path / "chat.jinja")
    typed = load_config(path, ["data.source=x.csv", "model=./m.gguf"])
    assert (typed.data.source, typed.model.id) == (str(elsewhere / "x.csv"), str(elsewhere / "m.gguf"))


def test_names_that_are_not_paths_are_left_alone(write: Write) -> None:
    config = load_config(write("model: {id: org/name, chat_template: none}\ndata: {source: 'bundled:additions'}\n"))
    assert (config.model.id, config.model.chat_template) == ("org/name", "none")
    assert config.data.source == "bundled:additions"


def test_names_of_another_trainer_are_read_with_a_notice() -> None:
    config = load_config(
        {"num_generations": 8, "reinforce": {"max_completion_length": 16}, "train": {"per_device_train_batch_size": 3}}
    )
    assert (config.reinforce.group_size, config.reinforce.max_new_tokens, config.train.batch_size) == (8, 16, 3)
    assert sorted(config.notices) == [
        "max_completion_length is TRL's name, read as reinforce.max_new_tokens=16",
        "num_generations is TRL's name, read as reinforce.group_size=8",
        "per_device_train_batch_size is TRL's name, read as train.batch_size=3 (it counts prompts, not completions)",
    ]


def test_another_name_beside_the_real_one_is_a_conflict(write: Write) -> None:
    path = write("reinforce: {group_size: 4}\nnum_generations: 8\n")
    message = "num_generations: is another name for reinforce.group_size, which is set too; keep one of them"
    assert refusal(path) == f"{path}, line 2: {message}"
    assert "is another name for num_generations" in refusal(
        write("num_generations: 8\nreinforce: {num_generations: 4}\n")
    )
    path = write("num_generations: 1\n")
    assert "line 1: reinforce.group_size: expected a whole number from 2" in refusal(path)
    assert load_config(path, ["reinforce.group_size=6"]).reinforce.group_size == 6
    assert load_config(write("reinforce: {group_size: 4}\n"), ["num_generations=6"]).reinforce.group_size == 6


def test_overrides_set_scalars_lists_and_entries(write: Write) -> None:
    path = write("model: tiny-random\nrewards: [numeric, {type: length, max_chars: 4}]\ntrain: {seed: 1}\n")
    config = load_config(
        path,
        [
            "train.max_steps=4",
            "train.learning_rate=1e-4",
            "rewards.1.weight=0.5",
            "rewards.0.words=[a, yes, 2]",
            "rewards.0.pattern=[0-9]+ # digits",
            "rewards.0.tests={column}",
            "model.device=cpu",
            "name=007",
            "data.prompt={question} = ?",
            "data.reference={answer}",
            'data.system=""',
            "reinforce.stop=['\\n', END]",
            "reinforce.kl=k1",
        ],
    )
    assert (config.train.max_steps, config.train.learning_rate, config.train.seed) == (4, 1e-4, 1)
    assert config.rewards == (
        {"type": "numeric", "words": ["a", "yes", 2], "pattern": "[0-9]+ # digits", "tests": "{column}"},
        {"type": "length", "max_chars": 4, "weight": 0.5},
    )
    assert (config.model.id, config.model.device, config.name) == ("tiny-random", "cpu", "007")
    assert (config.data.prompt, config.data.reference, config.data.system) == ("{question} = ?", "{answer}", "")
    assert config.reinforce.stop == ("\\n", "END")
    assert config.reinforce.kl == "k1"


def test_null_takes_a_key_back_to_its_default(write: Write) -> None:
    path = write("reinforce: {beta: 0.1, kl: k1}\ntrain: {max_steps: 3}\n")
    assert "reinforce.kl: would be ignored" in refusal(path, "reinforce.beta=0")
    config = load_config(path, ["reinforce.beta=0", "reinforce.kl=null", "train.max_steps="])
    assert (config.reinforce.beta, config.reinforce.kl, config.train.max_steps) == (0, "k3", None)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.max_stps=4", "command line: train.max_stps: unknown key; did you mean 'max_steps'?"),
        ("max_steps=4", "command line: max_steps: unknown key here; it is train.max_steps"),
        ("seed=4", "command line: seed: unknown key here; it is data.seed or train.seed"),
        ("train.runs_dir=x", "command line: train.runs_dir: unknown key here; it is runs_dir"),
        ("train.max_steps=many", "command line: train.max_steps: expected a whole number from 1 to 1000000, or null"),
        ("train.learning_rate=.nan", "command line: train.learning_rate: expected a finite number, got nan"),
        ("rewards.2.weight=1", "command line: rewards.2.weight: no entry 2 in rewards; there are: 0 to 1"),
        ("rewards.first.weight=1", "no entry first in rewards"),
        ("name.first=1", "command line: name.first: name holds a single value, so it has no key 'first'"),
        ("train.max_steps", "command line: 'train.max_steps': an override is written key=value"),
        ("train..seed=1", "an override is written key=value"),
        ("=1", "an override is written key=value"),
    ],
)
def test_overrides_that_cannot_work(write: Write, override: str, message: str) -> None:
    assert message in refusal(write("name: a\nrewards: [numeric, exact]\n"), override)


def test_a_value_from_the_command_line_is_not_blamed_on_the_file(write: Write) -> None:
    path = write("reinforce:\n  group_size: 4\n")
    assert refusal(path, "reinforce.group_size=1").startswith("command line: reinforce.group_size: ")
    path = write("rewards:\n  - numeric\n  - exact\n")
    assert refusal(path, "rewards=[numeric, {weight: 1}]").startswith("command line: rewards.1: a reward needs a type")
