"""The Ray engine. What starts Ray is in files of its own and runs where there is no network but loopback."""

import subprocess
import sys

import pytest

import danl
from danl.engines import Ray, make_engine
from danl.errors import InputError
from tests.loopback import run_inside, skip_unless_possible


@pytest.mark.slow
def test_a_small_run():
    skip_unless_possible("ray")
    run_inside("tests/engines/smoke.py", timeout=580)


@pytest.mark.engines
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", ["ray_agreement", "ray_failures", "ray_clusters"])
def test_inside(part):
    skip_unless_possible("ray")
    run_inside(f"tests/engines/{part}.py", timeout=880)


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("danl.checks.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"engine='ray': needs ray; install it with pip install 'danl\[ray\]'"):
        make_engine("ray")


def test_ray_is_not_imported_before_it_is_needed():
    code = "import sys, danl.engines; danl.engines.ENGINES['ray']; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deadline": 0}, "deadline=0: must be a finite number of seconds > 0"),
        ({"deadline": float("nan")}, "deadline=nan"),
        ({"restarts": -1}, "restarts=-1: must be a whole number >= 0"),
        ({"replacements": 1.5}, "replacements=1.5"),
        ({"fan_in": 1}, "fan_in=1: must be a whole number >= 2"),
        ({"start_timeout": 0}, "start_timeout=0"),
        ({"address": ""}, "address=''"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(InputError, match=message):
        Ray(**options)


def test_a_spec_sets_the_options(monkeypatch):
    monkeypatch.setattr("danl.engines.ray.engine.require_ray", lambda: None)
    assert repr(make_engine("ray:address=auto,deadline=30")) == "Ray(address='auto', deadline=30.0, restarts=1)"
    with pytest.raises(InputError, match="ray has no option 'workers'; it has address, deadline"):
        make_engine("ray:workers=3")


@pytest.mark.parametrize("address", ["nowhere", "host:port", "1.2.3.4:99999", ":6379"])
def test_an_address_that_is_none(address):
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="must be 'auto', 'local' or 'host:port'"):
        Ray(address=address).connect(danl.RemoteProblem([danl.ShardReference(path="a1a")]))
