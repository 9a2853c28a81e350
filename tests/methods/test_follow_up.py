"""Questions to everyone: asked again of who is missing, without those that refuse or stay away."""

import numpy as np
import pytest

import danl
from danl.methods.follow_up import FollowUp
from tests.problems import random_problem, random_shards

NULL = ("null-model", {"null": 0.0})


def asked(engine="local", patience=3):
    problem = random_problem()
    method = FollowUp([NULL], patience)
    return danl.solve(problem, method=method, monitor=False, engine=engine)


def test_everyone_answers_once():
    result = asked()
    assert result.status == "converged"
    assert [row.kind for row in result.history] == ["null-model"]
    n = len(result.products["null-model.workers"])
    assert result.products["null-model.sums"].shape == (n, 3)
    assert result.products["null-model.workers"].tolist() == list(range(n))


def test_who_is_missing_is_asked_again():
    result = asked(danl.engines.Local(away={0: (0, 0)}))
    assert len(result.history) == 2
    assert 0 in result.products["null-model.workers"]
    np.testing.assert_allclose(result.products["null-model.sums"], asked().products["null-model.sums"])


def test_who_stays_away_is_left_out():
    result = asked(danl.engines.Local(away={1: (0, None)}))
    assert result.status == "converged"
    assert len(result.history) == 3
    assert 1 not in result.products["null-model.workers"]
    assert {failure.worker for failure in result.failures} == {1}


def test_without_anybody_there_is_no_answer():
    everyone = dict.fromkeys(range(100), (0, None))
    result = asked(danl.engines.Local(away=everyone))
    assert result.status == "quorum_lost"
    assert "null-model.workers" not in result.products


@pytest.mark.parametrize("intercept", [False, True])
def test_the_model_stays_where_it_is(intercept):
    problem = danl.Problem(random_shards(), alpha=0.1, intercept=intercept)
    w = np.arange(1.0, problem.n_coefficients + 1) / 7
    result = danl.solve(problem, method=FollowUp([NULL]), w0=w, monitor=False)
    np.testing.assert_array_equal(result.w, w)
    assert len(result.history) == 1
