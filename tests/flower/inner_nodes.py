"""Run by test_loopback.py inside a network of its own: nodes of `danl flower node` and of Flower, and what goes wrong
at one of them.

The server would wait an hour for sites, and the tests much less: what a site says is there at once, or the test fails.
"""

import json
import os
import signal
import subprocess
import time

import pytest

import danl
from danl.engines.flower.sitefiles import write_sites
from danl.errors import InputError
from danl.federation.flwr_commands import executable, flower_environment
from danl.federation.local_federation import CONNECTION, Federation
from danl.federation.submit import run_app
from tests.flower.federations import a1a_shards, same_run, without_rules

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(570)]
HANGS = 400.0
CONFIG = {"alpha": 1e-3, "intercept": False, "weighting": "uniform", "sites": 2, "wait": 3600.0, "rounds": 2}
STAYS, CHANGES = "site-0", "site-1"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Two sites; the second is started by each test as it needs it."""
    folder = tmp_path_factory.mktemp("federation")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    configs = without_rules(write_sites(a1a_shards(2), folder / "sites", binary=True))
    made = Federation(folder, "a1a", configs[:1])
    made.start()
    made.sites = configs
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def changed(federation):
    """Starts the second site with another configuration, and stops it after the test."""

    def start(**change):
        federation.start_node(CHANGES, federation.sites[1] | change)
        wait_for(lambda: "SuperNode ID" in federation.log(f"supernode-{CHANGES}"))

    yield start
    stop(federation)


def stop(federation):
    process = federation.processes.pop(f"supernode-{CHANGES}", None)
    if process is not None:
        process.send_signal(signal.SIGTERM)
        process.wait(HANGS)


def wait_for(what):
    end = time.monotonic() + HANGS
    while not what():
        assert time.monotonic() < end, "it hangs"
        time.sleep(0.2)


def fitted(federation, out, **config):
    options = {"connection": CONNECTION, "home": federation.home, "out": out, "timeout": HANGS}
    return run_app(CONFIG | config, **options)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": "/nowhere/rows.svm"}, "site site-1: rows.svm: there is no such file"),
        ({"min_rows": 3}, "site site-1: node-config key='min_rows': must be one of "),
    ],
    ids=["file", "setting"],
)
def test_a_site_that_cannot_take_part_ends_the_wait(change, said, federation, changed, tmp_path):
    changed(**change)
    with pytest.raises(InputError) as error:
        fitted(federation, tmp_path / "out")
    assert said in str(error.value)
    assert "sites=2: found" in str(error.value)


def test_a_site_that_refuses_is_told_by_its_rule(federation, changed, tmp_path):
    changed(**{"min-rows": 5000})
    result = fitted(federation, tmp_path / "out")
    assert result.notes[0].startswith("worker 1 refused in exchange 0: site site-1: min-rows: ")


@pytest.mark.parametrize("quick", [True, False], ids=["danl flower node", "flower-supernode"])
def test_the_fit_is_the_local_one_whoever_starts_the_clientapp(quick, federation, changed, tmp_path):
    federation.quick = quick
    try:
        changed()
        result = fitted(federation, tmp_path / "out")
    finally:
        federation.quick = True
    problem = danl.Problem(a1a_shards(2), alpha=1e-3)
    same_run(result, danl.solve(problem, max_rounds=2), problem)


def test_a_node_that_was_stopped_is_gone_at_once(federation, changed):
    """Else a new run would ask it, and wait until Flower misses its heartbeat."""
    before = online(federation)
    changed()
    assert len(online(federation)) == len(before) + 1
    stop(federation)
    assert online(federation) == before


def online(federation):
    """The nodes that the SuperLink takes to be there."""
    command = [executable("flwr"), "supernode", "list", CONNECTION, "--format", "json"]
    environment = flower_environment(federation.home)
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=True, env=environment)
    nodes = json.loads(done.stdout[done.stdout.index("{") :])["nodes"]
    return sorted(node["node-id"] for node in nodes if node["status"] == "online")
