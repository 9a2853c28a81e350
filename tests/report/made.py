"""Runs that were never run: rows and traces with known numbers, of any size."""

from __future__ import annotations

import json

import numpy as np

from danl.report.recorded import RecordedRun
from danl.run.history import History, Row
from danl.run.trace import Trace

NAN = float("nan")


def row(exchange, kind="gradient", **given):
    """One row; what is not given is plain."""
    values = {
        "exchange": exchange,
        "kind": kind,
        "active": 4,
        "failed": 0,
        "min_coverage": 1,
        "max_staleness": 0,
        "min_trained": 2,
        "pruning_error": 0.0,
        "objective": 0.5,
        "gap": NAN,
        "grad_norm": 0.1,
        "step_norm": 0.1,
        "model_norm": 1.0,
        "distance": NAN,
        "bytes_up": 1000 if kind == "hessian" else 100,
        "bytes_down": 10,
        "seconds": 0.5,
        "simulated_seconds": NAN,
        "coverage": (4, 4),
        "refused": 0,
        "decrement": given.get("grad_norm", 0.1),
    }
    return Row(**(values | given))


def run_of(rows, *, trace=None, name="run", **config):
    """A run of these rows."""
    return RecordedRun(name, History(rows), trace, config)


def trace_of(masks, *, asked=None, seconds=None):
    """A trace of masks (T, N, Q); every worker answers unless `asked` says otherwise."""
    masks = np.asarray(masks, dtype=bool)
    count, workers, regions = masks.shape
    trace = Trace()
    trace.begin(workers, regions)
    for number in range(count):
        codes = np.ones(workers, dtype=np.int8) if asked is None else np.asarray(asked[number], dtype=np.int8)
        up, down = np.full(workers, 25, dtype=np.int64), np.full(workers, 5, dtype=np.int64)
        taken = None if seconds is None else np.asarray(seconds[number], dtype=float)
        trace.note(number, codes, masks[number], up, down, taken)
    return trace


def large_run(exchanges=5000, workers=100, regions=16, seed=0, name="large"):
    """A long run of many workers: masks at random, a Hessian every 40 exchanges, absences, refused steps, profiles."""
    rng = np.random.default_rng(seed)
    trace = Trace()
    trace.begin(workers, regions)
    speed = rng.uniform(0.5, 1.5, size=workers)
    speed[[who for who in (2, 5) if who < workers]] = 4.0
    rows, stale, gap, gamma = [], np.zeros((workers, regions), dtype=int), 1.0, 0
    for number in range(exchanges):
        kind = "hessian" if number % 40 == 0 else "loss" if number % 40 == 1 else "gradient"
        asked = np.where(rng.random(workers) < 0.02, 2, 1).astype(np.int8)
        masks = rng.random((workers, regions)) < 0.4
        if kind == "hessian":
            masks[:] = True
        if kind == "loss":
            masks[:] = False
        masks[asked == 2] = False
        if kind != "loss":
            stale = np.where(masks, 0, stale + 1)
            gamma = max(gamma, int(stale.max()))
        up = np.where(asked == 1, 8 * masks.sum(axis=1) + (5000 if kind == "hessian" else 2), 0).astype(np.int64)
        down = np.full(workers, 128, dtype=np.int64)
        taken = np.where(asked == 1, speed * (1 + masks.sum(axis=1)) * 0.01, np.nan)
        trace.note(number, asked, masks, up, down, taken)
        gap = max(gap * float(np.exp(-30 / exchanges + 0.2 * rng.normal() * (20 / exchanges))), 0.0)
        rows.append(
            row(
                number, kind, active=int((asked == 1).sum()), failed=int((asked == 2).sum()), max_staleness=gamma,
                objective=0.3 + gap, gap=gap, grad_norm=gap**0.5, bytes_up=int(up.sum()), bytes_down=int(down.sum()),
                seconds=0.01, simulated_seconds=float(np.nanmax(taken)), coverage=tuple(masks.sum(axis=0).tolist()),
                refused=int(kind == "loss" and number % 80 == 1),
            )
        )  # fmt: skip
    return RecordedRun(name, History(rows), trace, config_of("max_rounds", workers, regions))


def config_of(status, workers=10, regions=4, data="a1a", method="danl"):
    """A configuration as `danl fit --out` writes it."""
    return {
        "danl": "0.1.0",
        "options": {"method": method, "data": data, "workers": workers, "policy": "random:keep=0.4"},
        "data": {"name": data, "source": f"data/{data}", "sha256": "ab" * 32, "partition": "iid"},
        "settings": {"method": method, "workers": workers, "regions": [8] * regions, "tol": 1e-10, "seed": 0},
        "start": None,
        "status": status,
        "versions": {"python": "3.11", "numpy": "2.0", "scipy": "1.14"},
        "machine": {"platform": "Linux", "cores": 2},
        "notes": [],
    }


def write_folder(run, folder):
    """The files of a run, as `danl fit --out` writes them."""
    folder.mkdir(parents=True)
    run.history.to_csv(folder / "history.csv")
    (folder / "config.json").write_text(json.dumps(dict(run.config)))
    if run.trace is not None:
        run.trace.save(folder / "workers.npz")
    return folder


def sentences(said):
    """The texts of findings alone."""
    return [found.text for found in said]
