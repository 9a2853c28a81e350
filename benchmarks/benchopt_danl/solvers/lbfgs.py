"""L-BFGS of SciPy on all rows together: what one machine with all data does, and an example of a solver to add."""

import numpy as np
from benchmark_utils.logistic import value_and_gradient
from benchopt import BaseSolver
from scipy.optimize import minimize


class Solver(BaseSolver):
    """`scipy.optimize.minimize(method="L-BFGS-B")` from zeros."""

    name = "L-BFGS"
    sampling_strategy = "iteration"

    parameters = {"memory": [10]}  # noqa: RUF012 (benchopt's interface)

    def set_objective(self, problem, X, y, alpha):
        """Keep the rows; the shards are for others."""
        self.X, self.y, self.alpha = X, y, alpha

    def run(self, n_iter):
        """Make this many iterations, or fewer where no progress is left."""
        self.w = np.zeros(self.X.shape[1])
        if n_iter == 0:  # L-BFGS-B makes one iteration at least
            return
        options = {"maxiter": n_iter, "maxfun": 20 * n_iter, "maxcor": self.memory, "ftol": 0.0, "gtol": 1e-12}

        def objective(w):
            return value_and_gradient(self.X, self.y, self.alpha, w)

        self.w = minimize(objective, self.w, jac=True, method="L-BFGS-B", options=options).x

    def get_result(self):
        """The arguments of `Objective.evaluate_result`."""
        return {"w": self.w}
