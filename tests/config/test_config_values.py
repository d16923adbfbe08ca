"""What the schema takes and refuses: defaults, ranges, options that would be ignored, recipes, round trips."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragonet.config import RunConfig, config_schema, load_config, resolved_yaml
from dragonet.config.values import expected
from dragonet.errors import ConfigError

DEFAULTS: dict[str, Any] = {
    "name": None,
    "model": {
        "id": "smollm2-135m-instruct",
        "revision": None,
        "trust_remote_code": False,
        "chat_template": "auto",
        "device": "auto",
        "dtype": "auto",
    },
    "data": {
        "source": None,
        "prompt": None,
        "reference": None,
        "system": None,
        "eval": 0.1,
        "min_eval": 16,
        "max_eval": 200,
        "seed": 42,
        "long_prompts": "error",
    },
    "rewards": (),
    "reinforce": {
        "estimator": "grpo",
        "loss": "ppo_clip",
        "clip": (0.2, 0.2),
        "delta": None,
        "dual_clip": None,
        "aggregate": "token_mean",
        "beta": 0.04,
        "kl": "k3",
        "kl_importance_corrected": False,
        "kl_in": "loss",
        "variance": "biased",
        "group_size": 4,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "max_new_tokens": 128,
        "stop": (),
        "updates": 1,
        "truncated": "train",
        "max_failed_fraction": 0.2,
    },
    "lora": {"r": 16, "alpha": 32, "dropout": 0.0, "targets": "all-linear"},
    "train": {
        "learning_rate": 1.0e-5,
        "batch_size": 4,
        "micro_batch": "auto",
        "epochs": 1,
        "max_steps": None,
        "max_minutes": None,
        "warmup": 0.03,
        "schedule": "cosine",
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "seed": 42,
        "save_steps": 20,
        "keep_checkpoints": 2,
        "keep": "last",
        "eval_steps": "auto",
        "n_samples": 10,
    },
    "track": (),
    "runs_dir": None,
}


def refusal(values: dict[str, Any], *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(values, overrides)
    return str(caught.value)


def test_an_empty_mapping_gives_every_default() -> None:
    assert load_config({}).model_dump() == DEFAULTS


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"reinforce": {"group_size": 1}},
            "reinforce.group_size: expected a whole number from 2 to 64, got the number 1",
        ),
        ({"reinforce": {"group_size": 65}}, "from 2 to 64"),
        ({"reinforce": {"group_size": 8.0}}, "expected a whole number from 2 to 64, got the number 8.0"),
        ({"reinforce": {"group_size": True}}, "got true"),
        (
            {"reinforce": {"temperature": 0}},
            "reinforce.temperature: expected a number from 0.05 to 3, got the number 0",
        ),
        ({"reinforce": {"temperature": 3.1}}, "from 0.05 to 3"),
        ({"reinforce": {"beta": 11}}, "from 0 to 10"),
        ({"reinforce": {"max_new_tokens": 0}}, "expected a whole number from 1 to 1000000"),
        ({"reinforce": {"top_p": 0}}, "a number above 0 and to 1"),
        ({"reinforce": {"stop": "END"}}, "expected a list of texts, got text 'END'"),
        ({"reinforce": {"stop": ["a", ""]}}, "reinforce.stop.1: expected text that is not empty"),
        ({"reinforce": {"clip": [0.2]}}, "reinforce.clip: expected [below, above]"),
        ({"reinforce": {"clip": [0.2, 0.2, 0.2]}}, "reinforce.clip: expected [below, above]"),
        ({"reinforce": {"clip": [1.2, 0.2]}}, "reinforce.clip.0: expected a number above 0 and below 1"),
        ({"train": {"learning_rate": math.nan}}, "train.learning_rate: expected a finite number, got nan"),
        ({"train": {"learning_rate": math.inf}}, "got inf"),
        ({"train": {"learning_rate": "fast"}}, "expected a number from 0 to 1, got text 'fast'"),
        ({"train": {"learning_rate": None}}, "got nothing; remove the key to keep the default"),
        (
            {"train": {"warmup": 5}},
            "train.warmup: expected a share of all steps from 0 to 1, such as 0.03, got the number 5",
        ),
        ({"train": {"micro_batch": "many"}}, "expected auto, or a whole number from 1 to 1000000, got text 'many'"),
        ({"train": {"max_minutes": 0}}, "expected a number above 0 and to 1000000, or null"),
        ({"train": {"schedule": "cosin"}}, "train.schedule: unknown value 'cosin'; did you mean 'cosine'?"),
        ({"lora": {"targets": []}}, "lora.targets: expected all-linear, or a list of module names, got an empty list"),
        ({"lora": {"dropout": 1}}, "from 0 and below 1"),
        ({"model": {"device": "gpu"}}, "model.device: expected auto, cpu, mps, cuda or cuda:N, got text 'gpu'"),
        ({"model": {"trust_remote_code": "yes"}}, "expected true or false, got text 'yes'"),
        ({"model": 3}, "model: expected a model's name, or a section with keys, got the number 3"),
        ({"model": {"id": "a/b@v1", "revision": "v2"}}, "the id 'a/b@v1' names a revision already"),
        ({"data": []}, "data: expected a section with keys, got an empty list"),
        ({"data": {"min_eval": 300}}, "data.min_eval: 300 is above max_eval 200"),
        ({"data": {"eval": 0, "min_eval": 8}}, "data.min_eval: would be ignored: eval is 0"),
        ({"rewards": 3}, "rewards: expected a list of rewards"),
        ({"rewards": ["numeric", {"weight": 1}]}, "rewards.1: a reward needs a type, such as {type: numeric}"),
        ({"rewards": ["numeric", 3]}, "rewards.1: expected a type name or a mapping with a type, got the number 3"),
        ({"rewards": {"type": "numeric", "weight": math.nan}}, "rewards.weight: expected a finite number"),
        ({"data": {"source": object()}}, "data.source: expected text, a number, true, false, a list or a mapping"),
        ({"name": 7}, "name: expected text that is not empty, or null, got the number 7; in quotes it is text"),
        ({"name": True}, "got true; in quotes it is text"),
    ],
)
def test_a_wrong_value_names_its_key_what_is_expected_and_what_came(values: dict[str, Any], message: str) -> None:
    assert message in refusal(values)


@pytest.mark.parametrize(
    ("reinforce", "message"),
    [
        ({"estimator": "rloo", "delta": 2.0}, "reinforce.delta: would be ignored: loss rloo"),
        ({"estimator": "rloo", "dual_clip": 3.0}, "reinforce.dual_clip: would be ignored: loss rloo"),
        ({"estimator": "rloo", "aggregate": "token_mean"}, "reinforce.aggregate: token_mean would be ignored"),
        ({"loss": "rloo"}, "reinforce.loss: goes with estimator rloo, not grpo"),
        ({"beta": 0, "kl": "k3"}, "reinforce.kl: would be ignored: beta is 0"),
        ({"beta": 0, "kl_in": "reward"}, "reinforce.kl_in: would be ignored: beta is 0"),
        (
            {"beta": 0, "kl_importance_corrected": True},
            "reinforce.kl_importance_corrected: would be ignored: beta is 0",
        ),
        ({"kl_in": "reward", "kl_importance_corrected": True}, "it corrects the KL in the loss, and kl_in is reward"),
        ({"variance": "biased"}, "reinforce.variance: would be ignored: only reinforce and reinforce_baseline whiten"),
        ({"delta": 2.0, "dual_clip": 3.0}, "reinforce.delta: both bound the loss"),
        ({"delta": 1.2}, "reinforce.delta: 1.2 must lie above 1 + the upper clip, 1.2"),
    ],
)
def test_options_that_would_be_ignored_or_do_not_go_together_are_errors(
    reinforce: dict[str, Any], message: str
) -> None:
    assert message in refusal({"reinforce": reinforce})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"agent": {"file": "a.py"}}, "agent: comes with a later release"),
        ({"router": {}}, "router: comes with a later release"),
        ({"sandbox": "auto"}, "sandbox: comes with a later release"),
        ({"track": ["wandb"]}, "track: trackers come with a later release"),
        ({"reinforce": {"estimator": "gae"}}, "'gae' comes with a later release; now: grpo, dr_grpo, rloo"),
        ({"reinforce": {"loss": "gspo"}}, "'gspo' comes with a later release; now: ppo_clip, rloo"),
        ({"train": {"keep": "best"}}, "'best' comes with a later release; now: last"),
    ],
)
def test_what_a_later_release_brings_says_so(values: dict[str, Any], message: str) -> None:
    assert message in refusal(values)


def test_rloo_brings_its_own_loss_and_aggregation() -> None:
    section = load_config({"reinforce": {"estimator": "rloo"}}).reinforce
    assert (section.loss, section.aggregate) == ("rloo", "sequence_mean")
    section = load_config({"reinforce": {"estimator": "rloo", "loss": "ppo_clip"}}).reinforce
    assert (section.loss, section.aggregate) == ("ppo_clip", "token_mean")


def test_a_penalty_in_the_reward_is_k1_unless_told() -> None:
    assert load_config({"reinforce": {"kl_in": "reward"}}).reinforce.kl == "k1"
    assert load_config({"reinforce": {"kl_in": "reward", "kl": "k2"}}).reinforce.kl == "k2"
    assert load_config({"reinforce": {"kl_in": "loss"}}).reinforce.kl == "k3"


def test_a_recipe_is_not_held_against_the_user() -> None:
    message = refusal({"reinforce": {"beta": 0, "kl_in": "reward"}})
    assert message.startswith("config: reinforce.kl_in: would be ignored: beta is 0")  # and no word of kl


def test_short_forms_are_spelled_out() -> None:
    config = load_config({"model": "tiny-random", "rewards": "numeric", "reinforce": {"clip": 0.3}})
    assert config.model.id == "tiny-random"
    assert config.rewards == ({"type": "numeric"},)
    assert config.reinforce.clip == (0.3, 0.3)
    assert load_config({"rewards": {"type": "exact", "weight": 2}}).rewards == ({"type": "exact", "weight": 2},)


@pytest.mark.parametrize("text", ["1e-5", "2E-4", "1.e-3", ".5e-1"])
def test_numbers_that_other_yaml_readers_take_for_text_are_numbers(text: str) -> None:
    assert load_config({"train": {"learning_rate": text}}).train.learning_rate == float(text)


def test_a_config_is_frozen_and_equal_by_value() -> None:
    config = load_config({"num_generations": 8})
    assert config == load_config({"reinforce": {"group_size": 8}})
    assert config != load_config({})
    with pytest.raises(ValueError, match="frozen"):
        config.name = "other"


def test_building_a_config_directly_holds_the_same_rules() -> None:
    with pytest.raises(ValueError, match="would be ignored"):
        RunConfig.model_validate({"reinforce": {"beta": 0, "kl": "k1"}})


def test_every_key_can_say_what_it_expects() -> None:
    for name, field in RunConfig.model_fields.items():
        assert "plain value" not in expected(field), name
        for key, inner in getattr(field.annotation, "model_fields", {}).items():
            assert "plain value" not in expected(inner), f"{name}.{key}"


def test_the_json_schema_names_every_section() -> None:
    assert set(config_schema()["properties"]) == set(DEFAULTS)
    json.dumps(config_schema())


@pytest.mark.parametrize(
    "reinforce",
    [
        {},
        {"estimator": "rloo"},
        {"estimator": "rloo", "loss": "ppo_clip", "delta": 1.5},
        {"estimator": "reinforce", "variance": "unbiased"},
        {"beta": 0},
        {"kl_in": "reward"},
        {"clip": [0.2, 0.28], "stop": ["\n", "1e-5", "no", "#", " "], "aggregate": "constant"},
    ],
)
def test_the_resolved_config_reads_back_equal(reinforce: dict[str, Any]) -> None:
    config = load_config({"reinforce": reinforce, "data": {"eval": 0}, "num_generations": 8})
    again = load_config(resolved_yaml(config))
    assert again == config
    assert again.notices == ()
    assert resolved_yaml(again) == resolved_yaml(config)


texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
) | st.sampled_from(
    [
        "no",
        "1e-5",
        "0x1F",
        "2026-01-01",
        "~",
        "null",
        "12:30",
        "a: b",
        "- a",
        "# a",
        "'",
        '"',
        "{a}",
        "\u0085",
        "\ufeffa",
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
nested = st.recursive(scalars, lambda c: st.lists(c, max_size=3) | st.dictionaries(texts, c, max_size=3), max_leaves=6)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=texts,
    system=texts,
    prompt=texts,
    stop=st.lists(texts, max_size=3),
    rate=st.floats(0, 1),
    extra=st.dictionaries(texts.filter(lambda key: key not in ("type", "file")), nested, max_size=3),
)
def test_any_text_and_number_survive_the_round_trip(
    name: str, system: str, prompt: str, stop: list[str], rate: float, extra: dict[str, Any]
) -> None:
    config = load_config(
        {
            "name": name,
            "data": {"system": system, "prompt": prompt},
            "rewards": [{"type": "custom", **extra}],
            "reinforce": {"stop": stop},
            "train": {"learning_rate": rate},
        }
    )
    assert config.name == name
    assert config.rewards == ({"type": "custom", **extra},)
    assert load_config(resolved_yaml(config)) == config


def test_the_page_shows_every_key_with_its_default() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "config.md").read_text(encoding="utf-8")
    shown = page.split("```yaml\n")[1].split("```")[0]
    assert load_config(shown) == load_config({})
    sections = {key: value for key, value in DEFAULTS.items() if isinstance(value, dict) and key != "model"}
    missing = [
        key for section in sections.values() for key in section if not re.search(rf"^  #? ?{key}: ", shown, re.M)
    ]
    assert missing == []
    assert all(re.search(rf"^{key}:", shown, re.M) for key in DEFAULTS)


def test_reading_a_config_loads_nothing_heavy() -> None:
    code = (
        "import sys, dragonet.config as c; c.load_config({}); "
        "print([m for m in ('torch', 'transformers', 'peft', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
