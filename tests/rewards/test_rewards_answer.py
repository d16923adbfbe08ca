"""What part of a completion counts, for which rows, and how far: answer, reasoning, when, clip."""

from __future__ import annotations

import time

import pytest

from dragonet.errors import ConfigError, RewardError
from dragonet.rewards import RewardSet, reward, score
from dragonet.rewards.answer import Answer, after_reasoning
from dragonet.rewards.condition import Condition
from dragonet.types import Prompt, Rollout, StopReason


def rollout(completion: str, prompt_text: str = "") -> Rollout:
    return Rollout(Prompt(()), (), completion, StopReason.EOS, prompt_text)


@pytest.mark.parametrize(
    ("completion", "prompt_text", "answer"),
    [
        ("<think>a</think>b", "", "b"),
        ("a</think>b</think>c", "", "c"),
        ("a</think>b", "user: x\n<think>\n", "b"),
        ("<think>a", "", ""),
        ("<think>a</think>b<think>c", "", ""),
        ("still thinking", "user: x\n<think>\n", ""),
        ("plain", "explain the tag <think> to me\nassistant:", "plain"),
    ],
)
def test_the_answer_follows_the_reasoning(completion: str, prompt_text: str, answer: str) -> None:
    assert after_reasoning(rollout(completion, prompt_text)) == answer


PICKED = [
    ("whole", "a b", "a b"),
    ("after:####", "1 #### 2 #### 3", " 3"),
    ("after:Answer:", "the answer: 5", " 5"),
    ("after:####", "none", ""),
    ("tag:answer", "<answer>1</answer> <answer>2</answer> <answer>3", "2"),
    ("tag:answer", "<answer>1", ""),
    ("tag:answer", "</answer><answer>1", ""),
    ("boxed", r"\boxed{1} so \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    ("boxed", r"\fbox{a}", "a"),
    ("boxed", r"\boxed{\{1\}}", r"\{1\}"),
    ("boxed", r"\boxed{1} and \boxed{2", ""),
    ("last_line", "a\n b \n\n", "b"),
    ("last_line", " ", ""),
    (r"regex:= (\d+)", "1 = 2, x = 3", "3"),
    (r"regex:\d+", "1 2", "2"),
    (r"regex:\d+", "none", ""),
    ("boxed", r"<think>\boxed{1}</think> nothing", ""),
]


@pytest.mark.parametrize(("form", "completion", "expected"), PICKED)
def test_forms_of_an_answer(form: str, completion: str, expected: str) -> None:
    answer = Answer(form)
    assert answer.of([rollout(completion)]) == [expected]
    answer.close()


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("boxd", "there is no 'boxd'; did you mean 'boxed'"),
        ("after:", "write 'after:TEXT', got 'after:'"),
        ("tag", "write 'tag:NAME', got 'tag'"),
        ("boxed:x", "write 'boxed', got 'boxed:x'"),
        ("regex:(", r"missing \), unterminated subpattern at position 0"),
    ],
)
def test_forms_that_do_not_exist(form: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reward("numeric", answer=form)


def test_every_text_type_takes_an_answer() -> None:
    assert score(reward("length", max_chars=1, answer="tag:a"), "<think>long</think><a>x</a>").value == 1
    assert score(reward("regex", pattern="^x$", answer="tag:a"), "<a>x</a>").value == 1
    assert score(reward("length", max_chars=1), "<think></think>x").value == 0  # the raw text otherwise
    with pytest.raises(ConfigError, match="the function sees the raw completion"):
        reward("custom", source="def reward(): return 1", answer="boxed")


def test_a_pattern_that_takes_too_long_to_find_the_answer() -> None:
    slow = reward("exact", answer=r"regex:^(a|aa)+$")
    began = time.monotonic()
    got = score(slow, "a" * 60 + "b", reference="a")
    assert time.monotonic() - began < 4  # a hang guard
    assert (got.value, got.logs) == (0.0, {"timeout": 1.0})
    slow.close()


@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("level == 'hard'", {"level": "hard"}, True),
        ("level == 'hard'", {"level": "easy"}, False),
        ("level != 'hard'", {"level": "easy"}, True),
        ("level == 3", {"level": "3"}, True),
        ("level == 3", {"level": 3}, True),
        ('level=="3"', {"level": 3}, True),
        ("level == 1.50", {"level": "1.50"}, True),
        ("level == 'hard'", {}, False),
        ("level != 'hard'", {}, True),
        ("level == ''", {}, True),
        ("'my column' == 'a == b'", {"my column": "a == b"}, True),
        ("my column == -1", {"my column": "-1"}, True),
        ("class == True", {"class": True}, True),
    ],
)
def test_conditions_compare_as_text(text: str, row: dict[str, object], expected: bool) -> None:
    assert Condition.parse(text).holds(row) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("level = 3", "expected column == 'value'"),
        ("level == hard", "write level == 'hard'"),
        ("level == 'a' or True", "neither text in quotes nor a number"),
        ("level == __import__('os').getpid()", "neither text in quotes nor a number"),
        ("== 3", "expected column"),
        ("level > 3", "expected column"),
    ],
)
def test_conditions_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reward("numeric", when=text)


def test_a_reward_whose_condition_does_not_hold_abstains() -> None:
    hard = reward("numeric", when="level == 'hard'")
    assert score(hard, "5", reference="no number", row={"level": "easy"}).status == "not_applicable"
    assert score(hard, "5", reference="5", row={"level": "hard"}).value == 1
    prompts = [Prompt((), "no number", {"level": "easy"}), Prompt((), "5", {"level": "hard"})]
    RewardSet([hard]).check(prompts)
    with pytest.raises(RewardError, match="'levl', which no row has; did you mean 'level'"):
        RewardSet([reward("numeric", when="levl == 'hard'")]).check(prompts)


def test_clip_bounds_the_value_before_the_weight() -> None:
    bounded = reward("custom", source="def reward(completion): return float(completion)", clip=[-1, 0.5], weight=2)
    assert [score(bounded, text).value for text in ("7", "-7", "0.25")] == [0.5, -1.0, 0.25]
    bounded.close()
    for clip, message in (
        ([1], "two numbers"),
        ([1, 1], "no room"),
        ([2, 1], "no room"),
        ([0, "1"], "must be a number"),
    ):
        with pytest.raises(ConfigError, match=f'reward "numeric": clip .*{message}'):
            reward("numeric", clip=clip)
