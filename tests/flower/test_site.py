"""A site's rules: what breaks one is refused by name, and the run goes on without the site."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

import danl
from danl.data import Shard
from danl.engines.flower.clientapp import app
from danl.engines.flower.engine import GridEngine
from danl.engines.flower.opening import Opening
from danl.engines.flower.site import Site
from danl.engines.flower.site_rules import SiteRules
from danl.errors import InputError
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import (
    CurvatureTask,
    Exchange,
    Failure,
    GradientTask,
    HessianTask,
    LocalStepsTask,
    LossTask,
    SmoothnessTask,
)
from danl.protocol.wire import decode, encode
from tests.flower.fake_grid import FakeGrid
from tests.flower.federations import a1a_shards, written

W = np.zeros(123)


@pytest.fixture(scope="module")
def shards():
    """Three sites, the last of 20 rows."""
    made = a1a_shards()
    last = made[2]
    return [*made[:2], Shard.of(last.X[:20], last.y[:20], name=last.name)]


@pytest.fixture(scope="module")
def configs(shards, tmp_path_factory):
    return written(shards, tmp_path_factory.mktemp("sites"))


def solved(configs, **settings):
    engine = GridEngine(FakeGrid(app, configs), sites=len(configs), wait=5.0, poll=0.001)
    return danl.solve(RemoteProblem(alpha=1e-3), engine=engine, **settings)


@pytest.mark.parametrize(
    ("rule", "note"),
    [
        ({"min-rows": 50}, "min-rows: 20 rows, and at least 50 are asked for"),
        (
            {"max-features-per-row": 2.0},
            "max-features-per-row: 123 features of 20 rows are 6.15 a row, and at most 2 are allowed",
        ),
        ({"tasks": "gradient, loss"}, "tasks: hessian is not among gradient, loss"),
    ],
    ids=["min-rows", "ratio", "tasks"],
)
def test_a_site_that_refuses_is_shut_out_and_the_others_go_on(rule, note, configs, shards):
    result = solved([*configs[:2], configs[2] | rule], tol=1e-9)
    assert result.status == "converged"
    assert result.notes[0] == f"worker 2 refused in exchange 0: site site-2: {note}"
    assert [(failure.worker, failure.kind) for failure in result.failures] == [(2, "refused")]
    others = danl.Problem(shards[:2], alpha=1e-3)
    optimum = danl.reference_optimum(others)
    assert others.objective(result.w) - optimum.objective <= 1e-14
    assert np.linalg.norm(result.w - optimum.w) <= 1e-6
    everyone = danl.reference_optimum(danl.Problem(shards, alpha=1e-3))
    assert np.linalg.norm(everyone.w - optimum.w) > 1e-2  # the third site would have made a difference


def test_a_mask_that_is_small_enough_passes_the_ratio(configs, shards):
    """A quarter of the features of 20 rows passes where all of them do not: the Hessian is what is refused."""
    site = Site.from_config(configs[2] | {"max-features-per-row": 2.0, "by-mask": True})
    terms = Opening.of(RemoteProblem(alpha=1e-3), regions=Regions.make(4, 123), policy=None, seed=0)
    one, two = np.array([True, False, False, False]), np.array([True, True, False, False])
    assert not isinstance(answer(site, GradientTask(0, W, one), terms), Failure)
    refused = answer(site, GradientTask(0, W, two), terms)
    assert (refused.kind, refused.worker) == ("refused", 5)
    assert "62 features of 20 rows" in refused.detail


def test_a_site_without_hessians_answers_its_part_of_a_mixed_exchange(configs):
    """A gradient within an exchange of Hessians is a gradient; a piece of a Hessian is curvature."""
    closed = configs[2] | {"rules": "open", "tasks": "gradient, loss"}
    engine = GridEngine(FakeGrid(app, [*configs[:2], closed]), sites=3, wait=5.0, poll=0.001)
    problem = RemoteProblem(alpha=1e-3)
    engine.open(problem.described(engine.connect(problem)), regions=Regions.make(4, 123), policy=None, seed=0)
    numbers = 123 * 124 // 2
    for pieces, refused in (
        ([(0, numbers), (0, 0), (0, 0)], {}),
        ([(0, 0), (0, 9), (0, numbers)], {2: "tasks: hessian is not among gradient, loss"}),
        ([(0, 0), (0, 0), (5, 9)], {2: "tasks: curvature is not among gradient, loss"}),
    ):
        replies = engine.exchange(Exchange("hessian", HessianTask(0, W), np.arange(3), pieces=np.array(pieces)))
        assert {who: (each.kind, each.detail) for who, each in replies.failures.items()} == {
            who: ("refused", f"site site-2: {rule}") for who, rule in refused.items()
        }
        assert replies.senders.tolist() == [who for who in range(3) if who not in refused]


def test_a_piece_is_held_against_the_ratio_with_all_features(configs):
    site = Site.from_config(configs[2] | {"max-features-per-row": 2.0, "by-mask": True})
    terms = Opening.of(RemoteProblem(alpha=1e-3), regions=Regions.make(4, 123), policy=None, seed=0)
    piece = CurvatureTask(0, W, "full", mask=np.array([True, False, False, False]), first=0, last=1)
    assert "123 features of 20 rows" in answer(site, piece, terms).detail


def test_a_mask_the_site_chooses_is_held_against_the_ratio(configs):
    site = Site.from_config(configs[2] | {"max-features-per-row": 2.0, "by-mask": True})
    for keep, kind in ((0.25, None), (0.5, "refused")):
        policy = danl.policies.Magnitude(keep)
        terms = Opening.of(RemoteProblem(alpha=1e-3), regions=Regions.make(4, 123), policy=policy, seed=0)
        reply = answer(site, GradientTask(0, W, choose=True, round=1), terms)
        assert getattr(reply, "kind", None) == kind


def answer(site, task, terms):
    return decode(site.answer(encode(task), terms.to_json(5)), most_bytes=10**6)


TASKS = [
    HessianTask(0, W),
    GradientTask(0, W),
    LossTask(0, W),
    LocalStepsTask(0, W, steps=1, learning_rate=0.1),
    SmoothnessTask(0),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_every_task_can_be_closed(task):
    names = ["hessian", "gradient", "loss", "local-steps", "smoothness"]
    own = names[TASKS.index(task)]
    assert SiteRules.open().broken_by(task, 100, 123) is None
    assert replace(SiteRules.open(), tasks=(own,)).broken_by(task, 100, 123) is None
    others = tuple(name for name in names if name != own)
    assert SiteRules(tasks=others).broken_by(task, 100, 123).startswith(f"tasks: {own} is not among ")


@pytest.mark.parametrize(
    "task",
    [
        GradientTask(0, W, batch_size=10),
        GradientTask(0, W, batch_size=10, whole_loss=True),
        HessianTask(0, W, batch_size=10),
        HessianTask(0, W, hessian_batch=10),
        LocalStepsTask(0, W, steps=1, learning_rate=0.1, batch_size=10),
    ],
    ids=str,
)
def test_a_mini_batch_counts_with_its_own_rows(task):
    """Otherwise a gradient of one row, which is the row, would pass any number of rows."""
    rules = SiteRules.open()
    assert "min-rows: 10 rows" in replace(rules, min_rows=11).broken_by(task, 1000, 123)
    assert "12.3 a row" in replace(rules, max_features_per_row=12).broken_by(task, 1000, 123)
    assert replace(rules, min_rows=10, max_features_per_row=12.3).broken_by(task, 1000, 123) is None


def test_one_number_is_not_held_against_the_ratio():
    rules = replace(SiteRules.open(), max_features_per_row=0.001)
    assert rules.broken_by(LossTask(0, W), 5, 123) is None
    assert rules.broken_by(SmoothnessTask(0), 5, 123) is None
    assert "min-rows" in SiteRules(min_rows=6).broken_by(LossTask(0, W), 5, 123)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"min-rows": 0}, "min-rows=0"),
        ({"min-rows": 1.5}, "min-rows=1.5"),
        ({"max-features-per-row": -1}, "max-features-per-row=-1"),
        ({"tasks": "hesian"}, "tasks='hesian': must be one of hessian"),
        ({"min_rows": 3}, "node-config key='min_rows': must be one of min-rows"),
        ({"name": ""}, "must have name and data"),
        ({"data": ""}, "must have name and data"),
    ],
)
def test_a_wrong_setting_is_an_error_not_a_rule_that_is_off(change, match, configs):
    with pytest.raises(InputError, match=match):
        Site.from_config(configs[0] | change)


@pytest.mark.parametrize(
    "opening",
    [None, 5, "", "{", "[]", "{}", '{"worker": 1}'],
    ids=["none", "number", "empty", "cut", "list", "no", "few"],
)
def test_an_opening_nobody_can_read_is_an_error_reply(opening, configs):
    reply = decode(Site.from_config(configs[0]).answer(encode(LossTask(0, W)), opening), most_bytes=10**6)
    assert isinstance(reply, Failure)
    assert reply.kind == "error"
    assert "opening" in reply.detail


@pytest.mark.parametrize("data", [b"", None, "text", b"x" * 10**6, encode(Failure(0, "error", ""))])
def test_a_task_nobody_can_read_is_an_error_reply(data, configs):
    terms = Opening.of(RemoteProblem(alpha=1e-3), regions=Regions.make(4, 123), policy=None, seed=0)
    reply = decode(Site.from_config(configs[0]).answer(data, terms.to_json(0)), most_bytes=10**6)
    assert isinstance(reply, Failure)
    assert reply.kind == "error"


def test_a_draw_that_has_the_same_rows_many_times_is_of_few(configs):
    """Of 160 draws with replacement from so many rows about a third are repetitions."""
    from danl.tasks import BatchGradientTask

    terms = Opening.of(RemoteProblem(alpha=1e-3), regions=Regions.make(4, 123), policy=None, seed=0)
    for rows, kind in ((50, None), (155, "refused")):
        site = Site.from_config(configs[0] | {"rules": "open", "min-rows": rows})
        reply = answer(site, BatchGradientTask(7, W, 160), terms)
        assert getattr(reply, "kind", None) == kind
        if kind:
            assert "min-rows" in reply.detail
