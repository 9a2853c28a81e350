"""Sites of Flower's simulation, where there is no network but loopback."""

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

from tests.loopback import run_inside, skip_unless_possible


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_the_simulation():
    skip_unless_possible("ray")
    assert "2 passed" in run_inside("tests/flower/inner_sites.py", "-x", "-s", timeout=880)
