"""Attacks by columns, weights and subgroups: each gets a record at a site without rules, and is refused by default.

No column is of one record, but a combination of them, or one column at a model that is certain of the others.
"""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")
pytest.importorskip("formulaic")

import danl
from danl.data import Shard
from danl.data.reference import ShardReference
from danl.design.agreement import agree
from danl.design.survey import Survey
from danl.engines.flower.dominance import column_fault
from danl.engines.flower.opening import Opening
from danl.engines.flower.site import Site
from danl.engines.flower.site_rules import SiteRules
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import Failure, GradientTask, MomentsTask
from danl.protocol.wire import decode, encode
from danl.tasks.binned_counts import BinnedTask
from danl.tasks.column_counts import ColumnsTask
from danl.tasks.fit_questions import FitTask
from danl.tasks.null_model import NullTask
from danl.tasks.several import SeveralTask
from tests.flower.test_attacks import OPEN, ask, refused, site

N = 60
RNG = np.random.default_rng(4)
AGE, OTHER = RNG.normal(60.0, 12.0, N), RNG.standard_normal(N)
Y = (RNG.random(N) < 0.4).astype(float)


def test_two_columns_that_are_alike_but_for_one_record():
    """Over 60 and over 61, with one person between: the difference of two entries is the slope of that person."""
    order = np.argsort(AGE)
    between = order[N // 2]
    older = np.zeros(N)
    older[order[N // 2 :]] = 1.0
    oldest = older.copy()
    oldest[between] = 0.0
    X, w = np.column_stack([older, oldest, OTHER]), np.zeros(3)
    found = ask(site(X, Y, OPEN), GradientTask(0, w))
    assert N * (found.fragment[0] - found.fragment[1]) == pytest.approx(0.5 - Y[between])
    assert refused(ask(site(X, Y, SiteRules()), GradientTask(0, w)), "sparse-columns")
    alone = np.column_stack([older, OTHER])
    assert not isinstance(ask(site(alone, Y, SiteRules(), "south"), GradientTask(0, np.zeros(2))), Failure)


def subgroup():
    """Six records of a level, at ages that differ; and a model that is 0 but for them, certain of all but one."""
    level = np.zeros(N)
    level[:6] = 1.0
    ages = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
    X = np.column_stack([level, level * np.append(ages, np.zeros(N - 6)), OTHER, AGE])
    return X, np.array([-40.0, 40.0, 0.0, 0.0])  # z = 40 (age - 1): the fourth is at 0


def test_a_model_that_is_certain_of_a_subgroup_but_for_one():
    """The curvature of the level's column is that of one record; of all records it is that of half of them."""
    X, w = subgroup()
    slopes = N * ask(site(X, Y, OPEN), GradientTask(0, w)).fragment
    certain = np.array([0, 0, 0, 0.5, 1, 1])
    assert slopes[0] == pytest.approx((certain - Y[:6]).sum())
    assert refused(ask(site(X, Y, SiteRules()), GradientTask(0, w)), "max-share")
    assert not isinstance(ask(site(X, Y, SiteRules(), "south"), GradientTask(0, np.zeros(4))), Failure)


def test_a_squared_loss_that_fits_all_but_one():
    """The gradient is the residual of one record, times its columns."""
    X = np.column_stack([AGE / 10, OTHER])
    w = np.array([0.5, -1.0])
    y = X @ w
    y[11] += 7.0
    found = ask(site(X, y, OPEN), GradientTask(0, w), loss="squared").fragment
    assert np.allclose(found * N, -7.0 * X[11])
    assert refused(ask(site(X, y, SiteRules()), GradientTask(0, w), loss="squared"), "sparse-columns")
    loose = SiteRules(sparse_columns=True)
    assert refused(ask(site(X, y, loose), GradientTask(0, w), loss="squared"), "max-share")
    assert refused(ask(site(X, y, loose), GradientTask(0, w * np.inf), loss="squared"), "max-share")


@pytest.mark.parametrize("task", [NullTask(0, np.zeros(2), 30.0), FitTask(0, np.zeros(2), 30.0)])
def test_a_null_model_whose_offset_singles_out(task):
    """Offsets as they may be in a file; at an intercept of 30 all are certain but for the one that has the least."""
    offset = -np.sort(RNG.exponential(8.0, N))
    offset[-1], X, y = -33.0, np.column_stack([AGE, OTHER]), np.ones(N)
    y[::3] = 0.0
    for rules, kind in ((OPEN, False), (SiteRules(), True)):
        asked = Site("north", ShardReference(load=lambda: Shard.of(X, y, offset=offset)), rules)
        assert refused(ask(asked, task), "max-share") is kind


# --- records and rows ---


def test_two_rows_of_a_record_are_one():
    """Successes and failures of two records are four rows, and still two records that differ from the others."""
    rows = np.repeat(np.arange(N), 2)
    y, level = np.tile([1.0, 0.0], N), np.zeros(2 * N)
    level[:4] = 1.0
    X = np.column_stack([level, np.repeat(OTHER, 2)])
    shard = Shard.of(X, y, rows=rows, weights=np.full(2 * N, 5.0))
    assert "fewer than 3 records" in column_fault(shard, 0.8, 3)
    level[:6] = 1.0
    shard = Shard.of(np.column_stack([level, X[:, 1]]), y, rows=rows, weights=np.full(2 * N, 5.0))
    assert column_fault(shard, 0.8, 3) is None


def test_clusters_and_moments_count_records_of_a_weight():
    """Four clusters, of which one has twelve rows of weight 0 and three that count; a column of two values likewise."""
    weights, clusters, X = np.ones(N), np.arange(N) // 15, np.column_stack([AGE, np.arange(N) < 15])
    shard = {"weights": weights, "clusters": clusters}
    task = FitTask(0, np.zeros(2), 0.0, units="clusters")
    columns = ColumnsTask(0, np.zeros(2), groups=np.full(3, -1.0), edges=np.empty(0))
    whole = Site("north", ShardReference(load=lambda: Shard.of(X, Y, **shard)))
    assert not isinstance(ask(whole, task), Failure)
    weights[:13] = 0.0
    few = Site("south", ShardReference(load=lambda: Shard.of(X, Y, **shard)), SiteRules(sparse_columns=True))
    assert refused(ask(few, task), "min-rows")
    told = ask(few, columns)
    assert told.squares[0] > 0
    assert (told.means[1], told.squares[1]) == (0.0, -1.0)


@pytest.mark.parametrize("edges", [[1.0, 0.0], [0.0, np.nan]])
def test_edges_that_part_nothing(edges):
    X = np.column_stack([AGE, OTHER])
    for task in (
        BinnedTask(0, np.zeros(2), np.array(edges)),
        ColumnsTask(0, np.zeros(2), groups=np.full(3, -1.0), edges=np.tile(edges, 3), n_edges=2),
    ):
        assert "edges: must be finite and not fall" in ask(site(X, Y, OPEN), task).detail


# --- the same records, counted in another way ---


def slopes_of(path, rules, *, power=1, **counted):
    """The sum of the slopes at 0 of a model with a power of `age`, or why there is none."""
    analysis = danl.Analysis("y ~ age" + f" ** {power}" * (power > 1), family="poisson", **counted)
    asked = Site("north", ShardReference(path=str(path)), rules)
    design = agree(analysis, [Survey.from_json(asked.survey(analysis.to_json()))]).design
    opening = Opening.of(RemoteProblem(analysis=design), regions=Regions.make(1, 2), policy=None, seed=0).to_json(0)
    reply = decode(asked.answer(encode(GradientTask(0, np.zeros(2))), opening), most_bytes=10**6)
    return reply if isinstance(reply, Failure) else reply.fragment[-1] * (N - ("weights" in counted))


@pytest.mark.parametrize("counted", [{"weights": "all_but_one"}, {"offset": "four"}])
def test_a_record_that_a_weight_or_an_offset_leaves_out_and_puts_in(counted, tmp_path):
    """The other run has another column, so that none of its records has the numbers that it had."""
    place = np.arange(N)
    lines = [
        f"{a!r},{b},{c},{d}" for a, b, c, d in zip(AGE.tolist(), Y, 1.0 * (place != 5), 1.0 * (place < 4), strict=True)
    ]
    path = tmp_path / "north.csv"
    path.write_text("age,y,all_but_one,four\n" + "\n".join(lines) + "\n")
    found = slopes_of(path, OPEN) - slopes_of(path, OPEN, power=2, **counted)
    assert found == pytest.approx(1.0 - Y[5] if "weights" in counted else 4 * (1.0 - np.e))
    assert not isinstance(slopes_of(path, SiteRules()), Failure)
    assert refused(slopes_of(path, SiteRules(), power=2, **counted), "changed-data")


def test_moments_are_of_combinations_that_many_have():
    """They are asked for before a fit, and are held against the same rule."""
    X = np.column_stack([np.arange(N) < 20, np.arange(N) < 21]).astype(float)
    assert refused(ask(site(X, Y, SiteRules()), MomentsTask(0)), "sparse-columns")


# --- several questions in one message ---


def several(*parts):
    return SeveralTask(0, np.zeros(parts[0].w.size), parts)


def test_a_question_beside_others_is_held_against_the_rules():
    X, w = subgroup()
    fit, certain = FitTask(0, np.zeros(4), 0.0), FitTask(0, w, 0.0)
    asked = several(fit, certain)
    assert not any(isinstance(part, Failure) for part in ask(site(X, Y, OPEN), asked).parts)
    answered, alone = ask(site(X, Y, SiteRules()), asked).parts
    assert not isinstance(answered, Failure)
    assert refused(alone, "max-share")
    assert alone == ask(site(X, Y, SiteRules()), certain)
    assert refused(ask(site(X, Y, SiteRules(tasks=("hessian",))), asked), "tasks")


def test_every_question_of_a_message_is_counted():
    X = np.column_stack([AGE, OTHER])
    fit = FitTask(0, np.zeros(2), 0.0)
    parts = ask(site(X, Y, SiteRules(max_exchanges=2)), several(fit, fit, fit)).parts
    assert [isinstance(part, Failure) for part in parts] == [False, False, True]
    assert refused(parts[2], "max-exchanges")
    assert refused(ask(site(X, Y, SiteRules(max_exchanges=2)), several(fit)), "max-exchanges")
