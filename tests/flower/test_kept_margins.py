"""What a site keeps between messages: the margins of the newest model, in the node's state and nowhere else."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.serde import recorddict_to_proto

import danl
from danl.data import Shard
from danl.data.reference import ShardReference
from danl.engines.flower import kept_margins
from danl.engines.flower.clientapp import app
from danl.engines.flower.kept_margins import COMPARED_ROWS, KEPT
from danl.engines.flower.opening import Opening, message_type
from danl.engines.flower.site import Site
from danl.engines.flower.site_rules import SiteRules
from danl.objective import local_objective
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import (
    CurvatureTask,
    Failure,
    GradientTask,
    HessianTask,
    LocalStepsTask,
    LossTask,
    MomentsTask,
    ScoresTask,
    SmoothnessTask,
)
from danl.protocol.wire import decode, encode
from tests.flower.fake_grid import FakeGrid
from tests.flower.federations import a1a_shards, without_rules, written

D = 123
W = np.linspace(-0.5, 0.5, D)
HALF = np.array([True, True, False, False])
TERMS = Opening.of(RemoteProblem(alpha=1e-3), regions=Regions.make(4, D), policy=None, seed=0)
OPENING = TERMS.to_json(0)
TASKS = [
    GradientTask(1, W, HALF),
    GradientTask(2, W, ~HALF, submodel="pruned"),
    GradientTask(3, W, batch_size=50, whole_loss=True),
    HessianTask(4, W),
    CurvatureTask(5, W, "full", mask=HALF, first=0, last=40),
    LossTask(6, W),
    LocalStepsTask(7, W, steps=2, learning_rate=0.1),
    ScoresTask(8, W),
    SmoothnessTask(9),
    MomentsTask(10),
]


@pytest.fixture(scope="module")
def shard():
    return a1a_shards()[0]


@pytest.fixture
def config(shard, tmp_path):
    return without_rules(written([shard], tmp_path))[0]


@pytest.fixture
def site(config):
    return Site.from_config(config)


@pytest.fixture
def computed(monkeypatch, shard):
    """Every w whose margins are computed on all rows; some rows are looked at to compare."""
    seen, original = [], local_objective.margins

    def counted(X, w, layout):
        if X.shape[0] > COMPARED_ROWS:
            seen.append(w.copy())
        return original(X, w, layout)

    monkeypatch.setattr(local_objective, "margins", counted)
    return seen


def asked_once(site, kept=None, opening=OPENING, w=W):
    """What a site keeps after it was asked for the loss at w."""
    kept = {} if kept is None else kept
    reply = site.answer(encode(LossTask(0, w)), opening, kept)
    assert not isinstance(decode(reply, most_bytes=10**6), Failure)
    return kept


# --- the second question about a model ---


def test_the_second_task_about_a_model_computes_no_margins(site, computed):
    kept = asked_once(site)
    assert len(computed) == 1
    for task in (GradientTask(1, W, HALF), GradientTask(2, W, ~HALF), LossTask(3, W), HessianTask(4, W)):
        assert not isinstance(decode(site.answer(encode(task), OPENING, kept), most_bytes=10**6), Failure)
    assert len(computed) == 1
    site.answer(encode(LossTask(5, W)), OPENING)
    assert len(computed) == 2  # nothing was kept


def test_a_task_without_a_model_leaves_them_there(site, computed):
    kept = asked_once(site)
    site.answer(encode(SmoothnessTask(1)), OPENING, kept)
    before = len(computed)
    site.answer(encode(LossTask(2, W)), OPENING, kept)
    assert len(computed) == before


def test_another_model_takes_their_place(site, computed):
    kept = asked_once(site)
    other = W.copy()
    other[7] = np.nextafter(other[7], 1.0)  # the next float
    site.answer(encode(LossTask(1, other)), OPENING, kept)
    site.answer(encode(LossTask(2, other)), OPENING, kept)
    assert len(computed) == 2
    assert np.array_equal(computed[1], other)
    site.answer(encode(LossTask(3, W)), OPENING, kept)
    assert len(computed) == 3


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"loss": "squared"}, {"centre": [0.5, *[0.0] * (D - 1)]}, {"alpha": 1e-2}],
    ids=lambda change: next(iter(change)),
)
def test_other_terms_compute_them_anew(change, site, computed):
    problem, w = RemoteProblem(alpha=1e-3, intercept=True), np.append(W, 0.25)
    terms = Opening.of(problem, regions=Regions.make(4, D + 1), policy=None, seed=0)
    kept = asked_once(site, None, terms.to_json(0), w)
    asked_once(site, kept, terms.to_json(0), w)
    assert len(computed) == 1
    asked_once(site, kept, replace(terms, **change).to_json(0), w)
    assert len(computed) == 2
    asked_once(site, kept, terms.to_json(1), w)  # another worker
    assert len(computed) == 3


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("margins", lambda data: data[:-8]),
        ("margins", lambda data: data + bytes(8)),
        ("margins", lambda data: data[:-3]),
        ("margins", lambda data: b""),
        ("margins", lambda data: "text"),
        ("margins", lambda data: None),
        ("margins", lambda data: np.frombuffer(data)[::-1].tobytes()),
        ("margins", lambda data: np.full(len(data) // 8, np.nan).tobytes()),
        ("margins", lambda data: np.full(len(data) // 8, np.inf).tobytes()),
        ("model", lambda data: data[:-8]),
        ("model", lambda data: 5),
        ("key", lambda data: data[::-1]),
        ("key", lambda data: [1, 2]),
    ],
)
def test_what_does_not_fit_is_computed_anew_in_silence(name, changed, site, computed):
    kept = asked_once(site)
    right, reply = dict(kept), site.answer(encode(GradientTask(1, W)), OPENING)
    kept[name] = changed(kept[name])
    assert site.answer(encode(GradientTask(1, W)), OPENING, kept) == reply
    assert len(computed) == 3
    assert kept == right  # as it was


def test_margins_that_are_too_large_are_not_kept(site, computed, monkeypatch):
    monkeypatch.setattr(kept_margins, "MOST_BYTES", 100)
    assert asked_once(site) == {}


# --- rows that changed ---


def test_a_file_that_changed_is_asked_again(site, config, computed):
    kept = asked_once(site)
    found = os.stat(config["data"])
    os.utime(config["data"], ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000_000))
    asked_once(site, kept)
    asked_once(site, kept)
    assert len(computed) == 2


def changed_rows(shard):
    """Other rows: fewer; one entry fewer; in another order; one row at the end."""
    X = shard.X.tocsr()
    fewer = X.copy()
    fewer[100, fewer[100].indices[0]] = 0.0
    fewer.eliminate_zeros()
    last = X.copy()
    last.data[-1] = 3.0
    return [(X[:-1], shard.y[:-1]), (fewer, shard.y), (X[::-1], shard.y), (last, shard.y)]


@pytest.mark.parametrize("number", range(4), ids=["fewer rows", "fewer entries", "another order", "the last row"])
def test_rows_of_a_function_that_changed_are_seen(number, shard, computed):
    first = Site("north", ShardReference(load=lambda: shard), SiteRules.open())
    X, y = changed_rows(shard)[number]
    second = Site("north", ShardReference(load=lambda: Shard.of(X, y)), SiteRules.open())
    kept = asked_once(first)
    asked_once(first, kept)
    assert len(computed) == 1
    assert second.answer(encode(GradientTask(1, W)), OPENING, kept) == second.answer(
        encode(GradientTask(1, W)), OPENING
    )
    assert len(computed) == 3


def test_other_targets_need_no_other_margins(shard, computed):
    kept = asked_once(Site("north", ShardReference(load=lambda: shard), SiteRules.open()))
    other = Site("north", ShardReference(load=lambda: Shard.of(shard.X, 1.0 - shard.y)), SiteRules.open())
    reply = other.answer(encode(GradientTask(1, W)), OPENING, kept)
    assert len(computed) == 1
    assert reply == other.answer(encode(GradientTask(1, W)), OPENING)


# --- the same replies ---


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.name}-{task.exchange}")
def test_replies_are_the_same_with_and_without(task, site):
    reply = site.answer(encode(task), OPENING)
    assert not isinstance(decode(reply, most_bytes=10**6), Failure)
    assert site.answer(encode(task), OPENING, asked_once(site)) == reply


@pytest.mark.parametrize(("loss", "intercept"), [("logistic", True), ("multinomial:classes=3", False)])
@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_they_have_the_shape_of_the_outputs(loss, intercept, dense, shard, computed):
    targets = np.arange(shard.n_rows) % (3 if "3" in loss else 2)
    rows = Shard.of(shard.X.toarray() if dense else shard.X, targets.astype(float))
    problem = danl.Problem([rows], loss=loss, alpha=1e-3, intercept=intercept)
    d = problem.layout.n_coefficients
    opening = Opening.of(problem, regions=Regions.make(1, d), policy=None, seed=0).to_json(0)
    site = Site("north", ShardReference(load=lambda: rows), SiteRules.open())
    w, kept = np.linspace(-1.0, 1.0, d), {}
    site.answer(encode(LossTask(0, w)), opening, kept)
    reply = site.answer(encode(HessianTask(1, w)), opening, kept)
    assert len(computed) == 1
    assert not isinstance(decode(reply, most_bytes=10**7), Failure)
    assert reply == site.answer(encode(HessianTask(1, w)), opening)


# --- through the ClientApp ---


def asked(grid, task):
    """The reply of the only node to a task."""
    record = RecordDict({"danl": ConfigRecord({"message": encode(task), "opening": OPENING})})
    (name,) = grid.push_messages([Message(record, 1000, message_type(type(task)))])
    (reply,) = grid.pull_messages([name])
    return reply


def test_they_live_in_the_state_of_the_node_and_in_no_reply(config, computed, shard):
    grid, without = FakeGrid(app, [config]), FakeGrid(app, [config])
    margins = (shard.X @ W).astype("<f8").tobytes()
    for task in TASKS:
        reply = asked(grid, task)
        without.states = dict.fromkeys(without.states, recorddict_to_proto(RecordDict()))  # a node that forgets
        alone = asked(without, task)
        assert list(reply.content) == ["danl"]
        assert set(reply.content["danl"]) == {"message"}
        assert reply.content["danl"]["message"] == alone.content["danl"]["message"]
        sent = json.dumps(reply.metadata.__dict__, default=str).encode() + reply.content["danl"]["message"]
        assert not any(margins[8 * k : 8 * k + 8] in sent for k in (0, 100, 200))
    before = len(computed)
    asked(grid, GradientTask(11, W, HALF))
    asked(grid, GradientTask(12, W, ~HALF))
    assert len(computed) == before
    assert grid.states[1000].SerializeToString().count(margins) == 1


def test_a_record_that_is_not_ours_is_replaced(config, computed):
    grid = FakeGrid(app, [config])
    foreign = RecordDict({KEPT: ArrayRecord([np.zeros(3)]), "other": ConfigRecord({"a": 1})})
    grid.states[1000] = recorddict_to_proto(foreign)
    for number in range(2):
        asked(grid, LossTask(number, W))
    assert len(computed) == 1


def test_portions_of_a_gradient_at_a_held_model_compute_its_margins_once(config, computed):
    """What the costs of `Exchange.kept` count on."""
    grid = FakeGrid(app, [config])
    for number in range(4):
        asked(grid, GradientTask(number, W, np.arange(4) == number))
    assert len(computed) == 1
