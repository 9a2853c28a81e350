"""The moments of many workers together are those of each."""

import numpy as np
import pytest
from scipy import sparse

import danl
from danl.objective.moments import moments_of_each


@pytest.mark.parametrize("loss", ["squared", "multinomial:classes=3"])
@pytest.mark.parametrize("mean", [0.0, 1e9], ids=["small means", "large means"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
def test_together_and_one_by_one(loss, mean, form, weighted):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((53, 4)) + mean, rng.integers(3, size=53)
    weights = rng.random(53) + 0.1 if weighted else None
    shards = danl.partition(form(X), y, workers=6, scheme="quantity", seed=1, weights=weights)
    problem = danl.Problem(shards, loss=loss, alpha=0.1, intercept=True)
    found = moments_of_each(problem.local_objectives, problem.batch)
    one_by_one = zip(*(own.moments() for own in problem.local_objectives), strict=True)
    for together, each, count in zip(found, one_by_one, (4, 4, problem.layout.n_outputs), strict=True):
        assert together.shape == (6, count)
        np.testing.assert_allclose(together, np.array(each), rtol=1e-9, atol=1e-13)


def test_some_of_the_workers():
    rng = np.random.default_rng(0)
    problem = danl.Problem(danl.partition(rng.standard_normal((20, 2)), rng.random(20), workers=4), loss="squared")
    some = problem.local_objectives[1:3]
    means, variances, targets = moments_of_each(some, problem.batch)
    np.testing.assert_allclose(means, [own.X.mean(axis=0) for own in some])
    np.testing.assert_allclose(variances, [own.X.var(axis=0) for own in some])
    np.testing.assert_allclose(targets[:, 0], [own.y.mean() for own in some])
