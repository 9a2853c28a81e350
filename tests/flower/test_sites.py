"""What sites agree on and what they tell: columns by name, places without values, at once."""

import json
import types

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

from flwr.app import ConfigRecord, Message, RecordDict

import danl
from danl.data import Shard
from danl.engines.flower.clientapp import app, client_app
from danl.engines.flower.engine import GridEngine
from danl.engines.flower.site import Site
from danl.errors import InputError
from danl.federation import serverapp
from danl.protocol.messages import Failure
from danl.protocol.wire import decode
from tests.flower.fake_grid import FakeGrid, error_reply
from tests.sites import MALFORMED, NAMES, TOKEN, chain, leaks, permuted_files, pooled, rows, write

pytestmark = pytest.mark.timeout(120)
FOREVER = 10_000.0
"""Seconds nobody waits: what a site says ends the wait."""
KEYS = {"n_features": "n-features", "target_column": "target-column", "weight_column": "weight-column"}


def configs_of(paths, **options):
    return [{"name": f"site-{k}", "data": str(path), **options} for k, path in enumerate(paths)]


def solved(configs, **settings):
    engine = GridEngine(FakeGrid(app, configs), sites=len(configs), wait=FOREVER, poll=0.001)
    return danl.solve(danl.RemoteProblem(alpha=1e-3, weighting="samples"), engine=engine, **settings)


# --- columns ---


def test_permuted_columns_give_the_pooled_model(tmp_path):
    paths, problem = permuted_files(tmp_path)
    result = solved(configs_of(paths, **{"target-column": "ill"}), tol=1e-11)
    assert result.status == "converged"
    assert np.abs(result.w - pooled(problem)).max() <= 1e-8
    assert result.feature_names == NAMES


def test_the_server_app_writes_the_names(tmp_path):
    paths, problem = permuted_files(tmp_path)
    grid = FakeGrid(app, configs_of(paths, **{"target-column": "ill"}))
    config = {"alpha": 1e-3, "intercept": False, "sites": 3, "tol": 1e-11}
    (tmp_path / "out").mkdir()
    result = serverapp.run(grid, config, tmp_path / "out")
    assert np.abs(result.w - pooled(problem)).max() <= 1e-8
    with np.load(tmp_path / "out" / "model.npz", allow_pickle=False) as model:
        assert model["feature_names"].tolist() == list(NAMES)
    assert danl.Result.load(str(tmp_path / "out")).feature_names == NAMES


def test_other_columns_are_refused_by_the_names_of_the_sites(tmp_path):
    paths, _ = permuted_files(tmp_path)
    paths[2].write_text(paths[2].read_text().replace("bmi", "BMI"))
    with pytest.raises(InputError, match=r"worker 2 \(site-2\) lacks 'bmi' and has 'BMI'"):
        solved(configs_of(paths, **{"target-column": "ill"}))


def test_a_file_that_changes_its_columns_in_a_run_is_an_error(tmp_path):
    paths, _ = permuted_files(tmp_path)
    configs = configs_of(paths, **{"target-column": "ill"})
    engine = GridEngine(FakeGrid(app, configs), sites=3, wait=FOREVER, poll=0.001)

    def rename(row):
        paths[1].write_text(paths[1].read_text().replace("bmi", "BMI"))

    result = danl.solve(danl.RemoteProblem(alpha=1e-3), engine=engine, max_rounds=3, callback=rename)
    details = [failure.detail for failure in result.failures if failure.worker == 1]
    assert "site site-1: site-1: lacks 'bmi' and has 'BMI'" in details[0]


@pytest.mark.parametrize("names", [5, "ab", ["a"], ["a", "a", "b", "c"], ["a", "b", "c", 4]], ids=str)
def test_names_that_cannot_be_leave_a_node_out(names, tmp_path):
    paths, _ = permuted_files(tmp_path)

    def spoil(message, replies):
        reported = json.loads(replies[0].content.config_records["danl"]["facts"])
        reported["facts"]["feature_names"] = names
        return [Message(RecordDict({"danl": ConfigRecord({"facts": json.dumps(reported)})}), reply_to=message)]

    grid = FakeGrid(app, configs_of(paths, **{"target-column": "ill"}), spoil=spoil)
    with pytest.raises(InputError, match=r"found 0; .*reported names of its columns that nobody can read"):
        GridEngine(grid, sites=1, wait=FOREVER, poll=0.01).connect(danl.RemoteProblem())


# --- places, not values ---


def node(case, path):
    return {"name": "north", "data": str(path)} | {KEYS.get(key, key): value for key, value in case.options.items()}


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.name)
@pytest.mark.filterwarnings("error")
def test_a_malformed_file_reaches_the_server_by_its_place(case, tmp_path, capfd):
    if case.name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    grid = FakeGrid(app, [node(case, write(case, tmp_path))])
    config = {"sites": 1, "wait": FOREVER, "loss": case.loss, "alpha": 1.0, "out": str(tmp_path / "out")}
    context = types.SimpleNamespace(run_config=config, run_id=1)
    with pytest.raises(InputError) as raised:
        serverapp.main(grid, context)
    written = (tmp_path / "out" / "error.txt").read_text()
    assert case.says in written
    assert "site north: " in written
    printed = capfd.readouterr()
    assert leaks(chain(raised.value) + written + printed.out + printed.err) == []


@pytest.mark.parametrize("case", MALFORMED[:3], ids=lambda case: case.name)
def test_a_file_that_breaks_in_a_run_is_told_by_its_place(case, tmp_path):
    site = Site.from_config(node(case, write(case, tmp_path)))
    failure = decode(site.answer(b"", opening()), most_bytes=10**5)
    assert isinstance(failure, Failure)
    assert case.says in failure.detail
    assert leaks(failure.detail) == []


def opening():
    from danl.engines.flower.opening import Opening
    from danl.objective.regions import Regions

    return Opening.of(danl.RemoteProblem(), regions=Regions.make(1, 2), policy=None, seed=0).to_json(0)


def test_an_app_whose_site_cannot_be_made_tells_no_text(tmp_path):
    def site_of(config):
        raise KeyError(TOKEN)

    for kind in ("query.facts", "train.loss"):
        grid = FakeGrid(client_app(site_of), [{"name": "north"}])
        message = Message(RecordDict({"danl": ConfigRecord({"loss": "logistic"})}), 1000, kind)
        grid.push_messages([message])
        (reply,) = grid.pull_messages([message.metadata.message_id])
        reported = decode(reply.content.config_records["danl"]["message"], most_bytes=10**5)
        assert reported.detail.startswith("site north: KeyError at ")
        assert leaks(reported.detail) == []


# --- at once ---


def test_a_site_that_cannot_read_ends_the_wait_for_others(tmp_path):
    """Two sites have not answered, a fourth has not come: what one says is enough."""
    paths, _ = permuted_files(tmp_path)
    configs = configs_of([*paths[:2], tmp_path / "none.csv"])
    grid = FakeGrid(app, configs, hold=lambda message: message.metadata.dst_node_id != 1014)
    with pytest.raises(InputError, match=r"sites=4: found 0; site site-2: none.csv: there is no such file"):
        GridEngine(grid, sites=4, wait=FOREVER, poll=0.001).connect(danl.RemoteProblem())


def test_a_node_that_died_is_waited_for(tmp_path):
    paths, _ = permuted_files(tmp_path)

    def spoil(message, replies):
        return [error_reply(message, 5)] if message.metadata.dst_node_id == 1014 else replies

    grid = FakeGrid(app, configs_of(paths, **{"target-column": "ill"}), spoil=spoil)
    with pytest.raises(InputError, match=r"sites=3: found 2 within 0\.2 s; Flower's error 5"):
        GridEngine(grid, sites=3, wait=0.2, poll=0.001).connect(danl.RemoteProblem())


# --- who takes part ---


def test_a_site_that_refused_is_not_counted(tmp_path):
    paths, _ = permuted_files(tmp_path)
    configs = configs_of(paths, **{"target-column": "ill"})
    result = solved([*configs[:2], configs[2] | {"min-rows": 51}])
    assert "worker 2 refused" in result.notes[0]
    assert result.settings["rows"] == [50, 50, 0]
    assert solved(configs).settings["rows"] == [50, 50, 50]


def test_a_result_is_written_to_a_folder_given_as_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = rows(40)
    result = danl.solve(danl.Problem([Shard.of(X, y)], alpha=1.0), w0="fedavg:rounds=2")
    result.save("run")
    assert danl.Result.load("run").summary() == result.summary()
    with pytest.raises(InputError, match="nowhere: holds no result"):
        danl.Result.load("nowhere")
