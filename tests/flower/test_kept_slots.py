"""What tasks with a state keep at a site between messages: in the node's state, and "forgot" where it is not there."""

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

from flwr.app import RecordDict
from flwr.common.serde import recorddict_to_proto

import danl
from danl.data import Shard
from danl.data.reference import ShardReference
from danl.engines.flower import kept_slots
from danl.engines.flower.clientapp import app
from danl.engines.flower.engine import GridEngine
from danl.engines.flower.kept_slots import PREFIX, from_bytes, to_bytes
from danl.engines.flower.opening import Opening
from danl.engines.flower.site import Site
from danl.engines.flower.site_rules import SiteRules, task_names
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import Failure, LossTask, Task
from danl.protocol.own_tasks import OWN_TASKS, Slot
from danl.protocol.wire import decode, encode
from danl.tasks import DifferenceTask, LearnTask
from danl.worker.worker import Worker
from tests.flower.fake_grid import FakeGrid
from tests.flower.federations import a1a_shards, same_run, without_rules, written

DOCUMENT = Path(__file__).parents[2] / "docs" / "federated.md"
D = 123
W = np.linspace(-0.5, 0.5, D)
TERMS = Opening.of(RemoteProblem(alpha=1e-3), regions=Regions.make(4, D), policy=None, seed=0, run="first")
OPENING = TERMS.to_json(0)
SLOT = Slot(
    3,
    {
        "numbers": np.array([1.5, np.nan, -np.inf, 5e-324]),
        "table": np.arange(6.0).reshape(2, 3),
        "small": np.array([0.1], dtype=np.float32),
        "places": np.array([[7], [2**40]]),
        "codes": np.array([-3], dtype=np.int16),
        "mask": np.array([True, False]),
        "one": np.array(2.5),
        "none": np.zeros((0, 4)),
    },
)


@pytest.fixture(scope="module")
def shards():
    return a1a_shards()


@pytest.fixture
def configs(shards, tmp_path):
    return without_rules(written(shards, tmp_path))


@pytest.fixture
def site(configs):
    return Site.from_config(configs[0])


def learn(version, number=0, slot="learned"):
    return LearnTask(number, W * (number + 1), slot, version, "topk:20", 1.0)


def asked(site, kept, version, number=0, *, opening=OPENING, slot="learned"):
    return decode(site.answer(encode(learn(version, number, slot)), opening, kept), most_bytes=10**7)


def forgot(reply):
    return isinstance(reply, Failure) and reply.kind == "forgot"


def entries(kept):
    return [name for name in kept if name.startswith(PREFIX)]


# --- as bytes ---


def test_every_bit_comes_back():
    found = from_bytes(to_bytes(SLOT, b"this run"), b"this run")
    assert found.version == 3
    assert found.arrays.keys() == SLOT.arrays.keys()
    for name, array in SLOT.arrays.items():
        assert (found.arrays[name].dtype, found.arrays[name].shape) == (array.dtype, array.shape)
        assert found.arrays[name].tobytes() == array.tobytes()
    found.arrays["table"][0, 0] = 9.0  # a task may go on in place


def test_what_is_damaged_or_somebody_elses_is_nothing():
    data = to_bytes(SLOT, b"this run")
    assert from_bytes(data, b"another run") is None
    for changed in (None, 5, "text", [1], b"", data[:-1], data + b"\0", data[:31], data[32:], bytes(len(data))):
        assert from_bytes(changed, b"this run") is None
    for place in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[place] ^= 1
        assert from_bytes(bytes(flipped), b"this run") is None


@pytest.mark.parametrize("header", [b"[]", b"{}", b'{"version": 1, "shapes": {"a": [9]}, "arrays": []}', b"{"])
def test_a_frame_that_nobody_wrote_is_nothing(header):
    frame = kept_slots.MAGIC + len(header).to_bytes(4, "little") + header
    assert from_bytes(kept_slots._digest(frame, b"") + frame, b"") is None


def test_no_objects_are_kept():
    with pytest.raises(TypeError, match="a: an array of object cannot be kept"):
        to_bytes(Slot(1, {"a": np.array([None])}), b"")


# --- from message to message ---


def test_a_slot_goes_on_as_in_one_process(site, shards):
    kept, worker = {}, TERMS.worker_for(site.reference.read())
    assert isinstance(worker, Worker)
    for version in range(4):
        ours, theirs = asked(site, kept, version, version), worker.answer(learn(version, version))
        for name, value in vars(theirs).items():
            np.testing.assert_array_equal(getattr(ours, name), value)
    assert len(entries(kept)) == 1


def test_without_what_was_kept_it_says_so(site):
    kept = {}
    asked(site, kept, 0)
    assert not forgot(asked(site, dict(kept), 1, 1))
    reply = asked(site, {}, 1, 1)
    assert reply == Failure(0, "forgot", "site site-0: keeps nothing as learned, and version 1 is asked for")
    assert forgot(decode(site.answer(encode(learn(1, 1)), OPENING), most_bytes=10**7))


def test_another_version_is_forgotten_and_the_slot_stays(site):
    kept = {}
    asked(site, kept, 0)
    before = dict(kept)
    for version in (2, 7):
        assert forgot(asked(site, kept, version, 1))
    assert {name: kept[name] for name in entries(kept)} == {name: before[name] for name in entries(before)}
    assert not forgot(asked(site, kept, 1, 2))


def test_version_0_begins_anew(site):
    kept = {}
    for version in (0, 1, 2, 0):
        asked(site, kept, version)
    assert forgot(asked(site, dict(kept), 3))
    assert not forgot(asked(site, kept, 1))


def test_slots_have_names(site):
    kept = {}
    asked(site, kept, 0, slot="one")
    asked(site, kept, 0, slot="two")
    asked(site, kept, 1, slot="two")
    assert len(entries(kept)) == 2
    assert forgot(asked(site, kept, 2, slot="one"))
    assert not forgot(asked(site, kept, 2, slot="two"))
    one, two = sorted(entries(kept))
    kept[one], kept[two] = kept[two], kept[one]  # each is bound to its name
    assert forgot(asked(site, kept, 3, slot="one"))


@pytest.mark.parametrize(
    "change",
    [{"run": "second"}, {"seed": 1}, {"alpha": 1e-2}, {"intercept": True}],
    ids=lambda change: next(iter(change)),
)
def test_another_run_forgets_and_drops_what_is_not_its_own(change, site):
    kept = {}
    asked(site, kept, 0)
    (before,) = entries(kept)
    w = np.append(W, 0.0) if "intercept" in change else W
    terms = replace(TERMS, **change, regions=[w.size])
    other = terms.to_json(0)
    for version, expected in ((1, True), (0, False), (1, False)):
        reply = decode(site.answer(encode(replace(learn(version), w=w)), other, kept), most_bytes=10**7)
        assert forgot(reply) == expected
    assert before not in kept
    assert len(entries(kept)) == 1
    assert forgot(asked(site, kept, 1))


def test_another_worker_forgets(site):
    kept = {}
    asked(site, kept, 0)
    assert forgot(asked(site, kept, 1, opening=TERMS.to_json(1)))


def test_another_file_forgets(site, configs):
    kept = {}
    asked(site, kept, 0)
    assert forgot(asked(Site.from_config(configs[1]), dict(kept), 1))
    found = os.stat(configs[0]["data"])
    os.utime(configs[0]["data"], ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000_000))
    assert forgot(asked(site, kept, 1))
    assert not forgot(asked(site, kept, 0))
    assert not forgot(asked(site, kept, 1))


def test_rows_of_a_function_that_are_fewer_forget(shards):
    first = Site("north", ShardReference(load=lambda: shards[0]), SiteRules.open())
    fewer = Shard.of(shards[0].X[:-1], shards[0].y[:-1])
    kept = {}
    asked(first, kept, 0)
    assert forgot(asked(Site("north", ShardReference(load=lambda: fewer), SiteRules.open()), dict(kept), 1))
    assert not forgot(asked(first, kept, 1))


@pytest.mark.parametrize(
    "changed", [lambda data: data[:-8], lambda data: data[::-1], lambda data: "text", lambda data: 5]
)
def test_damaged_bytes_are_forgotten_and_replaced(changed, site):
    kept = {}
    asked(site, kept, 0)
    (name,) = entries(kept)
    kept[name] = changed(kept[name])
    assert forgot(asked(site, kept, 1))
    asked(site, kept, 0)
    assert not forgot(asked(site, kept, 1))


def test_a_slot_that_is_too_large_is_not_kept(site, monkeypatch):
    kept = {}
    asked(site, kept, 0)
    monkeypatch.setattr(kept_slots, "MOST_BYTES", 1000)
    assert not forgot(asked(site, kept, 1))
    assert entries(kept) == []
    assert forgot(asked(site, kept, 2))


def test_other_tasks_leave_it_alone(site):
    kept = {}
    asked(site, kept, 0)
    before = {name: kept[name] for name in entries(kept)}
    site.answer(encode(LossTask(1, W)), OPENING, kept)
    assert {name: kept[name] for name in entries(kept)} == before


def test_margins_are_kept_beside_it(site):
    kept = {}
    asked(site, kept, 0)
    assert {"key", "model", "margins"} == set(kept) - set(entries(kept))


# --- the rules of a site ---


DANLS = [name for name, task in OWN_TASKS.items() if task.__module__.startswith("danl.")]


@pytest.mark.parametrize("name", [name for name in DANLS if name != "several"])  # each of them is one of these
def test_every_task_can_be_closed(name):
    class Asked(Task):
        pass

    task = Asked(0)
    Asked.name = name
    assert SiteRules.open().broken_by(task, 100, 10) is None
    by_default = SiteRules().broken_by(task, 100, 10)
    if OWN_TASKS[name].by_default:
        assert by_default is None
    else:
        assert by_default.startswith(f"tasks: {name} is not among hessian, ")
    assert SiteRules(tasks=("loss",)).broken_by(task, 100, 10) == f"tasks: {name} is not among loss"
    assert SiteRules(tasks=(name,)).broken_by(task, 100, 10) is None
    assert "min-rows" in replace(SiteRules.open(), min_rows=101).broken_by(task, 100, 10)


def test_mini_batches_count_with_their_own_rows():
    task = DifferenceTask(0, W, W, batch_size=10)
    assert "min-rows: 10 rows" in replace(SiteRules.open(), min_rows=11).broken_by(task, 1000, D)
    assert "12.3 a row" in replace(SiteRules.open(), max_features_per_row=12).broken_by(task, 1000, D)


def test_the_document_names_every_task():
    (line,) = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("| `tasks` |")]
    foreign = {name for name, task in OWN_TASKS.items() if not task.__module__.startswith("danl.")}
    assert set(task_names()) - foreign <= set(re.findall("[a-z]+(?:-[a-z]+)*", line))


# --- through the ClientApp ---


def engine_over(configs):
    grid = FakeGrid(app, configs)
    return grid, GridEngine(grid, sites=len(configs), wait=280.0, deadline=280.0, poll=0.001)


@pytest.mark.parametrize("method", ["fednl", "fednl:pp=2,compressor=topk:200"])
def test_a_run_is_the_local_one(method, configs, shards):
    problem, settings = danl.Problem(shards, alpha=1e-3), {"method": method, "tol": 1e-8, "max_rounds": 12}
    grid, engine = engine_over(configs)
    result = danl.solve(RemoteProblem(alpha=1e-3), engine=engine, **settings)
    assert result.failures == ()
    same_run(result, danl.solve(problem, **settings), problem)
    for message in grid.pushed[-3:]:
        assert message.metadata.message_type == "train.learn"


def test_a_node_that_was_started_anew_is_begun_anew(configs, shards):
    grid, engine = engine_over(configs)
    (node, *_) = sorted(grid.nodes)

    def restart(row):
        if row.exchange == 2:
            grid.states[node] = recorddict_to_proto(RecordDict())

    result = danl.solve(
        RemoteProblem(alpha=1e-2), engine=engine, method="fednl", tol=1e-9, callback=restart, max_rounds=200
    )
    assert result.status == "converged"
    (failure,) = result.failures
    assert (failure.worker, failure.kind) == (0, "forgot")
    assert failure.detail.startswith("site site-0: keeps nothing as fednl")
    best = danl.reference_optimum(danl.Problem(shards, alpha=1e-2))
    assert np.linalg.norm(result.w - best.w) <= 1e-6 * np.linalg.norm(best.w)


def test_a_second_run_of_the_same_terms_begins_anew(configs):
    """What the first one kept has the version that a resumed run may count on, and another content."""
    _, engine = engine_over(configs)
    problem = RemoteProblem(alpha=1e-3)
    known = problem.described(engine.connect(problem))
    replies = []
    for versions in ((0,), (1, 0, 1)):
        engine.open(known, regions=Regions.make(1, D), policy=None, seed=0)
        for number, version in enumerate(versions):
            exchange = danl.methods.Exchange("learn", learn(version, number), np.arange(3))
            replies.append({each.kind for each in engine.exchange(exchange).failures.values()})
    assert replies == [set(), {"forgot"}, set(), set()]
