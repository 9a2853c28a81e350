"""The paper in ten lines: Algorithm 1 as printed, with gradients at the whole model, and danl's default.

Ten workers hold the rows of a1a, the model is cut into four regions, and in each round three workers train each region.
The start is FedAvg's, as in the paper. The gap is f(w) - f(w*): as printed the algorithm ends far above the optimum.

Run it with `python examples/paper.py`.
"""

import danl

data = danl.load_dataset("a1a")
shards = danl.partition(data.X, data.y, workers=10, seed=0)
problem = danl.Problem(shards, loss="logistic", alpha=1e-3)
setting = {"regions": 4, "policy": "coverage:psi=3", "w0": "fedavg:rounds=10", "max_rounds": 100}
optimum = danl.reference_optimum(problem)
for method in ("danl-paper", "danl-masked", "danl"):
    result = danl.solve(problem, method=method, reference=optimum, **setting)
    gap, megabytes = result.history[-1].gap, result.history.total_bytes()[-1] / 1e6
    print(f"{method:<12} {result.status:<11} gap {gap:7.1e} after {result.n_rounds:3} rounds and {megabytes:.1f} MB")
