"""The cost model against what runs count, and 10,000 workers in one process."""

import numpy as np
import pytest

import danl
from danl.engines import Local
from danl.errors import InputError
from danl.protocol.messages import Exchange, HessianTask, pack
from danl.run.scale import Network, Scale


def problem_of(n_workers, d, rows_each, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_workers * rows_each, d))
    y = (X @ rng.normal(size=d) + rng.normal(size=len(X)) > 0).astype(float)
    return danl.Problem(danl.partition(X, y, workers=n_workers, seed=0), alpha=1e-2)


def test_the_bytes_are_those_a_run_counts():
    """With d divisible by Q and a coverage that holds exactly."""
    problem = problem_of(10, 12, 20)
    result = danl.solve(problem, regions=4, policy="coverage:psi=3", method="danl-masked", max_rounds=5, tol=0.0)
    expected = {cost.kind: cost for cost in Scale(10, 12, 4, coverage=3).costs()}
    assert set(result.history.column("kind")) == {"hessian", "gradient"}
    for row in result.history:
        assert row.bytes_down <= expected[row.kind].bytes_down
        assert row.bytes_up <= expected[row.kind].bytes_up
        if row.kind == "hessian":
            assert (row.bytes_up, row.bytes_down) == (expected["hessian"].bytes_up, expected["hessian"].bytes_down)
        else:  # a worker without a region is not asked: it sends no loss, no mask
            asked = row.active
            assert row.bytes_up == expected["gradient"].bytes_up - (10 - asked) * 9
            assert sum(row.coverage) == 3 * 4


def test_so_are_those_of_a_compressed_hessian_and_a_tree_sends_its_sums_whole():
    method = "danl:hessian_compressor=rankr:2"
    row = danl.solve(problem_of(10, 12, 20), regions=4, method=method, max_rounds=1).history[0]
    plain, small = (Scale(10, 12, fan_in=5, hessian_compressor=name).costs()[0] for name in (None, "rankr:2"))
    assert (row.bytes_up, row.bytes_down) == (small.bytes_up, small.bytes_down)
    assert small.bytes_up == 10 * (2 * (8 * 12 + 2) + 8 * 13)
    saved = 5 * (plain.bytes_up - small.bytes_up) / 10 / Network().bandwidth
    np.testing.assert_allclose(plain.tree_seconds - small.tree_seconds, saved)
    with pytest.raises(InputError, match="hessian_compressor='rank': must be one of"):
        Scale(10, 12, hessian_compressor="rank")


@pytest.mark.parametrize(
    ("workers", "fan_in", "levels", "aggregators"),
    [(1, 2, 1, 0), (32, 32, 1, 0), (33, 32, 2, 2), (1024, 32, 2, 32), (10**6, 100, 3, 10**4 + 100)],
)
def test_the_tree(workers, fan_in, levels, aggregators):
    scale = Scale(workers, 10, 2, fan_in=fan_in)
    assert (scale.levels, scale.aggregators) == (levels, aggregators)


def test_a_tree_beats_one_server_when_there_are_many():
    hessian = Scale(10**6, 2000).costs()[0]
    assert hessian.tree_seconds < hessian.seconds / 1000
    assert Scale(10**6, 2000).tree_bytes < 2e8 < Scale(10**6, 2000).server_bytes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers=0: must be a whole number >= 1"),
        ({"regions": 11}, "regions=11: must be at most 10"),
        ({"coverage": 8}, "coverage=8: must be between 1 and 5"),
        ({"fan_in": 1}, "fan_in=1: must be a whole number >= 2"),
        ({"network": Network(bandwidth=0.0)}, "bandwidth=0.0: must be above 0"),
    ],
)
def test_wrong_sizes(arguments, message):
    with pytest.raises(InputError, match=message):
        Scale(**({"workers": 5, "features": 10, "regions": 2} | arguments))


@pytest.mark.slow
def test_ten_thousand_workers_in_process_and_their_sums_in_a_tree():
    """The whole method with 10,000 workers; and the sum of their Hessians by a tree equals the flat one."""
    problem = problem_of(10_000, 8, 2)
    result = danl.solve(problem, policy="coverage:psi=500", max_rounds=30, tol=1e-9, monitor=False)
    assert result.status == "converged"
    pooled = danl.solve(danl.Problem(danl.partition(*rows_of(problem), workers=1), alpha=1e-2), method="newton")
    np.testing.assert_allclose(result.w, pooled.w, atol=1e-6)
    scale = Scale(10_000, 8, fan_in=32)
    task = HessianTask(0, np.zeros(8))
    engine = Local()
    engine.open(problem, regions=danl.Regions.make(1, 8), policy=None, seed=0)
    replies = engine.exchange(Exchange("hessian", task, np.arange(10_000)))
    flat = pack(replies.add_up(dict(enumerate(problem.weights))).packed)
    level = [
        weight * pack(local.hessian(task.w))
        for weight, local in zip(problem.weights, problem.local_objectives, strict=True)
    ]
    taken, levels = 0, 0
    while len(level) > 1:
        groups = [level[i : i + scale.fan_in] for i in range(0, len(level), scale.fan_in)]
        taken = max(taken, *(len(group) for group in groups))
        level, levels = [sum(group) for group in groups], levels + 1
    assert (taken, levels) == (scale.fan_in, scale.levels)
    np.testing.assert_allclose(level[0], flat, rtol=1e-12)


def rows_of(problem):
    return np.vstack([shard.X for shard in problem.shards]), np.concatenate([shard.y for shard in problem.shards])


@pytest.mark.slow
def test_memory_is_flat_over_a_thousand_rounds_with_a_hundred_workers():
    """Apart from the rows of the history, which is what a run is asked to keep."""
    import tracemalloc

    problem = problem_of(100, 6, 3)
    seen = {}

    def watch(row):
        if row.exchange in (50, 1000):
            seen[row.exchange] = tracemalloc.take_snapshot()

    tracemalloc.start()
    try:
        danl.solve(
            problem,
            method="danl-masked",
            policy="coverage:psi=40",
            max_rounds=1000,
            tol=0.0,
            monitor=False,
            callback=watch,
        )
    finally:
        tracemalloc.stop()
    grown = [stat for stat in seen[1000].compare_to(seen[50], "filename") if stat.size_diff > 0]
    rows = sum(stat.size_diff for stat in grown if stat.traceback[0].filename.endswith(("loop.py", "history.py")))
    other = sum(stat.size_diff for stat in grown) - rows
    assert rows < 1000 * 2000  # bytes a row
    assert other < 200_000, [str(stat) for stat in grown[:5]]
