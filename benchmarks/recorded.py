"""Runs written down, and compared with those of another version of the code: a change of shape must change no result.

    python -m benchmarks recorded write FOLDER [--only local|ray|flower] [--like TEXT]
    python -m benchmarks recorded compare A B [--like TEXT]

`write` goes through a matrix of runs (`local_cases`, `ray_cases`, `flower_cases`) by the public interface alone, so
that other versions can be recorded, too: `PYTHONPATH=/OTHER/src python -m benchmarks recorded write FOLDER`.
DANL_DATA_DIR names a folder that has phishing. `recorded.json` has words and counts, PART.npz the arrays. `compare`
prints a line a case and ends with 1 where a case differs:

    counts      exchanges, kinds, status, bytes, who was asked, who trained what: must be the same
    floats      models, and columns of the history: max |a - b| <= 1e-12 max(1, max |a|)
    bitwise     models of danl-paper and danl-masked: the same bits, if both were recorded on a machine like this one
    words       notes, failures, warnings, printed tables, and what the command line tells beside what it told before:
                shown where they differ, and no more

Ray and Flower open ports: for these parts the script runs itself again in a network namespace with loopback alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks import THREADS

os.environ.update(THREADS)  # before numpy is imported

import numpy as np
import scipy

import danl

PARTS = ("local", "ray", "flower")
TOLERANCE = 1e-12
BITWISE = ("danl-paper", "danl-masked")
MAX_ROUNDS = 150
COUNTS = (
    *("active", "failed", "refused", "min_coverage", "max_staleness", "min_trained"),
    *("bytes_up", "bytes_down", "coverage"),
)
FLOATS = (
    *("objective", "gap", "grad_norm", "decrement", "step_norm", "model_norm", "distance"),
    *("pruning_error", "simulated_seconds"),
)
WORDS = "words "
"""What the names of those begin with that may differ."""
Record = dict[str, Any]
"""What is recorded of a case, by name: arrays, and what JSON has."""


# What is recorded of a run.


def record_of(result: danl.Result, trace: danl.Trace | None = None) -> Record:
    """Everything of a run but the time it took."""
    history = result.history
    found: Record = {
        "status": result.status,
        "method": result.method,
        "exchanges": len(history),
        "kinds": [row.kind for row in history],
        "dropped": result.dropped,
        "failed": [[failure.worker, failure.kind] for failure in result.failures],
        f"{WORDS}notes": list(result.notes),
        f"{WORDS}failures": [failure.detail for failure in result.failures],
        "w": result.w,
        "w0": result.w0,
        **{f"row {name}": history.column(name) for name in (*COUNTS, *FLOATS)},
        **{f"product {name}": array for name, array in result.products.items()},
    }
    if trace is not None:
        names = ("exchanges", "asked", "trained", "bytes_up", "bytes_down", "simulated_seconds")
        found |= {f"trace {name}": getattr(trace, name) for name in names}
    if result.centre is not None:
        found["centre"] = result.centre
    return found if result.start is None else found | within("start", record_of(result.start))


def within(name: str, found: Record) -> Record:
    """The same, as a part of more; words stay words."""
    return {
        f"{WORDS}{name} {each.removeprefix(WORDS)}" if each.startswith(WORDS) else f"{name} {each}": value
        for each, value in found.items()
    }


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """JSON as flat names and values, without times, places and digests."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key not in ("seconds", "out", "w_sha256"):
                yield from leaves(f"{name} {key}", each)
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for number, each in enumerate(value):
            yield from leaves(f"{name} {number}", each)
    elif isinstance(value, float) or (isinstance(value, list) and any(isinstance(each, float) for each in value)):
        yield name, np.atleast_1d(np.array(value, dtype=float))
    else:
        yield (f"{WORDS}{name}" if name.endswith((" notes", " numbers", " verdict", " title")) else name), value


# Kinds of case: each takes a folder of its own first.


@dataclass(frozen=True)
class Made:
    """An argument that is made in the folder of the case, or when it is needed."""

    of: Callable[[Path], Any]


def solved(folder: Path, problem: Callable[[], Any], **arguments: Any) -> Record:
    """A run."""
    trace = danl.Trace()
    made = {name: value.of(folder) if isinstance(value, Made) else value for name, value in arguments.items()}
    return record_of(danl.solve(problem(), trace=trace, **({"max_rounds": MAX_ROUNDS} | made)), trace)


def resumed(
    folder: Path, problem: Callable[[], danl.Problem], *, every: int = 1, at: int = 5, **arguments: Any
) -> Record:
    """A run that ends early, the run that goes on from there, and the one that never stopped."""
    checkpoints = danl.Checkpoints(folder / "checkpoints", every=every)
    options = {"max_rounds": MAX_ROUNDS} | arguments
    first = danl.solve(problem(), checkpoint=checkpoints, **(options | {"max_rounds": at}))
    rest = danl.solve(problem(), resume=folder / "checkpoints", **options)
    whole = danl.solve(problem(), **options)
    same = rest.w.tobytes() == whole.w.tobytes() and len(rest.history) == len(whole.history)
    return (
        record_of(rest)
        | within("first", record_of(first))
        | within("whole", record_of(whole))
        | {"as if never stopped": same}
    )


def gone_on(folder: Path, problem: Callable[[], danl.Problem], **arguments: Any) -> Record:
    """A run that converged, and is asked for a smaller tolerance."""
    first = danl.solve(problem(), checkpoint=folder / "checkpoints", tol=1e-3, **arguments)
    return record_of(danl.solve(problem(), resume=folder / "checkpoints", **arguments)) | within(
        "first", record_of(first)
    )


def promised(folder: Path, policies: tuple[str, ...]) -> Record:
    """What policies promise."""
    rows = np.full(10, 160)
    setting = danl.policies.Setting(
        n_workers=10, region_sizes=np.array([31, 31, 31, 30]), rows=rows, shard_bytes=1000 * rows, max_rounds=50
    )
    every = {text: danl.policies.make_policy(text) for text in policies}
    every["deadline"] = danl.policies.make_policy("resource-aware:deadline=0.3", machines())
    return {name: asdict(policy.promise(setting)) for name, policy in every.items()}


def estimated(folder: Path, make: Callable[[], Any], rows: Callable[[], tuple[Any, ...]], *, grouped: bool) -> Record:
    """An estimator: fitted, summarised, saved and loaded."""
    X, y = rows()
    groups = np.arange(len(y)) % 7 if grouped else None
    weights = 0.5 + (np.arange(len(y)) % 3) if grouped else None
    model = make().fit(X, y, groups=groups, sample_weight=weights)
    found = record_of(model.result_)
    for covariance in ("observed", "sandwich"):
        summary = model.summary(covariance=covariance)
        names = ("coef", "std_err", "z", "p_value", "ci_low", "ci_high", "covariance")
        found |= {f"{covariance} {name}": getattr(summary, name) for name in names}
        found |= {f"{WORDS}{covariance} {name}": list(getattr(summary, name)) for name in ("names", "outputs", "notes")}
        found[f"{WORDS}{covariance} table"] = str(summary)
    model.save(folder / "model.npz")
    loaded = type(model).load(folder / "model.npz")
    for name, each in (("fitted", model), ("loaded", loaded)):
        predicted = each.predict_proba(X) if hasattr(each, "predict_proba") else each.predict(X)
        counts = {"exchanges": each.n_iter_, "bytes up": each.bytes_up_, "bytes down": each.bytes_down_}
        kinds = [row.kind for row in each.history_]
        found |= within(
            name, {"coef": each.coef_, "intercept": np.atleast_1d(each.intercept_), "kinds": kinds} | counts
        )
        found |= {f"{name} predicted": predicted, f"{name} std_err": each.summary().std_err}
    return found


def commanded(folder: Path, *words: str, out: bool = True) -> Record:
    """The command line: what it prints for programs, and the files it writes."""
    command = [sys.executable, "-m", "danl", *words, "--json", *(["--out", "run"] if out else [])]
    here = os.environ | {"PYTHONPATH": str(Path(danl.__file__).parents[1])}  # this danl, and no other
    done = subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True, timeout=300, check=False)
    found: Record = {"exit status": done.returncode}
    if done.stdout:
        found |= dict(leaves("json", json.loads(done.stdout)))
    for path in sorted((folder / "run").rglob("workers.npz")):
        name, history = path.parent.relative_to(folder).as_posix(), danl.History.read_csv(path.parent / "history.csv")
        found[f"{name} kinds"] = [row.kind for row in history]
        found |= {f"{name} row {column}": history.column(column) for column in (*COUNTS, *FLOATS)}
        with np.load(path.parent / "model.npz", allow_pickle=False) as model:
            found |= {f"{name} model {each}": model[each] for each in model.files}
        found[f"{name} trained"] = danl.Trace.read(path).trained
    return found


def certified(folder: Path, problem: Callable[[], danl.Problem], **arguments: Any) -> Record:
    """Theorem 1 on a run."""
    reference = danl.reference_optimum(problem())
    certificate = danl.certify(problem(), danl.solve(problem(), reference=reference, **arguments), reference=reference)
    return dict(leaves("certificate", json.loads(json.dumps(certificate.to_dict()))))


def optimum(folder: Path, problem: Callable[[], danl.Problem]) -> Record:
    found = danl.reference_optimum(problem())
    return {"w": found.w, "objective": np.array([found.objective, found.grad_norm]), "exchanges": found.exchanges}


def informed(folder: Path, problem: Callable[[], danl.Problem]) -> Record:
    """The Hessian and the scores at a model, by exchanges."""
    w = np.linspace(-0.1, 0.1, problem().n_coefficients)
    return record_of(danl.solver.observed_information(problem(), w, scores=True))


# Problems.


@cache
def data_problem(name: str = "a1a", workers: int = 10, **options: Any) -> danl.Problem:
    data = danl.load_dataset(name)
    scheme = options.pop("scheme", "iid")
    shards = danl.partition(data.X, data.y, workers=workers, seed=0, scheme=scheme)
    return danl.Problem(shards, **({} if "l2" in options else {"alpha": 1e-3}) | options)


@cache
def made_rows(loss: str, mean: float = 0.0, rows: int = 400, features: int = 9) -> tuple[Any, Any]:
    """Rows of a noisy linear model; with a mean, columns are far from zero."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(rows, features)) * rng.uniform(0.2, 2.0, size=features)
    z = X @ rng.normal(size=(features, 3)) * 0.5 + 0.3
    if loss.startswith("multinomial"):
        y = (z + rng.gumbel(size=z.shape)).argmax(axis=1).astype(float)
    elif loss == "poisson":
        y = rng.poisson(np.exp(np.clip(z[:, 0], -3, 2))).astype(float)
    elif loss == "squared":
        y = z[:, 0] + rng.normal(size=rows)
    else:
        y = (z[:, 0] + rng.logistic(size=rows) > 0).astype(float)
    return X + mean * np.linspace(1.0, 2.0, features), y


@cache
def made_problem(
    loss: str, *, mean: float = 0.0, weighted: bool = False, workers: int = 6, sparse: bool = False, **options: Any
) -> danl.Problem:
    X, y = made_rows(loss, mean)
    weights = 0.5 + (np.arange(len(y)) % 4) if weighted else None
    shards = danl.partition(scipy.sparse.csr_matrix(X) if sparse else X, y, workers=workers, seed=1, weights=weights)
    return danl.Problem(shards, loss=loss, **{"alpha": 1e-2, "weighting": "samples"} | options)


@cache
def separable() -> danl.Problem:
    """No penalty, and a column that tells the class: there is no best model."""
    X, _ = made_rows("logistic")
    shards = danl.partition(X, (X[:, 0] > 0).astype(float), workers=5, seed=0)
    return danl.Problem(shards, alpha=0.0, intercept=True)


@cache
def unpenalised(*, ends: bool) -> danl.Problem:
    """No penalty; with a group that has no event there is no end to its coefficient."""
    X, y = made_rows("poisson")
    group = (np.arange(len(y)) % 9 == 0).astype(float)
    y = y if ends else np.where(group > 0, 0.0, y)
    shards = danl.partition(np.column_stack([X, group]), y, workers=5, seed=0)
    return danl.Problem(shards, loss="poisson", alpha=0.0, weighting="samples", intercept=True)


@cache
def remote_problem(workers: int, **options: Any) -> danl.RemoteProblem:
    """Rows that stay where they are: each reference makes its own."""
    shards = data_problem(workers=workers).shards
    references = [danl.ShardReference(load=partial(rows_of, shard)) for shard in shards]
    return danl.RemoteProblem(references, alpha=1e-3, **options)


def rows_of(shard: danl.Shard) -> danl.Shard:
    return shard


def alternating(w: Any, worker: int, round: int, rng: np.random.Generator) -> Any:
    """A policy of one's own: every other region, and one more by chance."""
    mask = (np.arange(4) + worker + round) % 2 == 0
    mask[rng.integers(4)] = True
    return mask


def only_some(w: Any, worker: int, round: int, rng: np.random.Generator) -> Any:
    """A policy that never trains the last region."""
    return np.arange(4) < 3


def schedule(folder: Path) -> str:
    np.save(folder / "masks.npy", np.random.default_rng(3).random((12, 10, 4)) < 0.5)
    return f"schedule:file={folder / 'masks.npy'},cycle=true"


def machines(slow: int = 3, workers: int = 10) -> list[danl.Profile]:
    few = danl.Profile(rows_per_second=1_000, uplink=2e4, downlink=1e5)
    many = danl.Profile(rows_per_second=20_000, uplink=1e6, downlink=1e6)
    return [few] * slow + [many] * (workers - slow)


def fleet(folder: Path) -> Path:
    """The machines as a file."""
    lines = "workers,rows_per_second,uplink,downlink\n3,1000,2e4,1e5\n7,20000,1e6,1e6\n"
    (folder / "fleet.csv").write_text(lines, "utf-8")
    return folder


def written(folder: Path) -> Path:
    """Rows of a few sites as a table."""
    X, y = made_rows("poisson", 20.0)
    names = [*(f"x{column}" for column in range(X.shape[1])), "site", "y"]
    lines = [
        ",".join([*map(repr, row.tolist()), f"site{number % 4}", str(int(count))])
        for number, (row, count) in enumerate(zip(X, y, strict=True))
    ]
    (folder / "rows.csv").write_text("\n".join([",".join(names), *lines]) + "\n", "utf-8")
    return folder


# The matrix.

PRESETS = (
    *("danl", "danl-secant", "danl-masked", "danl-paper"),
    *("newton-zero", "newton", "newton-undamped", "gd", "fedavg"),
)
METHODS = (
    *PRESETS,
    *(f"danl:curvature={each}" for each in ("block", "lowrank:20", "diag", "5", "once", "block,pairs=0")),
    *(f"danl:hessian_dtype=float32{more}" for more in ("", ",curvature=lowrank:20")),
    *(f"danl:batch_size=40{more}" for more in ("", ",finish=true", ",finish=true,hessian_batch=60")),
    *("danl:hessian_batch=60", "danl:mu=0.01", "danl:contraction=0.1,window=2,gamma_max=3", "danl:memory=raw"),
    *("danl-secant:batch_size=40,finish=true", "danl:curvature=block,batch_size=40,finish=true"),
    *("danl-masked:aggregate=covered", "danl-masked:batch_size=30,hessian_batch=40", "danl-paper:batch_size=30"),
    *("newton:hessian_batch=60", "newton-zero:batch_size=40", "gd:learning_rate=0.5", "gd:batch_size=40"),
    *("fedavg:steps=5,learning_rate=0.1,batch_size=20", "fedavg:rounds=10"),
)
POLICIES = (
    *("full", "coverage:psi=3", "coverage:psi=3,gamma=2", "coverage:psi=2,gamma=3,keep=0.1", "subset:S=1"),
    *("subset:S=2,order=random", "random:keep=0.5", "magnitude:keep=0.5"),
)
LOSSES = ("logistic", "squared", "poisson", "squared_hinge", "multinomial:classes=3")
ABSENT = {
    "dropout": lambda: danl.engines.Local(dropout=0.3, seed=1),
    "away": lambda: danl.engines.Local(away={2: (6, None), 7: (2, 5)}),
    "late": lambda: danl.engines.Local(away={1: (0, 3), 4: (0, 3)}),
    "hardly there": lambda: danl.engines.Local(dropout=0.9, seed=2),
}
RESUMED = (*PRESETS, "danl:curvature=block", "danl:curvature=lowrank:20", "danl:batch_size=40,finish=true")
MASKED = "coverage:psi=3"

Case = tuple[str, Callable[[Path], Record]]


def local_cases() -> Iterator[Case]:
    masked = {"policy": MASKED}
    for method in METHODS:
        for policy in ("full", MASKED):
            yield f"method {method}, {policy}", partial(solved, problem=data_problem, method=method, policy=policy)
    for method in ("danl", "danl-secant", "danl-masked", "danl-paper", "danl:curvature=block", "newton"):
        problem = partial(data_problem, "phishing")
        yield f"phishing {method}", partial(solved, problem=problem, method=method, **masked)
    for method in ("danl", "danl-secant", "danl-masked", "danl-paper"):
        each = partial(solved, problem=data_problem, method=method)
        for policy in POLICIES[2:]:
            yield f"policy {policy}, {method}", partial(each, policy=policy)
        yield f"policy schedule, {method}", partial(each, policy=Made(schedule))
        yield f"policy function, {method}", partial(each, policy=alternating)
        deadline = {"policy": "resource-aware:deadline=0.15", "profiles": machines(), "regions": 8}
        yield f"policy resource-aware, {method}", partial(each, **deadline)
        yield f"profiles {method}", partial(each, **masked, profiles=machines(5))
    for loss in LOSSES:
        for intercept, mean in ((False, 0.0), (True, 0.0), (True, 300.0), (False, 3.0)):
            problem = partial(made_problem, loss, intercept=intercept, mean=mean)
            descent = "gd:learning_rate=0.01" if loss == "poisson" else "gd"
            for method, policy in (("danl", MASKED), ("danl-secant", "full"), ("newton", "full"), (descent, "full")):
                name = f"loss {loss}, {'intercept' if intercept else 'none'}, mean {mean:g}, {method}"
                yield name, partial(solved, problem=problem, method=method, policy=policy)
        problem = partial(made_problem, loss, intercept=True, weighted=True, sparse=True)
        for batched in (True, False):
            engine = Made(lambda folder, batched=batched: danl.engines.Local(batched=batched))
            name = f"loss {loss}, weighted, sparse, {'together' if batched else 'one by one'}"
            yield name, partial(solved, problem=problem, engine=engine, **masked)
    yield (
        "loss multinomial, regions of classes",
        partial(
            solved,
            problem=partial(made_problem, LOSSES[-1], intercept=True),
            regions="classes",
            policy="coverage:psi=2",
        ),
    )
    for method in METHODS:
        each = partial(solved, problem=data_problem, method=method, **masked)
        yield f"one by one {method}", partial(each, engine=Made(lambda folder: danl.engines.Local(batched=False)))
    for method in (*PRESETS, "danl:curvature=block"):
        for name, engine in ABSENT.items():
            each = partial(solved, problem=data_problem, method=method, **masked)
            yield f"absent {name}, {method}", partial(each, engine=Made(lambda folder, engine=engine: engine()))
    for method in RESUMED:
        yield f"resumed {method}", partial(resumed, problem=data_problem, method=method, **masked)
    for loss in ("poisson", LOSSES[-1]):
        problem = partial(made_problem, loss, intercept=True, mean=300.0)
        yield f"resumed {loss}, intercept", partial(resumed, problem=problem, at=2, every=2, **masked)
    start = {"w0": "fedavg:rounds=3", "engine": "local:dropout=0.2", **masked}
    yield "resumed with a start and absences", partial(resumed, problem=data_problem, at=7, every=3, **start)
    yield from other_cases(masked)


def other_cases(masked: Mapping[str, Any]) -> Iterator[Case]:
    """Starts, references, what is told of workers, estimators, the command line."""
    each = partial(solved, problem=data_problem, **masked)
    for method in ("danl", "danl-masked", "danl-paper"):
        yield f"start fedavg, {method}", partial(each, method=method, w0="fedavg:rounds=10")
        yield (
            f"reference {method}",
            partial(each, method=method, reference=Made(lambda folder: danl.reference_optimum(data_problem()))),
        )
    yield "start array", partial(each, w0=np.linspace(-1, 1, 123))
    yield (
        "start fedavg, intercept",
        partial(
            solved,
            problem=partial(made_problem, "logistic", intercept=True, mean=300.0),
            w0="fedavg:rounds=5",
            **masked,
        ),
    )
    yield "not measured", partial(each, monitor=False)
    yield "guards", partial(each, guards=danl.Guards(clip=1.5))
    for method in ("danl", "danl-secant", "danl:curvature=block", "danl:curvature=lowrank:20", "newton"):
        far = {"problem": partial(data_problem, alpha=1e-6), "w0": np.linspace(-9, 9, 123)}
        yield f"far away {method}", partial(solved, **far, method=method)
        yield f"far away, masked {method}", partial(solved, **far, method=method, **masked)
        yield f"separable {method}", partial(solved, problem=separable, method=method)
        far = {"problem": partial(made_problem, "poisson", alpha=1e-6), "w0": np.linspace(-3, 3, 9)}
        yield f"far away, poisson {method}", partial(solved, **far, method=method)
        for ends in (True, False):
            problem = partial(unpenalised, ends=ends)
            name = f"no penalty{'' if ends else ', no end'} {method}"
            yield name, partial(solved, problem=problem, method=method, **masked)
        yield f"gone on {method}", partial(gone_on, problem=data_problem, method=method, **masked)
    many = {
        "problem": partial(data_problem, workers=1100, weighting="samples"),
        "policy": "coverage:psi=2",
        "regions": 8,
    }
    for method in ("danl", "danl-masked", "danl-paper"):
        yield f"many workers {method}", partial(solved, **many, method=method, max_rounds=60)
    yield "many workers, resumed", partial(resumed, **many, at=3, every=10)
    for method in ("danl", "danl-masked"):
        yield f"never trained {method}", partial(each, method=method, policy=only_some)
        yield (
            f"never there {method}",
            partial(each, method=f"{method}:patience=3,quorum=0.3", engine="local:dropout=0.6,seed=3"),
        )
    yield "regions by size", partial(each, regions=[23, 50, 50])
    yield "stopped", partial(each, callback=lambda row: row.exchange == 6)
    for name, problem in {
        "l2": partial(data_problem, l2=1e-4),
        "skewed": partial(data_problem, scheme="dirichlet:alpha=0.5", weighting="samples"),
        "intercept": partial(data_problem, intercept=True),
        "by reference": partial(remote_problem, 5),
    }.items():
        yield f"problem {name}", partial(solved, problem=problem, **masked)
    for name, problem in {"a1a": data_problem, "intercept": partial(made_problem, "poisson", intercept=True)}.items():
        yield f"optimum {name}", partial(optimum, problem=problem)
        yield f"information {name}", partial(informed, problem=problem)
    for method in ("danl-paper", "danl"):
        yield f"certified {method}", partial(certified, problem=data_problem, method=method, max_rounds=30, **masked)
    makers = {
        "classifier, two classes": (partial(danl.DANLClassifier, random_state=0), "logistic"),
        "classifier, masked": (partial(danl.DANLClassifier, method="danl", policy=MASKED), "logistic"),
        "classifier, three classes": (danl.DANLClassifier, LOSSES[-1]),
        "regressor, squared": (danl.DANLRegressor, "squared"),
        "regressor, poisson": (partial(danl.DANLRegressor, "poisson"), "poisson"),
    }
    for name, (make, loss) in makers.items():
        for grouped in (False, True):
            rows = partial(made_rows, loss, 50.0)
            yield f"{name}{', groups' if grouped else ''}", partial(estimated, make=make, rows=rows, grouped=grouped)
    yield "promises", partial(promised, policies=POLICIES)
    fit = ("fit", "a1a", "--policy", MASKED, "--alpha", "1e-3", "--quiet")
    yield "danl fit", lambda folder: commanded(folder, *fit, "--init", "fedavg:rounds=10", "--reference")
    yield "danl fit, paper", lambda folder: commanded(folder, *fit, "--method", "danl-paper", "--rounds", "30")
    yield "danl fit, absences", lambda folder: commanded(folder, *fit, "--engine", "local:dropout=0.9")
    deadline = ("--policy", "resource-aware:deadline=0.15", "--regions", "8", "--profiles", "fleet.csv")
    yield "danl fit, deadline", lambda folder: commanded(fleet(folder), "fit", "a1a", *deadline)
    table = ("fit", "rows.csv", "--loss", "poisson", "--intercept", "--target", "y", "--site", "site", "--quiet")
    yield "danl fit, a table", lambda folder: commanded(written(folder), *table, "--method", "danl-secant")
    yield "danl compare", lambda folder: commanded(folder, "compare", "a1a", "--quiet", "--rounds", "20", *fit[2:4])
    yield "danl certify", lambda folder: commanded(folder, "certify", "a1a", "--quiet", "--rounds", "20", out=False)
    plan = ("plan", "--workers", "1000", "--features", "2000", "--coverage", "100")
    yield "danl plan", lambda folder: commanded(folder, *plan, out=False)


def ray_cases() -> Iterator[Case]:
    each = partial(solved, problem=partial(data_problem, workers=5), max_rounds=40)
    for method in (*PRESETS, "danl:curvature=block", "danl:batch_size=40,finish=true", "danl:hessian_dtype=float32"):
        yield f"ray {method}", partial(each, method=method, policy=MASKED, engine="ray")
    yield "ray random masks", partial(each, policy="random:keep=0.5", engine="ray:fan_in=2")
    yield "ray start fedavg", partial(each, policy=MASKED, w0="fedavg:rounds=3", engine="ray:fan_in=2")
    problem = partial(made_problem, LOSSES[-1], intercept=True, mean=300.0, workers=5)
    yield "ray three classes, intercept", partial(solved, problem=problem, policy=MASKED, engine="ray")
    yield "ray by reference", partial(solved, problem=partial(remote_problem, 5), policy=MASKED, engine="ray")


def flower_cases() -> Iterator[Case]:
    each = partial(solved, problem=partial(data_problem, workers=3), max_rounds=25, policy="coverage:psi=2")
    for method in ("danl", "danl-secant", "danl-masked", "danl-paper", "newton", "fedavg", "danl:curvature=block"):
        yield f"flower {method}", partial(each, method=method, engine="flower")
    problem = partial(made_problem, LOSSES[-1], intercept=True, mean=300.0, workers=3)
    yield "flower three classes, intercept", partial(solved, problem=problem, policy="coverage:psi=2", engine="flower")


@contextmanager
def cluster(part: str) -> Iterator[None]:
    """One Ray for all cases of its part: the engine takes the one there is. Flower starts its own."""
    if part != "ray":
        yield
        return
    danl.engines.Ray()  # sets what Ray reads when it is imported
    import ray

    ray.init(address="local", include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        yield
    finally:
        ray.shutdown()


CASES = {"local": local_cases, "ray": ray_cases, "flower": flower_cases}


# Writing.


def machine() -> dict[str, str]:
    """What the last bits of a result depend on beside the code."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().partition("\n\n")[0].splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model", "cpu family", "stepping"))]
    return {
        "processor": " ".join(named) or platform.processor(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def outcome(run: Callable[[Path], Record]) -> Record:
    """What a case gives; an error is an outcome as well."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of Ray, whenever the collector comes
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        try:
            found = run(Path(folder))
        except Exception as error:
            found = {"raised": type(error).__name__, f"{WORDS}error": str(error).replace(folder, "FOLDER")}
    return found | {f"{WORDS}warnings": [str(each.message).replace(folder, "FOLDER") for each in caught]}


def write(folder: Path, part: str, like: str) -> int:
    """Run the cases of a part and add it to what the folder has; 1 where one ended with an error."""
    arrays: dict[str, Any] = {}
    cases: dict[str, Record] = {}
    for name, run in CASES[part]():
        if like not in name:
            continue
        begun = time.perf_counter()
        found = outcome(run)
        cases[name] = {each: value for each, value in found.items() if not isinstance(value, np.ndarray)}
        arrays |= {f"{name}|{each}": value for each, value in found.items() if isinstance(value, np.ndarray)}
        said = found.get("raised") or f"{found.get('status', '')} {found.get('exchanges', '')}".strip()
        print(f"{time.perf_counter() - begun:7.2f} s  {name}: {said}", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / f"{part}.npz", **arrays)
    path = folder / "recorded.json"
    parts = json.loads(path.read_text("utf-8")) if path.exists() else {}
    parts[part] = {"machine": machine(), "code": str(Path(danl.__file__).parent), "cases": cases}
    path.write_text(json.dumps(parts, indent=1), "utf-8")
    return int(any("raised" in found for found in cases.values()))


def inside(words: list[str]) -> int:
    """Run this again where there is nothing but loopback; whatever it started ends with it."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        print("recorded: needs unshare and ip for a network of its own; use --only local", file=sys.stderr)
        return 2
    flags = ["-n"] if os.geteuid() == 0 else ["-r", "-n"]
    flags += ["--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [sys.executable, "-m", "benchmarks.recorded", *words]
    return subprocess.run(["unshare", *flags, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]).returncode


# Comparing.


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The parts of a folder, each case with its arrays."""
    parts = json.loads((folder / "recorded.json").read_text("utf-8"))
    for part, recorded in parts.items():
        with np.load(folder / f"{part}.npz", allow_pickle=False) as arrays:
            for key in arrays.files:
                name, _, each = key.partition("|")
                recorded["cases"][name][each] = arrays[key]
    return parts


def distance(a: Any, b: Any) -> float:
    """max |a - b| / max(1, max |a|); what is not finite must be the same."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.inf
    if a.dtype.kind != "f":
        return 0.0 if np.array_equal(a, b) else np.inf
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    a, b = a[finite], b[finite]
    return float(np.abs(a - b).max() / max(1.0, np.abs(a).max())) if a.size else 0.0


def same_bits(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def compared(a: Record, b: Record, here: bool) -> tuple[list[str], list[str], float, bool]:
    """What differs, the words that differ, how far floats are apart at most, and whether all bits are the same."""
    differences, words, largest, bits = [], [], 0.0, True
    for name in dict.fromkeys((*a, *b)):
        if name not in a or name not in b:
            harmless = name.startswith(WORDS) or (
                name not in a and name.startswith(("json ", "certificate "))
            )  # more is told
            (words if harmless else differences).append(f"{name}: only in {'A' if name in a else 'B'}")
        elif isinstance(a[name], np.ndarray) and isinstance(b[name], np.ndarray):
            apart, alike = distance(a[name], b[name]), same_bits(a[name], b[name])
            largest, bits = max(largest, apart), bits and alike
            if apart > TOLERANCE:
                differences.append(f"{name}: {'differs' if np.isinf(apart) else f'{apart:.1e} apart'}")
            elif here and not alike and must_be_bitwise(name, a):
                differences.append(f"{name}: other bits, {apart:.1e} apart")
        elif not np.array_equal(a[name], b[name]):
            what = f"{name}: {str(a[name])[:60]} / {str(b[name])[:60]}"
            (words if name.startswith(WORDS) else differences).append(what)
    return differences, words, largest, bits


def must_be_bitwise(name: str, found: Record) -> bool:
    """Whether this is a model of one of the methods that are held to the bit; `danl compare` has them in folders."""
    of_the_run = {found.get("method"), found.get("json method")} & set(BITWISE)
    return name.split()[-1] == "w" and bool(of_the_run or [each for each in BITWISE if each in name])


def compare(a: Path, b: Path, like: str) -> int:
    """A line a case; 1 where one differs."""
    first, second = read(a), read(b)
    total = differ = 0
    for part in (part for part in PARTS if part in first and part in second):
        ours, theirs = first[part], second[part]
        here = ours["machine"] == theirs["machine"] == machine()
        if not here:
            print(f"{part}: recorded on other machines, or with other versions, than here: nothing is held to the bit")
        for name in dict.fromkeys((*ours["cases"], *theirs["cases"])):
            if like not in name:
                continue
            total += 1
            found, expected = theirs["cases"].get(name), ours["cases"].get(name)
            if found is None or expected is None:
                differ += 1
                print(f"DIFFERS        {name}: only in {'A' if found is None else 'B'}")
                continue
            held = here and any(must_be_bitwise(each, expected) for each in expected)
            differences, words, largest, bits = compared(expected, found, here)
            differ += bool(differences)
            verdict = "DIFFERS" if differences else "same, bitwise" if bits else f"same to {largest:.0e}"
            more = "; ".join([*differences, *words])
            print(f"{verdict:15}{name}{' [to the bit]' if held else ''}{f': {more}' if more else ''}")
    only = [part for part in PARTS if (part in first) != (part in second)]
    print(f"{total} cases, {differ} differ" + (f"; not compared, only in one: {', '.join(only)}" if only else ""))
    return int(differ > 0 or total == 0)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks recorded", description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(dest="what", required=True)
    writing = kinds.add_parser("write", help="run the matrix and write it down")
    writing.add_argument("folder", type=Path)
    writing.add_argument("--only", choices=PARTS, help="this part alone; default: all of them")
    comparing = kinds.add_parser("compare", help="hold one recording against another")
    comparing.add_argument("a", type=Path)
    comparing.add_argument("b", type=Path)
    for each in (writing, comparing):
        each.add_argument("--like", default="", help="only cases whose names have this text")
    chosen = parser.parse_args(arguments)
    if chosen.what == "compare":
        return compare(chosen.a, chosen.b, chosen.like)
    failed = 0
    for part in PARTS if chosen.only is None else (chosen.only,):
        if part == "local" or [name for _, name in socket.if_nameindex()] == ["lo"]:
            with cluster(part):
                failed |= write(chosen.folder, part, chosen.like)
        else:
            failed |= inside(["write", str(chosen.folder.resolve()), "--only", part, "--like", chosen.like])
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
