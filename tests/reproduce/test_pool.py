"""Several processes: every run is done once and kept, and a run computed again has the same rows."""

import pytest

from danl.reproduce.execute import digest
from danl.reproduce.pool import _batches, complete, missing_runs
from danl.reproduce.runs import MILD, RunSpec
from danl.reproduce.store import Store

RUNS = [RunSpec("a1a", MILD, "danl-masked", "coverage:psi=3", seed, rounds=3) for seed in (0, 1, 2)]


def rows(store, run):
    lines = store.path(run).with_suffix(".csv").read_text().splitlines()
    return [",".join(line.split(",")[:16] + line.split(",")[17:]) for line in lines]  # all but the seconds


@pytest.mark.slow
def test_missing_runs_are_done_once_and_alike(tmp_path):
    store = Store(tmp_path)
    assert missing_runs(store, [*RUNS, *RUNS]) == RUNS
    reported = []
    assert complete(store, RUNS, processes=2, progress=reported.append)
    assert reported[-1] == 3 * 3  # rounds
    assert missing_runs(store, RUNS) == []
    before = {run: rows(store, run) for run in RUNS}
    untouched = store.path(RUNS[0]).stat().st_mtime_ns
    store.path(RUNS[1]).unlink()
    store.path(RUNS[2]).with_suffix(".csv").unlink()
    again = missing_runs(store, RUNS)
    assert again == RUNS[1:]
    assert complete(store, again, processes=1, progress=reported.append)
    assert {run: rows(store, run) for run in RUNS} == before
    assert "seconds" in store.path(RUNS[0]).with_suffix(".csv").read_text().splitlines()[0].split(",")[16]
    assert store.path(RUNS[0]).stat().st_mtime_ns == untouched
    assert all(store.has(run, digest("a1a")) for run in RUNS)


def test_runs_on_one_problem_stay_together():
    mixed = [RunSpec("a1a", MILD, method, seed=seed) for method in ("danl", "gd") for seed in (0, 1)]
    mixed.append(RunSpec("a1a", MILD, "newton", seed=1, rounds=500))
    batches = _batches(mixed)
    assert [len({run.problem for run in batch}) for batch in batches] == [1, 1]
    assert [batch[0].seed for batch in batches] == [1, 0]  # the longest first
    assert sorted(run.name for batch in batches for run in batch) == sorted(run.name for run in mixed)
