"""Which cluster the Ray engine is in, and what it leaves. `test_ray.py` runs this where there is only loopback."""

import subprocess
import sys

import pytest

import danl
from danl.engines import Ray
from danl.errors import InputError
from tests.engines.ray_tools import MARKS, shards_of

pytestmark = MARKS


@pytest.fixture
def problem(a1a):
    return danl.Problem(shards_of(a1a, 2, 200), alpha=1e-2)


@pytest.fixture(autouse=True)
def no_address(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def converges(problem, engine):
    return danl.solve(problem, method="newton", engine=engine).status == "converged"


def test_one_of_its_own_ends_with_it(problem):
    import ray

    assert converges(problem, "ray")
    assert not ray.is_initialized()


def test_one_that_runs_already_goes_on_when_the_engine_has_left(problem, monkeypatch):
    import ray

    start = "ray.init(include_dashboard=False, log_to_driver=False).address_info['gcs_address']"
    command = [sys.executable, "-c", f"import ray; print({start}, flush=True); input()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as head:
        address = head.stdout.readline().strip()
        try:
            assert converges(problem, Ray(address=address))
            assert not ray.is_initialized()
            monkeypatch.setenv("RAY_ADDRESS", address)
            assert converges(problem, "ray")
            assert head.poll() is None
        finally:
            head.communicate("\n")


def test_an_address_nobody_answers_at(problem, monkeypatch):
    nobody = r"address='127.0.0.1:1': no Ray cluster answers there \(Connection refused\); start one with"
    with pytest.raises(InputError, match=nobody):
        danl.solve(problem, engine=Ray(address="127.0.0.1:1"))
    with pytest.raises(InputError, match="address='auto': no Ray cluster answers there"):
        danl.solve(problem, engine="ray:address=auto")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(InputError, match=nobody):
        danl.solve(problem, engine="ray")


def test_the_one_this_process_is_in(problem, cluster):
    import ray

    class Other:
        def alive(self):
            return True

    other = ray.remote(Other).options(num_cpus=0).remote()
    for address in (None, ray.get_runtime_context().gcs_address):
        assert converges(problem, Ray(address=address))
    assert ray.get(other.alive.remote())  # its own actors were ended, and nobody else's
    with pytest.raises(InputError, match=r"in the cluster at .* already; leave address out"):
        danl.solve(problem, engine=Ray(address="127.0.0.1:1"))
