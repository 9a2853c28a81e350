"""Run by test_loopback.py inside a network of its own: Flower's simulation gives the local run."""

import pytest

import danl
from danl.engines.flower.site import Site
from danl.engines.flower.sitefiles import write_sites
from danl.objective.problem import RemoteProblem
from tests.flower.federations import a1a_shards, same_run

SETTINGS = {"policy": "coverage:psi=2", "tol": 1e-5}
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(400)]


def test_a_problem_in_memory():
    problem = danl.Problem(a1a_shards(), alpha=1e-3)
    result = danl.solve(problem, engine="flower", **SETTINGS)
    local = danl.solve(problem, **SETTINGS)
    same_run(result, local, problem)
    assert not result.failures


def test_a_problem_by_reference(tmp_path):
    shards = a1a_shards()
    problem = danl.Problem(shards, alpha=1e-3)
    references = [Site.from_config(config).reference for config in write_sites(shards, tmp_path, binary=True)]
    settings = {"method": "newton", "tol": 1e-6}
    result = danl.solve(RemoteProblem(references, alpha=1e-3), engine="flower:simulate=true,cpus=2", **settings)
    same_run(result, danl.solve(problem, **settings), problem)
