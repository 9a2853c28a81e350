"""The multinomial loss and intercepts: the mathematics, and every method, policy and message with them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, sparse
from scipy.special import logsumexp

import danl
from danl.methods import PRESETS
from danl.objective.losses import LOSSES, Multinomial, make_loss, outputs_of, target_of
from danl.policies import Custom, Profile, ResourceAware, Schedule
from danl.protocol.messages import HessianTask, LossTask, ScoresTask, unpack
from danl.protocol.wire import decode, encode, most_bytes
from danl.worker.worker import Worker

pytestmark = pytest.mark.slow

CLASSES = 3


def rows_of_classes(seed=0, sizes=(14, 20, 9, 17), d=4, *, weighted=False, as_sparse=False):
    """Uneven shards of a noisy softmax model; the second one knows no row of class 2."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(d, CLASSES))
    shards = []
    for number, size in enumerate(sizes):
        X = rng.normal(size=(size, d)) * (rng.random((size, d)) < 0.8)
        y = (X @ w + rng.gumbel(size=(size, CLASSES))).argmax(axis=1).astype(float)
        if number == 1:
            y[y == 2] = 0.0
        weights = rng.uniform(0.5, 2.0, size=size) if weighted else None
        shards.append(danl.Shard.of(sparse.csr_array(X) if as_sparse else X, y, weights=weights))
    return shards


def classes_problem(*, alpha=0.05, intercept=True, weighting="samples", **shape):
    return danl.Problem(
        rows_of_classes(**shape),
        loss=f"multinomial:classes={CLASSES}",
        alpha=alpha,
        weighting=weighting,
        intercept=intercept,
    )


# The loss.


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_derivatives_agree_with_finite_differences(classes):
    loss, h = Multinomial(classes), 1e-5
    rng = np.random.default_rng(classes)
    z, y = 2 * rng.normal(size=(40, classes)), rng.integers(0, classes, size=40).astype(float)
    first, second = loss.first(y, z), loss.second(y, z)
    np.testing.assert_allclose(loss.value(y, z), logsumexp(z, axis=1) - z[np.arange(40), y.astype(int)], rtol=1e-12)
    for k in range(classes):
        step = h * np.eye(classes)[k]
        slope = (loss.value(y, z + step) - loss.value(y, z - step)) / (2 * h)
        bend = (loss.first(y, z + step) - loss.first(y, z - step)) / (2 * h)
        np.testing.assert_allclose(first[:, k], slope, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(second[:, k], bend, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(first.sum(axis=1), 0.0, atol=1e-15)
    np.testing.assert_array_equal(second, second.transpose(0, 2, 1))
    np.testing.assert_allclose(second.sum(axis=2), 0.0, atol=1e-15)


def test_bounds_hold_and_are_tight():
    loss = Multinomial(3)
    z = 8 * np.random.default_rng(0).normal(size=(20_000, 3))
    z[0], z[1] = [0.0, 0.0, -50.0], [40.0, 0.0, 0.0]  # two classes even; all on the wrong one
    y = np.full(len(z), 1.0)
    top = np.linalg.eigvalsh(loss.second(y, z))
    assert top.min() > -1e-15
    assert loss.second_bound * 0.999 <= top.max() <= loss.second_bound + 1e-15
    steepest = np.linalg.norm(loss.first(y, z), axis=1).max()
    assert np.sqrt(2.0) * 0.999 <= steepest <= np.sqrt(2.0) + 1e-15


def test_two_classes_are_logistic():
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=50), rng.integers(0, 2, size=50).astype(float)
    both, one = np.column_stack([np.zeros(50), z]), LOSSES["logistic"]
    np.testing.assert_allclose(Multinomial(2).value(y, both), one.value(y, z), rtol=1e-12)
    np.testing.assert_allclose(Multinomial(2).first(y, both)[:, 1], one.first(y, z), rtol=1e-12)
    np.testing.assert_allclose(Multinomial(2).second(y, both)[:, 1, 1], one.second(y, z), rtol=1e-12)


def test_large_margins_give_the_right_double():
    loss = Multinomial(3)
    z = np.array([[1e4, -1e4, 0.0], [1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [1e4, 1e4, -1e4]])
    y = np.array([0.0, 1.0, 2.0, 0.0])
    np.testing.assert_allclose(loss.value(y, z), [0.0, 2e4, np.log(3), np.log(2)], rtol=1e-15)
    np.testing.assert_allclose(
        loss.first(y, z), [[0, 0, 0], [1, -1, 0], [1 / 3, 1 / 3, -2 / 3], [-0.5, 0.5, 0]], rtol=1e-14, atol=1e-300
    )
    assert np.isfinite(loss.second(y, z)).all()
    np.testing.assert_array_equal(loss.second(y, z)[:2], 0.0)


@given(st.floats(30, 700))
def test_a_confident_right_answer_keeps_its_tiny_loss(lead):
    z = np.array([[lead, 0.0, 0.0]])
    loss = Multinomial(3)
    np.testing.assert_allclose(loss.value(np.zeros(1), z), 2 * np.exp(-lead), rtol=1e-12)
    np.testing.assert_allclose(loss.first(np.zeros(1), z)[0], np.exp(-lead) * np.array([-2.0, 1.0, 1.0]), rtol=1e-12)
    np.testing.assert_allclose(loss.second(np.zeros(1), z)[0, 0, 0], 2 * np.exp(-lead), rtol=1e-12)


@given(st.floats(-1e4, 1e4))
def test_a_shift_of_all_classes_changes_nothing(shift):
    z, y = np.random.default_rng(0).normal(size=(9, 3)), np.arange(9) % 3.0
    loss = Multinomial(3)
    np.testing.assert_allclose(loss.value(y, z + shift), loss.value(y, z), rtol=1e-10)
    np.testing.assert_allclose(loss.first(y, z + shift), loss.first(y, z), atol=1e-11)


@pytest.mark.parametrize("y", [[0.0, 3.0], [0.0, -1.0], [0.0, 0.5], [0.0, np.nan]])
def test_wrong_targets(y):
    with pytest.raises(danl.InputError) as error:
        Multinomial(3).check_targets(np.array(y))
    assert str(error.value) == (
        f"y[1]={y[1]!r}: loss 'multinomial:classes=3' needs targets from 0 to 2, the numbers of the classes; "
        "danl.load_dataset(..., target='classes') numbers any labels"
    )
    Multinomial(4).check_targets(np.array([0.0, 3.0, 1.0]))


@pytest.mark.parametrize("classes", [2, 3, 11])
def test_the_name_makes_the_loss(classes):
    loss = Multinomial(classes)
    made = make_loss(loss.name)
    assert isinstance(made, Multinomial)
    assert (made.name, outputs_of(made)) == (loss.name, classes) == (f"multinomial:classes={classes}", classes)
    assert make_loss(loss) is loss
    assert target_of(loss.name) == target_of("multinomial") == "classes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "multinomial",
            "loss='multinomial': must be multinomial with classes; try 'multinomial:classes=3'",
        ),
        (
            "multinomial:k=3",
            "loss='multinomial:k=3': multinomial has no option 'k'; it has classes",
        ),
        (
            "multinomial:classes=1",
            "classes=1: must be a whole number >= 2; for example multinomial:classes=3",
        ),
        (
            "multinomial:classes=2.5",
            "classes=2.5: must be a whole number >= 2; for example multinomial:classes=3",
        ),
        (
            "multinomial:classes=many",
            "classes='many': must be a whole number >= 2; for example multinomial:classes=3",
        ),
    ],
)
def test_wrong_names(text, message):
    with pytest.raises(danl.InputError) as error:
        make_loss(text)
    assert str(error.value) == message


def test_a_problem_looks_at_its_targets():
    with pytest.raises(danl.InputError, match="needs targets from 0 to 1, the numbers of the classes"):
        danl.Problem(rows_of_classes(), loss="multinomial:classes=2")


# The objective.


def by_hand(problem, w):
    """f(w) from its definition, row by row: X with a column of ones, the penalty on all but the intercepts."""
    total, penalty = 0.0, 0.0
    numbers = np.reshape(w, (CLASSES, -1))
    for weight, shard, alpha in zip(problem.weights, problem.shards, problem.penalties, strict=True):
        X = shard.X.toarray() if sparse.issparse(shard.X) else shard.X
        A = np.column_stack([X, np.ones(len(X))]) if problem.intercept else X
        share = np.ones(len(X)) / len(X) if shard.weights is None else shard.weights / shard.weights.sum()
        for row, own, part in zip(A, shard.y.astype(int), share, strict=True):
            z = numbers @ row
            total += weight * part * (np.log(np.sum(np.exp(z))) - z[own])
        features = numbers[:, : X.shape[1]]
        penalty += weight * alpha / 2 * np.sum(features**2)
    return total + penalty


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("as_sparse", [True, False])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_value_gradient_hessian_and_scores(intercept, weighted, as_sparse, weighting):
    problem = classes_problem(intercept=intercept, weighted=weighted, as_sparse=as_sparse, weighting=weighting)
    d, h = problem.n_coefficients, 1e-5
    w = np.random.default_rng(2).normal(size=d)
    value, gradient = problem.value_and_gradient(w)
    assert value == pytest.approx(by_hand(problem, w), rel=1e-13)
    assert problem.objective(w) == pytest.approx(value, rel=1e-14)
    hessian = problem.hessian(w)
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-15)
    for k, e in enumerate(np.eye(d)):
        slope = (by_hand(problem, w + h * e) - by_hand(problem, w - h * e)) / (2 * h)
        bend = (problem.value_and_gradient(w + h * e)[1] - problem.value_and_gradient(w - h * e)[1]) / (2 * h)
        assert gradient[k] == pytest.approx(slope, rel=1e-6, abs=1e-8)
        np.testing.assert_allclose(hessian[k], bend, rtol=1e-6, atol=1e-8)
    local = problem.local_objectives[0]
    rows = [local.sample(np.array([row])).value_and_gradient(w)[1] - local.penalties * w for row in range(local.n_rows)]
    outer = sum(np.outer(g, g) for g in rows) / local.n_rows**2  # a sample of one row stands for all of them
    np.testing.assert_allclose(local.scores(w), outer, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("loss", ["logistic", "squared", "poisson", "squared_hinge", "multinomial:classes=3"])
@pytest.mark.parametrize("as_sparse", [True, False])
def test_an_intercept_is_a_column_of_ones_without_a_penalty(loss, as_sparse):
    """The problem with the column written out, and the penalty of its coefficients taken off by hand."""
    shards = rows_of_classes(as_sparse=as_sparse, weighted=True)
    if not loss.startswith("multinomial"):
        shards = [danl.Shard.of(s.X, np.minimum(s.y, 1.0), weights=s.weights) for s in shards]
    ones = [
        danl.Shard.of(np.column_stack([s.X.toarray() if as_sparse else s.X, np.ones(s.n_rows)]), s.y, weights=s.weights)
        for s in shards
    ]
    problem = danl.Problem(shards, loss=loss, alpha=0.3, intercept=True)
    explicit = danl.Problem(ones, loss=loss, alpha=0.3)
    assert problem.n_coefficients == explicit.n_coefficients
    w = np.random.default_rng(0).normal(size=problem.n_coefficients)
    free = np.where(problem.layout.penalised, 0.0, w)
    assert problem.objective(w) == pytest.approx(explicit.objective(w) - 0.15 * free @ free, rel=1e-13)
    gradients = problem.value_and_gradient(w)[1], explicit.value_and_gradient(w)[1] - 0.3 * free
    np.testing.assert_allclose(*gradients, rtol=1e-11, atol=1e-13)
    expected = explicit.hessian(w) - 0.3 * np.diag(~problem.layout.penalised)
    np.testing.assert_allclose(problem.hessian(w), expected, rtol=1e-11, atol=1e-13)
    for ours, theirs in zip(problem.local_objectives, explicit.local_objectives, strict=True):
        np.testing.assert_allclose(ours.scores(w), theirs.scores(w), rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(ours.row_norms, theirs.row_norms, rtol=1e-14)
        assert ours.gram_norm == pytest.approx(theirs.gram_norm, rel=1e-9)


def test_the_smoothness_constant_bounds_the_hessian():
    for local in classes_problem(weighted=True).local_objectives:
        for seed in range(5):
            w = np.random.default_rng(seed).normal(size=local.layout.n_coefficients)
            assert np.linalg.eigvalsh(local.hessian(w))[-1] <= local.smoothness()
        assert np.linalg.eigvalsh(local.hessian(np.zeros(local.layout.n_coefficients)))[-1] > 0.3 * local.smoothness()


@pytest.mark.slow
def test_a_sampled_gradient_is_unbiased():
    local = classes_problem(weighted=True).local_objectives[2]
    w, rng = np.ones(local.layout.n_coefficients), np.random.default_rng(0)
    value, gradient = local.value_and_gradient(w)
    draws = [local.sample(rng.choice(9, size=4, replace=False)).value_and_gradient(w) for _ in range(4000)]
    assert np.mean([each for each, _ in draws]) == pytest.approx(value, rel=0.02)
    np.testing.assert_allclose(np.mean([each for _, each in draws], axis=0), gradient, atol=0.01)


# The optimum, by every method.


@pytest.fixture(scope="module")
def optimum():
    """By scipy, from the definition."""
    problem = classes_problem()
    found = optimize.minimize(
        lambda w: by_hand(problem, w), np.zeros(15), jac=lambda w: problem.value_and_gradient(w)[1], tol=1e-12
    )
    return found.x


def probabilities(problem, w):
    coefficients, intercepts = problem.layout.split(w)
    z = np.vstack([shard.X for shard in problem.shards]) @ coefficients.T + intercepts
    return np.exp(z - logsumexp(z, axis=1, keepdims=True))


def same_model(problem, w, expected, atol):
    np.testing.assert_allclose(probabilities(problem, w), probabilities(problem, expected), atol=atol)


EXACT = ("danl", "newton", "newton-undamped", "newton-zero", "danl-masked", "danl-paper")


@pytest.mark.parametrize("regions", ["classes", 3])
@pytest.mark.parametrize("name", PRESETS)
def test_every_method_with_full_masks(name, regions, optimum):
    problem = classes_problem()
    rounds = 2000 if name in ("gd", "fedavg") else 200
    method = "fedavg:steps=1" if name == "fedavg" else name  # more steps end at another point, for any loss
    result = danl.solve(problem, method=method, regions=regions, max_rounds=rounds, tol=1e-9)
    assert result.status == "converged"
    assert result.history[-1].grad_norm <= 1e-9
    same_model(problem, result.w, optimum, atol=1e-6)


MASKS = np.ones((40, 4, 3), dtype=bool)
MASKS[::2, 1, :2] = MASKS[1::2, 2, 1:] = MASKS[::3, 3, 0] = False
PARTIAL = {
    "full": "full",
    "coverage": "coverage:psi=1",
    "coverage-2": "coverage:psi=2,gamma=2",
    "subset": "subset:S=1",
    "random": "random:keep=0.5",
    "magnitude": "magnitude:keep=0.5",
    "schedule": Schedule(MASKS, cycle=True),
    "custom": Custom(lambda w, worker, round, rng: np.arange(3) != (worker + round) % 3),
    "resource-aware": ResourceAware([Profile(rows_per_second=100), *[Profile(rows_per_second=60)] * 3], deadline=0.27),
}


@pytest.mark.parametrize(("alpha", "intercept"), [(0.05, True), (0.0, True), (0.0, False)])
@pytest.mark.parametrize("regions", ["classes", 3])
@pytest.mark.parametrize("policy", PARTIAL)
def test_every_policy(policy, regions, intercept, alpha):
    """Without a penalty on them, the classes' numbers could run off together: nothing tells them not to."""
    problem = classes_problem(intercept=intercept, alpha=alpha)
    reference = danl.reference_optimum(problem)
    result = danl.solve(
        problem, method="danl:masks=always", regions=regions, policy=PARTIAL[policy], max_rounds=200, tol=1e-10
    )
    assert result.status == "converged"
    coverage = result.history.column("coverage")
    assert coverage.shape[1] == 3
    masked = coverage[result.history.column("kind") == "gradient"]
    assert (masked < 4).any() == (policy != "full")
    same_model(problem, result.w, reference.w, atol=1e-8)
    assert np.abs(result.w).max() < 20


@pytest.mark.parametrize("regions", ["classes", 3])
@pytest.mark.parametrize("name", ["danl-masked", "danl-paper"])
def test_masked_methods_send_only_what_is_masked(name, regions):
    problem = classes_problem(alpha=0.5, intercept=False)
    result = danl.solve(problem, method=name, regions=regions, policy="coverage:psi=2", max_rounds=30, tol=0.0)
    assert result.status == "max_rounds"
    sizes = np.array(result.settings["regions"])
    for row in result.history:
        if row.kind == "gradient":
            assert row.bytes_up < 4 * 8 * (12 + 1)
            assert row.bytes_up >= 8 * np.dot(row.coverage, sizes)
    assert np.isfinite(result.w).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["danl:batch_size=6", "danl:batch_size=6,hessian_batch=8", "newton:hessian_batch=8"])
@pytest.mark.parametrize("regions", ["classes", 3])
def test_mini_batches(name, regions, optimum):
    problem = classes_problem()
    result = danl.solve(problem, method=name, regions=regions, max_rounds=400, tol=1e-9)
    same_model(problem, result.w, optimum, atol=1e-3)
    twice = danl.solve(problem, method=name, regions=regions, max_rounds=400, tol=1e-9)
    assert twice.w.tobytes() == result.w.tobytes()


def test_dropouts(optimum):
    problem = classes_problem()
    for policy in (None, "coverage:psi=1"):
        result = danl.solve(problem, engine="local:dropout=0.3", policy=policy, tol=1e-10, max_rounds=300)
        assert result.status == "converged"
        assert len(result.failures) > 5
        same_model(problem, result.w, optimum, atol=1e-6)


def test_a_reference_in_other_units(optimum):
    """However the rows are weighted and divided, `samples` and `alpha` make it the pooled fit."""
    whole = classes_problem()
    X = np.vstack([shard.X for shard in whole.shards])
    y = np.concatenate([shard.y for shard in whole.shards])
    for workers in (1, 5):
        shards = danl.partition(X, y, workers=workers, seed=workers)
        problem = danl.Problem(shards, loss="multinomial:classes=3", alpha=0.05, weighting="samples", intercept=True)
        result = danl.solve(problem, method="newton", tol=1e-12)
        same_model(whole, result.w, optimum, atol=1e-6)


# Messages, checkpoints, remote problems.


def test_tasks_and_replies_through_the_wire():
    problem = classes_problem()
    regions = problem.layout.regions("classes")
    w = np.random.default_rng(0).normal(size=problem.n_coefficients)
    worker = Worker(2, problem.local_objectives[2], regions, None, seed=0)
    limit = most_bytes(problem.n_coefficients, regions.n_regions)
    for task in (HessianTask(4, w), LossTask(4, w), ScoresTask(4, w)):
        arrived = decode(encode(task), most_bytes=limit)
        assert arrived.w.tobytes() == w.tobytes()
        reply, direct = decode(encode(worker.answer(arrived)), most_bytes=limit), worker.answer(task)
        assert type(reply) is type(direct)
        for name in vars(direct):
            np.testing.assert_array_equal(getattr(reply, name), getattr(direct, name))
    hessian = worker.answer(HessianTask(4, w))
    np.testing.assert_allclose(unpack(hessian.packed_hessian, 15), problem.local_objectives[2].hessian(w), atol=1e-15)


def test_a_run_is_taken_up_again(tmp_path):
    problem = classes_problem()
    whole = danl.solve(problem, policy="coverage:psi=1", tol=1e-12)
    half = len(whole.history) // 2
    danl.solve(problem, policy="coverage:psi=1", tol=1e-12, max_rounds=half, checkpoint=tmp_path)
    rest = danl.solve(problem, policy="coverage:psi=1", tol=1e-12, resume=tmp_path)
    assert rest.w.tobytes() == whole.w.tobytes()
    other = classes_problem(intercept=False)
    with pytest.raises(danl.InputError, match="holds no checkpoint of this run"):
        danl.solve(other, policy="coverage:psi=1", tol=1e-12, resume=tmp_path)


def test_terms_without_rows_keep_loss_and_intercept():
    problem = classes_problem()
    known = problem.without_rows()
    assert (known.loss.name, known.intercept) == ("multinomial:classes=3", True)
    assert "loss='multinomial:classes=3', alpha=0.05, weighting='samples', intercept=True" in repr(problem)
    assert known.local(problem.shards[0]).layout == problem.layout
