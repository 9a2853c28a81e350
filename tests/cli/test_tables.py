"""`danl fit --summary`, `danl predict` and `danl cohort`: what they print, what they write, what they refuse."""

import csv
import json

import numpy as np
import pytest

import danl
from tests.cli.shell import run
from tests.statistics.hospitals import frames

pytest.importorskip("formulaic")

FORMULA = ("--formula", "death ~ age + smoking", "--family", "binomial", "--tol", "1e-12")
TABLES = {"coefficients.csv", "summary.txt", "summary.json", "model.json"}


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, frame in frames().items():
        frame.to_csv(f"{name}.csv", index=False)
    return [f"{name}.csv" for name in frames()]


def test_the_tables_are_those_of_glm(files, tmp_path, capsys):
    words = ("fit", *files, *FORMULA, "--summary", "--covariance", "HC0", "--meta", "--diagnostics", "--standardise")
    done = run(capsys, *words, "--out", "run")
    assert done.status == 0, done.err
    options = {"covariance": "HC0", "meta": True, "diagnostics": True, "standardise": True}
    fit = danl.glm("death ~ age + smoking", sites=files, family="binomial", **options)
    assert "Logistic regression: death ~ age + smoking" in done.out
    assert "robust (HC0)" in done.out
    assert (tmp_path / "run" / "summary.txt").read_text() == done.out
    told = json.loads((tmp_path / "run" / "summary.json").read_text())
    np.testing.assert_allclose([line["coef"] for line in told["coefficients"]], fit.coef, rtol=1e-8)
    np.testing.assert_allclose([line["std_err"] for line in told["coefficients"]], fit.std_err, rtol=1e-8)
    rows = list(csv.DictReader((tmp_path / "run" / "coefficients.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == list(fit.names)
    assert {path.name for path in (tmp_path / "run").iterdir()} >= TABLES | {"result.json", "history.csv"}
    assert told["meta_analysis"]["sites"] == ["north", "south", "west"]


def test_json_has_the_tables(files, capsys):
    done = run(capsys, "fit", *files, *FORMULA, "--summary", "--json")
    assert done.json["tables"]["numbers"]["records"] == 291
    assert done.json["tables"]["coefficients"][0]["name"] == "(intercept)"


def test_a_run_without_tables_leaves_none_of_another(files, tmp_path, capsys):
    run(capsys, "fit", *files, *FORMULA, "--summary", "--out", "run")
    run(capsys, "fit", *files, *FORMULA, "--out", "run", "--force")
    assert not TABLES & {path.name for path in (tmp_path / "run").iterdir()}


def test_predictions_of_a_file(files, tmp_path, capsys):
    run(capsys, "fit", *files, *FORMULA, "--summary", "--out", "run")
    done = run(capsys, "predict", "run", "south.csv")
    expected = danl.Model.read("run").predict("south.csv")
    lines = done.out.splitlines()
    assert lines[0] == "predicted"
    found = [float(line) if line != '""' else np.nan for line in lines[1:]]
    np.testing.assert_array_equal(found, expected)
    done = run(capsys, "predict", "run/model.json", "south.csv", "--link", "--out", "p.csv")
    assert done.status == 0
    assert "90 records, 3 without a prediction: a value is missing, written to p.csv" in done.err
    found = np.genfromtxt("p.csv", skip_header=1, missing_values='""')
    np.testing.assert_allclose(1 / (1 + np.exp(-found)), expected, rtol=1e-12)
    done = run(capsys, "predict", "run", "south.csv", "--out", "p.csv")
    assert done.status == 2
    assert "--out='p.csv': is there already" in done.err


def test_a_cohort(files, tmp_path, capsys):
    done = run(capsys, "cohort", *files, "--columns", "age,smoking", "--out", "table")
    assert done.status == 0, done.err
    expected = danl.cohort(columns=["age", "smoking"], sites=files)
    assert done.out == f"{expected}\n" == (tmp_path / "table" / "cohort.txt").read_text()
    assert json.loads((tmp_path / "table" / "cohort.json").read_text()) == expected.to_dict()
    done = run(capsys, "cohort", *files, "--formula", "death ~ age", "--family", "binomial", "--json")
    assert done.json["sites"] == ["north", "south", "west", "all sites"]


def test_a_cohort_that_is_there_is_kept_and_one_that_cannot_be_written_is_said_before(files, tmp_path, capsys):
    words = ("cohort", *files, "--columns", "age,dose", "--out", "table")
    assert run(capsys, *words).status == 0
    first = (tmp_path / "table" / "cohort.txt").read_text()
    done = run(capsys, "cohort", *files, "--columns", "age,smoking", "--out", "table")
    assert done.status == 2
    assert "--out='table': holds a table already (cohort.csv); choose another folder or add --force" in done.err
    assert (tmp_path / "table" / "cohort.txt").read_text() == first
    assert run(capsys, "cohort", *files, "--columns", "age,smoking", "--out", "table", "--force").status == 0
    assert (tmp_path / "table" / "cohort.txt").read_text() != first
    for place in ("north.csv", "north.csv/table"):
        done = run(capsys, "cohort", *files, "--columns", "age,dose", "--out", place)
        assert done.status == 2
        assert f"--out='{place}'" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fit", "a1a", "--summary"), "--summary: is of a formula, and there is none; add --formula"),
        (("fit", "north.csv", *FORMULA, "--meta"), "--meta: is of --summary, which is not given"),
        (("fit", "north.csv", *FORMULA, "--summary", "--covariance", "HC9"), "covariance='HC9'"),
        (("fit", "north.csv", *FORMULA, "--summary", "--l2", "1"), "use --alpha"),
        (("predict", "nothing", "north.csv"), "cannot be read"),
        (("cohort", "north.csv"), "one of the two"),
        (("cohort", "north.csv", "--columns", "age,nowhere"), "there is no column 'nowhere'"),
    ],
)
def test_what_is_wrong_is_said(files, words, message, capsys):
    done = run(capsys, *words)
    assert done.status == 2
    assert message in done.err
    assert "Traceback" not in done.err
