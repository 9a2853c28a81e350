"""`danl cohort --engine flower`: the table of Flower's sites through the ServerApp, printed and written as ever."""

import json

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")
pytest.importorskip("formulaic")

from flwr.app import Context, RecordDict

import danl
from danl.cli import sites
from danl.engines.flower.clientapp import app
from danl.errors import InputError
from danl.federation import serverapp
from danl.federation.run_config import cohort_arguments, solve_arguments
from tests.cli.shell import run
from tests.flower.fake_grid import FakeGrid
from tests.statistics.hospitals import frames

FORMULA = "death ~ age + dose + smoking"
ENGINE = "flower:superlink=ours,sites=3,wait=280,deadline=280"
FILES = ["cohort.csv", "cohort.json", "cohort.txt"]


@pytest.fixture
def configs(tmp_path):
    made = []
    for name, frame in frames().items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        made.append({"name": name, "data": str(tmp_path / f"{name}.csv")})
    return made


@pytest.fixture
def grid(configs, monkeypatch):
    """The federation that the command line finds: the ServerApp's own `main` on a Grid without a network."""
    made = FakeGrid(app, configs)

    def run_until(last, config, *, out, connection, home, timeout):
        assert (connection, home, timeout) == ("ours", None, 3600.0)
        serverapp.app(made, Context(1, 0, {}, RecordDict(), config | {"out": str(out)}))
        assert (out / last).exists()

    monkeypatch.setattr(sites, "run_until", run_until)
    return made


def numbers(table):
    """What no rule of a site changes here, by column, level and site."""
    names = ("records", "missing", "mean", "std", "count")
    return {(row["column"], row["level"], row["site"]): [row[name] for name in names] for row in table["lines"]}


@pytest.mark.parametrize(
    "words", [("--formula", FORMULA, "--family", "binomial"), ("--columns", "death, age,dose,smoking")]
)
def test_the_table_is_that_of_the_files(grid, configs, words, tmp_path, capsys):
    done = run(capsys, "cohort", "--engine", ENGINE, *words, "--out", tmp_path / "table")
    assert done.status == 0, done.err
    here = run(capsys, "cohort", *(each["data"] for each in configs), *words, "--json").json
    there = json.loads((tmp_path / "table" / "cohort.json").read_text())
    assert (there["sites"], there["left_out"], there["notes"]) == (here["sites"], here["left_out"], [])
    assert numbers(there).keys() == numbers(here).keys()
    for line, expected in numbers(here).items():
        np.testing.assert_allclose(*(np.array(each, float) for each in (numbers(there)[line], expected)), rtol=1e-9)
    assert (tmp_path / "table" / "cohort.txt").read_text() in done.out
    assert sorted(path.name for path in (tmp_path / "table").iterdir()) == FILES


def test_json_is_one_object_and_nothing_is_fitted(grid, capsys):
    done = run(capsys, "cohort", "--engine", ENGINE, "--formula", FORMULA, "--json")
    assert json.loads(done.out.splitlines()[-1])["sites"] == ["north", "south", "west", "all sites"]
    assert [message.metadata.message_type for message in grid.pushed[::3]] == [
        "query.survey", "query.facts", "train.column_counts", "train.column_counts",
    ]  # fmt: skip


def test_who_is_not_in_the_table_is_named(configs, tmp_path):
    """One site refuses before the first exchange, one between the two."""
    configs[0] |= {"columns": "dose"}
    configs[2] |= {"max-exchanges-a-day": 3}
    config = {"cohort": True, "columns": "age,dose,smoking", "sites": 1, "wait": 280.0, "deadline": 280.0}
    with pytest.warns(danl.DanlWarning, match="a node is left out: site north: columns: age, smoking are not allowed"):
        table = serverapp.describe(FakeGrid(app, configs), config, tmp_path)
    assert table.sites == ("south", "all sites")
    (own, every) = (line for line in table.lines if line.column == "age")
    assert (own.mean, own.quartiles) == (every.mean, every.quartiles)
    assert own.mean == pytest.approx(frames()["south"].dropna(subset=["age", "smoking"]).age.mean())
    text = (tmp_path / "cohort.txt").read_text()
    assert "a node is left out: site north: columns: age, smoking are not allowed" in text
    assert "not in it: west: max-exchanges-a-day: " in text


def test_a_table_that_cannot_be_made_is_said_where_it_would_be(configs, tmp_path):
    config = {"cohort": True, "columns": "age,nowhere", "sites": 3, "wait": 280.0, "out": str(tmp_path / "out")}
    with pytest.raises(InputError, match="nowhere"):
        serverapp.app(FakeGrid(app, configs), Context(1, 0, {}, RecordDict(), config))
    assert "there is no column 'nowhere'" in (tmp_path / "out" / "error.txt").read_text()


@pytest.mark.parametrize(
    ("read", "config", "message"),
    [
        (solve_arguments, {"columns": "age,dose"}, "columns='age,dose': must be given with cohort=true"),
        (cohort_arguments, {"cohort": True}, "one of the two"),
        (cohort_arguments, {"cohort": True, "columns": "age"}, "at least two columns"),
        (cohort_arguments, {"cohort": True, "columns": "a,b", "formula": "y ~ a"}, "one of the two"),
        (cohort_arguments, {"cohort": True, "columns": "a,b", "summary": True}, "summary=True: must be left out"),
        (cohort_arguments, {"cohort": True, "colums": "a,b"}, "must be one of "),
    ],
)
def test_a_wrong_configuration_is_said(read, config, message):
    with pytest.raises(InputError, match=message):
        read(config)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("north.csv", "--engine", ENGINE, "--columns", "age,dose"), "FILE='north.csv': must be left out with"),
        (("--engine", ENGINE, "--columns", "age"), "at least two columns"),
        (("--engine", "flower:sides=3", "--columns", "age,dose"), "flower has no option 'sides'"),
        (("--columns", "age,dose"), "Missing argument 'FILE...'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_asked(grid, words, message, capsys):
    done = run(capsys, "cohort", *words)
    assert done.status == 2
    assert message in done.err
    assert not grid.pushed
