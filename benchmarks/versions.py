"""Seconds of two versions of the code, side by side: a change of shape must not make anything slower.

    python -m benchmarks versions OTHER/src [--repeats N] [--like TEXT]

Each version has a process of its own, which makes its problems once and then does one case at a time, when it is told
to. The two take turns, case by case, so that whatever else the machine does meets both of them; who begins changes from
time to time. The best times are compared, as noise only ever adds, and the medians stand beside them. Versions are
called by their public interface, as a user would. DANL_DATA_DIR names a folder with the LIBSVM files; without it a1a
alone is timed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import THREADS

os.environ.update(THREADS)  # before numpy is imported

import numpy as np

ALLOWED = 1.05
DATA = ("a1a", "phishing", "a9a", "w8a")
ALPHA = 1e-3
Case = tuple[str, Callable[[], object]]


def cases() -> Iterator[Case]:
    """What is timed, by name: rounds, solves, many workers, estimators, and a run one worker at a time."""
    import danl

    def problem(X: Any, y: Any, workers: int = 10) -> danl.Problem:
        made = danl.Problem(danl.partition(X, y, workers=workers, seed=0), alpha=ALPHA, weighting="samples")
        made.objective(np.zeros(made.n_coefficients))  # what is made once is made before the clock runs
        return made

    def rounds(made: danl.Problem, count: int, method: Any = "danl-masked", policy: str = "coverage:psi=3") -> Any:
        options = {"method": method, "policy": policy, "max_rounds": count, "tol": 0.0, "monitor": False}
        return lambda: danl.solve(made, regions=4, **options)

    def solve(made: danl.Problem, **options: Any) -> Any:
        return lambda: danl.solve(made, **options)

    here = DATA if os.environ.get("DANL_DATA_DIR") else DATA[:1]
    for name in here:
        data = danl.load_dataset(name)
        made = problem(data.X, data.y)
        yield f"{name}: 50 masked rounds", rounds(made, 50)
        yield f"{name}: 50 masked rounds of the default method", rounds(made, 50, danl.methods.DANL(curvature=10**6))
        yield f"{name}: danl:hessian_batch=500", solve(made, method="danl:hessian_batch=500")
        yield f"{name}: danl, coverage:psi=3", solve(made, policy="coverage:psi=3")
        yield f"{name}: DANLClassifier", lambda X=data.X, y=data.y: danl.DANLClassifier(C=1.0).fit(X, y)
    data = danl.load_dataset("a1a")
    one_by_one = danl.engines.Local(batched=False)
    yield "a1a: danl, one by one", solve(problem(data.X, data.y), policy="coverage:psi=3", engine=one_by_one)
    parts = {"method": "danl:curvature=lowrank:20", "monitor": False}
    yield "a1a: danl:curvature=lowrank:20", solve(problem(data.X, data.y), **parts)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 20))
    many = problem(X, (X[:, 0] + rng.normal(size=len(X)) > 0).astype(float), workers=1_000)
    yield "1,000 workers, 100,000 rows: 20 masked rounds", rounds(many, 20, policy="random:keep=0.3")
    yield "1,000 workers, 100,000 rows: 20 rounds that ask a few", rounds(many, 20)


def answer() -> None:
    """One version: say the names, then time the case of every number that comes."""
    import danl

    made = list(cases())
    print(json.dumps([danl.__file__, [name for name, _ in made]]), flush=True)
    for line in sys.stdin:
        gc.collect()
        begun = time.perf_counter()
        made[int(line)][1]()
        print(time.perf_counter() - begun, flush=True)


class Version:
    """A process with one version of the code."""

    def __init__(self, source: Path) -> None:
        paths = os.pathsep.join([str(source), str(Path(__file__).parents[1])])
        command = [sys.executable, "-m", "benchmarks.versions", "--answer"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths}, cwd=source, **pipes)
        self.file, self.names = json.loads(self.heard())
        if not Path(self.file).is_relative_to(source):
            self.close()
            raise SystemExit(f"versions: {source} has no danl: that of {self.file} was imported")

    def heard(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("versions: a version has ended; what it printed stands above")
        return str(line)

    def seconds(self, number: int) -> float:
        print(number, file=self.process.stdin, flush=True)
        return float(self.heard())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


def main(arguments: list[str] | None = None) -> int:
    if arguments is None and sys.argv[1:] == ["--answer"]:
        answer()
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks versions", description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the src folder of the other version")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--like", default="", help="only cases whose names have this text")
    chosen = parser.parse_args(arguments)
    before, now = Version(chosen.other.resolve()), Version(Path(__file__).parents[1] / "src")
    print(f"before: {before.file}\nnow:    {now.file}\n")
    print(f"{'best before':>12} {'best now':>12} {'ratio':>6} {'of medians':>10}  case")
    slower, ratios = 0, []
    for number, name in enumerate(before.names):
        if chosen.like not in name:
            continue
        taken: dict[Version, list[float]] = {before: [], now: []}
        for turn in range(chosen.repeats + 2):
            for version in (before, now) if turn % 2 else (now, before):
                taken[version].append(version.seconds(number))
        old, new = (np.array(taken[version][2:]) for version in (before, now))  # the first two fill what is cached
        ratio, middle = new.min() / old.min(), np.median(new) / np.median(old)
        slower += ratio > ALLOWED and middle > ALLOWED
        ratios.append(ratio)
        print(f"{1e3 * old.min():9.2f} ms {1e3 * new.min():9.2f} ms {ratio:6.3f} {middle:10.3f}  {name}", flush=True)
    print(f"\ngeometric mean {np.exp(np.mean(np.log(ratios))):.3f}; {slower} slower by more than {ALLOWED - 1:.0%}")
    before.close()
    now.close()
    return int(slower > 0)


if __name__ == "__main__":
    raise SystemExit(main())
