"""The questions of tables at one worker: what is told, what is hidden, and what is wrong with a reply."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest

import danl
from danl.objective.regions import Regions
from danl.protocol.messages import unpack
from danl.protocol.own_tasks import HIDDEN, FewRowsError, Workplace
from danl.protocol.wire import decode, encode, most_bytes
from danl.tasks.binned_counts import BinnedTask, binned
from danl.tasks.column_counts import ColumnsTask
from danl.tasks.fit_questions import SUMS, FitTask
from danl.tasks.local_fit import ALIASED, FACTS, FITTED, NO_OPTIMUM, TOO_FEW, LocalFitTask
from danl.tasks.null_model import NullTask

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = (RNG.random(40) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)
W = np.array([0.3, -0.2, 0.1, 0.4])
D = 4


@dataclass(frozen=True)
class Ward(Workplace):
    """A workplace of a site whose cells must have so many records."""

    min_cell: int = 3


def place(*, X=X, y=Y, loss="logistic", least_rows=1, **options):
    shard = danl.Shard.of(X, y, **options)
    objective = danl.Problem([shard], loss=loss, alpha=0.5, intercept=True).local_objectives[0]
    return Ward(0, objective, Regions.make(1, D), 0, least_rows)


TASKS = [
    FitTask(0, W, 0.1),
    FitTask(0, W, 0.1, "records", both=True),
    FitTask(0, W, 0.1, "clusters"),
    NullTask(0, W, 0.1),
    LocalFitTask(0, W, np.ones(D, dtype=bool)),
    BinnedTask(0, W, np.array([-0.5, 0.0, 0.5])),
    ColumnsTask(0, W, np.array([-1.0, 0.0, 0.0, -1.0]), np.linspace(-1, 1, 6), 3),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_replies_travel_and_have_their_form(task):
    reply = task.work(place())
    assert task.fault(reply, D) is None
    again = decode(encode(reply), most_bytes=most_bytes(D, 1))
    assert task.fault(again, D) is None
    sent = decode(encode(task), most_bytes=most_bytes(D, 1))
    assert task.fault(sent.work(place()), D) is None
    assert task.work_rows(10, 3.0) > 0


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_reply_of_another_form_is_one(task):
    reply = task.work(place())
    arrays = {name: value for name, value in vars(reply).items() if isinstance(value, np.ndarray)}
    for name, value in arrays.items():
        assert task.fault(replace(reply, **{name: np.append(value, 1.0)}), D) is not None
        assert task.fault(replace(reply, **{name: value.astype(np.float32)}), D) is not None
        assert task.fault(replace(reply, **{name: None}), D) is not None


def test_sums_that_cannot_be_are_a_fault():
    task = FitTask(0, W, 0.1)
    reply = task.work(place())
    assert task.fault(replace(reply, sums=np.zeros(len(SUMS))), D) is not None


def test_plain_sums_without_the_penalty():
    A, s = np.column_stack([X, np.ones(40)]), RNG.integers(1, 4, 40).astype(float)
    p = 1 / (1 + np.exp(-A @ W))
    reply = FitTask(0, W, 0.1, "records").work(place(weights=s))
    np.testing.assert_allclose(reply.gradient, A.T @ (s * (p - Y)), rtol=1e-12)
    np.testing.assert_allclose(unpack(reply.expected, D), (A.T * (s * p * (1 - p))) @ A, rtol=1e-12)
    np.testing.assert_allclose(unpack(reply.meat, D), (A.T * (s * (p - Y) ** 2)) @ A, rtol=1e-12)
    sums = dict(zip(SUMS, reply.sums, strict=True))
    likelihood = s @ (Y * np.log(p) + (1 - Y) * np.log(1 - p))
    assert sums["loss"] == pytest.approx(-likelihood)
    assert (sums["records"], sums["weight"], sums["target"]) == (40, s.sum(), s @ Y)
    clusters = np.arange(40) // 4
    reply = FitTask(0, W, 0.1, "clusters").work(place(weights=s, clusters=clusters))
    own = np.array([A[clusters == c].T @ (s * (p - Y))[clusters == c] for c in range(10)])
    np.testing.assert_allclose(unpack(reply.meat, D), own.T @ own, rtol=1e-10)
    assert dict(zip(SUMS, reply.sums, strict=True))["clusters"] == 10


def test_few_clusters_of_few_records_are_refused():
    few = np.repeat([0, 1, 2], [2, 18, 20])
    with pytest.raises(FewRowsError):
        FitTask(0, W, 0.1, "clusters").work(place(clusters=few, least_rows=10))
    for clusters in (np.repeat([0, 1], 20), np.arange(40), np.zeros(40, dtype=int)):
        FitTask(0, W, 0.1, "clusters").work(place(clusters=clusters, least_rows=10))


def test_a_local_fit_is_that_of_the_rows_alone():
    reply = LocalFitTask(0, np.zeros(D), np.ones(D, dtype=bool)).work(place())
    problem = danl.Problem([danl.Shard.of(X, Y)], alpha=0.0, weighting="samples", intercept=True)
    np.testing.assert_allclose(reply.model, danl.solve(problem, tol=1e-13).w, rtol=1e-8)
    without = np.array([True, True, False, True])
    reply = LocalFitTask(0, np.zeros(D), without).work(place())
    assert reply.told.tolist() == without.astype(float).tolist()
    assert reply.model[2] == 0.0
    assert not unpack(reply.covariance, D)[2].any()


@pytest.mark.parametrize(
    ("ended", "rows"),
    [
        (FITTED, {}),
        (TOO_FEW, {"X": X[:4], "y": np.array([0.0, 1.0, 0.0, 1.0])}),
        (NO_OPTIMUM, {"y": (X[:, 0] > 0).astype(float)}),
        (ALIASED, {"X": np.column_stack([X[:, 0], X[:, 0], X[:, 1]])}),
    ],
)
def test_how_a_local_fit_ended(ended, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reply = LocalFitTask(0, np.zeros(D), np.ones(D, dtype=bool)).work(place(**rows))
    assert reply.facts[FACTS.index("ended")] == ended
    assert np.isfinite(reply.covariance).all()
    if ended != FITTED:
        assert not reply.model.any()
        assert not reply.covariance.any()


def test_small_counts_are_hidden_and_never_the_rest_of_a_total():
    bins, ones = np.repeat([0, 1, 2, 3], [10, 2, 7, 9]), np.ones(28)
    counts = binned(bins, ones, 5, 3)
    assert counts.tolist() == [10.0, HIDDEN, HIDDEN, 9.0, 0.0]  # 2, and the next smallest with it
    assert binned(bins, ones, 5, 2).tolist() == [10.0, 2.0, 7.0, 9.0, 0.0]
    two = binned(np.repeat([0, 1, 2], [1, 1, 20]), np.ones(22), 3, 3)
    assert two.tolist() == [HIDDEN, HIDDEN, HIDDEN]  # together they would still be fewer than 3


@pytest.mark.parametrize("seed", range(20))
def test_hidden_counts_cannot_be_had_from_the_total(seed):
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, 8, rng.integers(1, 40))
    counts = binned(bins, np.ones(len(bins)), 8, 3)
    own = np.bincount(bins, minlength=8)
    hidden = counts == HIDDEN
    assert ((own >= 3) | (own == 0))[~hidden].all()
    assert not hidden.any() or hidden.sum() > 1 or own.sum() < 3 or (own > 0).sum() == 1
    assert not hidden.any() or own[hidden].sum() >= 3 or (own[~hidden] == 0).all()


def test_counts_of_weighted_records_are_hidden_by_their_records():
    counts = binned(np.repeat([0, 1, 2], [2, 10, 10]), np.full(22, 100.0), 3, 3)
    assert counts[0] == HIDDEN


def test_bins_have_both_outcomes_and_predictions():
    edges = np.array([-0.5, 0.0, 0.5])
    here = place(X=np.repeat([[-2.0, 0, 0], [2.0, 0, 0]], 20, axis=0), y=np.tile([0.0, 1.0], 20))
    w = np.array([1.0, 0, 0, 0])
    reply = BinnedTask(0, w, edges).work(here)
    assert reply.others.tolist() == reply.events.tolist() == [10.0, 0.0, 0.0, 10.0]
    np.testing.assert_allclose(reply.predicted[[0, 3]], 20 / (1 + np.exp([2.0, -2.0])))


def test_a_rare_level_is_told_neither_as_count_nor_as_mean():
    rare = np.zeros((40, 3))
    rare[:2, 0] = 1  # a level that two records have
    rare[2:15, 1] = 1
    rare[:, 2] = RNG.normal(size=40)
    groups = np.array([0.0, 0.0, -1.0, -1.0])
    reply = ColumnsTask(0, W, groups, np.empty(0)).work(place(X=rare))
    assert reply.levels[1] == HIDDEN
    assert np.count_nonzero(reply.levels == HIDDEN) == 2
    assert not reply.means[:2].any()
    plain = ColumnsTask(0, W, np.full(4, -1.0), np.empty(0)).work(place(X=rare))
    assert (plain.means[0], plain.squares[0]) == (0.0, HIDDEN)
    assert plain.means[1] == pytest.approx(13 / 40)


def test_moments_and_levels():
    groups = np.array([-1.0, 0.0, 0.0, -1.0])
    levels = np.repeat([0, 1, 2], [10, 20, 10])
    table = np.column_stack([X[:, 0], levels == 1, levels == 2]).astype(float)
    reply = ColumnsTask(0, W, groups, np.concatenate([[-1.0, 0.0, 1.0], [0.2, 0.5, 0.8]]), 3).work(place(X=table))
    assert reply.levels.tolist() == [10.0, 20.0, 10.0]
    assert reply.means[0] == pytest.approx(X[:, 0].mean())
    assert reply.squares[0] == pytest.approx(40 * X[:, 0].var())
    told = reply.counts[:4]
    own = np.histogram(X[:, 0], [-np.inf, -1, 0, 1, np.inf])[0]
    assert ((told == own) | (told == HIDDEN)).all()
