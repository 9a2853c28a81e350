"""Attacks by what is asked: outcomes, sums besides the gradient, models that show nothing of what they part.

Each gets a record, or a value of one, at a site without rules, and is refused by default.
"""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

from danl.data import Shard
from danl.data.reference import ShardReference
from danl.engines.flower.opening import Opening
from danl.engines.flower.site import Site
from danl.engines.flower.site_rules import SiteRules
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import Failure, GradientTask, HessianTask, MomentsTask, ScoresTask, unpack
from danl.protocol.wire import decode, encode
from danl.tasks.binned_counts import BinnedTask
from danl.tasks.fit_questions import SUMS, FitTask
from danl.tasks.local_fit import LocalFitTask
from tests.flower.test_attacks import OPEN, refused

N = 60
RNG = np.random.default_rng(4)
AGE, OTHER = RNG.normal(60.0, 12.0, N), RNG.standard_normal(N)
X = np.column_stack([AGE, OTHER])
Y = (RNG.random(N) < 0.4).astype(float)
LOOSE = SiteRules(sparse_columns=True)


def ask(rules, X, y, task, loss="logistic", intercept=False, **shard):
    asked = Site("north", ShardReference(load=lambda: Shard.of(X, y, **shard)), rules)
    terms = RemoteProblem(alpha=0.0, loss=loss, intercept=intercept)
    w = getattr(task, "w", np.zeros(0))
    opening = Opening.of(terms, regions=Regions.make(1, max(w.size, 1)), policy=None, seed=0, run="run").to_json(0)
    if not w.size:
        width = (X.shape[1] + intercept) * getattr(terms.loss, "n_outputs", 1)
        opening = Opening.of(terms, regions=Regions.make(1, width), policy=None, seed=0, run="run").to_json(0)
    return decode(asked.answer(encode(task), opening), most_bytes=10**6)


# --- the outcome ---


def test_a_class_of_one_record():
    """Its part of the gradient, less that of a class nobody has, is that record; the moments count it."""
    y = Y.copy()
    y[7] = 2.0
    loss, task = "multinomial:classes=4", GradientTask(0, np.zeros(8))
    found = ask(OPEN, X, y, task, loss).fragment
    assert np.allclose(N * (found[6:] - found[4:6]), X[7])
    assert ask(OPEN, X, y, MomentsTask(0), loss).targets[2] * N == pytest.approx(1.0)
    for each in (task, MomentsTask(0)):
        assert refused(ask(SiteRules(), X, y, each, loss), "sparse-columns")
    y[8:10] = 2.0
    assert not isinstance(ask(SiteRules(), X, y, task, loss), Failure)


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_an_outcome_of_one_record_with_a_loss_of_numbers(loss):
    """What the gradient lacks to what the Hessian says is the record; the slopes are all of one size."""
    y = np.zeros(N)
    y[7] = 1.0
    task = HessianTask(0, np.array([0.0, 0.0, 0.5 if loss == "squared" else 0.0]))
    told = ask(OPEN, X, y, task, loss, intercept=True)
    mean = 0.5 if loss == "squared" else 1.0
    assert np.allclose(N * (mean * unpack(told.packed_hessian, 3)[2] - told.gradient), [*X[7], 1.0])
    assert refused(ask(SiteRules(), X, y, task, loss, intercept=True), "sparse-columns")


def test_a_fit_of_all_but_one_that_is_not_asked_about():
    """The residual of one record at a model w is known from gradient and Hessian at another."""
    w, y = np.array([0.5, -1.0]), X @ [0.5, -1.0]
    y[11] += 7.0
    told = ask(OPEN, X, y, HessianTask(0, np.zeros(2)), "squared")
    assert np.allclose(N * (told.gradient + unpack(told.packed_hessian, 2) @ w), -7.0 * X[11])
    assert refused(ask(SiteRules(), X, y, HessianTask(0, np.zeros(2)), "squared"), "sparse-columns")


def test_bins_of_an_outcome_that_is_in_no_cell():
    """Neither 0 nor 1: no cell is small, and the sums of predictions are the values of single records."""
    task = BinnedTask(0, np.array([1.0, 0.0]), np.linspace(30, 90, 400))
    y = 2 * Y + 0.5
    refusal = ask(OPEN, X, y, task, "squared").detail
    assert "the outcome must be a binary one" in refusal
    assert ask(SiteRules(), X, y, task, "squared").detail == refusal


# --- sums besides the gradient ---


def test_a_largest_value_by_an_offset():
    """The mean target where the offset is 0 is that of the record with the largest."""
    found = ask(OPEN, X, Y + 1, MomentsTask(0), "poisson", offset=AGE).targets[0]
    assert np.log((Y + 1).sum() / found) == pytest.approx(AGE.max(), abs=0.5)
    assert refused(ask(SiteRules(), X, Y + 1, MomentsTask(0), "poisson", offset=AGE), "max-share")
    days = np.log(np.abs(AGE))
    assert not isinstance(ask(SiteRules(), X, Y + 1, MomentsTask(0), "poisson", offset=days), Failure)


def test_a_chi2_of_one_record():
    """It is far out, and the model is certain and wrong: its slope is 1 and its curvature nothing."""
    x, y = np.abs(OTHER), Y.copy()
    x[7], y[7] = 20.0, 0.0
    task = FitTask(0, np.array([1.0, 0.0]), 0.0)
    told = ask(OPEN, np.column_stack([x, AGE]), y, task)
    assert np.log(told.sums[SUMS.index("pearson")]) == pytest.approx(20.0, rel=1e-6)
    assert refused(ask(SiteRules(), np.column_stack([x, AGE]), y, task), "max-share")


def test_two_records_that_share_a_cluster():
    """Sums over clusters less sums over records: the two gradients, one times the other."""
    clusters = np.arange(N)
    clusters[3] = 5
    asked = [FitTask(0, np.zeros(3), 0.0, units=units) for units in ("clusters", "records")]
    shared, alone = (ask(OPEN, X, Y, task, intercept=True, clusters=clusters).meat for task in asked)
    found = unpack(shared - alone, 3)
    assert np.allclose(found[2] / found[2, 2], [*(X[3] + X[5]) / 2, 1.0])
    assert refused(ask(SiteRules(), X, Y, asked[0], intercept=True, clusters=clusters), "min-rows")
    for own in (np.arange(N), np.arange(N) // 2):
        assert not isinstance(ask(SiteRules(), X, Y, asked[0], intercept=True, clusters=own), Failure)


@pytest.mark.parametrize(
    "task", [ScoresTask(0, np.array([-40.0, 0.0])), FitTask(0, np.array([-40.0, 0.0]), 0.0, units="records")]
)
@pytest.mark.parametrize("certain", [-40.0, -2.0])
def test_squares_of_slopes_of_one_event_of_a_level(task, certain):
    """All of a level are certain, and one of them has the event; at two models less certain it can be solved for."""
    level, y = (np.arange(N) < 20).astype(float), Y.copy()
    y[:20] = 0.0
    y[4] = 1.0
    of_level = np.column_stack([level, OTHER])
    told = ask(OPEN, of_level, y, task)
    matrix = unpack(told.packed_scores * N**2 if isinstance(task, ScoresTask) else told.meat, 2)
    assert np.allclose(matrix[0], of_level[4])
    asked = type(task)(**{**vars(task), "w": np.array([certain, 0.0])})
    assert refused(ask(SiteRules(), of_level, y, asked), "max-share")
    y[5:9] = 1.0
    assert not isinstance(ask(SiteRules(ledger="none"), of_level, y, asked), Failure)


def test_a_fit_of_its_own_that_one_record_decides():
    """All but one are parted by the line: at the site's best model the curvature is that of few."""
    x = np.append(np.linspace(10.0, 20.0, 20), -np.linspace(10.0, 20.0, 20))
    y = (x > 0).astype(float)
    x[0], y[0] = 0.5, 0.0
    task = LocalFitTask(0, np.zeros(1), chosen=np.ones(1, dtype=bool))
    told = ask(OPEN, x[:, None], y, task)
    curvature = 1 / (2 + 2 * np.cosh(x * told.model))
    assert curvature[0] > 0.9 * curvature.sum()
    for each in (task, GradientTask(0, told.model)):
        assert refused(ask(LOOSE, x[:, None], y, each), "max-share")


# --- models that show nothing of what they part ---


def test_a_model_that_is_certain_of_a_whole_subgroup():
    """No curvature is left in it, and it is where it was for the others: its border may be anywhere."""
    level = (np.arange(N) < 20).astype(float)
    rows = np.column_stack([level, level * OTHER, AGE])
    order = np.argsort(OTHER[:20])
    middle = (OTHER[order[1:]] + OTHER[order[:-1]]) / 2
    at = int(np.argmax(np.minimum(np.diff(OTHER[order])[1:], np.diff(OTHER[order])[:-1])))
    models = [3e3 * np.array([-border, 1.0, 0.0]) for border in (middle[at], middle[at + 1])]
    first, second = (ask(OPEN, rows, Y, GradientTask(0, w)).fragment for w in models)
    assert np.allclose(N * (first - second), rows[order[at + 1]])
    for w in models:
        assert refused(ask(SiteRules(), rows, Y, GradientTask(0, w)), "max-share")


def test_classes_between_which_only_one_record_changes():
    """The first two share what the third leaves them: of all classes together there is curvature enough."""
    order, rows, models = np.argsort(OTHER), np.column_stack([OTHER, AGE]), []
    middle, gaps = (OTHER[order[1:]] + OTHER[order[:-1]]) / 2, np.diff(OTHER[order])
    at = 10 + int(np.argmax(np.minimum(gaps[11:50], gaps[10:49])))
    for border in middle[at : at + 2]:
        w = np.zeros((3, 3))
        w[2] = 1e3 * np.array([1.0, 0.0, -border])
        models.append(w.ravel())
    loss, y = "multinomial:classes=3", np.arange(N) % 3 * 1.0
    first, second = (ask(OPEN, rows, y, GradientTask(0, w), loss, intercept=True).fragment for w in models)
    assert np.allclose(N * (first - second)[6:8], rows[order[at + 1]])
    for w in models:
        assert refused(ask(SiteRules(), rows, y, GradientTask(0, w), loss, intercept=True), "max-share")
    fair = GradientTask(0, np.zeros(9))
    assert not isinstance(ask(SiteRules(), rows, y, fair, loss, intercept=True), Failure)


def test_a_step_that_rounding_makes():
    """x + 2^k - 2^k is a step function of x, and the curvature that of an ordinary model."""
    age = np.clip(np.round(AGE), 34, 94)
    age[9] = 99.0
    sex = (np.arange(N) % 2).astype(float)
    rows = np.column_stack([age, sex, 1 - sex, OTHER])
    large = 2.0**52 * 64
    step = np.array([1.0, large, large, 0.0, -large]) / 64
    models = [step, np.array([0.0, 0.0, 0.0, 0.0, 1.0])]
    told = [ask(OPEN, rows, Y, FitTask(0, w, 0.0), intercept=True).gradient for w in models]
    slope = 1 / (1 + np.exp(-2.0)) - 1 / (1 + np.exp(-1.0))
    assert np.allclose((told[0] - told[1]) / slope, [*rows[9], 1.0])
    assert refused(ask(SiteRules(), rows, Y, FitTask(0, step, 0.0), intercept=True), "max-share")
