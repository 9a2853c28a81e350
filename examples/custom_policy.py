"""A policy of your own, written twice.

As a function, which every worker asks for itself (the paper's M(w, i)): the region in which the model is largest, and
one more by lot. As a class, which plans at the server for all workers at once and can therefore make a promise: two
workers rest in each round, in turn, and the others train everything.

Run it with `python examples/custom_policy.py`.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import danl
from danl.policies import Promise, Round, Setting

REGIONS = 4


def largest_and_one_more(w, worker, round, rng):
    """Masks are booleans, one for every region. Draw from `rng` alone, and the run can be replayed."""
    norms = [np.linalg.norm(part) for part in np.array_split(w, REGIONS)]
    mask = np.zeros(REGIONS, dtype=bool)
    mask[[np.argmax(norms), rng.integers(REGIONS)]] = True
    return mask


@dataclass(frozen=True)
class RestInTurn:
    """In each round `resting` workers train nothing; everyone's turn comes."""

    resting: int = 2
    side: ClassVar[str] = "server"

    def check(self, setting: Setting) -> None:
        if 2 * self.resting > setting.n_workers:
            raise danl.InputError(
                f"resting={self.resting}: must be at most {setting.n_workers // 2}, half of the workers; let fewer rest"
            )

    def promise(self, setting: Setting) -> Promise:
        return Promise(min_coverage=setting.n_workers - self.resting, min_trained=setting.n_regions, max_staleness=1)

    def masks(self, round: Round) -> np.ndarray:
        masks = np.ones((round.setting.n_workers, round.setting.n_regions), dtype=bool)
        first = round.number * self.resting
        masks[np.arange(first, first + self.resting) % round.setting.n_workers] = False
        return masks


def main() -> None:
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=10, seed=0), alpha=1e-3)
    optimum = danl.reference_optimum(problem)
    for name, policy in (("function", largest_and_one_more), ("class", RestInTurn())):
        # By default masked rounds are asked only where they pay, and with so few coefficients they do not.
        result = danl.solve(problem, method="danl:masks=always", policy=policy, regions=REGIONS, reference=optimum)
        last = result.history[-1]
        print(
            f"{name:<8}  {result.status} in {len(result.history)} exchanges, gap {abs(last.gap):.1e}; measured: "
            f"coverage {last.min_coverage}, {last.min_trained} regions a round, staleness {last.max_staleness}"
        )


if __name__ == "__main__":
    main()
