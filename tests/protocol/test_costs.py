"""What a task takes, in passes over the rows: known answers for every kind; what is planned is what is reported."""

import numpy as np
import pytest

import danl
from danl.policies import Profile, ResourceAware
from danl.protocol.costs import work_rows
from danl.protocol.messages import (
    CurvatureTask,
    GradientTask,
    HessianTask,
    LocalStepsTask,
    LossTask,
    ScoresTask,
    SmoothnessTask,
)
from danl.worker.worker import Worker
from tests.problems import random_problem

ROWS, D, ENTRIES = 20, 8, 6.0
W = np.linspace(-1, 1, D)
MASK = np.array([True, False, False, True])  # 4 of the 8 coordinates


@pytest.fixture(scope="module")
def worker():
    problem = random_problem(d=D, sizes=(ROWS, 5))
    return Worker(0, problem.local_objectives[0], danl.Regions.make(4, D), None, 0)


TASKS = {
    "gradient": (GradientTask(1, W), ROWS),
    "gradient on half at w": (GradientTask(1, W, mask=MASK), ROWS * (1 / 2 + 1 / 4)),
    "gradient of half, pruned": (GradientTask(1, W, mask=MASK, submodel="pruned"), ROWS / 2),
    "gradient with a full mask": (GradientTask(1, W, mask=np.ones(4, bool)), ROWS),
    "pruned with a full mask": (GradientTask(1, W, mask=np.ones(4, bool), submodel="pruned"), ROWS),
    "mini-batch": (GradientTask(1, W, mask=MASK, batch_size=8), 8 * 3 / 4),
    "mini-batch, loss of all rows": (GradientTask(1, W, mask=MASK, batch_size=8, whole_loss=True), 8 * 3 / 4 + 12 / 2),
    "pruned mini-batch, loss of all rows": (
        GradientTask(1, W, mask=MASK, batch_size=8, whole_loss=True, submodel="pruned"),
        8 / 2 + 12 / 4,
    ),
    "batch above the rows": (GradientTask(1, W, batch_size=99, whole_loss=True), ROWS),
    "loss": (LossTask(1, W), ROWS / 2),
    "Hessian": (HessianTask(1, W), ROWS * (1 + ENTRIES / 2)),
    "Hessian on batches": (HessianTask(1, W, batch_size=8, hessian_batch=4), 8 + 4 * ENTRIES / 2),
    "whole Hessian as a part": (CurvatureTask(1, W, "full"), ROWS * (1 + ENTRIES / 2)),
    "whole Hessian, compressed": (CurvatureTask(1, W, "full", compressor="rankr"), ROWS * (1 + ENTRIES / 2)),
    "blocks": (CurvatureTask(1, W, "block"), ROWS * (1 + ENTRIES / 2 * 12 / 36)),  # 4 blocks of 3 of 36 numbers
    "diagonal": (CurvatureTask(1, W, "diag"), ROWS * 3 / 2),
    "sketch": (CurvatureTask(1, W, "lowrank", rank=2), ROWS * (1 + 2 + 1 / 2)),
    "scores": (ScoresTask(1, W), ROWS * (1 + ENTRIES / 2)),
    "local steps": (LocalStepsTask(1, W, steps=3, learning_rate=0.1), 3 * ROWS),
    "local steps on batches": (LocalStepsTask(1, W, steps=3, learning_rate=0.1, batch_size=8), 3 * 8),
    "smoothness": (SmoothnessTask(1), 10 * ROWS),
}


@pytest.mark.parametrize("name", TASKS)
def test_passes(worker, name):
    task, expected = TASKS[name]
    mask = getattr(task, "mask", None)
    share = 1.0 if mask is None else worker.regions.coordinates(mask).size / D
    assert work_rows(task, share, ROWS, ENTRIES, worker.regions) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("method", "share"), [("danl-masked", 1 / 2 + 1 / 8), ("danl-paper", 1 / 4)])
def test_only_a_pruned_model_costs_its_share(method, share):
    """One of four equal regions for everyone, on machines that are limited by their processors alone."""
    masks = np.zeros((1, 4, 4), dtype=bool)
    masks[0, :, 1] = True
    policy = danl.policies.Schedule(masks)
    problem = random_problem(d=8, sizes=(40, 10, 25, 5))
    fleet = [Profile(rows_per_second=100)] * 4
    result = danl.solve(problem, method=method, regions=4, policy=policy, profiles=fleet, max_rounds=1, tol=0.0)
    assert result.history[1].simulated_seconds == pytest.approx(40 * share / 100, rel=1e-14)


@pytest.mark.parametrize(("method", "managed"), [("danl:masks=always", 2), ("danl-masked", 2), ("danl-paper", 3)])
def test_a_deadline_is_planned_with_what_the_method_costs(method, managed):
    """0.3 s of 100 rows a second is 30 of 40 rows: at w the margins take 20 of them, and 5 each of the regions."""
    policy = ResourceAware([Profile(rows_per_second=100)] * 4, deadline=0.3, binding=False)
    problem = random_problem(d=8, sizes=(40, 40, 40, 40))
    result = danl.solve(problem, method=method, regions=4, policy=policy, max_rounds=1, tol=0.0)
    row = result.history[1]
    assert row.kind == "gradient"
    assert sum(row.coverage) == 4 * managed
    assert row.simulated_seconds == pytest.approx(0.3, rel=1e-14)


def test_the_deadline_a_refusal_asks_for_depends_on_the_method():
    problem = random_problem(d=8, sizes=(40, 40, 40, 40))
    policy = ResourceAware([Profile(rows_per_second=100)] * 4, deadline=0.01)
    for method, needed in (("danl", 0.25), ("danl-masked", 0.25), ("danl-paper", 0.1)):
        with pytest.raises(danl.InputError) as caught:
            danl.solve(problem, method=method, regions=4, policy=policy)
        asked = float(str(caught.value).split("at least ")[1].split(" seconds")[0])
        assert needed <= asked <= 1.002 * needed
