"""Sites for tests: a1a dealt out and written down, and what the same run gives in this process."""

from __future__ import annotations

import danl
from danl.engines.flower.sitefiles import write_sites

COLUMNS = ("kind", "active", "failed", "bytes_up", "bytes_down", "min_coverage", "max_staleness", "min_trained")


def a1a_shards(workers=3):
    data = danl.load_dataset("a1a")
    return danl.partition(data.X, data.y, workers=workers, seed=0)


def written(shards, folder):
    """Sites with their default rules, but that a1a has columns in which few rows have an entry."""
    return write_sites(shards, folder, binary=True)


def without_rules(configs):
    """The same sites, which answer whatever they are asked."""
    return [config | {"rules": "open"} for config in configs]


def same_run(result, local, problem):
    """The same exchanges and bytes exactly, the same objective to 1e-12."""
    assert result.status == local.status
    assert len(result.history) == len(local.history)
    for name in COLUMNS:
        assert result.history.column(name).tolist() == local.history.column(name).tolist(), name
    assert result.history.column("coverage").tolist() == local.history.column("coverage").tolist()
    assert abs(problem.objective(result.w) - problem.objective(local.w)) <= 1e-12
