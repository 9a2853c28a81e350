"""Newton, gradient descent and FedAvg against the oracle; and what all methods have in common."""

import numpy as np
import pytest

import danl
from danl.methods import PRESETS, FedAvg, GradientDescent, Newton, make_method
from danl.objective.losses import LOSSES
from tests import oracle
from tests.methods.test_danl import assert_same
from tests.problems import plain, random_problem
from tests.tools import iterates

W0 = np.full(7, 0.3)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_undamped_newton_gd_and_fedavg_equal_the_oracle(as_sparse, weighting):
    problem = random_problem(l2=2.0, as_sparse=as_sparse, weighted=True, weighting=weighting)
    shards, c = plain(problem.shards), problem.weights
    newton = oracle.newton_undamped(shards, 2.0, W0, 7, worker_weights=c)
    assert_same(iterates(problem, "newton-undamped", w0=W0, max_rounds=6), newton)
    gd = oracle.gradient_descent(shards, 2.0, W0, 16, 0.3, worker_weights=c)
    assert_same(iterates(problem, GradientDescent(learning_rate=0.3), w0=W0, max_rounds=15), gd)
    fedavg = oracle.fedavg(shards, 2.0, W0, 6, 4, 0.3, worker_weights=c)
    assert_same(iterates(problem, FedAvg(steps=4, learning_rate=0.3), w0=W0, max_rounds=5), fedavg)


@pytest.mark.parametrize("loss", LOSSES)
def test_safeguarded_newton_reaches_the_optimum_of_every_loss(loss):
    for alpha in (1e-1, 1e-6):
        problem = random_problem(loss, alpha=alpha)
        result = danl.solve(problem, method="newton", w0=np.full(7, 3.0), tol=1e-11)
        assert result.status == "converged"
        assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) <= 1e-11
        objective = result.history.column("objective")
        assert (np.diff(objective) <= 1e-14 * np.abs(objective[:-1])).all()


def test_newton_backtracks_where_the_plain_step_goes_up():
    """Poisson from a far start: the plain step overshoots; the safeguard pays with loss-only exchanges."""
    problem = random_problem("poisson", alpha=1e-3)
    w0 = np.full(7, -2.0)
    plain_step = danl.solve(problem, method="newton-undamped", w0=w0, max_rounds=0)
    assert plain_step.history[0].objective > problem.objective(w0)
    result = danl.solve(problem, method="newton", w0=w0, tol=1e-10)
    assert result.status == "converged"
    assert "loss" in result.history.column("kind")
    loss_rows = [row for row in result.history if row.kind == "loss"]
    assert all((row.bytes_down, row.bytes_up) == (4 * 8 * 7, 4 * 8) for row in loss_rows)
    assert all(row.step_norm == 0.0 for row in loss_rows)


def test_newton_stops_at_rounding_when_the_tolerance_cannot_be_had():
    result = danl.solve(random_problem(), method="newton", tol=1e-300, max_rounds=200)
    assert result.status == "converged"
    assert len(result.history) < 20
    assert result.history[-1].grad_norm < 1e-14


def test_one_local_step_of_fedavg_is_gradient_descent():
    problem = random_problem()
    one = iterates(problem, FedAvg(steps=1), w0=W0, max_rounds=10)
    other = iterates(problem, GradientDescent(), w0=W0, max_rounds=10)
    assert_same(one, other, rtol=1e-12)


def test_the_step_of_gd_is_one_over_the_smoothness_the_workers_told():
    problem = random_problem()
    models = iterates(problem, "gd", w0=W0, max_rounds=1)
    smoothness = problem.weights @ [local.smoothness() for local in problem.local_objectives]
    np.testing.assert_array_equal(models[1], W0)
    np.testing.assert_allclose(models[2], W0 - problem.value_and_gradient(W0)[1] / smoothness, rtol=1e-13)


def test_gd_without_a_step_cannot_do_poisson():
    with pytest.raises(danl.InputError) as error:
        danl.solve(random_problem("poisson"), method="gd")
    assert str(error.value) == (
        "learning_rate=None: this loss has no bound on its curvature to take a step from; "
        "give one, for example --method gd:learning_rate=0.01"
    )


@pytest.mark.parametrize(("rate", "exchanges"), [(None, 11), (0.2, 10)])
def test_fedavg_makes_the_papers_start_of_ten_rounds(rate, exchanges):
    problem = random_problem()
    start = danl.solve(problem, method=FedAvg(rounds=10, learning_rate=rate), tol=0.0)
    assert (start.status, len(start.history)) == ("max_rounds", exchanges)
    result = danl.solve(problem, method="newton", w0=FedAvg(rounds=10, learning_rate=rate))
    np.testing.assert_array_equal(result.w0, start.w)
    np.testing.assert_array_equal(result.start.w, start.w)
    assert result.history[0].exchange == 0


# What every method has in common.


# With more than one local step FedAvg settles beside the optimum: each worker drifts towards its own.
CONVERGENT = [name if name != "fedavg" else "fedavg:steps=1" for name in PRESETS]


@pytest.mark.parametrize("name", CONVERGENT)
@pytest.mark.parametrize("as_sparse", [False, True])
def test_every_method_goes_down_and_records_every_exchange(name, as_sparse):
    problem = random_problem(l2=5.0, as_sparse=as_sparse)
    rows = []
    result = danl.solve(problem, method=name, max_rounds=300, tol=1e-9, seed=3, callback=rows.append)
    assert result.status == "converged"
    assert rows == list(result.history)
    assert [row.exchange for row in rows] == list(range(len(rows)))
    assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) <= 1e-9
    assert result.history[-1].grad_norm <= 1e-9
    assert result.history[-1].objective == pytest.approx(problem.objective(result.w), rel=1e-14)
    assert all(row.bytes_down >= 0 and row.bytes_up > 0 and row.seconds >= 0 for row in rows)


@pytest.mark.parametrize("name", PRESETS)
def test_permuting_rows_within_shards_changes_nothing_beyond_rounding(name):
    problem = random_problem(l2=5.0, weighted=True)
    rng = np.random.default_rng(0)
    shuffled = []
    for shard in problem.shards:
        order = rng.permutation(shard.n_rows)
        shuffled.append(danl.Shard.of(shard.X[order], shard.y[order], weights=shard.weights[order]))
    other = danl.Problem(shuffled, l2=5.0)
    a = danl.solve(problem, method=name, policy="coverage:psi=2", max_rounds=10, tol=0.0)
    b = danl.solve(other, method=name, policy="coverage:psi=2", max_rounds=10, tol=0.0)
    np.testing.assert_allclose(a.w, b.w, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", PRESETS)
def test_a_row_twice_equals_weight_two(name):
    problem = random_problem(l2=5.0)
    first, rest = problem.shards[0], problem.shards[1:]
    double = danl.Shard.of(np.vstack([first.X, first.X[:1]]), np.append(first.y, first.y[0]))
    heavy = danl.Shard.of(first.X, first.y, weights=np.array([2.0] + [1.0] * (first.n_rows - 1)))
    runs = [
        danl.solve(danl.Problem([shard, *rest], l2=5.0), method=name, policy="coverage:psi=2", max_rounds=10, tol=0.0)
        for shard in (double, heavy)
    ]
    np.testing.assert_allclose(runs[0].w, runs[1].w, rtol=1e-11, atol=1e-13)


# Configuration.


def test_options_in_the_name():
    assert make_method("fedavg:steps=5,learning_rate=0.5") == FedAvg(steps=5, learning_rate=0.5)
    assert make_method("newton:mu=1e-3") == Newton(mu=1e-3)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "newtn",
            "method='newtn': must be one of newton, newton-zero, newton-undamped, danl, danl-secant, danl-masked, "
            "danl-paper, gd, fedavg",
        ),
        ("gd:rate=1", "method='gd:rate=1': gd has no option 'rate'; it has learning_rate, batch_size"),
        ("gd:learning_rate=0", "learning_rate=0: must be a finite number > 0; leave it out for 1 / smoothness"),
        ("fedavg:steps=0", "steps=0: must be a whole number >= 1"),
        ("fedavg:steps=many", "steps='many': must be a whole number >= 1"),
        ("danl-paper:submodel=full", "method='danl-paper:submodel=full': danl-paper has no option 'submodel'; it has "),
    ],
)
def test_wrong_methods(spec, message):
    with pytest.raises(danl.InputError) as error:
        make_method(spec)
    assert str(error.value).startswith(message)


def test_something_that_is_no_method():
    with pytest.raises(danl.InputError, match="must be a name"):
        make_method(3)
