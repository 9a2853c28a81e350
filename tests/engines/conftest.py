"""Fixtures of the tests that start Ray; nothing else uses them."""

import pytest

import danl
from danl.engines.ray.cluster import enter_cluster, leave_cluster, require_ray


@pytest.fixture(scope="module")
def cluster():
    """Ray, started once for a module; the engines under test find it there."""
    require_ray()
    assert enter_cluster("local")
    yield
    leave_cluster()


@pytest.fixture(scope="module")
def a1a():
    return danl.load_dataset("a1a")
