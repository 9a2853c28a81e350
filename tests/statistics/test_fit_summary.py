"""The tables of a fit as text, frame, CSV and JSON."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

import danl
from danl.report.model import model_of
from tests.statistics.hospitals import frames, pooled

pytest.importorskip("formulaic")


@pytest.fixture(scope="module")
def fit():
    return danl.glm(
        "death ~ age + smoking", sites=frames(), family="binomial", meta=True, diagnostics=True, standardise=True
    )


def test_the_page_says_what_the_coefficients_are_to_be_read_with():
    fit = danl.glm("death ~ age + smoking", sites=frames(), family="binomial", cluster="ward", site_effects=True)
    told = json.loads(replace(fit, absent=("east: refused",), notes=("a note",)).summary().to_json())
    said = model_of(told)["notes"]
    clusters = f"standard errors: clustered by ward, {fit.n_clusters} clusters; a cluster is within a site"
    assert said[0] == clusters
    assert said[-3:] == ["reference levels: smoking=current, site=north", "not in it: east: refused", "a note"]
    assert set(said[:-2]) <= set(str(fit.summary()).replace("\n  ", " ").splitlines())


def test_the_text_has_every_table(fit):
    text = str(fit.summary())
    for part in (
        "Logistic regression: death ~ age + smoking",
        "odds ratio",
        "291 records at 3 sites; 107 events; 9 records left out",
        "null deviance",
        "AIC",
        "standard errors: of the model",
        "reference levels: smoking=current",
        "per standard deviation",
        "Meta-analysis",
        "AUC",
        "calibration",
    ):
        assert part in text
    line = next(line for line in text.splitlines() if line.startswith("north"))
    assert line.split()[1:4] == ["137", str(int(frames()["north"].dropna().death.sum())), "3"]


def test_csv_frame_and_json_have_the_same_numbers(fit, tmp_path):
    summary = fit.summary(level=0.9)
    rows = list(csv.DictReader(io.StringIO(summary.to_csv(tmp_path / "c.csv"))))
    assert [row["name"] for row in rows] == list(fit.names)
    frame = summary.to_frame()
    told = json.loads(summary.to_json(tmp_path / "c.json"))
    for line, row in enumerate(rows):
        assert float(row["coef"]) == fit.coef[line] == frame.coef.iloc[line] == told["coefficients"][line]["coef"]
        assert float(row["odds_ratio_high"]) == pytest.approx(np.exp(float(row["ci_high"])))
    assert (told["level"], told["statistic"], told["covariance"]) == (0.9, "z", "model")
    assert [site["name"] for site in told["sites"]] == ["north", "south", "west"]
    assert told["numbers"]["aic"] == fit.numbers.aic
    assert json.loads((tmp_path / "c.json").read_text()) == told
    assert (tmp_path / "c.csv").read_text() == summary.to_csv()


def test_a_gaussian_csv_has_t():
    text = danl.glm("pressure ~ age", sites=frames()).summary().to_csv()
    assert text.splitlines()[0] == "name,coef,std_err,t,p_value,ci_low,ci_high"


def test_per_standard_deviation(fit):
    data = pooled()
    at = fit.names.index("age")
    assert fit.scales[at] == pytest.approx(data.age.std(), rel=1e-9)
    assert np.isnan(fit.scales[0])
    rows = list(csv.DictReader(io.StringIO(fit.summary().to_csv())))
    assert float(rows[at]["coef_per_sd"]) == pytest.approx(fit.coef[at] * data.age.std())
    assert rows[0]["coef_per_sd"] == ""


def test_few_clusters_are_said():
    assert "FEW CLUSTERS" in str(danl.glm("pressure ~ age", sites=frames(), cluster="site").summary())


def test_the_folder(fit, tmp_path):
    fit.save(tmp_path)
    names = {"coefficients.csv", "summary.txt", "summary.json", "model.json", "result.json", "model.npz", "history.csv"}
    assert names <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "summary.txt").read_text() == f"{fit.summary()}\n"
    again = danl.Result.load(tmp_path)
    np.testing.assert_array_equal(again.w, fit.result.w)
