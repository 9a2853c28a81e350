"""How many threads may work, what they share, and that nothing depends on how many there are."""

import threading

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

import danl
from danl.checks import is_installed
from danl.engines import Local, make_engine
from danl.errors import InputError
from danl.objective import kernels, threads
from danl.objective.batch import Batch
from danl.objective.threads import MOST, OWN_VARIABLE, VARIABLES, allowed, shared


@pytest.fixture
def machine(monkeypatch):
    """One of six processors, of which nobody has said anything."""
    for name in (OWN_VARIABLE, *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_processors", lambda: 6)
    monkeypatch.setattr(threads._Blas, "threads", lambda self: MOST)
    return monkeypatch


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({}, 6),
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "4,2"}, 4),
        ({"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "3"}, 2),
        ({"MKL_NUM_THREADS": "64"}, 6),
        ({"OMP_NUM_THREADS": "0"}, 6),
        ({"OMP_NUM_THREADS": "many"}, 6),
        ({"OMP_NUM_THREADS": "1", "DANL_NUM_THREADS": "3"}, 3),
        ({"DANL_NUM_THREADS": "12"}, 12),
    ],
)
def test_the_environment_says_how_many(machine, variables, count):
    for name, value in variables.items():
        machine.setenv(name, value)
    assert allowed() == count
    assert allowed(5) == 5  # an engine that was told


def test_no_more_than_pay(machine):
    machine.setattr(threads, "_processors", lambda: 96)
    assert allowed() == MOST


def test_limits_of_threadpoolctl_hold(monkeypatch):
    for name in (OWN_VARIABLE, *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_processors", lambda: 6)
    with threadpool_limits(1, user_api="blas"):
        assert allowed() == 1
    with threadpool_limits(2, user_api="blas"):
        assert allowed() == min(2, *(each["num_threads"] for each in blas()))


def blas():
    return [each for each in threadpool_info() if each["user_api"] == "blas"]


@pytest.mark.slow
def test_a_worker_of_joblib_has_one_thread(monkeypatch):
    joblib = pytest.importorskip("joblib")
    for name in (OWN_VARIABLE, *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(allowed)() for _ in range(2)) == [1, 1]


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_results_are_in_order(count):
    assert shared(lambda n: n * n, range(20), count) == [n * n for n in range(20)]
    assert shared(lambda n: n * n, [], count) == []


def test_several_threads_work_at_once():
    met = threading.Barrier(3, timeout=300)
    assert sorted(shared(lambda _: met.wait(), range(3), 3)) == [0, 1, 2]


def test_what_goes_wrong_in_a_thread_is_raised():
    def fails(n):
        if n == 3:
            raise ValueError("three")
        return n

    for count in (1, 2, 4):
        with pytest.raises(ValueError, match="three"):
            shared(fails, range(8), count)


def test_work_within_work_comes_to_an_end():
    inner = lambda n: sum(shared(lambda m: m * n, range(5), 4))  # noqa: E731
    assert shared(inner, range(40), 40) == [10 * n for n in range(40)]


def test_blas_has_one_thread_meanwhile_and_then_those_it_had():
    with threadpool_limits(2, user_api="blas"):
        before = [each["num_threads"] for each in blas()]
        within = shared(lambda _: [each["num_threads"] for each in blas()], range(4), 2, blas=True)
        assert [each["num_threads"] for each in blas()] == before
    assert all(count == 1 for counts in within for count in counts)


def test_a_child_of_a_fork_has_helpers_of_its_own():
    assert shared(str, range(4), 2) == ["0", "1", "2", "3"]
    threads._forget()
    assert shared(str, range(4), 2, blas=True) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("block", [1 << 20, 300], ids=["one block", "many blocks"])
@pytest.mark.parametrize("terms", ["sparse", "dense", "intercept", "weighted"])
@pytest.mark.parametrize("loss", ["logistic", "squared", "poisson", "multinomial:classes=3"])
def test_answers_do_not_depend_on_the_number_of_threads(loss, terms, block, monkeypatch):
    monkeypatch.setattr("danl.objective.batch.SHARED_WORK", 0)
    monkeypatch.setattr("danl.objective.row_blocks.BLOCK_ENTRIES", block)
    monkeypatch.setattr(kernels, "SHARED_NUMBERS", 0)
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 1)
    rng = np.random.default_rng(0)
    X = sparse.random(700, 8, 0.3, format="csr", random_state=1, data_rvs=rng.standard_normal)
    y = rng.integers(0, 3 if loss.startswith("multinomial") else 2, 700).astype(float)
    weights = rng.random(700) if terms == "weighted" else None
    given = X.toarray() if terms == "dense" else X
    shards = danl.partition(given, y, workers=7, seed=0, weights=weights)
    made = danl.Problem(shards, loss=loss, alpha=1e-2, intercept=terms == "intercept")
    w, some = 0.1 * rng.standard_normal(made.n_coefficients), np.array([0, 3, 4])
    answers = []
    for count in (1, 2, 3):
        batch = Batch.of(made.local_objectives)
        batch.use_threads(count)
        whole, partly = batch.losses_and_gradients(w), batch.losses_and_gradients(w, None, some)
        parts = [each[some] for each in partly]
        answers.append([*whole, *parts, batch.margins(2 * w), batch.hessian_sum(w, made.weights)])
    for others in answers[1:]:
        for one, other in zip(answers[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_engine_is_told_how_many(monkeypatch):
    seen = []
    monkeypatch.setattr("danl.objective.batch.SHARED_WORK", 0)
    monkeypatch.setattr("danl.objective.batch.allowed", lambda wanted: seen.append(wanted) or 1)
    data = danl.load_dataset("a1a")
    made = danl.Problem(danl.partition(data.X, data.y, workers=3), alpha=1e-2)
    danl.solve(made, engine="local:threads=2", max_rounds=2, tol=0.0)
    assert seen[-1] == 2
    danl.solve(made, max_rounds=2, tol=0.0)
    assert seen[-1] is None
    assert repr(make_engine("local:threads=2")) == "Local(threads=2)"


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "two"])
def test_a_number_of_threads_that_is_none_is_refused(wrong):
    with pytest.raises(InputError, match="threads="):
        Local(threads=wrong)


def test_the_engine_holds_blas_until_it_is_closed(monkeypatch):
    monkeypatch.setattr("danl.objective.batch.SHARED_WORK", 0)
    data = danl.load_dataset("a1a")
    made = danl.Problem(danl.partition(data.X, data.y, workers=3), alpha=1e-2)
    counts = lambda: [each["num_threads"] for each in blas()]  # noqa: E731
    with threadpool_limits(2, user_api="blas"):
        before, within = counts(), []
        danl.solve(made, engine="local:threads=2", max_rounds=2, callback=lambda row: within.append(counts()))
        assert counts() == before
        engine = Local(threads=2)
        engine.open(made, regions=danl.Regions.make(3, made.n_features), policy=None, seed=0)
        del engine  # nobody closed it
        assert counts() == before
    assert all(count == 1 for each in within for count in each)


@pytest.mark.skipif(not is_installed("tabmat"), reason="needs tabmat")
@pytest.mark.parametrize("rows", [None, 60])
def test_sparse_products_do_not_depend_on_the_number_of_threads(rows, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK_ENTRIES", 100)
    monkeypatch.setattr(kernels, "SPARSE_PRODUCTS", 4 * 9 * 9)
    rng = np.random.default_rng(0)
    X = sparse.random(500, 9, 0.2, format="csr", random_state=1, data_rvs=rng.standard_normal)
    weights, counted = rng.random(500), None if rows is None else np.sort(rng.permutation(500)[:rows])
    one, *others = (kernels.tabmat_sandwich(X, lambda n=n: n)(weights, counted) for n in (1, 2, 3))
    for other in others:
        np.testing.assert_array_equal(one, other)
