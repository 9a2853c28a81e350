"""Site files that cannot be used: one line with site, file, line and column, and no value of a row."""

import re
from pathlib import Path

import numpy as np
import pytest

import danl
from danl.data.records import read_records
from danl.errors import InputError

FORMULA = "death ~ age + smoking"
HEADER = "age,smoking,remark,death"
ROWS = ["61.5,never,x,0", "48.25,former,x,1", "70.125,current,x,0", "55.5,never,x,1", "66.5,former,x,0"]
SECRET = "Xq7"
"""In every cell that is wrong, where it can be: it must be in no message."""


def text(*rows, header=HEADER):
    return "\n".join([header, *rows]) + "\n"


def with_row(row, at=2):
    """The good rows, and a bad one that stands in line `at` + 2."""
    return text(*ROWS[:at], row, *ROWS[at:])


MALFORMED = {
    "a word in a number column": (with_row(f"{SECRET},never,x,0"), r"line 4, column 'age' \(1\): is not a number"),
    "a unit in a cell": (with_row(f"61 {SECRET},never,x,0"), r"line 4, column 'age' \(1\): is not a number"),
    "a missing column": (text(*ROWS, header="age,smoker,remark,death"), "line 1: there is no column 'smoking'"),
    "a column of another case": (
        text(*ROWS, header="Age,smoking,remark,death"),
        "line 1: .* 'age'; rename column 'Age'",
    ),
    "a second header line": (text(HEADER, *ROWS), r"line 2, column 'death' \(4\): repeats the name .* second header"),
    "a line of units": (text(f"years,{SECRET},x,0", *ROWS), r"line 2, column 'age' \(1\): is not a number \(a second"),
    "in Latin-1": (
        with_row(f"50,J\xf8{SECRET},x,0").encode("latin-1"),
        r"line 4, column 'smoking' \(2\): is not in UTF-8",
    ),
    "a header line in Latin-1": (
        text(*ROWS, header="age,smoking,remark,d\xe9ath").encode("latin-1"),
        "line 1: there is no column 'death', and the line is not in UTF-8; save",
    ),
    "in UTF-16": (text(*ROWS).encode("utf-16"), "line 1: is in UTF-16"),
    "a decimal comma": (with_row('"61,5",never,x,0'), r"line 4, column 'age' \(1\): has a decimal comma"),
    "decimal commas without quotes": (with_row("61,5,never,x,0"), r"line 4: found 5 cells, expected 4 .*decimal comma"),
    "semicolons": (text(*ROWS).replace(",", ";"), "line 1: columns are parted by semicolons"),
    "tabs": (text(*ROWS).replace(",", "\t"), "line 1: columns are parted by tabs"),
    "an empty file": ("", "line 1: is empty"),
    "a header line alone": (text(), "line 2: there are no records"),
    "a short line": (with_row(f"61,{SECRET}"), "line 4: found 2 cells, expected 4"),
    "a quotation mark that stays open": (with_row(f'61,"{SECRET},x,0'), "line 4: a quotation mark is not closed"),
    "two columns of one name": (text(*ROWS, header="age,smoking,age,death"), "line 1: columns 1 and 3 .* 'age'"),
    "no header line": (text(*ROWS[1:], header=ROWS[0]), "line 1: there is no column 'death'"),
    "dates": (text(*(row.replace("61.5", "1961-05-02") for row in ROWS)), r"line 2, column 'age' \(1\): is a date"),
    "an outcome that is neither 0 nor 1": (with_row("61,never,x,2"), r"line 4, column 'death' \(4\): must be 0 or 1"),
    "infinity": (with_row("inf,never,x,0"), r"line 4, column 'age' \(1\): is not finite"),
    "a spreadsheet": (b"PK\x03\x04" + bytes(30), "line 1: is a spreadsheet"),
    "nothing but missing values": (
        text("61,,x,0", ",never,x,0"),
        r"column 'death' \(4\): no record has a value in all columns",
    ),
    "bytes that are no text": (bytes(range(256)), "line 1"),
}


@pytest.fixture
def good(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal(60, 9):.2f},{rng.choice(['never', 'former', 'current'])},x,{k % 2}" for k in range(40)]
    path = tmp_path / "good.csv"
    path.write_text(text(*rows))
    return danl.ShardReference(path=path, name="west")


@pytest.mark.parametrize("kind", MALFORMED)
def test_one_line_with_the_place_and_without_a_value(kind, good, tmp_path):
    content, expected = MALFORMED[kind]
    path = tmp_path / "patients-2026.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    bad = danl.ShardReference(path=path, name="north")
    problem = danl.RemoteProblem([good, bad], analysis=danl.Analysis(FORMULA, family="binomial"))
    with pytest.raises(InputError) as caught:
        danl.solve(problem)
    said = str(caught.value)
    assert re.search(rf"site north: patients-2026\.csv,? ?.*{expected}", said), said
    assert "\n" not in said
    assert SECRET not in said
    assert str(tmp_path) not in said
    for value in ("61.5", "48.25", "61,5", "1961"):
        assert value not in said


@pytest.mark.parametrize(
    ("formula", "family", "rows", "expected"),
    [
        ("smoking ~ age", "gaussian", ROWS, r"'smoking' \(2\): holds words, and with family gaussian .*='binomial'"),
        ("smoking ~ age", "poisson", ROWS, r"column 'smoking' \(2\): holds words, and with family poisson"),
        ("age ~ smoking", "gaussian", [*ROWS, "50,9,x,1"], r"line 7, .* a number among words; .* C\(smoking\) to"),
        ("age ~ death", "negative-binomial:alpha=1", ROWS, r"line 2, .* a whole number, 0 or more, with fam"),
        ("age ~ death", "gamma", ["-61.5,never,x,0", *ROWS], r"line 2, .* above 0, with family gamma; mend the cell"),
    ],
)
def test_what_is_to_be_done_about_words_and_numbers_of_another_kind(formula, family, rows, expected, tmp_path):
    path = tmp_path / "north.csv"
    path.write_text(text(*rows))
    with pytest.raises(InputError, match=expected) as caught:
        danl.glm(formula, sites=[path], family=family)
    assert "61.5" not in str(caught.value)


def test_there_are_twenty():
    assert len(MALFORMED) >= 20


def test_a_byte_order_mark_and_quotes_and_blank_lines_are_no_fault(good, tmp_path):
    path = tmp_path / "south.csv"
    quoted = text('"61.5", "never","x, y",0', "", '"48.25","former","a\nb",1', "70,current,,0", "55,never,,1")
    path.write_text(quoted, encoding="utf-8-sig")
    problem = danl.RemoteProblem([danl.ShardReference(path=path)], analysis=danl.Analysis("death ~ age"))
    assert danl.solve(problem).settings["rows"] == [4]


def test_the_words_that_count_as_missing(tmp_path):
    nothing = ("-", "NA", "N/A", "NaN", "null", "None", "NaT", "<NA>")
    others = ("none", "nat", "missing", ".", "?", "unknown")
    path = tmp_path / "south.csv"
    path.write_text(
        text(*(f"{50 + row},{word},x,{row % 2}" for row, word in enumerate(["", "na", "NULL", *nothing, *others])))
    )
    column = read_records(path, ["smoking"]).columns["smoking"]
    assert column.missing.tolist() == [True] * (3 + len(nothing)) + [False] * len(others)
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    said = page.partition("(an empty cell,")[2].partition(")")[0]
    assert re.findall("`([^`]*)`", said) == list(nothing)


def test_all_sites_that_cannot_take_part_are_named_at_once(good, tmp_path):
    for name in ("north", "south"):
        (tmp_path / f"{name}.csv").write_text(with_row(f"{SECRET},never,x,0"))
    shards = [danl.ShardReference(path=tmp_path / f"{name}.csv") for name in ("north", "south")]
    with pytest.raises(InputError, match=r"site north: north\.csv, line 4.*; site south: south\.csv, line 4"):
        danl.solve(danl.RemoteProblem([good, *shards], analysis=danl.Analysis(FORMULA, family="binomial")))


def test_a_header_that_may_be_a_record_is_not_told(tmp_path):
    path = tmp_path / "north.csv"
    path.write_text("smoking,Agnes,61\nnever,Berta,50\n")
    with pytest.raises(InputError) as caught:
        danl.solve(danl.RemoteProblem([danl.ShardReference(path=path)], analysis=danl.Analysis("age ~ smoking")))
    assert "Agnes" not in str(caught.value)


def test_parquet_is_read_by_its_columns_and_refused_by_them(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "north.parquet"
    days = pa.array([0, 1, 2, 3], pa.date32())
    words = pa.array(["a", None, "b", "a"]).dictionary_encode()
    pq.write_table(
        pa.table({"age": [50, 60, None, 70], "word": words, "day": days, "y": [1.0, 2, 3, 5], "odd": [[1]] * 4}), path
    )
    reference = danl.ShardReference(path=path, name="north")

    def run(formula):
        return danl.solve(danl.RemoteProblem([reference], analysis=danl.Analysis(formula)))

    assert run("y ~ age").settings["rows"] == [3]
    assert run("y ~ word").settings["feature_names"] == ["word[b]"]
    for formula, expected in {
        "y ~ day": r"site north: north\.parquet, column 'day' \(3\): holds dates",
        "y ~ odd": r"column 'odd' \(5\): is of type list",
        "y ~ ages": "there is no column 'ages'; rename column 'age'",
        "y ~ log(word)": r"row 0 \(counted from 0\), column 'word' \(2\): is not a number",
    }.items():
        with pytest.raises(InputError, match=expected):
            run(formula)
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"north\.parquet: is not a Parquet file"):
        run("y ~ age")
