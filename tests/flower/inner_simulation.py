"""Run by test_loopback.py inside a network of its own: Flower's simulation gives the local run."""

import numpy as np
import pytest

import danl
from danl.engines.flower.simulation import FlowerSimulation
from danl.engines.flower.site import Site
from danl.engines.flower.site_rules import SiteRules
from danl.engines.flower.sitefiles import write_sites
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import Exchange, GradientTask
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


@pytest.mark.parametrize("options", [{"method": "fednl"}, {"method": "pruned-sgd", "policy": "coverage:psi=2"}])
def test_methods_of_the_field(options):
    """Of the first a node keeps what it has learned between messages."""
    problem = danl.Problem(a1a_shards(), alpha=1e-3)
    settings = {"max_rounds": 4, "tol": 0.0} | options
    result = danl.solve(problem, engine="flower:cpus=2", **settings)
    same_run(result, danl.solve(problem, **settings), problem)
    assert not result.failures


def test_a_node_keeps_the_margins_between_messages(tmp_path):
    """Flower carries the state of the node: the second gradient at a model computes margins of no whole shard."""

    class Watched(Site):
        def answer(self, task, opening, kept=None):
            from danl.objective import local_objective

            original, sizes = local_objective.margins, []

            def counted(X, w, layout):
                sizes.append(X.shape[0])
                return original(X, w, layout)

            local_objective.margins = counted
            try:
                return super().answer(task, opening, kept)
            finally:
                local_objective.margins = original
                with (tmp_path / self.name).open("a") as file:
                    file.write(f"{max(sizes)}\n")

    shards = a1a_shards()
    references = [Site.from_config(config).reference for config in write_sites(shards, tmp_path, binary=True)]
    engine, terms, w = FlowerSimulation(cpus=2), RemoteProblem(alpha=1e-3), np.linspace(-0.5, 0.5, 123)
    try:
        sites = [Watched(f"watched-{number}", each, SiteRules.open()) for number, each in enumerate(references)]
        known = terms.described(engine._start(sites, terms))
        engine.open(known, regions=Regions.make(4, 123), policy=None, seed=0)
        for number in range(3):
            mask = np.arange(4) == number
            assert not engine.exchange(Exchange("gradient", GradientTask(number, w, mask), np.arange(3))).failures
    finally:
        engine.close()
    for shard, site in zip(shards, sites, strict=True):
        first, *others = map(int, (tmp_path / site.name).read_text().split())
        assert first == shard.n_rows
        assert len(others) == 2
        assert max(others) < shard.n_rows
