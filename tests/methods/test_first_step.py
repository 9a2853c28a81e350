"""The first step from the model without features: as long as rows of two normal classes would have it."""

import numpy as np
import pytest

import danl
from danl.methods.extrapolation import LONGEST, length_from_null


def two_normal_classes(rows=20_000, d=3, apart=1.2, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(rows) < 0.3).astype(float)
    shift = apart * np.ones(d) / np.sqrt(d)
    return rng.normal(size=(rows, d)) + y[:, None] * shift, y, shift


def trials(problem, **options):
    """The models that were asked about."""
    asked = []

    class Listening(danl.engines.local.Local):
        def exchange(self, exchange, **given):
            asked.append(getattr(exchange.task, "w", None))
            return super().exchange(exchange, **given)

    danl.solve(problem, engine=Listening(), **options)
    return [w for w in asked if w is not None]


def test_the_first_step_is_that_of_two_normal_classes():
    """Their log odds have the coefficients covariance^-1 (difference of the means): one step from nothing is there."""
    X, y, shift = two_normal_classes()
    problem = danl.Problem(danl.partition(X, y, workers=4, seed=0), alpha=1e-9, intercept=True, weighting="samples")
    longer = trials(problem)[1][:-1]
    plain = trials(problem, method="danl:curvature=1")[1][:-1]
    assert np.abs(longer - shift).max() < 0.05
    assert np.linalg.norm(plain) < 0.85 * np.linalg.norm(shift)
    np.testing.assert_allclose(longer / np.linalg.norm(longer), plain / np.linalg.norm(plain), atol=1e-6)


@pytest.mark.parametrize("options", [{"w0": np.full(4, 0.1)}, {}])
def test_other_starts_and_other_losses_begin_with_newtons_step(options):
    X, y, _ = two_normal_classes(rows=2_000)
    loss = "logistic" if options else "poisson"
    shards = danl.partition(X, y, workers=4, seed=0)
    problem = danl.Problem(shards, loss=loss, alpha=1e-3, intercept=True, weighting="samples")
    ours, plain = (trials(problem, method=name, **options)[:2] for name in ("danl", "danl:curvature=1"))
    np.testing.assert_allclose(ours[1], plain[1], rtol=1e-9, atol=1e-12)


def test_the_length_has_bounds():
    assert length_from_null(0.0) == 1.0
    assert length_from_null(0.2) == pytest.approx(1.25)
    assert length_from_null(0.9) == length_from_null(7.0) == LONGEST


def test_a_run_that_is_resumed_before_its_first_step_has_the_same_one(tmp_path):
    X, y, _ = two_normal_classes(rows=2_000)
    problem = danl.Problem(danl.partition(X, y, workers=4, seed=0), alpha=1e-3, intercept=True)
    whole = danl.solve(problem)
    danl.solve(problem, checkpoint=tmp_path / "kept", callback=lambda row: row.exchange == 0)
    np.testing.assert_array_equal(danl.solve(problem, resume=tmp_path / "kept").w, whole.w)
