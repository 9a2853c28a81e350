"""Methods of danl, all workers in this process: `danl.solve` on the shards.

benchopt's budget k is `max_rounds`: k exchanges after the first one. Each budget starts anew, from zeros; FedNL's
first exchange brings the Hessians, so that its model has moved at k = 0.
"""

from benchopt import BaseSolver

import danl


class Solver(BaseSolver):
    """One of danl's methods.

    `-s "danl[method=NAME]"` takes every name that `danl.solve` takes. benchopt's command line reads the "=" of
    "fedavg:steps=5" in its own way: such a method is written into `parameters`.
    """

    name = "danl"
    sampling_strategy = "iteration"

    parameters = {"method": ["danl", "newton", "fednl", "gd"]}  # noqa: RUF012 (benchopt's interface)

    def set_objective(self, problem, X, y, alpha):
        """Keep the shards; the rows together are for others."""
        self.problem = problem

    def warm_up(self):
        """What is computed once for the shards is not timed."""
        self.run_once(1)

    def run(self, n_iter):
        """Solve within this many exchanges; nothing but the method's own work is measured."""
        self.w = danl.solve(self.problem, method=self.method, max_rounds=n_iter, monitor=False).w

    def get_result(self):
        """The arguments of `Objective.evaluate_result`."""
        return {"w": self.w}
