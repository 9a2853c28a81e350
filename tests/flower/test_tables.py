"""Tables of a fit on Flower's sites: the same numbers as in one process, and the files beside the result."""

import json

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")
pytest.importorskip("formulaic")

import danl
from danl.engines.flower.clientapp import app
from danl.engines.flower.engine import GridEngine
from danl.errors import InputError
from danl.federation.run_config import tables_of
from danl.federation.serverapp import run
from tests.flower.fake_grid import FakeGrid
from tests.statistics.hospitals import FAMILIES, frames

RIGHT = "age + dose + C(smoking, reference='never')"


@pytest.fixture
def configs(tmp_path):
    made = []
    for name, frame in frames().items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        made.append({"name": name, "data": str(tmp_path / f"{name}.csv")})
    return made


def engine_of(configs):
    return GridEngine(FakeGrid(app, configs), sites=len(configs), wait=280.0, deadline=280.0, poll=0.001)


def local(configs, formula, **options):
    return danl.glm(formula, sites={each["name"]: each["data"] for each in configs}, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_glm_is_the_local_one(family, configs):
    formula, options = f"{FAMILIES[family]} ~ {RIGHT}", {"family": family, "meta": True, "cluster": "ward"}
    options |= {"offset": "log(days)", "standardise": True, "diagnostics": family == "binomial"}
    there, here = danl.glm(formula, engine=engine_of(configs), **options), local(configs, formula, **options)
    np.testing.assert_allclose(there.coef, here.coef, rtol=1e-9)
    np.testing.assert_allclose(there.covariance, here.covariance, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(there.meta.random, here.meta.random, rtol=1e-7)
    np.testing.assert_allclose(there.scales, here.scales, rtol=1e-12)
    assert there.numbers.aic == pytest.approx(here.numbers.aic, rel=1e-10)
    assert [site.name for site in there.sites] == ["north", "south", "west"]
    assert there.exchanges == here.exchanges


TASKS = "hessian,curvature,gradient,loss,moments"


def test_the_null_model_is_of_the_records_of_the_deviance(configs):
    """A site that answers about the null model and not about the fit has no records in either."""
    configs[2] |= {"tasks": f"{TASKS},null-model"}
    with pytest.warns(danl.DanlWarning, match="OTHER RECORDS.*; west did not answer about it"):
        there = danl.glm("death ~ age + dose", family="binomial", engine=engine_of(configs))
    assert [name.partition(":")[0] for name in there.absent] == ["west"]
    here = local(configs[:2], "death ~ age + dose", family="binomial")
    assert there.numbers.df_null == here.numbers.df_null
    assert there.numbers.null_deviance == pytest.approx(here.numbers.null_deviance, rel=1e-9)


@pytest.mark.filterwarnings("ignore::danl.DanlWarning")
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e12])
def test_other_records_are_seen_whatever_the_unit_of_the_outcome(configs, tmp_path, unit):
    for name, frame in frames().items():
        frame.assign(pressure=frame.pressure * unit).to_csv(tmp_path / f"{name}.csv", index=False)
    everyone = danl.glm("pressure ~ age + dose", engine=engine_of(configs))
    assert not any("OTHER RECORDS" in note for note in everyone.notes)
    configs[2] |= {"tasks": TASKS}
    fewer = danl.glm("pressure ~ age + dose", engine=engine_of(configs))
    (said,) = (note for note in fewer.notes if "OTHER RECORDS" in note)
    assert said.startswith("OTHER RECORDS: the model is 1 standard errors")


def test_the_null_model_of_some_of_these_records_is_not_told(configs):
    configs[2] |= {"tasks": f"{TASKS},fit-questions"}
    there = danl.glm("death ~ age", family="binomial", offset="log(days)", engine=engine_of(configs))
    assert np.isnan(there.numbers.null_deviance)
    assert not there.absent


def test_tables_are_asked_for_in_one_message(configs):
    plain = danl.glm("death ~ age", family="binomial", engine=engine_of(configs))
    more = danl.glm("death ~ age", family="binomial", engine=engine_of(configs), meta=True, standardise=True)
    assert more.exchanges == plain.exchanges


def test_a_site_that_refuses_one_question_answers_the_others(configs):
    configs[2] |= {"tasks": f"{TASKS},fit-questions,column-counts"}
    options = {"family": "binomial", "meta": True, "standardise": True}
    there = danl.glm("death ~ age + dose", engine=engine_of(configs), **options)
    (left_out,) = there.meta.left_out
    assert left_out.startswith("west: ")
    assert "tasks: local-fit" in left_out
    here = local(configs, "death ~ age + dose", **options)
    assert there.exchanges == here.exchanges
    assert not there.absent
    np.testing.assert_allclose(there.coef, here.coef, rtol=1e-9)
    np.testing.assert_allclose(there.scales, here.scales, rtol=1e-12)
    assert there.meta.sites == ("north", "south")


def test_a_site_that_keeps_its_few_clusters_to_itself_is_in_the_other_tables(configs):
    configs[2] |= {"min-rows": 40}
    options = {"family": "binomial", "meta": True}
    with pytest.warns(danl.DanlWarning, match="STANDARD ERRORS OF THE MODEL in place of cluster: west did not tell"):
        there = danl.glm("death ~ age", engine=engine_of(configs), cluster="ward", **options)
    here = local(configs, "death ~ age", **options)
    np.testing.assert_allclose(there.std_err, here.std_err, rtol=1e-9)
    assert (there.covariance_kind, there.n_clusters, there.absent) == ("model", 0, ())
    assert there.numbers.records == here.numbers.records
    assert there.exchanges == here.exchanges + 1
    assert there.meta.sites == ("north", "south", "west")
    assert any("in place of cluster" in note for note in there.notes)


def test_tables_are_of_the_records_of_the_fit(configs):
    """A site too small for the fit answers about cells; it is in no table."""
    configs[2]["max-features-per-row"] = 0.001
    options = {"family": "binomial", "meta": True, "standardise": True, "diagnostics": True}
    there = danl.glm("death ~ age + dose", engine=engine_of(configs), **options)
    assert [site.name for site in there.sites] == ["north", "south"]
    here = local(configs[:2], "death ~ age + dose", **options)
    np.testing.assert_allclose(there.scales, here.scales, rtol=1e-12)
    for each in (there, here):
        told = each.diagnostics
        counted = told.true_positive + told.false_positive + told.true_negative + told.false_negative
        assert counted == pytest.approx(sum(site.records for site in here.sites))
    assert there.numbers.null_deviance == pytest.approx(here.numbers.null_deviance, rel=1e-9)


def test_a_table_that_no_site_answers_about_loses_nothing(configs):
    for each in configs:
        each |= {"tasks": f"{TASKS},fit-questions"}
    options = {"family": "binomial", "meta": True, "standardise": True, "diagnostics": True}
    with pytest.warns(danl.DanlWarning, match="no site answered"):
        there = danl.glm("death ~ age", engine=engine_of(configs), **options)
    assert (there.meta, there.scales, there.diagnostics) == (None, None, None)
    for name in ("meta", "standardise", "binned-counts"):
        assert any(note.startswith(f"{name}: no site answered: site north: tasks: ") for note in there.notes)
    here = local(configs, "death ~ age", family="binomial")
    np.testing.assert_allclose(there.std_err, here.std_err, rtol=1e-9)


def test_a_cohort_is_the_local_one(configs):
    columns = ["age", "smoking", "dose", "death", "days"]
    there = danl.cohort(columns=columns, engine=engine_of(configs))
    here = danl.cohort(columns=columns, sites={each["name"]: each["data"] for each in configs})
    assert {(line.column, line.level, line.site) for line in there.lines} == {
        (line.column, line.level, line.site) for line in here.lines
    }
    means = [[line.mean for line in each.lines if line.site == "all sites"] for each in (there, here)]
    np.testing.assert_allclose(*means, rtol=1e-12)


def test_the_run_configuration_has_the_tables(configs, tmp_path):
    out = tmp_path / "result"
    out.mkdir()
    config = {"formula": f"death ~ {RIGHT}", "family": "binomial", "sites": 3, "wait": 280.0, "tol": 1e-10}
    result = run(FakeGrid(app, configs), config | {"summary": True, "covariance": "HC0", "meta": True}, out)
    told = json.loads((out / "summary.json").read_text())
    expected = local(configs, f"death ~ {RIGHT}", family="binomial", covariance="HC0", meta=True)
    assert [each["coef"] for each in told["coefficients"]] == pytest.approx(expected.coef.tolist(), rel=1e-8)
    assert [each["std_err"] for each in told["coefficients"]] == pytest.approx(expected.std_err.tolist(), rel=1e-7)
    assert danl.Model.read(out).records == expected.numbers.records
    assert {"coefficients.csv", "summary.txt", "model.json", "result.json"} <= {path.name for path in out.iterdir()}
    assert result.status == "converged"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"meta": True, "formula": "y ~ a"}, "meta=True: must be given with summary=true"),
        ({"summary": True}, "summary=True: must be given with a formula"),
        ({"summary": True, "formula": "y ~ a", "covariance": "HC7"}, "covariance='HC7'"),
    ],
)
def test_a_wrong_configuration_is_said(config, message):
    with pytest.raises(InputError, match=message):
        tables_of(config)
