"""What every test of Flower gets: an identity, without which Flower makes no messages."""

import pytest


@pytest.fixture(autouse=True)
def a_task(monkeypatch):
    """Messages can be made only by somebody Flower knows."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return  # the modules say why they are skipped
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
