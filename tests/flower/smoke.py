"""Run by test_loopback.py inside a network of its own: one small run in Flower's simulation is the local one."""

import numpy as np
import pytest

import danl
from tests.problems import random_problem

SETTINGS = {"regions": 3, "policy": "coverage:psi=2", "max_rounds": 3, "tol": 0.0}
pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_run_in_the_simulation_is_the_local_one():
    problem = random_problem()
    local = danl.solve(problem, **SETTINGS)
    there = danl.solve(problem, engine="flower", **SETTINGS)
    assert not there.failures
    for name in ("kind", "active", "bytes_up", "bytes_down", "coverage"):
        assert there.history.column(name).tolist() == local.history.column(name).tolist(), name
    np.testing.assert_allclose(there.w, local.w, rtol=1e-12)
