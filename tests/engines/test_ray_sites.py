"""Sites on Ray, where there is no network but loopback."""

import pytest

from tests.loopback import run_inside, skip_unless_possible


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_inside():
    skip_unless_possible("ray")
    run_inside("tests/engines/ray_sites.py", timeout=880)
