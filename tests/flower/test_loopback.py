"""Flower itself, on loopback: its simulation, and a deployment with TLS and node keys."""

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

from tests.loopback import run_inside, skip_unless_possible


@pytest.mark.slow
def test_a_small_run():
    skip_unless_possible("ray")
    run_inside("tests/flower/smoke.py", timeout=580)


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_the_simulation():
    skip_unless_possible("ray")
    assert "5 passed" in run_inside("tests/flower/inner_simulation.py", "-x", "-s", timeout=880)


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_a_deployment_with_tls_and_node_keys():
    skip_unless_possible("flwr")
    assert "5 passed" in run_inside("tests/flower/inner_deployment.py", "-x", "-s", timeout=880)


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_nodes_and_what_goes_wrong_at_one():
    skip_unless_possible("flwr")
    assert "6 passed" in run_inside("tests/flower/inner_nodes.py", "-x", "-s", timeout=880)


@pytest.mark.engines
@pytest.mark.timeout(1500)
def test_the_hospitals_of_the_tutorial():
    skip_unless_possible("flwr")
    assert "14 passed" in run_inside("tests/flower/inner_hospitals.py", "-x", "-s", timeout=1480)
