"""The engine over a Grid that calls the ClientApp in this process: the run is the local one; failures are typed."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

from flwr.app import ConfigRecord, Message, RecordDict

import danl
from danl.engines.flower.clientapp import app
from danl.engines.flower.engine import GridEngine
from danl.errors import InputError
from danl.federation.serverapp import run
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import Exchange, GradientTask, LossReply, LossTask
from danl.protocol.wire import decode, encode
from tests.engines.conformance import same_answers_to_mixed_exchanges, same_trace
from tests.flower.fake_grid import FakeGrid, error_reply
from tests.flower.federations import a1a_shards, same_run, without_rules, written


@pytest.fixture(scope="module")
def shards():
    return a1a_shards()


@pytest.fixture(scope="module")
def problem(shards):
    return danl.Problem(shards, alpha=1e-3)


@pytest.fixture(scope="module")
def configs(shards, tmp_path_factory):
    return without_rules(written(shards, tmp_path_factory.mktemp("sites")))


def grid_engine(configs, **network):
    grid = FakeGrid(app, configs, **network)
    return grid, GridEngine(grid, sites=len(configs), wait=280.0, deadline=280.0, poll=0.001)


def opened(configs, **network):
    """An engine ready for exchanges, with one region."""
    grid, engine = grid_engine(configs, **network)
    problem = RemoteProblem(alpha=1e-3)
    known = problem.described(engine.connect(problem))
    engine.open(known, regions=Regions.make(4, 123), policy=None, seed=0)
    return grid, engine


def losses(number=0, workers=(0, 1, 2)):
    return Exchange("loss", LossTask(number, np.zeros(123)), np.array(workers))


# --- the same run ---


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"policy": "coverage:psi=2", "regions": [60, 3, 60]},
        {"policy": "random:keep=0.7", "tol": 1e-6},
        {"policy": "magnitude:keep=0.5", "method": "danl-masked", "max_rounds": 6},
        {"method": "danl:batch_size=100", "max_rounds": 5, "seed": 3},
        {"w0": "fedavg:rounds=3", "max_rounds": 4},
        {"method": "gd", "max_rounds": 4},
        {"method": "danl:curvature=lowrank:20", "policy": "coverage:psi=2", "max_rounds": 8},
        {"method": "danl:curvature=block,hessian_dtype=float32", "max_rounds": 6},
        {"method": "danl:hessian_dtype=float32", "max_rounds": 6},
        {"method": "danl:hessian_compressor=rankr:5", "max_rounds": 6},
        {"method": "danl:hessian_compressor=natural,curvature_from=2", "max_rounds": 6, "seed": 2},
        {"regions": [list(range(0, 123, 2)), list(range(1, 123, 2))], "max_rounds": 4},
    ],
    ids=str,
)
def test_the_run_is_the_local_one(settings, configs, problem):
    _, engine = grid_engine(configs)
    traces = danl.Trace(), danl.Trace()
    result = danl.solve(RemoteProblem(alpha=1e-3), engine=engine, trace=traces[0], **settings)
    one_by_one = danl.engines.Local(batched=False)  # as sites are
    references = [danl.ShardReference(load=lambda shard=shard: shard) for shard in problem.shards]
    elsewhere = RemoteProblem(references, alpha=1e-3)  # where curvature costs bytes: rows that are here cost their work
    alone = danl.solve(elsewhere, engine=one_by_one, trace=traces[1], **settings)
    same_run(result, alone, problem)
    same_trace(*traces)
    assert np.array_equal(result.w, alone.w)
    assert not result.failures


def test_mixed_exchanges_are_those_of_the_workers_one_by_one(configs, problem):
    _, engine = opened(configs)
    same_answers_to_mixed_exchanges(engine, problem, Regions.make(4, 123), np.linspace(-0.5, 0.5, 123))


def test_samples_weighting_and_the_papers_penalty_reach_the_sites(configs, shards):
    problem = danl.Problem(shards, l2=1e-2, weighting="samples")
    _, engine = grid_engine(configs)
    result = danl.solve(RemoteProblem(l2=1e-2, weighting="samples"), engine=engine, max_rounds=8)
    same_run(result, danl.solve(problem, max_rounds=8), problem)


def test_workers_are_numbered_by_the_names_of_their_sites(configs, shards):
    _, engine = grid_engine(list(reversed(configs)))
    facts = engine.connect(RemoteProblem())
    assert engine.site_names == ("site-0", "site-1", "site-2")
    assert [each.rows for each in facts] == [shard.n_rows for shard in shards]


def test_tasks_travel_as_wire_bytes_in_one_config_record(configs):
    grid, engine = opened(configs)
    engine.exchange(losses(number=4))
    message = grid.pushed[-1]
    assert message.metadata.message_type == "train.loss"
    assert message.metadata.group_id == "4"
    record = message.content.config_records["danl"]
    assert set(record) == {"message", "opening"}
    assert decode(record["message"], most_bytes=10_000).exchange == 4
    assert json.loads(record["opening"])["regions"] == [31, 31, 31, 30]


def test_the_server_app_writes_what_it_solved(configs, problem, tmp_path):
    grid = FakeGrid(app, configs)
    config = {"alpha": 1e-3, "policy": "coverage:psi=2", "init": "fedavg:rounds=2", "sites": 3, "rounds": 6}
    config |= {"weighting": "uniform", "intercept": False}  # as danl.Problem has them
    result = run(grid, config, tmp_path)
    local = danl.solve(problem, policy="coverage:psi=2", w0="fedavg:rounds=2", max_rounds=6)
    same_run(result, local, problem)
    read = danl.Result.load(tmp_path)
    assert json.loads((tmp_path / "result.json").read_text())["sites"] == ["site-0", "site-1", "site-2"]
    assert read.summary() == result.summary()
    assert np.array_equal(read.w, result.w)
    assert np.array_equal(read.w0, result.w0)
    assert read.start.summary() == result.start.summary()
    trace = danl.Trace.read(tmp_path / "workers.npz")
    assert trace.exchanges.tolist() == [row.exchange for row in result.history]
    np.testing.assert_array_equal(trace.bytes_up.sum(axis=1), result.history.column("bytes_up"))


# --- who is not there, and what is not right ---


def test_too_few_sites_are_an_error_that_says_how_many(configs):
    engine = GridEngine(FakeGrid(app, configs), sites=4, wait=0.3, poll=0.01)
    with pytest.raises(InputError, match=r"sites=4: found 3 within 0\.3 s"):
        engine.connect(RemoteProblem())


def test_a_site_that_cannot_read_its_data_is_named_with_the_reason(configs):
    broken = [*configs[:2], configs[2] | {"data": "/nowhere/north.svm"}]
    with pytest.raises(InputError, match=r"found 2; site site-2: north\.svm: there is no such file"):
        GridEngine(FakeGrid(app, broken), sites=3, wait=10_000.0, poll=0.01).connect(RemoteProblem())


def test_enough_others_go_on_without_it_with_a_warning(configs):
    broken = [*configs[:2], configs[2] | {"data": "/nowhere/north.svm"}]
    engine = GridEngine(FakeGrid(app, broken), sites=2, wait=280.0, poll=0.01)
    with pytest.warns(danl.DanlWarning, match="left out: site site-2"):
        assert len(engine.connect(RemoteProblem())) == 2


def test_two_sites_of_one_name_are_refused(configs):
    twins = [configs[0], configs[1] | {"name": "site-0"}]
    with pytest.raises(InputError, match="two sites have this name"):
        GridEngine(FakeGrid(app, twins), sites=2, wait=280.0).connect(RemoteProblem())


@pytest.mark.parametrize(
    "facts",
    [
        "{",
        "[]",
        json.dumps({"site": "x", "facts": {"rows": 3}}),
        json.dumps({"site": 5, "facts": {}}),
    ],
)
def test_facts_nobody_can_read_leave_a_node_out(configs, facts):
    def spoil(message, replies):
        return [Message(RecordDict({"danl": ConfigRecord({"facts": facts})}), reply_to=message)]

    with pytest.raises(InputError, match="found 0"):
        GridEngine(FakeGrid(app, configs, spoil=spoil), sites=1, wait=0.3, poll=0.01).connect(RemoteProblem())


@pytest.mark.parametrize("rows", [0, -3, 1.5, "many", None, True])
def test_facts_that_cannot_be_leave_a_node_out(configs, rows):
    def spoil(message, replies):
        record = dict(replies[0].content.config_records["danl"])
        reported = json.loads(record["facts"])
        reported["facts"]["rows"] = rows
        return [Message(RecordDict({"danl": ConfigRecord({"facts": json.dumps(reported)})}), reply_to=message)]

    with pytest.raises(InputError, match="found 0"):
        GridEngine(FakeGrid(app, configs, spoil=spoil), sites=1, wait=0.3, poll=0.01).connect(RemoteProblem())


def test_rows_in_memory_and_functions_are_refused(configs, problem):
    _, engine = grid_engine(configs)
    with pytest.raises(InputError, match="RemoteProblem"):
        danl.solve(problem, engine=engine)
    _, engine = grid_engine(configs)
    with pytest.raises(InputError, match="cannot be sent a function"):
        danl.solve(RemoteProblem(), engine=engine, policy=lambda w, worker, number, rng: np.ones(4, bool))


# --- replies ---


def only(worker_config, change):
    """Change the replies of one site's tasks."""

    def spoil(message, replies):
        spoils = message.metadata.message_type != "query.facts" and message.metadata.dst_node_id == worker_config
        return change(message, replies) if spoils else replies

    return spoil


NODE_1 = 1007


def with_bytes(data):
    return lambda message, replies: [Message(RecordDict({"danl": ConfigRecord({"message": data})}), reply_to=message)]


@pytest.mark.parametrize(
    "change",
    [
        with_bytes(b""),
        with_bytes(b"DNL1" + b"\xff" * 60),
        with_bytes("text"),
        with_bytes(encode(LossTask(0, np.zeros(3)))),
        with_bytes(encode(LossReply(1, 0, 0.5)) + b"more"),
        with_bytes(b"x" * 200_000),
        lambda message, replies: [Message(RecordDict(), reply_to=message)],
        lambda message, replies: [Message(RecordDict({"danl": ConfigRecord({"other": 1})}), reply_to=message)],
    ],
    ids=["empty", "noise", "text", "a task", "left over", "long", "no record", "no message"],
)
def test_malformed_replies_are_invalid_and_shut_the_site_out(change, configs):
    _, engine = opened(configs, spoil=only(NODE_1, change))
    replies = engine.exchange(losses())
    assert replies.workers.tolist() == [0, 2]
    assert replies.failures[1].kind == "invalid"
    assert replies.failures[1].detail.startswith("site site-1: ")
    _, engine = grid_engine(configs, spoil=only(NODE_1, change))
    result = danl.solve(RemoteProblem(alpha=1e-3), engine=engine, tol=1e-6)
    assert result.status == "converged"
    assert any("worker 1 was quarantined" in note and "site-1" in note for note in result.notes)


@pytest.mark.parametrize(("code", "kind"), [(2, "error"), (8, "died"), (3, "timeout"), (0, "error")])
def test_flowers_errors_are_typed(code, kind, configs):
    change = only(NODE_1, lambda message, replies: [error_reply(message, code)])
    _, engine = opened(configs, spoil=change)
    failure = engine.exchange(losses()).failures[1]
    assert (failure.kind, failure.worker) == (kind, 1)
    assert failure.detail == f"site site-1: Flower's error {code}: it is gone"


def test_a_site_that_does_not_answer_is_a_timeout_and_its_late_reply_is_dropped(configs):
    away = {"now": True}
    grid, engine = opened(
        configs,
        hold=lambda message: (
            away["now"] and message.metadata.message_type == "train.loss" and message.metadata.dst_node_id == NODE_1
        ),
    )
    replies = engine.exchange(losses(0), deadline=0.05)
    assert replies.workers.tolist() == [0, 2]
    assert replies.failures[1].kind == "timeout"
    assert "site-1" in replies.failures[1].detail
    assert replies.dropped == 0
    away["now"] = False
    grid.release()
    replies = engine.exchange(losses(1))
    assert replies.workers.tolist() == [0, 1, 2]
    assert replies.dropped == 1
    assert engine.exchange(losses(2)).dropped == 0


def test_a_reply_that_comes_twice_is_counted_once(configs):
    change = only(NODE_1, lambda message, replies: [*replies, *replies])
    _, engine = opened(configs, spoil=change)
    replies = engine.exchange(losses())
    assert replies.workers.tolist() == [0, 1, 2]
    assert replies.dropped == 1


def test_a_reply_in_the_name_of_another_node_is_dropped(configs):
    def change(message, replies):
        replies[0].metadata.__dict__["_src_node_id"] = 1000
        return replies

    _, engine = opened(configs, spoil=only(NODE_1, change))
    replies = engine.exchange(losses(), deadline=0.05)
    assert replies.failures[1].kind == "timeout"
    assert replies.dropped == 1


def test_a_reply_for_another_round_is_dropped_and_counted_by_the_run(configs, problem):
    def change(message, replies):
        reply = decode(replies[0].content.config_records["danl"]["message"], most_bytes=10**6)
        if message.metadata.group_id == "2":
            return with_bytes(encode(replace(reply, exchange=1)))(message, replies)
        return replies

    _, engine = grid_engine(configs, spoil=only(NODE_1, change))
    result = danl.solve(RemoteProblem(alpha=1e-3), engine=engine, tol=1e-6)
    assert result.status == "converged"
    assert result.dropped == 1
    assert not result.notes


def test_a_site_cannot_claim_a_failure_of_another_kind_or_worker(configs):
    from danl.protocol.messages import Failure

    for forged in (Failure(0, "error", "x"), Failure(1, "timeout", "x")):
        _, engine = opened(configs, spoil=only(NODE_1, with_bytes(encode(forged))))
        assert engine.exchange(losses()).failures[1].kind == "invalid"


def test_an_error_at_a_site_is_an_error_with_its_name(configs):
    _, engine = opened(configs)
    wrong = GradientTask(0, np.zeros(7))
    failure = engine.exchange(Exchange("gradient", wrong, np.array([1]))).failures[1]
    assert failure.kind == "error"
    assert failure.detail.startswith("site site-1: ValueError")


def test_messages_live_no_longer_than_their_deadline(configs):
    grid, engine = opened(configs)
    engine.exchange(losses(), deadline=2.5)
    assert grid.pushed[-1].metadata.ttl == 2.5


@pytest.fixture(autouse=True)
def time_of_its_own(clock):
    """No machine is too slow for any of these."""
