"""Tables in memory, with the real libraries: pandas, polars, datasets, pyarrow, numpy."""

from __future__ import annotations

import copy
import datetime
import decimal
import json
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dragonet.data import load_dataset
from dragonet.data.jsonl import prompts_from_jsonl, prompts_to_jsonl
from dragonet.data.values import LiteralFloat, as_text, number_text
from dragonet.errors import DataError


def rows(source) -> list[dict]:
    return list(load_dataset(source).rows)


def test_rows_and_columns() -> None:
    assert rows([{"q": "x", "a": 1}, {"q": "y", "b": None}]) == [{"q": "x", "a": 1}, {"q": "y"}]
    assert load_dataset([{"q": "x"}, {"b": 2}]).columns == ("q", "b")
    assert rows({"q": ["x", "y"], "a": np.array([1, 2])}) == [{"q": "x", "a": 1}, {"q": "y", "a": 2}]


def test_values_are_plain_python() -> None:
    row = {
        "i": np.int64(3),
        "f": np.float32(0.5),
        "b": np.bool_(True),
        "s": np.str_("t"),
        "array": np.arange(3),
        "tuple": (1, np.int8(2), None, {"k": np.float64("nan"), 3: ""}),
        "when": np.datetime64("2024-01-05T10:00:00", "ns"),
        "day": datetime.date(2024, 1, 5),
        "money": decimal.Decimal("1E+2"),
        "span": datetime.timedelta(seconds=5),
    }
    blank = {"n": float("nan"), "t": np.datetime64("NaT"), "d": decimal.Decimal("NaN"), "z": "\u00a0\t", "o": None}
    [plain] = rows([{**row, **blank}])
    assert plain == {
        "i": 3,
        "f": 0.5,
        "b": True,
        "s": "t",
        "array": [0, 1, 2],
        "tuple": [1, 2, None, {"k": None, "3": ""}],
        "when": "2024-01-05T10:00:00.000000000",
        "day": "2024-01-05",
        "money": 100,
        "span": "0:00:05",
    }
    assert {type(value) for value in plain.values()} == {int, float, bool, str, list}
    json.dumps(plain, allow_nan=False)


@pytest.mark.parametrize("number", [10**5000, -(10**5000), decimal.Decimal(10**5000)], ids=["int", "minus", "decimal"])
def test_a_whole_number_that_python_does_not_write_keeps_its_digits(number: Any) -> None:
    table = load_dataset([{"prompt": "a", "answer": number, "more": {10**5000: [number]}}]).rows
    digits = ("-" if number < 0 else "") + "1" + "0" * 5000
    assert str(table[0]["answer"]) == digits
    assert table[0]["more"].keys() == {"1" + "0" * 5000}
    (prompt,) = load_dataset([{"prompt": "a", "answer": number}]).map_prompts().prompts()
    assert prompt.reference == digits
    assert prompts_from_jsonl(prompts_to_jsonl([prompt])) == [prompt]


def test_the_source_is_never_shared() -> None:
    source = [{"q": "x", "l": [1]}]
    data = load_dataset(source)
    source[0]["l"].append(2)
    source.append({"q": "y"})
    assert data.rows == ({"q": "x", "l": [1]},)


def test_pandas() -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "q": ["x", None, "z"],
            "whole": [100000, None, 3],
            "float": [1.0, 2.0, 3.0],
            "half": [1.5, None, 2.0],
            "nullable": pd.array([1, None, 2], dtype="Int64"),
            "when": pd.to_datetime(["2024-01-05", None, "2024-01-06"]),
            "cat": pd.Categorical(["u", "v", "u"]),
            "flag": [True, False, True],
            "list": [[1], [2], []],
        },
        index=[5, 6, 7],
    )
    data = load_dataset(frame)
    assert data.columns == tuple(frame.columns)
    assert data.rows[0] == {
        "q": "x",
        "whole": 100000,
        "float": 1.0,
        "half": 1.5,
        "nullable": 1,
        "when": "2024-01-05T00:00:00",
        "cat": "u",
        "flag": True,
        "list": [1],
    }
    assert data.rows[1] == {"float": 2.0, "cat": "v", "flag": False, "list": [2]}
    assert type(data.rows[0]["whole"]) is int
    mapped = data.map_prompts(prompt="{whole} {float} {half} {nullable} {flag}", reference="whole").prompts()
    assert [prompt.text for prompt in mapped] == ["100000 1.0 1.5 1 True", " 2.0   False", "3 3.0 2.0 2 True"]
    assert [prompt.reference for prompt in mapped] == ["100000", None, "3"]


def test_pandas_refusals() -> None:
    import pandas as pd

    with pytest.raises(DataError, match="columns 1 and 2 are both called 'q'"):
        load_dataset(pd.DataFrame([[1, 2]], columns=["q", "q"]))
    with pytest.raises(DataError, match="the column name 0 is not text"):
        load_dataset(pd.DataFrame([[1, 2]]))
    with pytest.raises(DataError, match=r"pandas\.DataFrame has no rows"):
        load_dataset(pd.DataFrame({"q": []}))


def test_polars() -> None:
    import polars as pl

    frame = pl.DataFrame(
        {
            "q": ["x", None],
            "i": [100000, None],
            "f": [0.5, float("nan")],
            "d": [datetime.date(2024, 1, 5), None],
            "l": [[1, 2], None],
            "s": [{"k": 1}, {"k": None}],
        }
    )
    expected = [{"q": "x", "i": 100000, "f": 0.5, "d": "2024-01-05", "l": [1, 2], "s": {"k": 1}}, {"s": {"k": None}}]
    assert rows(frame) == expected
    assert rows(frame.lazy()) == expected


def test_datasets() -> None:
    import datasets

    source = {"question": ["x", None], "answer": [7, 8], "messages": [[{"role": "user", "content": "hi"}]] * 2}
    table = datasets.Dataset.from_dict(source)
    expected = [
        {"question": "x", "answer": 7, "messages": [{"role": "user", "content": "hi"}]},
        {"answer": 8, "messages": [{"role": "user", "content": "hi"}]},
    ]
    assert rows(table) == expected
    for form in ("numpy", "pandas"):
        assert rows(table.with_format(form)) == expected
    assert load_dataset(table).columns == ("question", "answer", "messages")
    with pytest.raises(DataError, match=r"several tables \(train, test\); pass one of them: data\['train'\]"):
        load_dataset(datasets.DatasetDict({"train": table, "test": table}))
    with pytest.raises(DataError, match="is a stream; pass list"):
        load_dataset(table.to_iterable_dataset())


def test_pyarrow() -> None:
    import pyarrow as pa

    assert rows(pa.table({"q": ["x", ""], "a": [1, None]})) == [{"q": "x", "a": 1}, {}]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "the list of rows has no rows"),
        ({}, "the mapping of columns has no rows"),
        ({"q": []}, "has no rows"),
        (["what?"], r"row 1: expected a mapping, got str; write \{'prompt': text\} for each"),
        ([{"q": "x"}, None], r"row 2: expected a mapping, got NoneType"),
        ([{1: "x"}], "the column name 1 is not text"),
        ({"q": "text"}, "column 'q' is one str"),
        ({"q": [1], "a": [1, 2]}, r"differ in length \(q 1, a 2\)"),
        (7, "a table cannot be read from builtins.int; expected a file name"),
        (None, "a table cannot be read from builtins.NoneType"),
        ([{"q": "x"}, {"q": object()}], r"row 2, column 'q': a value of type builtins.object is no text"),
        ([{"q": b"\xff\xfe"}], "column 'q': 2 bytes that are no UTF-8 text"),
    ],
)
def test_bad_tables_say_what_and_where(source, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset(source)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e5, "100000.0"),
        (1e16, "10000000000000000"),
        (1e22, "10000000000000000000000"),
        (1.5e-7, "0.00000015"),
        (-2.5, "-2.5"),
        (0.1, "0.1"),
        (LiteralFloat("1e5"), "1e5"),
        (LiteralFloat("1.10"), "1.10"),
    ],
)
def test_a_float_is_written_without_exponent_or_as_the_file_had_it(number: float, text: str) -> None:
    assert number_text(number) == text
    assert as_text(number) == text


@pytest.mark.parametrize("text", ["1.10", "100", "-0", "-3", "0.00", "12345678901234567890.5"])
def test_decimals_keep_their_text(text: str) -> None:
    [row] = rows([{"d": decimal.Decimal(text)}])
    assert as_text(row["d"]) == text
    assert isinstance(row["d"], int if text in ("100", "-3") else float)


def test_nested_values_are_written_as_json_with_their_numbers() -> None:
    value = {"a": [LiteralFloat("1.10"), 1e16, 2, None, True, 'ü"'], "b": {}}
    assert as_text(value) == '{"a": [1.10, 10000000000000000, 2, null, true, "ü\\""], "b": {}}'
    assert json.loads(as_text(value)) == value


def test_a_number_with_its_text_is_a_float_that_travels() -> None:
    number = LiteralFloat("1.10")
    assert number == 1.1
    assert f"{number}" == "1.10"
    assert number + 1 == 2.1
    for copied in (pickle.loads(pickle.dumps(number)), copy.deepcopy(number)):
        assert (type(copied), copied, str(copied)) == (LiteralFloat, 1.1, "1.10")
    assert json.dumps([number]) == "[1.1]"


def test_loading_imports_no_table_library_and_no_torch() -> None:
    code = (
        "import sys, dragonet.data as d; d.load_dataset('bundled:additions').split();"
        "heavy = {'torch', 'transformers', 'pandas', 'polars', 'datasets', 'pyarrow', 'numpy'} & set(sys.modules);"
        "print(', '.join(sorted(heavy)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("\n", "")
