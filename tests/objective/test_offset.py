"""An offset is a column whose coefficient is 1 and not fitted: everything a worker says is as with that column."""

import numpy as np
import pytest
from scipy import sparse

import danl
from danl.objective.local_objective import LocalObjective
from danl.objective.losses import make_loss
from danl.objective.null_model import null_target
from danl.objective.quadratic_model import QuadraticModel
from danl.protocol.messages import CurvatureTask, GradientTask, HessianTask, LossTask
from danl.run.checkpoint import _shard_digest
from danl.run.separation import classifies_every_row, separation_bound
from danl.tasks.trial_losses import TrialLossesTask
from danl.theory.constants import _gradient_bound
from danl.worker.worker import Worker

LOSSES = ["logistic", "squared", "poisson", "gamma", "negative-binomial:alpha=0.5", "squared_hinge"]
ROWS, D = 40, 5


def targets(loss, rng, rows=ROWS):
    made = make_loss(loss)
    if made.binary:
        return np.resize([0.0, 1.0, 1.0], rows)
    return {"squared": rng.normal(size=rows), "gamma": rng.gamma(2.0, size=rows)}.get(
        loss, rng.poisson(2.0, rows).astype(float)
    )


def pair(loss, *, as_sparse=False, intercept=False, weighted=False):
    """The objective with an offset, and the one with a column instead, which comes first."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, D)) * (rng.random((ROWS, D)) < 0.7)
    offset, y = rng.normal(size=ROWS), targets(loss, rng)
    weights = rng.uniform(0.5, 2.0, ROWS) if weighted else None
    form = sparse.csr_matrix if as_sparse else np.ascontiguousarray
    column = LocalObjective(form(np.column_stack([offset, X])), y, weights, make_loss(loss), 0.0, intercept)
    return LocalObjective(form(X), y, weights, make_loss(loss), 0.0, intercept, offset), column


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_an_objective_with_an_offset_is_one_with_a_column(loss, weighted, intercept, as_sparse):
    own, column = pair(loss, as_sparse=as_sparse, intercept=intercept, weighted=weighted)
    rng = np.random.default_rng(1)
    for w in (0.3 * rng.normal(size=own.layout.n_coefficients), np.zeros(own.layout.n_coefficients)):
        longer = np.append(1.0, w)
        np.testing.assert_allclose(own.margins(w), column.margins(longer), atol=1e-14)
        assert own.value(w) == pytest.approx(column.value(longer), rel=1e-13)
        np.testing.assert_allclose(own.value_and_gradient(w)[1], column.value_and_gradient(longer)[1][1:], atol=1e-14)
        np.testing.assert_allclose(own.hessian(w), column.hessian(longer)[1:, 1:], atol=1e-14)
        np.testing.assert_allclose(own.scores(w), column.scores(longer)[1:, 1:], atol=1e-14)
        model, of_column = QuadraticModel.of(own, w), QuadraticModel.of(column, longer)
        v = rng.normal(size=w.size)
        np.testing.assert_allclose(model.gradient_at(v), of_column.gradient_at(np.append(0.0, v))[1:], atol=1e-13)
    rows = np.array([1, 4, 20, 39])
    assert own.sample(rows).value(w) == pytest.approx(column.sample(rows).value(longer), rel=1e-13)


FULL, EVERY = ("full", D + 1, None), ("diag", 1, None)
PARTS = [FULL, ("block", 1, None), EVERY, ("lowrank", 1, D + 1)]  # where the numbers of the same coefficients are


@pytest.mark.parametrize(("kind", "first", "last"), PARTS)
def test_what_a_worker_answers_is_as_with_a_column(kind, first, last):
    own, column = pair("poisson", weighted=True)
    regions, wide = danl.Regions.make(1, D), danl.Regions.make([[0], list(range(1, D + 1))], D + 1)
    w = 0.3 * np.random.default_rng(1).normal(size=D)
    one = Worker(0, own, regions, None, 0), w, w
    other = Worker(0, column, wide, None, 0), np.append(1.0, w), np.append(0.0, w)

    def answers(make):
        return [worker.answer(make(model, direction)) for worker, model, direction in (one, other)]

    for make in (
        lambda model, _: LossTask(2, model),
        lambda model, _: GradientTask(2, model, batch_size=7),
        lambda model, _: HessianTask(2, model, batch_size=7, hessian_batch=9),
    ):
        replies = answers(make)
        assert replies[0].loss == pytest.approx(replies[1].loss, rel=1e-13)
    trials = answers(lambda model, direction: TrialLossesTask(2, model, direction=direction, base=2.0, count=5))
    np.testing.assert_allclose(trials[0].losses, trials[1].losses, rtol=1e-13)
    options = {"rank": 2, "sketch": 1} if kind == "lowrank" else {}
    found, expected = answers(lambda model, _: CurvatureTask(2, model, kind, **options))
    found = found.numbers[:D] if kind == "lowrank" else found.numbers
    np.testing.assert_allclose(found, expected.numbers[first:last], rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES[:-1])
def test_the_null_model_with_an_offset_is_that_of_an_intercept_alone(loss):
    rng = np.random.default_rng(4)
    y, offset, r = targets(loss, rng), 3.0 + rng.normal(size=ROWS), rng.random(ROWS)
    r /= r.sum()
    made = make_loss(loss)
    b = made.null_margins(np.array([null_target(made, y, offset, r)]))[0]
    assert abs(r @ made.first(y, b + offset)) < 1e-6 * (r @ made.second(y, b + offset))
    constant = null_target(made, y, np.full(ROWS, 2.0), r)
    shift = {"squared": r @ y - 2.0, "logistic": 1 / (1 + np.exp(2.0) * (1 / (r @ y) - 1))}
    assert constant == pytest.approx(shift.get(loss, (r @ y) / np.exp(2.0)), rel=1e-6)


@pytest.mark.parametrize("y", [np.zeros(3), np.ones(3)])
def test_the_null_model_of_one_class_and_of_no_event_is_the_mean(y):
    for loss in ("logistic", "poisson") if not y.any() else ("logistic",):
        assert null_target(make_loss(loss), y, np.array([1.0, -1.0, 0.0]), np.full(3, 1 / 3)) == y[0]


def test_a_loss_that_does_not_say_its_mean_starts_at_zero():
    rng = np.random.default_rng(0)
    shards = danl.partition(rng.normal(size=(30, 2)), np.resize([0.0, 1.0], 30), workers=2, offset=rng.normal(size=30))
    problem = danl.Problem(shards, loss="squared_hinge", alpha=0.1, intercept=True)
    result = danl.solve(problem)
    assert (result.status, result.settings["w0"]) == ("converged", [0.0] * 3)


def test_an_offset_of_a_model_with_several_margins_is_refused():
    rng = np.random.default_rng(0)
    shards = danl.partition(rng.normal(size=(30, 2)), np.resize([0, 1, 2], 30), workers=2, offset=np.ones(30))
    with pytest.raises(danl.InputError) as error:
        danl.Problem(shards, loss="multinomial:classes=3")
    assert str(error.value) == (
        "worker-0: an offset is one number a row, and loss 'multinomial:classes=3' has 3 margins a row, which it would "
        "move together: leave it out"
    )


def separable(offset):
    """Rows of which the offset tells the class, and the columns nothing: there is an optimum."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(60, 2)), np.resize([0.0, 1.0], 60)
    given = 20.0 * (2 * y - 1) if offset else None
    return danl.Problem(danl.partition(X, y, workers=3, offset=given), alpha=0.0)


def test_rows_that_the_offset_classifies_are_not_separated_by_the_coefficients():
    made = separable(offset=True)
    assert separation_bound(made) == 0.0
    assert separation_bound(separable(offset=False)) > 0.0
    assert made.objective(np.zeros(2)) < separation_bound(separable(offset=False))  # which would have proved it
    assert not classifies_every_row(made, np.full(2, 1e-3))


def test_the_bound_of_the_gradients_on_a_ball_has_the_offset_in_its_middle():
    own, _ = pair("poisson")
    rng, radius = np.random.default_rng(5), 0.7
    bound = _gradient_bound(own, radius)
    sizes = []
    for direction in rng.normal(size=(200, D)):
        w = radius * direction / np.linalg.norm(direction)
        sizes.append(np.linalg.norm(own.value_and_gradient(w)[1]))
    assert max(sizes) <= bound
    without = LocalObjective(own.X, own.y, None, own.loss, 0.0)
    assert _gradient_bound(without, radius) != bound


def test_a_checkpoint_of_other_offsets_is_that_of_another_run():
    X, y = np.eye(3), np.array([0.0, 1.0, 1.0])
    shards = [danl.Shard.of(X, y, offset=given) for given in (None, np.zeros(3), np.ones(3))]
    assert len({_shard_digest(shard) for shard in shards}) == 3


def test_without_offsets_nothing_is_added():
    """The same bits, and the same objects: margins are those of the product."""
    own, _ = pair("logistic")
    plain = LocalObjective(own.X, own.y, None, own.loss, 0.0)
    w = np.ones(D)
    assert plain.margins(w).tobytes() == (own.X @ w).tobytes()
    problem = danl.Problem([danl.Shard.of(own.X, own.y)], loss="logistic")
    assert problem.batch.offset is None
    assert not problem.has_offset
