"""Logistic regression whose rows are divided among workers: the averaged loss, and alpha/2 |w|^2.

Every worker counts by its share of the rows, so that f is the same whoever holds which row:

    f(w) = sum_i n_i/n F_i(w) = 1/n sum_r loss(x_r^T w, y_r) + alpha/2 |w|^2

A solver takes what suits it: the `danl.Problem` with one shard a worker, or the rows together.
"""

import numpy as np
from benchmark_utils.logistic import value_and_gradient
from benchopt import BaseObjective

import danl


class Objective(BaseObjective):
    """What is minimised and what is measured of a solver's w."""

    name = "Distributed logistic regression"
    min_benchopt_version = "1.10"
    sampling_strategy = "iteration"
    test_dataset_name = "simulated"

    parameters = {"alpha": [1e-3]}  # noqa: RUF012 (benchopt's interface)

    def set_data(self, X, y, workers):
        """Take the rows, y in {0, 1}, and divide them evenly at random; always in the same way."""
        self.X, self.y = X, y
        shards = danl.partition(X, y, workers=workers, scheme="iid", seed=0)
        self.problem = danl.Problem(shards, loss="logistic", alpha=self.alpha, weighting="samples")

    def get_objective(self):
        """What a solver's `set_objective` gets."""
        return {"problem": self.problem, "X": self.X, "y": self.y, "alpha": self.alpha}

    def evaluate_result(self, w):
        """The objective, by which benchopt tells convergence, and the norm of its gradient."""
        value, gradient = value_and_gradient(self.X, self.y, self.alpha, w)
        return {"value": value, "grad_norm": float(np.linalg.norm(gradient))}

    def get_one_result(self):
        """A result as a solver returns it, for `benchopt test`."""
        return {"w": np.zeros(self.X.shape[1])}
