"""Flower itself, on loopback: its simulation, and a deployment with TLS and node keys."""

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

from tests.flower.loopback import run_inside


@pytest.mark.timeout(200)
def test_the_simulation():
    pytest.importorskip("ray", reason="Flower's simulation needs Ray: pip install danl[flower]")
    assert "2 passed" in run_inside("inner_simulation.py", seconds=180)


@pytest.mark.timeout(600)
def test_a_deployment_with_tls_and_node_keys():
    assert "4 passed" in run_inside("inner_deployment.py", seconds=580)
