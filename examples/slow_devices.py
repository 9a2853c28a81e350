"""Three of ten devices are slow: their processors by a factor of twenty, their lines by a factor of fifty.

    leave out   fit the rows of the fast devices alone: quick, and another model than that of all rows
    wait        every exchange takes as long as a slow device's gradient; by then the fast ones have sent Hessians
    deadline    no exchange takes longer than this, whatever is asked: the slow devices send what they have to say in
                portions (`danl.policies.ResourceAware`)

Seconds are simulated from the devices' profiles: nothing sleeps.

Run it with `python examples/slow_devices.py`.
"""

import danl

SLOW = danl.Profile(rows_per_second=1_000, uplink=2e4, downlink=1e5)
FAST = danl.Profile(rows_per_second=20_000, uplink=1e6, downlink=1e6)
PROFILES = [SLOW] * 3 + [FAST] * 7
DEADLINE = 0.15  # seconds; a slow device needs 0.22 for its gradient, and 4.4 with its Hessian


def solve(shards, profiles, policy="full"):
    """To a gap of 1e-8 to the optimum of these rows."""
    problem = danl.Problem(shards, alpha=1e-3)
    optimum = danl.reference_optimum(problem)
    result = danl.solve(
        problem, policy=policy, regions=8, profiles=profiles, reference=optimum, callback=lambda row: row.gap < 1e-8
    )
    return result, optimum


def main() -> None:
    data = danl.load_dataset("a1a")
    shards = danl.partition(data.X, data.y, workers=10, seed=0)
    deadline = danl.policies.ResourceAware(PROFILES, deadline=DEADLINE)
    waited, optimum = solve(shards, PROFILES)
    runs = {
        "leave out": solve(shards[3:], PROFILES[3:])[0],
        "wait": waited,
        "deadline": solve(shards, PROFILES, deadline)[0],
    }
    problem = danl.Problem(shards, alpha=1e-3)
    for name, run in runs.items():
        seconds = run.history.column("simulated_seconds")
        print(
            f"{name:<9}  {seconds.sum():.2f} s: {len(seconds):2} exchanges of at most {seconds.max():.2f} s, "
            f"Hessians of {run.history.column('senders').max()} devices; "
            f"{problem.objective(run.w) - optimum.objective:.0e} above the optimum of all rows"
        )


if __name__ == "__main__":
    main()
