"""The curvature that suits a problem: what is chosen from sizes, what is said of it, and what may be asked for."""

import numpy as np
import pytest
from scipy import sparse

import danl
from danl import Problem
from danl.engines.local import Local
from danl.methods import DANL
from danl.methods.base import Setup
from danl.methods.curvature_choice import choose_curvature
from danl.objective.regions import Regions
from danl.policies import Full, Setting


def setup(rows, columns, entries=None, *, outputs=1, alpha=1e-3, workers=10, here=True, constant=False):
    """What a method knows of a problem of this size."""
    d = outputs * columns
    regions, each = Regions.make(4, d), np.full(workers, rows // workers)
    setting = Setting(workers, regions.sizes, each, np.zeros(workers), 100, False)
    return Setup(
        w0=np.zeros(d),
        weights=np.full(workers, 1 / workers),
        penalties=np.full(workers, alpha),
        regions=regions,
        policy=Full(),
        setting=setting,
        seed=0,
        tol=1e-8,
        entries_per_row=np.full(workers, float(outputs * (entries or columns))),
        rows_here=here,
        n_outputs=outputs,
        constant_curvature=constant,
    )


@pytest.mark.parametrize(
    ("size", "curvature", "sampled"),
    [
        ({"rows": 500, "columns": 10}, "full", False),
        ({"rows": 100_000, "columns": 50}, "full", True),
        ({"rows": 100_000, "columns": 50, "outputs": 5}, "full", True),
        ({"rows": 100_000, "columns": 50, "constant": True}, "full", False),
        ({"rows": 32_561, "columns": 123, "entries": 14}, "full", True),
        ({"rows": 1_605, "columns": 123, "entries": 14}, "full", False),
        ({"rows": 3_000, "columns": 1_000}, "diag", False),
        ({"rows": 20_000, "columns": 5_000, "entries": 50}, "diag", False),
        ({"rows": 60_000, "columns": 784, "outputs": 10}, "diag", False),
        ({"rows": 200_000, "columns": 20_000, "entries": 50}, "diag", False),
    ],
    ids=str,
)
def test_what_suits_a_size(size, curvature, sampled):
    choice = choose_curvature(setup(**size))
    assert (choice.curvature, choice.rows is not None) == (curvature, sampled)
    assert "gradients" in choice.why


def test_rows_of_others_and_flat_directions_are_not_sampled():
    size = {"rows": 100_000, "columns": 50}
    assert choose_curvature(setup(**size)).rows is not None
    assert choose_curvature(setup(**size, here=False)).rows is None
    assert choose_curvature(setup(**size, alpha=1e-9)).rows is None
    assert choose_curvature(setup(**size, alpha=0.0)).rows is None
    assert choose_curvature(setup(**size, workers=1_000)).rows is None


def test_where_a_round_trip_is_dear_hessians_are_taken_sooner():
    size = {"rows": 3_000, "columns": 1_000}
    assert choose_curvature(setup(**size, here=False)).curvature == "full"
    assert choose_curvature(setup(rows=3_000, columns=5_000, here=False)).curvature == "diag"


def test_whole_hessians_are_kept_in_mind_where_they_fit():
    assert choose_curvature(setup(3_000, 1_000)).whole_after == pytest.approx(44, abs=10)
    assert choose_curvature(setup(200_000, 20_000, 50)).whole_after is None


def wide(seed=0, rows=400, d=150, alpha=1e-6):
    """Columns that go together, nearly separable: hard for the diagonal."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d)) @ (rng.normal(size=(d, d)) / np.arange(1, d + 1))
    y = (X @ rng.normal(size=d) > 0).astype(float)
    return Problem(danl.partition(X, y, workers=4, seed=0), alpha=alpha)


def test_whole_hessians_take_over_where_the_diagonal_is_slow():
    problem = wide()
    options = {"max_rounds": 400, "tol": 1e-8}
    slow = danl.solve(problem, method="danl:curvature=diag", **options)
    result = danl.solve(problem, method="danl:curvature=diag,whole_after=20", **options)
    whole = [row.exchange for row in result.history if row.why == "whole Hessians pay"]
    assert result.status == "converged"
    assert len(whole) == 1
    assert 15 <= whole[0] < 35
    assert len(result.history) < 0.5 * len(slow.history)
    np.testing.assert_allclose(result.w, danl.reference_optimum(problem).w, rtol=1e-5, atol=1e-5)


def test_a_run_on_the_diagonal_looks_at_whole_hessians_before_it_ends_at_rounding():
    result = danl.solve(wide(alpha=1e-7), method="danl:curvature=diag,whole_after=10000", max_rounds=3_000, tol=0.0)
    assert result.status == "converged"
    assert any(row.why == "rounding: a look with all curvature" for row in result.history)


def test_the_result_says_what_was_chosen_and_why():
    rng = np.random.default_rng(0)
    X = sparse.random(2_000, 1_500, density=0.01, random_state=0, format="csr")
    y = (rng.random(2_000) < 0.5).astype(float)
    settings = danl.solve(Problem(danl.partition(X, y, workers=4, seed=0), alpha=1e-3)).settings
    assert settings["method_options"]["curvature"] == "diag"
    assert settings["curvature_why"].startswith("a Hessian of 1,500 coefficients would cost as much as ")


@pytest.mark.parametrize("method", ["danl:curvature=full", "danl:hessian_batch=20", "danl:pairs=0", "newton"])
def test_what_is_asked_for_is_left_as_it_is(method):
    problem = wide(alpha=1e-2)
    settings = danl.solve(problem, method=method, max_rounds=1).settings
    assert settings["curvature_why"] == ""


def test_samples_lead_to_the_same_optimum_whoever_evaluates_them():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12_000, 12))
    y = (rng.random(12_000) < 1 / (1 + np.exp(-X @ rng.normal(size=12)))).astype(float)
    problem = Problem(danl.partition(X, y, workers=4, seed=0), alpha=1e-3)
    one, other = (
        danl.solve(problem, method=DANL(hessian_batch=150), engine=Local(batched=batched)) for batched in (True, False)
    )
    assert one.status == other.status == "converged"
    np.testing.assert_allclose(one.w, other.w, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(one.w, danl.reference_optimum(problem).w, atol=1e-7)


def test_whole_after_is_checked():
    with pytest.raises(danl.InputError, match=r"whole_after=0: must be a whole number >= 1; leave it out for never"):
        DANL(curvature="diag", whole_after=0)


def test_whole_hessians_of_nearly_separable_rows_take_steps_of_a_length_that_was_accepted():
    """Curvature fades along the way: steps of length 1 from whole Hessians would be refused every other time."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 400))
    y = (X @ rng.normal(size=400) / 20 + rng.logistic(size=600) > 0).astype(float)
    problem = Problem(danl.partition(X, y, workers=4, seed=0), alpha=1e-8)
    result = danl.solve(problem, method="danl:curvature=diag,whole_after=40", max_rounds=200)
    assert result.status == "converged"
    assert sum(row.refused for row in result.history) < 0.25 * len(result.history)
