"""Losses with options, offsets and records through Flower's messages: sites answer as the rows in one process do."""

import json

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

import danl
from danl.data.reference import ShardReference
from danl.data.shard import Shard
from danl.engines.flower.clientapp import client_app
from danl.engines.flower.engine import GridEngine
from danl.engines.flower.opening import Opening
from danl.engines.flower.site import Site
from danl.engines.flower.sitefiles import write_sites
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from tests.flower.fake_grid import FakeGrid
from tests.test_families import COUNTS, problem

pytestmark = pytest.mark.timeout(120)


def engine_of(shards):
    sites = {f"site-{k}": ShardReference(load=lambda k=k: shards[k], name=f"site-{k}") for k in range(len(shards))}
    app = client_app(lambda config: Site(str(config["name"]), sites[str(config["name"])]))
    return GridEngine(FakeGrid(app, [{"name": name} for name in sites]), sites=len(shards), wait=10_000.0, poll=0.001)


@pytest.mark.parametrize("method", ["danl", "danl:masks=always"])
@pytest.mark.parametrize("loss", ["gamma", COUNTS, "poisson"])
def test_sites_with_offsets_have_the_optimum_of_the_rows_in_one_process(loss, method):
    here = problem(loss, offset=True, weighted=True)
    expected = danl.solve(here, method=method, policy="coverage:psi=2", tol=1e-10)
    there = danl.RemoteProblem(loss=loss, alpha=0.0, weighting="samples", intercept=True)
    found = danl.solve(there, method=method, policy="coverage:psi=2", tol=1e-10, engine=engine_of(here.shards))
    assert found.status == expected.status == "converged"
    assert len(found.history) == len(expected.history)
    np.testing.assert_allclose(found.w, expected.w, rtol=0, atol=1e-10)


def test_an_opening_has_the_loss_with_its_options():
    terms = RemoteProblem(loss=danl.objectives.NegativeBinomial(0.125), alpha=0.1)
    text = Opening.of(terms, regions=Regions.make(2, 4), policy=None, seed=0).to_json(0)
    assert json.loads(text)["loss"] == "negative-binomial:alpha=0.125"
    worker = Opening.from_json(text).worker_for(Shard.of(np.eye(4), [0, 1, 2, 3], offset=np.arange(4)))
    assert worker.objective.loss.alpha == 0.125
    assert worker.objective.offset.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("reported", [{"offset": 1}, {"records": 4}, {"records": 0}, {"records": 2.5}])
def test_facts_that_cannot_be_are_not_believed(reported, monkeypatch):
    def changed(self, loss, inner=Site.shard_info):
        known = json.loads(inner(self, loss))
        return json.dumps(known | {"facts": known["facts"] | reported})

    monkeypatch.setattr(Site, "shard_info", changed)
    shard = Shard.of(np.eye(3), [0.0, 1.0, 1.0])
    with pytest.raises(danl.InputError, match="site site-0"):
        danl.solve(danl.RemoteProblem(alpha=0.1), engine=engine_of([shard]))


def test_a_file_of_a_site_has_no_place_for_an_offset(tmp_path):
    with pytest.raises(danl.InputError) as error:
        write_sites([Shard.of(np.eye(3), [0, 1, 1], offset=np.ones(3))], tmp_path, binary=True)
    assert str(error.value) == (
        "worker-0: has an offset, and the file of a site has no place for one; give the sites files with a column of "
        "it, and its name to the analysis"
    )
