"""Rows drawn by leverage: right on average, with the rows that count most, the same however workers are evaluated."""

import numpy as np
import pytest
from scipy import sparse

import danl
from danl.engines.local import Local
from danl.objective.local_objective import LocalObjective
from danl.objective.losses import make_loss
from danl.objective.row_samples import _at_most_one, curvature_of_rows, leverage_sample
from danl.protocol.messages import Exchange, HessianTask


def objective(loss="logistic", rows=300, d=6, *, as_sparse=False, weighted=False, intercept=False, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d)) * (rng.random((rows, d)) < 0.5)
    X[:, 0] = 0.0
    X[17, 0] = 3.0  # one row has all there is of this column
    y = {"logistic": rng.integers(2, size=rows), "multinomial:classes=3": rng.integers(3, size=rows)}[loss]
    weights = rng.uniform(0.5, 2.0, size=rows) if weighted else None
    X = sparse.csr_matrix(X) if as_sparse else X
    return LocalObjective(X, y.astype(float), weights, make_loss(loss), 1e-3, intercept)


def drawn(whole, w, size, rng):
    """The sample of one worker."""
    curvature = curvature_of_rows(whole.loss, whole.y, whole.margins(w), whole.row_weights)
    bounds = np.array([0, whole.n_rows])
    return leverage_sample(curvature, whole.relative_squares, bounds, size, np.array([rng.random()]))


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("terms", [{}, {"weighted": True}, {"intercept": True}, {"loss": "multinomial:classes=3"}])
def test_a_sampled_hessian_is_the_whole_one_on_average(as_sparse, terms):
    whole = objective(as_sparse=as_sparse, **terms)
    w = 0.3 * np.random.default_rng(1).normal(size=whole.layout.n_coefficients)
    rng, true, total, draws = np.random.default_rng(2), whole.hessian(w), 0.0, 400
    for _ in range(draws):
        sample = drawn(whole, w, 60, rng)
        total = total + whole.sample(sample.rows, sample.counts).hessian(w) / draws
    assert np.abs(total - true).max() < 0.05 * np.abs(true).max()


@pytest.mark.parametrize("as_sparse", [False, True])
def test_a_row_that_has_a_column_alone_is_always_there(as_sparse):
    whole = objective(as_sparse=as_sparse)
    for seed in range(20):
        sample = drawn(whole, np.zeros(6), 40, np.random.default_rng(seed))
        assert 17 in sample.rows
        assert sample.counts[sample.rows == 17] == pytest.approx(1.0)
        assert 39 <= len(sample.rows) <= 41
        assert (np.diff(sample.rows) > 0).all()


def test_all_rows_where_that_many_are_asked_for():
    whole = objective()
    for size in (300, 500):
        sample = drawn(whole, np.zeros(6), size, np.random.default_rng(0))
        assert sample.rows.tolist() == list(range(300))
        assert (sample.counts == 1).all()


def test_where_nothing_is_curved_all_rows_have_equal_chances():
    made = objective()
    made.X[:] = 1.0
    sample = drawn(made, np.full(6, 1e300), 40, np.random.default_rng(0))
    assert len(sample.rows) == 40
    np.testing.assert_allclose(sample.counts, 300 / 40)


def test_where_only_rows_without_entries_are_curved_these_are_drawn():
    made = objective()
    sample = drawn(made, np.full(6, 1e300), 2, np.random.default_rng(0))
    assert not made.X[sample.rows].any()


@pytest.mark.parametrize("terms", [{}, {"as_sparse": True}, {"weighted": True}])
def test_together_and_one_by_one_the_same_rows_are_drawn(terms):
    parts = [objective(seed=seed, rows=80 + seed, **terms) for seed in range(4)]
    shards = [danl.Shard.of(part.X, part.y, weights=part.weights) for part in parts]
    problem = danl.Problem(shards, alpha=1e-3)
    task = HessianTask(0, 0.2 * np.ones(6), hessian_batch=30, leverage=True)
    sums = []
    for batched in (True, False):
        engine = Local(batched=batched)
        regions = problem.layout.regions(2)
        engine.open(problem, regions=regions, policy=None, seed=3)
        replies = engine.exchange(Exchange("hessian", task, np.arange(4)))
        rules = danl.protocol.replies.ReplyRules.of(problem, regions)
        summed = rules.validate_replies(Exchange("hessian", task, np.arange(4)), replies, problem.weights).curvature_sum
        sums.append(danl.protocol.messages.unpack(np.asarray(summed), 6))
    np.testing.assert_allclose(*sums, rtol=1e-12, atol=1e-15)


def test_chances_above_one_are_dealt_to_the_others():
    """They add up to the size still, and those that are not certain are in proportion to what they were."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(2, 60))
        size, chances = int(rng.integers(1, n)), rng.random(n) ** rng.choice([0.1, 1.0, 3.0, 10.0, 30.0])
        chances *= size / chances.sum()
        made = _at_most_one(chances.copy(), np.array([0, n]), np.array([float(size)]))
        assert made.sum() == pytest.approx(size)
        assert (made <= 1).all()
        others = made < 1
        if others.any():
            grown = made[others] / chances[others]
            np.testing.assert_allclose(grown, grown[0], rtol=1e-9)
            assert grown[0] >= 1 - 1e-12
            assert (chances[~others] * grown[0] >= 1 - 1e-9).all()  # nobody is certain without need


def test_where_there_are_no_more_rows_than_are_drawn_all_of_them_are():
    made = _at_most_one(np.array([0.0, 1.5, 0.5, 0.0]), np.array([0, 4]), np.array([2.0]))
    assert made.tolist() == [0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("terms", [{}, {"as_sparse": True}, {"weighted": True}, {"loss": "multinomial:classes=3"}])
def test_many_workers_are_drawn_from_as_each_would_be(terms):
    """Also where one has fewer rows than are asked for, and one is blown up."""
    parts = [objective(seed=seed, rows=rows, **terms) for seed, rows in enumerate((80, 25, 120, 60))]
    w = 0.2 * np.ones(parts[0].layout.n_coefficients)
    curvatures = [curvature_of_rows(each.loss, each.y, each.margins(w), each.row_weights) for each in parts]
    curvatures[3] = np.full(60, np.nan)
    squares, draws = [each.relative_squares for each in parts], np.random.default_rng(5).random(4)
    bounds = np.array([0, 80, 105, 225, 285])
    together = leverage_sample(np.concatenate(curvatures), np.concatenate(squares), bounds, 30, draws)
    for worker, rows in enumerate((80, 25, 120, 60)):
        own = np.array([0, rows])
        alone = leverage_sample(curvatures[worker], squares[worker], own, 30, draws[worker : worker + 1])
        here = slice(*np.searchsorted(together.rows, bounds[worker : worker + 2]))
        assert (together.rows[here] - bounds[worker]).tolist() == alone.rows.tolist()
        np.testing.assert_allclose(together.counts[here], alone.counts, rtol=1e-9)
        assert abs(len(alone.rows) - min(rows, 30)) <= 1


@pytest.mark.parametrize("value", [1.0, 0.25, -2.0])
def test_where_all_entries_are_one_number_leverages_are_those_of_any_rows(value):
    rng = np.random.default_rng(0)
    X = value * (rng.random((40, 6)) < 0.4)
    alike = LocalObjective(sparse.csr_matrix(X), np.zeros(40), None, make_loss("logistic"), 1e-3, True)
    dense = LocalObjective(X, np.zeros(40), None, make_loss("logistic"), 1e-3, True)
    np.testing.assert_allclose(alike.relative_squares, dense.relative_squares, rtol=1e-12)
