"""Three of ten devices are slow: their processors by a factor of twenty, their lines by a factor of fifty.

    leave out   fit the rows of the fast devices alone: another model than that of all rows
    wait        everyone trains everything, and every round takes as long as the slowest device
    deadline    each device trains the regions it manages by the deadline (`danl.policies.ResourceAware`)

Seconds are simulated from the devices' profiles: nothing sleeps. Phase I, the exchange of Hessians that a run begins
with, is not masked: the slow devices' Hessians are waited for in both cases.

Run it with `python examples/slow_devices.py`.
"""

import numpy as np

import danl

SLOW = danl.Profile(rows_per_second=1_000, uplink=2e4, downlink=1e5)
FAST = danl.Profile(rows_per_second=20_000, uplink=1e6, downlink=1e6)
PROFILES = [SLOW] * 3 + [FAST] * 7
DEADLINE = 0.15  # seconds; a slow device needs 0.22 for the whole model, 0.09 of them for its margins and the line


def main() -> None:
    data = danl.load_dataset("a1a")
    shards = danl.partition(data.X, data.y, workers=10, seed=0)
    problem = danl.Problem(shards, alpha=1e-3)
    optimum = danl.reference_optimum(problem)

    without_slow = danl.reference_optimum(danl.Problem(shards[3:], alpha=1e-3))
    print(f"leave out  gap {problem.objective(without_slow.w) - optimum.objective:.1e}")

    deadline = danl.policies.ResourceAware(PROFILES, deadline=DEADLINE)
    for name, policy in (("wait", "full"), ("deadline", deadline)):
        result = danl.solve(
            problem, policy=policy, regions=8, profiles=PROFILES, w0="fedavg:rounds=10", reference=optimum
        )
        history, seconds = result.history, result.history.column("simulated_seconds")
        rounds = int(np.flatnonzero(history.column("gap") < 1e-8)[0])
        print(
            f"{name:<9}  gap {abs(history[-1].gap):.1e}, below 1e-8 in {seconds[: rounds + 1].sum():.1f} s: "
            f"Phase I {seconds[0]:.1f} s and {rounds} rounds of {np.median(seconds[1:]):.2f} s; "
            f"{history[-1].min_coverage} devices or more on every region"
        )


if __name__ == "__main__":
    main()
