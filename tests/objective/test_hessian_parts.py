"""Parts of a Hessian, computed without the rest of it; and the margins a worker keeps."""

import numpy as np
import pytest

import danl
from danl.data import Shard
from danl.objective.hessian_parts import piece
from danl.objective.kernels import times
from danl.protocol.messages import pack, packed_size
from tests.problems import random_problem, random_shards


def objectives():
    rng = np.random.default_rng(3)
    classes = [Shard.of(rng.normal(size=(20, 3)), np.arange(20) % 3)]
    yield random_problem("poisson").local_objectives[1]
    yield random_problem(as_sparse=True, weighted=True).local_objectives[1]
    yield danl.Problem(random_shards(as_sparse=True), alpha=0.1, intercept=True).local_objectives[0]
    yield danl.Problem(classes, loss="multinomial:classes=3", alpha=0.1, intercept=True).local_objectives[0]
    yield danl.Problem(classes, loss="multinomial:classes=3", alpha=0.1).local_objectives[0]


@pytest.mark.parametrize("objective", list(objectives()), ids=lambda each: type(each.loss).__name__)
def test_every_piece_is_that_of_the_whole_hessian(objective):
    d = objective.layout.n_coefficients
    w = np.linspace(-0.5, 0.5, d)
    whole, numbers = pack(objective.hessian(w)), packed_size(d)
    for first in range(numbers):
        for last in {first + 1, min(first + d, numbers), numbers}:
            np.testing.assert_allclose(piece(objective, w, first, last), whole[first:last], rtol=1e-12, atol=1e-14)


def test_a_piece_needs_no_more_of_the_rows_than_its_own_columns(monkeypatch):
    (shard, *_) = random_shards(as_sparse=True, sizes=(40,), d=30)
    objective = danl.Problem([shard], alpha=0.1).local_objectives[0]
    seen, rows_of_product = [], danl.objective.hessian_parts._rows_of_product
    monkeypatch.setattr(
        danl.objective.hessian_parts,
        "_rows_of_product",
        lambda objective, columns, weights: (
            seen.append(columns.tolist()) or rows_of_product(objective, columns, weights)
        ),
    )
    piece(objective, np.zeros(30), 35, 70)  # rows 1 (from place 30) and 2 (from place 59)
    assert seen == [[1, 2]]


def test_the_margins_of_the_newest_model_are_kept(monkeypatch):
    (objective, *_) = random_problem(as_sparse=True).local_objectives
    calls = []
    monkeypatch.setattr(danl.objective.local_objective, "times", lambda X, w: calls.append(w[0]) or times(X, w))
    one, two = np.full(7, 0.1), np.full(7, 0.2)
    loss, gradient = objective.value_and_gradient(one)
    again = one.copy()
    assert objective.value(again) == loss
    objective.hessian(one)
    piece(objective, one, 2, 9)
    np.testing.assert_array_equal(objective.value_and_gradient(one)[1], gradient)
    assert calls == [0.1]
    again += 1.0  # somebody else's array
    objective.value(two)
    objective.value(one)
    assert calls == [0.1, 0.2, 0.1]
