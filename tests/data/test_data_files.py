"""Files of every kind, their oddities, and the message of each bad one."""

from __future__ import annotations

import codecs
import csv
import json
import sys
from pathlib import Path

import pytest

from dragonet.data import load_dataset
from dragonet.errors import DataError, MissingExtra


@pytest.fixture
def save(tmp_path: Path):
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def rows(path: Path) -> list[dict]:
    return list(load_dataset(path).rows)


def refusal(source) -> str:
    with pytest.raises(DataError) as caught:
        load_dataset(source)
    return str(caught.value)


def test_csv_cells_stay_text_and_blanks_are_absent(save) -> None:
    path = save("a.csv", "question,answer,note\nwhat,100000,  \nwho,1e5,\n,007,NA\n")
    assert rows(path) == [
        {"question": "what", "answer": "100000"},
        {"question": "who", "answer": "1e5"},
        {"answer": "007", "note": "NA"},
    ]
    assert load_dataset(path).columns == ("question", "answer", "note")


TABLE = "question,answer\nwie groß?,Ünï 漢字 🙂\n"


@pytest.mark.parametrize(
    "content",
    [
        TABLE.encode(),
        codecs.BOM_UTF8 + TABLE.encode(),
        codecs.BOM_UTF16_LE + TABLE.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + TABLE.encode("utf-16-be"),
        codecs.BOM_UTF32_LE + TABLE.encode("utf-32-le"),
        TABLE.replace("\n", "\r\n").encode(),
        TABLE.replace("\n", "\r").encode(),
        ("\n" + TABLE.replace("\n", "\n\n")).encode(),
        TABLE.strip().encode(),
    ],
    ids=["utf8", "utf8-bom", "utf16le", "utf16be", "utf32le", "crlf", "cr", "blank lines", "no last line end"],
)
def test_encodings_and_line_ends_give_the_same_rows(save, content: bytes) -> None:
    assert rows(save("a.csv", content)) == [{"question": "wie groß?", "answer": "Ünï 漢字 🙂"}]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quoted_line_breaks_are_kept_whatever_the_files_line_ends(save, end: str) -> None:
    text = end.join(["q,a", '"one', 'two, ""three""",4', "x,5", ""])
    assert rows(save("b.csv", text)) == [{"q": 'one\ntwo, "three"', "a": "4"}, {"q": "x", "a": "5"}]


def test_a_cell_may_be_longer_than_the_csv_modules_limit(save) -> None:
    before = csv.field_size_limit(1000)
    try:
        assert rows(save("a.csv", f"q\n{'x' * 200_000}\n")) == [{"q": "x" * 200_000}]
        assert csv.field_size_limit() == 1000  # other users of the module are left alone
    finally:
        csv.field_size_limit(before)


def test_tsv_and_other_separators(save) -> None:
    assert rows(save("a.tsv", "q\ta\n1,5\t2\n")) == [{"q": "1,5", "a": "2"}]
    data = load_dataset(save("a.csv", "q;a\nx;1,5\n"))
    assert data.rows == ({"q": "x", "a": "1,5"},)
    assert "separated by ';'" in data.notices[0]


def test_headers_are_trimmed_and_a_nameless_column_gets_a_name(save) -> None:
    data = load_dataset(save("a.csv", ",q, a\n0,x,1\n"))
    assert data.rows == ({"column_1": "0", "q": "x", "a": "1"},)
    assert "column 1 has no name; it is called 'column_1'" in data.notices[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a.csv is empty"),
        (" \n\n", "a.csv is empty"),
        ("q,a\n", "has a header and no rows"),
        ("q,a\nx,1\ny\n", r"line 3: 1 cells, but the header has 2 \(q, a\)"),
        ('q,a\n"x\ny",1\nz,1,2\n', r"line 4: 3 cells"),
        ("q,a,q\n1,2,3\n", "columns 1 and 3 are both called 'q'"),
        ('q,a\nx,"1\ny,2\n', "line 2: a double quote is never closed"),
        ('q,a\n"x" y,2\n', "line 2: .*expected after"),
        (b"q,a\nx,1\ncaf\xe9,2\n", r"is not UTF-8: byte 0xe9 at offset 11 \(line 3\)"),
        (codecs.BOM_UTF8 + b"q\n\xff\n", "byte 0xff at offset 5"),
        ("q,a\nx,1\n".encode("utf-16-le"), "zero byte at character 1.*UTF-16 without"),
    ],
)
def test_bad_csv_says_what_and_where(save, content, message: str) -> None:
    path = save("a.csv", content)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(path)
    assert str(path) in str(caught.value)


def test_json_array_and_columns(save) -> None:
    expected = [{"q": "x", "a": 1}, {"q": "y"}]
    assert rows(save("a.json", '[{"q": "x", "a": 1}, {"q": "y", "a": null}]')) == expected
    assert rows(save("b.json", '{"q": ["x", "y"], "a": [1, null]}')) == expected
    assert rows(save("c.json", '{"q": {"0": "x", "1": "y"}, "a": {"0": 1, "1": null}}')) == expected
    assert rows(save("d.JSON", codecs.BOM_UTF8 + b'[{"q": "x"}]')) == [{"q": "x"}]


def test_json_values_keep_their_kind(save) -> None:
    nested = {"b": True, "l": [1, {"x": None}, ""], "f": 1.5, "i": 10**20, "t": "  x "}
    assert rows(save("a.json", json.dumps([nested]))) == [nested]
    assert rows(save("b.json", '[{"a": NaN, "b": " ", "c": "", "d": 0, "e": false}]')) == [{"d": 0, "e": False}]


@pytest.mark.parametrize(
    "literal", ["1.10", "100000", "1e5", "1E+05", "0.0", "-0", "2.50e-7", "1e400", "9" * 5000, "Infinity", "-1.0"]
)
def test_json_numbers_keep_the_files_text(save, literal: str) -> None:
    data = load_dataset(save("a.jsonl", f'{{"prompt": {literal}, "answer": {literal}}}\n'))
    prompt = data.map_prompts(prompt="is {prompt}").prompts()[0]
    assert prompt.text == f"is {literal}"
    assert prompt.reference == literal
    assert prompt.row["answer"] == (int(literal) if literal == "100000" else float(literal))
    assert isinstance(prompt.row["answer"], int | float)


def test_jsonl_lines(save) -> None:
    text = '\n{"q": "a\u2028b\x85c"}\r\n\r\n{"q": "y", "extra": [1]}'
    assert rows(save("a.jsonl", text)) == [{"q": "a\u2028b\x85c"}, {"q": "y", "extra": [1]}]
    assert rows(save("a.ndjson", text))[1] == {"q": "y", "extra": [1]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '[{"q": "x"},\n {"q": }]', "a.json, line 2, column 8: Expecting value"),
        ("a.json", '{"q": "x"}\n{"q": "y"}\n', "line 2, column 1: Extra data. If each line is an object .* .jsonl"),
        ("a.json", "[1, 2]", r"row 1: expected a mapping, got int"),
        ("a.json", "3", "holds one int; expected an array of objects"),
        ("a.json", "[]", "has no rows"),
        ("a.json", "[{}, {}]", "has no columns"),
        ("a.json", '{"q": "x", "a": "1"}', "column 'q' is one str; expected a list"),
        ("a.json", '{"q": ["x", "y"], "a": [1]}', r"differ in length \(q 2, a 1\)"),
        ("a.json", '[{"q": "x", "q": "y"}]', "holds the key 'q' twice"),
        ("a.json", "[" * 100_000, "nesting is too deep"),
        ("a.json", '[{"q": ' + "[" * 70 + "]" * 70 + "}]", "column 'q': the value is nested deeper than 64 levels"),
        ("a.json", '[{"q": "ok"}, {"q": "\\ud83d"}]', r"row 2, column 'q': the text holds half a character"),
        ("a.jsonl", '{"q": "x"}\n\n{"q": x}\n', "a.jsonl, line 3, column 7: Expecting value"),
        ("a.jsonl", '{"q": "x"}\n[1]\n', "line 2: expected an object, got list"),
        ("a.jsonl", '{"q": "x"}\n{"q": 1, "q": 2}\n', "line 2: an object holds the key 'q' twice"),
        ("a.jsonl", "\n", "is empty"),
        ("a.jsonl", b'{"q": "x"}\n{"q": "\xff"}\n', r"byte 0xff at offset 18 \(line 2\)"),
        ("a.xlsx", b"PK", "files of type '.xlsx' are not read; known: .csv, .tsv, .json, .jsonl, .ndjson, .parquet"),
        ("a", b"PK", r"files of type '\(no suffix\)' are not read"),
        ("a.parquet", b"PAR1 not really", "cannot be read as parquet"),
    ],
)
def test_bad_files_say_what_and_where(save, name: str, content, message: str) -> None:
    path = save(name, content)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(path)
    assert str(path) in str(caught.value)


def test_parquet_round_trip(tmp_path: Path) -> None:
    import datetime
    import decimal

    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "split=test"  # a folder name that must not turn into a column
    folder.mkdir()
    table = pa.table(
        {
            "q": ["x", None, " "],
            "n": pa.array([100000, None, 3], pa.int64()),
            "f": pa.array([7.0, None, 8.0]),  # integers with a gap, written by pandas
            "d": pa.array([decimal.Decimal("1.10"), None, decimal.Decimal("20.00")]),
            "day": [datetime.date(2024, 1, 5), None, None],
            "l": [[1, 2], [], None],
            "raw": [b"bytes", None, None],
        }
    )
    pq.write_table(table, folder / "a.parquet")
    data = load_dataset(str(folder / "a.parquet"))
    assert data.columns == ("q", "n", "f", "d", "day", "l", "raw")
    first = {"q": "x", "n": 100000, "f": 7, "d": 1.1, "day": "2024-01-05", "l": [1, 2], "raw": "bytes"}
    assert data.rows == (first, {"l": []}, {"n": 3, "f": 8, "d": 20.0})
    assert str(data.rows[0]["d"]) == "1.10"
    assert type(data.rows[0]["f"]) is int


def test_parquet_with_a_column_twice(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["q", "q"]), tmp_path / "a.parquet")
    assert "columns 1 and 2 are both called 'q'" in refusal(tmp_path / "a.parquet")


def test_parquet_without_pyarrow_names_the_extra(save, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dragonet\[data\]'"):
        load_dataset(save("a.parquet", b"PAR1"))


def test_a_missing_file_names_what_lies_near(save, tmp_path: Path) -> None:
    save("train_questions.csv", "q\nx\n")
    save("other.txt", "x")
    message = refusal(tmp_path / "train_question.csv")
    assert str(tmp_path / "train_question.csv") in message
    assert message.endswith("did you mean train_questions.csv?")
    assert "the folder holds other.txt, train_questions.csv" in refusal(tmp_path / "zzz.parquet")
    assert "nor does its folder" in refusal(tmp_path / "no" / "a.csv")
    assert "is a folder; name a file in it; the folder holds other.txt" in refusal(tmp_path)
    (tmp_path / "empty").mkdir()
    assert "the folder holds no files" in refusal(tmp_path / "empty" / "a.csv")
    assert "download it first" in refusal("https://example.org/a.csv")


def test_a_relative_name_and_a_home_folder(save, tmp_path: Path, monkeypatch) -> None:
    save("a.csv", "q\nx\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert rows(Path("a.csv")) == [{"q": "x"}]
    assert load_dataset("~/a.csv").rows == ({"q": "x"},)


def test_an_unreadable_file(save, monkeypatch) -> None:
    path = save("a.csv", "q\nx\n")

    def refuse(self: Path) -> bytes:  # permissions do not bind the user who runs tests as root
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert refusal(path) == f"{path} cannot be read: Permission denied"


def test_repeated_rows_are_kept_and_counted(save) -> None:
    data = load_dataset(save("a.csv", "q,a\nx,1\ny,1\nx,1\nx,1\n"))
    assert len(data) == 4
    assert data.notices[0].endswith("2 rows repeat earlier ones; they are kept (rows 3, 4)")
    swapped = load_dataset([{"q": "x", "a": 1}, {"a": 1, "q": "x"}, {"q": "x", "a": "1"}])
    assert swapped.notices == ("the rows: 1 row repeats an earlier one; it is kept (rows 2)",)
