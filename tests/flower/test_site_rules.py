"""The rules of a site by themselves: defaults, configuration, what may be told, and fits that they let pass."""

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

import danl
from danl.data import Shard
from danl.data.reference import ShardReference
from danl.engines.flower.clientapp import app, client_app
from danl.engines.flower.engine import GridEngine
from danl.engines.flower.site import Site
from danl.engines.flower.site_rules import RULE_KEYS, RefusedError, SiteRules, default_tasks, subset_sizes, task_names
from danl.errors import InputError
from danl.objective.problem import RemoteProblem
from danl.protocol.messages import CurvatureTask, GradientTask, HessianTask, LossTask
from danl.protocol.own_tasks import OWN_TASKS, OwnTask, Workplace
from danl.tasks import ProximalStepTask
from tests.flower.fake_grid import FakeGrid
from tests.flower.federations import a1a_shards, written

W = np.zeros(4)


def test_the_defaults():
    rules = SiteRules()
    assert (rules.min_rows, rules.min_cell, rules.max_features_per_row, rules.max_levels) == (10, 3, 0.33, 40)
    assert (rules.max_exchanges, rules.subsets, rules.by_mask, rules.changed_data) == (200, False, False, False)
    assert set(default_tasks()) >= {"hessian", "curvature", "gradient", "loss", "scores", "moments"}
    assert not set(default_tasks()) & {
        "learn",
        "local-steps",
        "smoothness",
        "losses",
        "batch-gradient",
        "pruned-gradient",
    }
    assert SiteRules.from_config({}) == rules


def test_every_field_is_a_key_and_open_relaxes_each():
    assert set(RULE_KEYS.values()) == {part.name for part in fields(SiteRules)}
    default, without = SiteRules(), SiteRules.open()
    same = {name for name in RULE_KEYS.values() if getattr(default, name) == getattr(without, name)}
    assert same == {"formulas", "columns"}  # which are rules only where they are given


def test_text_from_a_configuration():
    rules = SiteRules.from_config(
        {"tasks": "loss, gradient", "losses": "logistic", "formulas": "y ~ a + b; y ~ a", "columns": "y, a"}
    )
    assert (rules.tasks, rules.losses) == (("loss", "gradient"), ("logistic",))
    assert (rules.formulas, rules.columns) == (("y ~ a + b", "y ~ a"), ("y", "a"))
    everything = SiteRules.from_config({"tasks": "all", "losses": "all"})
    assert set(everything.tasks) == set(task_names())
    assert "squared_hinge" in everything.losses
    few = SiteRules.from_config({"rules": "open", "min-rows": 5})
    assert few == replace(SiteRules.open(), min_rows=5)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"min-cell": 0}, "min-cell=0"),
        ({"max-share": 0}, "max-share=0"),
        ({"max-share": 1.5}, "max-share=1.5"),
        ({"subsets": "yes"}, "subsets='yes': must be true or false"),
        ({"losses": "logistc"}, "losses='logistc': must be one of logistic"),
        ({"rules": "none"}, "rules='none': must be 'default' or 'open'"),
        ({"max-exchanges": 0}, "max-exchanges=0"),
        ({"ledger": 5}, "ledger=5"),
    ],
)
def test_a_wrong_setting_is_an_error(given, match):
    with pytest.raises(InputError, match=match):
        SiteRules.from_config(given)


def test_formulas_and_columns():
    rules = SiteRules(formulas=("y ~ a + b",), columns=("y", "a", "b"))
    assert rules.broken_by_design("y~a  +b", ["y", "a", "b"]) is None
    assert rules.broken_by_design("y ~ a", ["y", "a"]) == "formulas: this formula is not among the 1 that are allowed"
    assert rules.broken_by_design(None, ["y"]).startswith("formulas: a run without a formula")
    assert SiteRules(columns=("y", "a")).broken_by_design("y ~ a + b", "yab") == "columns: b is not allowed"
    assert SiteRules().broken_by_design("whatever", ["x"]) is None


def test_columns_of_a_site_without_a_formula(tmp_path):
    X = np.random.default_rng(0).standard_normal((30, 2))
    frame = pytest.importorskip("pandas").DataFrame(X, columns=["age", "bmi"])
    frame["ill"] = np.arange(30) % 2
    reference = ShardReference(load=lambda: frame, target_column="ill")
    sites = [
        Site("north", reference, SiteRules(columns=allowed)) for allowed in (("age", "bmi", "ill"), ("age", "ill"))
    ]
    for site, refused in zip(sites, (False, True), strict=True):
        engine = GridEngine(FakeGrid(client_app(lambda _, site=site: site), [{"name": "north"}]), sites=1, poll=0.001)
        settings = {"engine": engine, "max_rounds": 3}
        if refused:
            with pytest.raises(InputError, match="site north: columns: bmi is not allowed"):
                danl.solve(RemoteProblem(alpha=1e-2, intercept=True), **settings)
        else:
            assert danl.solve(RemoteProblem(alpha=1e-2, intercept=True), **settings).failures == ()


def test_what_may_be_told():
    rules = SiteRules()
    assert [rules.tellable_count(count) for count in (0, 1, 2, 3, 40)] == [0, None, None, 3, 40]
    assert rules.tellable_levels({"never": 12, "former": 2, "current": 3}) == ("never", "current")
    with pytest.raises(RefusedError, match="max-levels: a column has more than 40 levels"):
        rules.tellable_levels({str(number): 100 for number in range(41)})
    assert "fewer than 3 rows" in rules.broken_by(LossTask(0, W), 2, 4)
    assert "9 rows, and at least 10" in rules.broken_by(LossTask(0, W), 9, 4)


def test_tasks_that_ask_about_some_of_the_rows():
    assert subset_sizes(GradientTask(0, W)) == {}
    assert subset_sizes(ProximalStepTask(0, W, W, 1.0, batch_size=5, hessian_batch=7)) == {
        "batch_size": 5,
        "hessian_batch": 7,
    }
    for task in (
        GradientTask(0, W, batch_size=10**9),
        HessianTask(0, W, hessian_batch=50),
        CurvatureTask(0, W, "diag", batch_size=50),
    ):
        assert SiteRules().broken_by(task, 100, 4).startswith("subsets: ")
        assert replace(SiteRules(), subsets=True).broken_by(task, 100, 4) is None


def test_a_task_of_cells_says_so_and_gets_the_size_of_a_cell():
    class CountTask(OwnTask):
        name, by_default, cells = "count-for-a-test", True, True

    try:
        assert CountTask.name in SiteRules().tasks
        assert SiteRules().broken_by(CountTask(0, W), 12, 1000) is None
        assert "min-rows" in SiteRules().broken_by(CountTask(0, W), 9, 4)
    finally:
        del OWN_TASKS[CountTask.name]
    told = Workplace(0, None, None, 0, 1, 3).tellable(np.array([0.0, 1.0, 2.0, 3.0, 9.0]))
    assert told.tolist() == [0.0, -1.0, -1.0, 3.0, 9.0]


def test_facts_have_no_cell_of_a_few(monkeypatch):
    import json

    X, y = np.random.default_rng(0).standard_normal((30, 2)), np.zeros(30)
    y[:2] = 1.0
    reference = ShardReference(load=lambda: Shard.of(X, y))
    with pytest.raises(
        RefusedError, match="sparse-columns: in the outcome fewer than 3 records differ from the others"
    ):
        Site("north", reference).shard_info("logistic")
    told = Site("south", reference, SiteRules(sparse_columns=True)).shard_info("logistic")
    assert json.loads(told)["facts"]["fewest_of_a_class"] == 3
    few = ShardReference(load=lambda: Shard.of(X[:2], y[:2]))
    with pytest.raises(RefusedError, match="min-cell: fewer than 3 rows"):
        Site("west", few).shard_info("squared")


# --- fits that pass ---


def test_a1a_over_three_sites_is_fitted_under_the_defaults(tmp_path):
    """But that it has columns in which few rows have an entry, as `danl flower up` allows."""
    shards = a1a_shards()
    configs = written(shards, tmp_path)
    assert all(set(config) & set(RULE_KEYS) == {"sparse-columns", "ledger"} for config in configs)
    engine = GridEngine(FakeGrid(app, configs), sites=3, wait=5.0, poll=0.001)
    result = danl.solve(RemoteProblem(alpha=1e-3), engine=engine, tol=1e-9)
    assert (result.status, result.failures) == ("converged", ())


def fitted(loss, seed, sizes, rules):
    """A pooled fit of small sites, and who was refused."""
    rng = np.random.default_rng([seed, *sizes])
    n = sum(sizes)
    X = np.column_stack([rng.normal(60, 12, n), rng.random(n) < 0.5, rng.exponential(1.0, n)])[
        :, : 2 + (min(sizes) > 12)
    ]
    z = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(0, 0.5, X.shape[1])
    y = {
        "logistic": (rng.random(n) < 1 / (1 + np.exp(-z))).astype(float),
        "poisson": rng.poisson(np.exp(1.0 + z) * rng.gamma(2.0, 0.5, n)).astype(float),
        "squared": z + 1e-9 * rng.standard_normal(n),
    }[loss]
    ends = np.cumsum([0, *sizes])
    shards = [Shard.of(X[a:b], y[a:b]) for a, b in pairwise(ends.tolist())]
    sites = [Site(f"site-{k}", ShardReference(load=lambda each=each: each), rules) for k, each in enumerate(shards)]
    grid = FakeGrid(client_app(lambda config: sites[config["number"]]), [{"number": k} for k in range(len(sites))])
    engine = GridEngine(grid, sites=len(sites), wait=5.0, poll=0.001)
    terms = {"loss": loss, "alpha": 1e-3, "weighting": "samples", "intercept": True}
    result = danl.solve(RemoteProblem(**terms), engine=engine, tol=1e-9)
    local = danl.solve(danl.Problem(shards, **terms), tol=1e-9)
    return result, local


@pytest.mark.parametrize("loss", ["logistic", "poisson", "squared"])
def test_ordinary_fits_of_small_sites_are_not_refused(loss, monkeypatch):
    """Sites of 12 records, counts with heavy tails, a fit that is nearly perfect: to the optimum, by all sites."""
    rules = replace(SiteRules(), ledger="none", sparse_columns=True)
    for seed in range(4):
        for sizes in ((12, 12, 12), (30, 60, 60)):
            result, local = fitted(loss, seed, sizes, rules)
            assert result.failures == (), (seed, sizes)
            assert result.status == local.status == "converged"
            assert np.allclose(result.w, local.w, rtol=1e-6, atol=1e-8)


def test_a_step_that_was_too_long_is_turned_back_and_not_the_site():
    """One record far out with a large count: the first Newton step overshoots, and the fit gets there all the same."""
    X = np.append(np.linspace(0, 1, 39), 3.0)[:, None]
    y = np.append(np.arange(39) % 3, 20.0)
    told = []

    def watched(config):
        class Watched(Site):
            def _overshot(self, *args):
                told.append(super()._overshot(*args))
                return told[-1]

        return Watched("north", ShardReference(load=lambda: Shard.of(X, y)), replace(SiteRules(), ledger="none"))

    engine = GridEngine(FakeGrid(client_app(watched), [{}]), sites=1, wait=5.0, poll=0.001)
    terms = {"loss": "poisson", "alpha": 1e-4, "intercept": True}
    result = danl.solve(RemoteProblem(**terms), engine=engine, tol=1e-9)
    assert any(told)
    assert (result.status, result.failures) == ("converged", ())
    assert np.allclose(result.w, danl.solve(danl.Problem([Shard.of(X, y)], **terms), tol=1e-10).w, rtol=1e-6)


def test_facts_for_another_loss_are_looked_at_anew(tmp_path):
    """What was found right for a count is not for a class: two records have one of them."""
    rows = np.random.default_rng(0).standard_normal((30, 1))
    path = tmp_path / "north.csv"
    outcomes = [0] * 2 + [1] * 14 + [2] * 14
    lines = [f"{value!r},{y}" for value, y in zip(rows[:, 0].tolist(), outcomes, strict=True)]
    path.write_text("\n".join(["a,y", *lines]) + "\n")
    site = Site("north", ShardReference(path=str(path), target="real"))
    site.shard_info("poisson")
    with pytest.raises(RefusedError, match="in the outcome fewer than 3 records differ"):
        site.shard_info("multinomial:classes=3")


def test_a_site_of_15_records_is_refused_and_named_and_takes_part_where_it_relaxes_that_rule():
    """Six coefficients of 15 records are 0.4 a record."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((135, 5))
    y = (rng.random(135) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)
    shards = [Shard.of(X[a:b], y[a:b]) for a, b in pairwise((0, 60, 120, 135))]
    terms = {"alpha": 1e-2, "weighting": "samples", "intercept": True}
    for ratio, there in ((0.33, 2), (0.4, 3)):
        rules = [SiteRules(), SiteRules(), SiteRules(max_features_per_row=ratio)]
        named = zip(["north", "south", "west"], shards, rules, strict=True)
        sites = [Site(name, ShardReference(load=lambda own=own: own), each) for name, own, each in named]
        grid = FakeGrid(
            client_app(lambda config, sites=sites: sites[config["number"]]), [{"number": k} for k in range(3)]
        )
        engine = GridEngine(grid, sites=3, wait=5.0, poll=0.001)
        result = danl.solve(RemoteProblem(**terms), engine=engine, tol=1e-10)
        assert result.status == "converged"
        local = danl.solve(danl.Problem(shards[:there], **terms), tol=1e-10)
        assert np.allclose(result.w, local.w, rtol=1e-7)
        says = "site west: max-features-per-row: 6 features of 15 rows are 0.4 a row, and at most 0.33 are allowed"
        assert any(says in note for note in result.notes) is (there == 2)
