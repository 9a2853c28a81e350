"""`danl fit FILE... --formula`: files as sites, and what is refused beside a formula."""

import json

import pytest

import danl
from tests.cli.shell import run
from tests.design.cohorts import FORMULA, by_name, cohort, fitted, written

pytestmark = pytest.mark.slow
pytest.importorskip("formulaic")


def test_files_are_sites(capsys, tmp_path):
    references = written(cohort(), tmp_path)
    files = [reference.path for reference in references]
    words = ["--formula", FORMULA, "--family", "binomial", "--site-effects", "--tol", "1e-12", "--json"]
    done = run(capsys, "fit", *files, *words, "--out", tmp_path / "run")
    assert done.status == 0
    local = fitted(references, danl.Analysis(FORMULA, family="binomial", site_effects=True))
    assert done.json["coefficients"] == pytest.approx(by_name(local), rel=1e-6)
    assert next(iter(done.json["coefficients"])) == "intercept"
    assert done.json["sites"] == ["site-0", "site-1", "site-2"]
    assert done.json["left_out"] == local.settings["left_out"]
    assert "records left out (a value is missing)" in done.err
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["analysis"]["formula"] == FORMULA
    assert danl.Result.load(tmp_path / "run").settings["design"]["levels"]["sex"] == ["f", "m"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--family", "poisson"], "--family: says more of a formula, and there is none"),
        (["--site-effects"], "--site-effects: says more of a formula"),
        (["--formula", "y ~ a", "--target", "y"], "--target: is not for --formula: the formula names the outcome"),
        (["--formula", "y ~ a", "--loss", "squared"], "--loss: is not for --formula: use --family"),
        (["--formula", "y ~ a", "--workers", "3"], "--workers: is not for --formula: every file is a site"),
        (["--formula", "y ~ a", "--reference"], "--reference: is not for --formula"),
        (["--formula", "y ~ a", "--missing", "drop"], "missing='drop': must be 'complete' or 'error'"),
        (["--formula", "y ~ scale(a)"], "scale depends on the rows of all sites"),
        (["other.csv"], "FILE='other.csv': must be given with --formula"),
        (["more/data.csv", "--formula", "y ~ a"], "FILE='data': must be the name of one file alone"),
    ],
)
def test_what_does_not_go_with_a_formula(words, expected, capsys):
    done = run(capsys, "fit", "data.csv", *words)
    assert done.status == 2
    assert expected in done.err.replace("\n", " ")


def test_a_site_that_cannot_take_part_is_named(capsys, tmp_path):
    north, south = tmp_path / "north.csv", tmp_path / "south.csv"
    north.write_text("age,y\n1,2\n3,4\n5,7\n")
    south.write_text("age,y\n1,2\nold,4\n")
    done = run(capsys, "fit", north, south, "--formula", "y ~ age")
    assert done.status == 2
    said = done.err.replace("\n", " ")
    assert "site south: south.csv, line 3, column 'age' (1): is not a number" in said
    assert "old" not in said
