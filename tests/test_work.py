"""How much is done, not how long it takes: passes over the data, factorisations, large allocations of an exchange."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import danl
from danl.methods import DANL
from danl.objective import batch_parts
from danl.server import curvature

ROWS, FEATURES, WORKERS = 4000, 20, 8


def problem(*, dense=False, workers=WORKERS, rows=ROWS, **terms):
    rng = np.random.default_rng(0)
    X = sparse.random(rows, FEATURES, 0.1, format="csr", random_state=0, data_rvs=rng.standard_normal)
    y = (rng.random(rows) < 0.5).astype(float)
    shards = danl.partition(X.toarray() if dense else X, y, workers=workers)
    return danl.Problem(shards, **({"alpha": 1e-3} | terms))


class Counted:
    """What each exchange of a run did, by its kind."""

    def __init__(self, made, monkeypatch):
        self.batch, self.done = made.batch, []
        self.factorisations = {"cholesky": 0, "eigenvalues": 0}
        self._count(monkeypatch, curvature, "dpotrf", "cholesky")
        self._count(monkeypatch, np.linalg, "eigh", "eigenvalues")
        self.before = self._now()

    def _count(self, monkeypatch, module, name, what):
        original = getattr(module, name)

        def counted(*arguments, **options):
            self.factorisations[what] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, counted)

    def _now(self):
        return np.array([self.batch.passes, self.batch.sandwich.calls, *self.factorisations.values()])

    def __call__(self, row):
        now = self._now()
        self.done.append((row.kind, *(now - self.before).tolist()))
        self.before = now


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("policy", ["full", "coverage:psi=3"])
@pytest.mark.parametrize("method", ["danl-masked", "danl", "danl:masks=always", "newton"])
def test_passes_products_and_factorisations_of_an_exchange(method, policy, dense, monkeypatch):
    """A gradient is two passes; a Hessian exchange the same two, one product and two Cholesky factorisations.

    `danl` takes one: sums of rows with a penalty are known to be above it.
    """
    made = problem(dense=dense)
    counted = Counted(made, monkeypatch)
    danl.solve(made, method=method, policy=policy, monitor=False, tol=0.0, max_rounds=12, callback=counted)
    factorisations = 1 if method.split(":")[0] == "danl" else 2
    expected = {
        "hessian": (2, 1, factorisations, 0),
        "gradient": (2, 0, 0, 0),
        "loss": (1, 0, 0, 0),
        "check": (2, 0, 0, 0),
    }
    assert method == "newton" or any(kind == "gradient" for kind, *_ in counted.done)
    for kind, *work in counted.done:
        # A model that was refused, or asked about again, has its margins already.
        assert all(did <= allowed for did, allowed in zip(work, expected[kind], strict=True)), (kind, work)
    assert ("hessian", 2, 1, factorisations, 0) in counted.done


@pytest.mark.parametrize(("method", "passes"), [("danl-masked", 2), ("danl:masks=always", 3)])
def test_a_few_of_many_workers_are_two_passes_over_their_rows(method, passes, monkeypatch):
    """With `danl` everyone tells a loss: one more, over all rows."""
    monkeypatch.setattr("danl.objective.batch_parts.MANY_NUMBERS", 0)
    made, parts = problem(workers=200), []
    inner = batch_parts.part
    noted = lambda batch, workers: parts.append(len(workers)) or inner(batch, workers)  # noqa: E731
    monkeypatch.setattr("danl.worker.batched_workers.part_of", noted)
    counted = Counted(made, monkeypatch)
    danl.solve(made, method=method, policy="coverage:psi=3", monitor=False, tol=0.0, max_rounds=12, callback=counted)
    few = [did for did, *_ in (work for kind, *work in counted.done if kind == "gradient")]
    assert 0 < min(parts) <= max(each for each in parts if each < 200) <= 30
    assert max(few) == passes


def test_eigenvalues_only_where_the_projection_is_active(monkeypatch):
    made = problem()
    counted = Counted(made, monkeypatch)
    danl.solve(made, method=DANL(mu=10.0), monitor=False, max_rounds=0, callback=counted)
    assert counted.done == [("hessian", 2, 1, 0, 1)]


def test_measuring_a_run_does_the_gradient_once_more_and_no_more(monkeypatch):
    made = problem()
    counted = Counted(made, monkeypatch)
    danl.solve(made, method="danl-masked", tol=0.0, max_rounds=6, callback=counted)
    assert max(passes for kind, passes, *_ in counted.done if kind == "gradient") <= 4


@pytest.mark.parametrize("workers", [8, 500])
def test_what_a_round_allocates(workers):
    """Vectors of the rows and matrices of the workers; never a copy of the data."""
    made = problem(workers=workers, rows=40_000)
    danl.solve(made, method="danl-masked", policy="coverage:psi=3", monitor=False, tol=0.0, max_rounds=3)  # warm
    peaks = []

    def peak(row):
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()

    tracemalloc.start()
    try:
        danl.solve(
            made, method="danl-masked", policy="coverage:psi=3", monitor=False, tol=0.0, max_rounds=8, callback=peak
        )
    finally:
        tracemalloc.stop()
    vectors, matrices = 8 * 40_000, 8 * workers * FEATURES
    assert max(peaks[2:]) < 10 * vectors + 12 * matrices + 400_000


def test_shards_and_stack_share_the_memory_of_one_copy():
    for dense in (False, True):
        made = problem(dense=dense)
        stack = made.batch.X if dense else made.batch.X.data
        for shard in made.shards:
            assert np.shares_memory(stack, shard.X if dense else shard.X.data)
