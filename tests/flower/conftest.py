"""What every test of Flower gets: an identity, without which Flower makes no messages."""

import warnings

import pytest

with warnings.catch_warnings():  # what Flower's own imports warn of is not ours
    warnings.simplefilter("ignore")
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        TaskIdentity = None  # the modules say why they are skipped


@pytest.fixture(autouse=True)
def a_task(monkeypatch):
    """Messages can be made only by somebody Flower knows."""
    for name in ("_run_id", "_node_id", "_task_id") if TaskIdentity is not None else ():
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def clock(monkeypatch):
    """A clock for the engine over a Grid that only its own waiting moves: no machine is too slow for it."""
    from tests.flower.fake_grid import Clock

    clock = Clock()
    monkeypatch.setattr("danl.engines.flower.engine.time", clock)
    return clock
