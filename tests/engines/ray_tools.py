"""What the tests that start Ray share: marks, problems, and engines one can look into."""

from unittest.mock import patch

import numpy as np
import pytest

import danl
from danl.engines import Ray
from danl.objective.regions import Regions
from danl.protocol.messages import Exchange, GradientTask
from tests.loopback import only_loopback

MARKS = [
    pytest.mark.skipif(not only_loopback(), reason="starts Ray: only where there is no network but loopback"),
    pytest.mark.timeout(400),  # it hangs
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray's own sockets and log files
]


def shards_of(data, workers, rows=None, **options):
    return danl.partition(data.X[:rows], data.y[:rows], workers=workers, seed=0, **options)


def fields(result):
    """What must be the same on every engine, exactly."""
    return [
        (row.kind, row.active, row.failed, row.coverage, row.min_coverage, row.bytes_up, row.bytes_down)
        for row in result.history
    ]


def assert_same(ours, local):
    assert ours.status == local.status
    assert fields(ours) == fields(local)
    assert np.linalg.norm(ours.w - local.w) <= 1e-12 * np.linalg.norm(local.w)
    assert np.isclose(ours.history[-1].objective, local.history[-1].objective, rtol=1e-12, equal_nan=True)
    assert ours.failures == ()
    assert ours.dropped == 0


class Kept(Ray):
    """An engine that `solve` does not close, so that several runs have the same actors."""

    def close(self):
        pass

    def end(self):
        super().close()


def opened(problem, engine, policy=None, regions=3):
    made = Regions.make(regions, problem.n_features)
    engine.open(problem, regions=made, policy=policy, seed=0)
    return engine


def gradients(number, problem, who=None):
    task = GradientTask(number, np.zeros(problem.n_features))
    return Exchange("gradient", task, np.arange(problem.n_workers) if who is None else np.array(who))


def actors_of(engine):
    return [place.actor for place in engine._slots]


def made_of(site):
    """The engine with actors of another class."""

    def new_actor(self, place):
        with patch("danl.engines.ray.actor.WorkerActor", site):
            return Ray._new_actor(self, place)

    return type(f"With{site.__name__}", (Ray,), {"_new_actor": new_actor})
