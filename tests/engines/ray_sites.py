"""Sites on Ray: columns by name, and errors that tell no value. `test_ray_sites.py` runs this inside loopback."""

from pathlib import Path

import numpy as np
import pytest

import danl
from danl.engines import Ray
from danl.errors import InputError
from tests.design.cohorts import FORMULA, cohort, fitted, written
from tests.engines.ray_tools import MARKS
from tests.sites import MALFORMED, NAMES, TOKEN, chain, leaks, permuted_files, pooled, rows, write

HOSPITALS = Path(__file__).resolve().parents[2] / "examples" / "hospitals"
pytestmark = [*MARKS, pytest.mark.usefixtures("cluster")]


def references_of(paths):
    return [danl.ShardReference(path=str(path), target_column="ill") for path in paths]


def test_permuted_columns_give_the_pooled_model(tmp_path):
    paths, problem = permuted_files(tmp_path)
    remote = danl.RemoteProblem(references_of(paths), alpha=1e-3, weighting="samples")
    result = danl.solve(remote, engine="ray", tol=1e-11)
    assert result.status == "converged"
    assert np.abs(result.w - pooled(problem)).max() <= 1e-8
    assert result.feature_names == NAMES


def test_other_columns_are_refused(tmp_path):
    paths, _ = permuted_files(tmp_path)
    paths[1].write_text(paths[1].read_text().replace("bmi", "BMI"))
    with pytest.raises(InputError, match=r"worker 1 \(site-1.csv\) lacks 'bmi' and has 'BMI'"):
        danl.solve(danl.RemoteProblem(references_of(paths), alpha=1.0), engine="ray")


@pytest.mark.parametrize("name", ["word.csv", "negative.csv"])  # one that cannot be read, one the loss does not take
def test_a_malformed_file_is_told_by_its_place(name, tmp_path, capfd):
    case = next(case for case in MALFORMED if case.name == name)
    reference = danl.ShardReference(path=str(write(case, tmp_path)), **case.options)
    with pytest.raises(InputError) as raised:
        danl.solve(danl.RemoteProblem([reference], loss=case.loss, alpha=1.0), engine="ray")
    printed = capfd.readouterr()
    assert case.says in str(raised.value)
    assert leaks(chain(raised.value) + printed.out + printed.err) == []


def test_a_loader_is_told_by_its_place_and_the_others_are_not_waited_for(capfd):
    def broken():
        raise KeyError(TOKEN)

    def never():
        import threading

        threading.Event().wait()

    references = [danl.ShardReference(load=load) for load in (never, broken)]
    with pytest.raises(InputError, match="worker 1 cannot use its rows where it runs: KeyError at ") as raised:
        danl.solve(danl.RemoteProblem(references, alpha=1.0), engine=Ray(start_timeout=3600))
    printed = capfd.readouterr()
    assert leaks(chain(raised.value) + printed.out + printed.err) == []


def test_an_error_in_an_exchange_tells_no_text():
    class Wrong(danl.objective.losses.Logistic):
        name = "wrong"

        def value(self, y, z):
            raise ValueError(f"patient {TOKEN}")

        value_and_first = first = exp_value_and_first = value

    X, y = rows(30)
    problem = danl.RemoteProblem([danl.ShardReference(load=lambda: (X, y))], loss=Wrong(), alpha=1.0)
    result = danl.solve(problem, engine="ray", max_rounds=3)
    assert result.failures
    assert all(failure.detail.startswith("ValueError at ") for failure in result.failures)
    assert leaks(str(result.failures) + str(result.notes)) == []


def test_a_formula_gives_the_model_of_one_process(tmp_path):
    references = written(cohort(), tmp_path)
    analysis = danl.Analysis(FORMULA, family="binomial", site_effects=True)
    result, local = fitted(references, analysis, engine="ray"), fitted(references, analysis)
    np.testing.assert_allclose(result.w, local.w, rtol=1e-8, atol=1e-10)
    assert result.notes == local.notes
    assert result.settings["design"] == local.settings["design"]


def test_all_files_that_a_formula_cannot_use_are_named(tmp_path):
    references = written(cohort(), tmp_path)
    for number in (0, 2):
        (tmp_path / f"site-{number}.csv").write_text(f"age,bmi\n50,20\n{TOKEN},30\n")
    with pytest.raises(InputError) as raised:
        danl.solve(danl.RemoteProblem(references, analysis=danl.Analysis("bmi ~ age")), engine="ray")
    said = str(raised.value)
    assert "site site-0: site-0.csv, line 3, column 'age' (1)" in said
    assert "site site-2: site-2.csv, line 3" in said
    assert leaks(chain(raised.value)) == []


EXPLAINED = "age + sex + C(smoking, reference='never') + log(bmi)"
FAMILIES = {
    "gaussian": ("pressure", {}),
    "binomial": ("readmitted", {}),
    "binomial of trials": ("infections", {"trials": "procedures"}),
    "poisson": ("visits", {"offset": "log(months)"}),
    "negative-binomial:alpha=0.5": ("visits", {"offset": "log(months)"}),
    "gamma": ("stay", {}),
}


@pytest.mark.parametrize("site_effects", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_hospitals_have_the_numbers_of_one_process(family, site_effects):
    outcome, more = FAMILIES[family]
    sites = {name: HOSPITALS / f"{name}.csv" for name in ("north", "south", "island")}
    asked = {
        "family": family.partition(" ")[0],
        "site_effects": site_effects,
        "meta": True,
        "standardise": True,
        **more,
    }
    there, here = (
        danl.glm(f"{outcome} ~ {EXPLAINED}", sites=sites, engine=engine, **asked) for engine in ("ray", "local")
    )
    assert there.converged
    assert there.names == here.names
    assert there.exchanges == here.exchanges
    np.testing.assert_allclose(there.coef, here.coef, rtol=1e-9)
    np.testing.assert_allclose(there.std_err, here.std_err, rtol=1e-9)
    np.testing.assert_allclose(there.scales, here.scales, rtol=1e-12)
    np.testing.assert_allclose(there.meta.random, here.meta.random, rtol=1e-9)
