"""One run of the reproduction: the same settings by `danl.solve`, the two starts, the two optima, the record."""

import json

import numpy as np
import pytest

import danl
from danl.reproduce.execute import execute, make_start, prepared, with_learning_rate
from danl.reproduce.runs import MILD, NEAR, PAPER, RunSpec


def test_it_is_the_run_solve_makes():
    history, record = execute(RunSpec("a1a", MILD, "danl-masked", "coverage:psi=3", seed=2, rounds=6))
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=10, seed=2), alpha=1e-3)
    result = danl.solve(
        problem,
        method="danl-masked",
        regions=4,
        policy="coverage:psi=3",
        w0="fedavg:rounds=10",
        max_rounds=6,
        seed=2,
        reference=danl.reference_optimum(problem),
    )
    np.testing.assert_array_equal(history.column("gap"), result.history.column("gap"))
    np.testing.assert_array_equal(history.column("bytes_up"), result.history.column("bytes_up"))
    assert record["start"]["objective"] == problem.objective(result.w0)
    assert record["start"]["made_by"]["rounds"] == 10
    json.dumps(record, allow_nan=False)


def test_what_was_promised_and_what_was_measured():
    _, record = execute(RunSpec("a1a", MILD, "danl-masked", "coverage:psi=2,gamma=4", rounds=40))
    assert record["promised"] == {"min_coverage": 2, "min_trained": 4, "max_staleness": 4}
    summary = record["summary"]
    assert (summary["min_coverage"], summary["min_trained"], summary["max_staleness"]) == (2, 4, 4)


def test_the_optimum_is_verified_and_twenty_newton_steps_are_twenty():
    _, record = execute(RunSpec("a1a", PAPER, "danl", rounds=1))
    assert record["optimum"]["grad_norm"] < 1e-13
    problem, _ = prepared(RunSpec("a1a", PAPER, "danl", rounds=1).problem)
    w = make_start(RunSpec("a1a", PAPER, "danl", rounds=1).problem, "fedavg:rounds=10").w
    for _ in range(20):
        hessian = sum(
            weight * local.hessian(w) for weight, local in zip(problem.weights, problem.local_objectives, strict=True)
        )
        w = w - np.linalg.solve(hessian, problem.value_and_gradient(w)[1])
    assert record["newton20"]["objective"] == pytest.approx(problem.objective(w), rel=1e-9)


def test_the_near_start_meets_the_theorem():
    for penalty in ("alpha=0.1", MILD):
        _, record = execute(RunSpec("a1a", penalty, "danl-paper", start=NEAR, rounds=3, certified=True))
        certificate = record["certificate"]
        assert certificate["conditions_met"]
        allowed = min(certificate["constants"]["reach"], certificate["constants"]["high"])
        assert record["start"]["distance"] == pytest.approx(0.5 * allowed, rel=1e-6)


def test_bad_scaling_changes_the_condition_number_and_not_the_rows():
    plain, scaled = (prepared(RunSpec("a1a", MILD, "danl", decades=decades).problem)[0] for decades in (0.0, 3.0))
    assert [shard.n_rows for shard in plain.shards] == [shard.n_rows for shard in scaled.shards]
    ratio = scaled.shards[0].X.sum(axis=0) / np.maximum(plain.shards[0].X.sum(axis=0), 1e-300)
    found = np.log10(np.asarray(ratio).ravel()[np.asarray(plain.shards[0].X.sum(axis=0)).ravel() > 0])
    assert -1.5 <= found.min() < -1
    assert 1 < found.max() <= 1.5


def test_learning_rates_in_units_of_one_over_l():
    problem, _ = prepared(RunSpec("a1a", MILD, "gd").problem)
    text = with_learning_rate("fedavg:steps=5,learning_rate=1.9/L", problem)
    smoothness = np.mean([local.smoothness() for local in problem.local_objectives])
    assert float(text.rpartition("=")[2]) == pytest.approx(1.9 / smoothness)
    assert with_learning_rate("gd", problem) == "gd"
