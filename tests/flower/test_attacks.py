"""Attacks on a site's rules by a server that asks what it likes: each gets a record without rules, and none with them.

Records are those of some people with an outcome. An attack that succeeds gives the features of one of them, to many
digits, so that a rule that is off is seen.
"""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

from danl.data import Shard
from danl.data.reference import ShardReference
from danl.engines.flower.clientapp import app
from danl.engines.flower.engine import GridEngine
from danl.engines.flower.opening import Opening
from danl.engines.flower.site import Site
from danl.engines.flower.site_rules import SiteRules
from danl.errors import InputError
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import (
    Failure,
    GradientTask,
    HessianTask,
    LocalStepsTask,
    LossTask,
    MomentsTask,
    ScoresTask,
    unpack,
)
from danl.protocol.streams import GRADIENT_BATCH, stream
from danl.protocol.wire import decode, encode
from danl.tasks import BatchGradientTask, LearnTask
from tests.flower.fake_grid import FakeGrid
from tests.flower.federations import a1a_shards, written

N, D = 40, 4
W = np.array([-0.3, 0.2, 0.1, -0.01])
OPEN = SiteRules.open()


def records(n=N, seed=0):
    """Features, and a binary outcome of which both kinds are there."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D)) * [1.0, 2.0, 0.5, 10.0] + [0.0, 1.0, 3.0, 50.0]
    return X, (rng.random(n) < 0.4).astype(float)


def site(X, y, rules, name="north"):
    return Site(name, ShardReference(load=lambda: Shard.of(X, y)), rules)


def ask(site, task, *, loss="logistic", run="run", seed=0, policy=None, regions=1):
    terms, d = RemoteProblem(alpha=0.0, loss=loss), site.reference.read().n_features
    opening = Opening.of(terms, regions=Regions.make(regions, d), policy=policy, seed=seed, run=run).to_json(0)
    return decode(site.answer(encode(task), opening), most_bytes=10**6)


def refused(reply, rule):
    return isinstance(reply, Failure) and reply.kind == "refused" and f": {rule}: " in reply.detail


def is_a_record(found, X):
    """Whether this is a record up to a factor: a gradient has the slope of its loss in it."""
    shares = (X / np.linalg.norm(X, axis=1)[:, None]) @ (found / np.linalg.norm(found))
    return bool(np.abs(shares).max() > 1 - 1e-9)


# --- some of the rows ---


def test_the_whole_without_one():
    """n times the whole gradient, less n - 1 times that of all but one: the slope and the features of that one."""
    X, y = records()
    whole = ask(site(X, y, OPEN), GradientTask(0, W)).fragment
    rest = ask(site(X, y, OPEN), GradientTask(7, W, batch_size=N - 1)).fragment
    left_out = np.setdiff1d(np.arange(N), stream(0, GRADIENT_BATCH, 0, 7).choice(N, size=N - 1, replace=False))
    difference = N * whole - (N - 1) * rest
    assert np.allclose(difference / difference[0], X[left_out[0]] / X[left_out[0], 0], rtol=1e-9)
    assert refused(ask(site(X, y, SiteRules()), GradientTask(7, W, batch_size=N - 1)), "subsets")


def test_two_batches_that_differ_in_one():
    X, y = records()
    drawn = {
        seed: set(stream(seed, GRADIENT_BATCH, 0, 0).choice(N, size=N - 2, replace=False).tolist())
        for seed in range(200)
    }
    one, two = next((a, b) for a in drawn for b in drawn if len(drawn[a] - drawn[b]) == 1)
    batch = GradientTask(0, W, batch_size=N - 2)
    first, second = (ask(site(X, y, OPEN), batch, seed=seed).fragment * (N - 2) for seed in (one, two))
    (here,), (there,) = drawn[one] - drawn[two], drawn[two] - drawn[one]
    slopes = 1 / (1 + np.exp(-X @ W)) - y
    assert np.allclose(first - second, slopes[here] * X[here] - slopes[there] * X[there])
    for seed in (one, two):
        assert refused(ask(site(X, y, SiteRules()), batch, seed=seed), "subsets")


SUBSETS = [
    GradientTask(0, W, batch_size=1),
    GradientTask(0, W, batch_size=1, whole_loss=True),
    HessianTask(0, W, batch_size=1),
    HessianTask(0, W, hessian_batch=1),
    HessianTask(0, W, hessian_batch=1, leverage=True),
    LocalStepsTask(0, W, steps=1, learning_rate=1.0, batch_size=1),
    BatchGradientTask(0, W, batch_size=1),
]


@pytest.mark.parametrize("task", SUBSETS, ids=lambda task: type(task).__name__)
def test_a_batch_of_one(task):
    X, y = records()
    reply = ask(site(X, y, OPEN), task)
    if hasattr(reply, "packed_hessian") and task.hessian_batch == 1:
        found = np.linalg.eigh(unpack(reply.packed_hessian, D))[1][:, -1]
    elif hasattr(reply, "w"):
        found = W - reply.w
    else:
        found = reply.fragment if hasattr(reply, "fragment") else reply.gradient
    assert is_a_record(found, X)
    assert isinstance(ask(site(X, y, SiteRules()), task), Failure)
    allowed = replace(SiteRules(), tasks=OPEN.tasks)  # the task is accepted, and its rows are still too few
    assert refused(ask(site(X, y, allowed), task), "subsets")
    assert refused(ask(site(X, y, replace(allowed, subsets=True)), task), "min-rows")


def test_tasks_that_are_no_sums_are_not_answered_by_default():
    X, y = records()
    learn = LearnTask(0, W, "slot", 0, "topk:2", 1.0, basis="data")
    for task in (learn, LocalStepsTask(0, W, steps=1, learning_rate=1.0), GradientTask(0, W, submodel="pruned")):
        assert refused(ask(site(X, y, SiteRules()), task), "tasks")
        assert not isinstance(ask(site(X, y, OPEN), task), Failure)


# --- models and losses that single out a record ---


def hidden_from_all_but_one(X, y):
    """A logistic model that is wrong about one record and right about the others, and ever surer."""
    from scipy.optimize import linprog

    for record in range(len(y)):
        signs = 2.0 * y - 1.0
        signs[record] *= -1.0
        found = linprog(np.zeros(D), A_ub=-signs[:, None] * X, b_ub=-np.ones(len(y)), bounds=[(None, None)] * D)
        if found.status == 0:
            return record, found.x
    raise AssertionError("no record can be singled out")


@pytest.mark.parametrize("task", [GradientTask, HessianTask, LossTask, ScoresTask])
def test_a_logistic_model_that_all_but_one_are_certain_of(task):
    X, y = records(seed=1)
    y = (X[:, 0] + 0.5 * X[:, 1] > 0.3).astype(float)
    y[np.argmin(np.abs(X[:, 0] + 0.5 * X[:, 1] - 0.3))] = 1.0 - y[np.argmin(np.abs(X[:, 0] + 0.5 * X[:, 1] - 0.3))]
    record, w = hidden_from_all_but_one(X, y)
    found = ask(site(X, y, OPEN), GradientTask(0, 50 * w)).fragment
    assert np.allclose(found * N, (1 - 2 * y[record]) * X[record], rtol=1e-9)
    assert refused(ask(site(X, y, SiteRules()), task(0, 50 * w)), "max-share")


def test_two_huge_models_between_which_one_record_changes_sides():
    """Neither is dominated by its slopes: half of all records are wrong. Their difference is one record."""
    X, y = records()
    base, toward = np.array([0.0, 1.0, -0.3, 0.0]), np.array([1.0, 0.0, 0.0, 0.0])
    crossings = np.sort(-(X @ base) / (X @ toward))
    crossings = crossings[crossings > 0]
    wide = int(np.argmax(np.diff(crossings)[1:-1])) + 1
    before, after = (crossings[wide - 1] + crossings[wide]) / 2, (crossings[wide] + crossings[wide + 1]) / 2
    models = [1e6 * (base + step * toward) for step in (before, after)]
    first, second = (ask(site(X, y, OPEN), GradientTask(0, w)).fragment for w in models)
    record = int(np.argmin(np.abs(-(X @ base) / (X @ toward) - crossings[wide])))
    assert np.allclose(np.abs(N * (second - first)), np.abs(X[record]), rtol=1e-9)
    for w in models:
        assert refused(ask(site(X, y, SiteRules()), GradientTask(0, w)), "max-share")


def test_a_poisson_model_that_grows_for_one():
    X, y = records()
    X[5, 3] = 90.0
    w = np.array([0.0, 0.0, 0.0, 5.0])
    reply = ask(site(X, y, OPEN), HessianTask(0, w), loss="poisson")
    top = int(np.argmax(X[:, 3]))
    hessian = unpack(reply.packed_hessian, D)
    assert np.allclose(hessian / hessian[3, 3], np.outer(X[top], X[top]) / X[top, 3] ** 2, rtol=1e-6)
    guarded = ask(site(X, y, SiteRules()), HessianTask(0, w), loss="poisson")
    assert guarded.loss == np.inf  # told as a step that was too long, with nothing about the records
    assert not guarded.gradient.any()
    assert not guarded.packed_hessian.any()
    assert refused(ask(site(X, y, SiteRules()), ScoresTask(0, w), loss="poisson"), "max-share")


def test_a_poisson_model_that_vanishes_for_all_but_one():
    """No overshooting: where the fit is no worse than a constant, the site says that it refuses."""
    X, y = records()
    X[:, 0] = np.linspace(-30.0, -20.0, N)
    X[3, 0], y[:] = 30.0, 0.0
    y[3], y[:3] = 20.0, 1.0
    w = np.array([np.log(20.0) / 30.0, 0.0, 0.0, 0.0])
    found = ask(site(X, y, OPEN), HessianTask(0, w), loss="poisson")
    assert np.linalg.eigvalsh(unpack(found.packed_hessian, D))[-1] > 10.0
    assert refused(ask(site(X, y, SiteRules(sparse_columns=True)), HessianTask(0, w), loss="poisson"), "max-share")


def test_a_hinge_from_which_all_but_one_have_dropped_out():
    X, y = records()
    y = (X[:, 0] > 0).astype(float)
    w = np.array([1.0, 0.0, 0.0, 0.0]) / np.sort(np.abs(X[:, 0]))[:2].mean()
    found = ask(site(X, y, OPEN), GradientTask(0, w), loss="squared_hinge").fragment
    assert is_a_record(found, X)
    assert refused(ask(site(X, y, SiteRules()), GradientTask(0, w), loss="squared_hinge"), "losses")
    with pytest.raises(InputError, match="losses: squared_hinge is not among squared, logistic"):
        site(X, y, SiteRules()).shard_info("squared_hinge")


def test_a_weight_that_outgrows_the_others():
    X, y = records()
    weights = np.ones(N)
    weights[5] = 1e6
    heavy = [
        Site("north", ShardReference(load=lambda: Shard.of(X, y, weights=weights)), rules)
        for rules in (OPEN, SiteRules())
    ]
    assert np.allclose(ask(heavy[0], MomentsTask(0)).means, X[5], rtol=1e-3)
    assert refused(ask(heavy[1], MomentsTask(0)), "max-share")


def test_rows_of_weight_0_are_no_records():
    X, y = records()
    weights = np.zeros(N)
    weights[:9] = 1.0
    few = Site("north", ShardReference(load=lambda: Shard.of(X, y, weights=weights)), SiteRules())
    assert refused(ask(few, LossTask(0, W)), "min-rows")


def test_a_column_that_two_records_have():
    """Its entry of the gradient is the slope of these two alone, whatever the others are."""
    X, y = records()
    X[:, 0] = 0.0
    X[7, 0] = 1.0
    w = np.zeros(D)
    entry = ask(site(X, y, OPEN), GradientTask(0, w)).fragment[0] * N
    assert entry == pytest.approx(0.5 - y[7])  # the outcome of a record
    X[8, 0] = 1.0
    assert refused(ask(site(X, y, SiteRules()), GradientTask(0, w)), "sparse-columns")
    X[9, 0] = 1.0
    assert not isinstance(ask(site(X, y, SiteRules(), "south"), GradientTask(0, w)), Failure)


# --- the records change ---


def slope_of_the_last(X, y, rules, changed):
    """What the difference of two gradients tells of a record that came in between."""
    gradients = []
    for number, (rows, outcomes) in enumerate(((X, y), changed)):
        reply = ask(site(rows, outcomes, rules), GradientTask(number, W), run=f"run-{number}")
        if isinstance(reply, Failure):
            return reply
        gradients.append(len(outcomes) * reply.fragment)
    return gradients[1] - gradients[0]


def test_a_record_that_was_appended_between_two_runs():
    X, y = records(N + 1)
    found = slope_of_the_last(X[:N], y[:N], OPEN, (X, y))
    assert np.allclose(found / found[0], X[N] / X[N, 0], rtol=1e-9)
    assert refused(slope_of_the_last(X[:N], y[:N], SiteRules(), (X, y)), "changed-data")


def test_the_complete_cases_of_another_formula(tmp_path):
    """A column more, in which one record has no value: the records differ by one, though all rows look another way."""
    X, y = records()
    header = ",".join([*"abcd", "y"])
    lines = [",".join(map(repr, [*row, outcome])) for row, outcome in zip(X.tolist(), y.tolist(), strict=True)]
    path = tmp_path / "north.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    reference = ShardReference(path=str(path))

    class Answering(ShardReference):
        """The records of the file that have a value in every column of a formula."""

        def read(self):
            shard = reference.read()
            kept = np.arange(N) if len(self.name) == 1 else np.delete(np.arange(N), 11)
            columns = [0, 1, 2, 3] if len(self.name) == 1 else [0, 1, 3]
            return Shard.of(
                shard.X[kept][:, columns], shard.y[kept], rows=kept, feature_names=[*"abcd"][: len(columns)]
            )

    def gradient(name, rules, width):
        asked = Site("north", Answering(path=str(path), name=name), rules)
        terms = RemoteProblem(alpha=0.0, feature_names=[*"abcd"][:width])
        opening = Opening.of(terms, regions=Regions.make(1, width), policy=None, seed=0, run=name).to_json(0)
        return decode(asked.answer(encode(GradientTask(0, np.zeros(width))), opening), most_bytes=10**6)

    all_of_them, without = gradient("1", OPEN, 4), gradient("22", OPEN, 3)
    difference = (N * all_of_them.fragment[[0, 1, 3]]) - (N - 1) * without.fragment
    assert np.allclose(difference, (0.5 - y[11]) * X[11, [0, 1, 3]])
    assert not isinstance(gradient("1", SiteRules(), 4), Failure)
    assert refused(gradient("22", SiteRules(), 3), "changed-data")


def test_a_value_that_was_corrected_between_two_runs():
    X, y = records()
    other = X.copy()
    other[4, 1] += 1.0
    assert refused(slope_of_the_last(X, y, SiteRules(), (other, y)), "changed-data")


def test_facts_do_not_tell_of_an_appended_record_either():
    X, y = records(N + 1)
    site(X[:N], y[:N], SiteRules()).shard_info("logistic")
    with pytest.raises(InputError, match=r"changed-data: fewer than min-rows=10 records"):
        site(X, y, SiteRules()).shard_info("logistic")


def test_a_second_site_of_the_same_name_is_held_against_the_first():
    """Two nodes at one hospital, with files that differ in a record; and a server that hears one name twice."""
    X, y = records(N + 1)
    assert not isinstance(ask(site(X[:N], y[:N], SiteRules(), "north"), GradientTask(0, W)), Failure)
    assert refused(ask(site(X, y, SiteRules(), "north"), GradientTask(0, W)), "changed-data")
    assert not isinstance(ask(site(X, y, SiteRules(), "south"), GradientTask(0, W)), Failure)


def test_two_sites_of_one_name_are_no_federation(tmp_path):
    configs = [config | {"name": "north"} for config in written(a1a_shards(2), tmp_path)]
    engine = GridEngine(FakeGrid(app, configs), sites=2, wait=5.0, poll=0.001)
    with pytest.raises(InputError, match="two sites have this name"):
        engine.connect(RemoteProblem(alpha=1e-3))


# --- many questions ---


def test_more_exchanges_than_there_are_records():
    """Gradients at many models are equations in the records; the budget is far below their number, and ends it."""
    X, y = records()
    north = site(X, y, SiteRules(max_exchanges=5))
    replies = [ask(north, GradientTask(number, W * number / 10)) for number in range(7)]
    assert [isinstance(reply, Failure) for reply in replies] == [False] * 5 + [True] * 2
    assert refused(replies[5], "max-exchanges")
    assert "6 times, and at most 5 are answered" in replies[5].detail


def test_a_new_run_does_not_begin_the_budget_of_the_day_anew():
    X, y = records()
    north = site(X, y, SiteRules(max_exchanges=2, max_exchanges_a_day=5))
    replies = [ask(north, LossTask(0, W * number / 10), run=f"run-{number}") for number in range(7)]
    assert [isinstance(reply, Failure) for reply in replies] == [False] * 5 + [True] * 2
    assert refused(replies[5], "max-exchanges-a-day")


def test_masks_that_add_up_to_more_than_the_records_allow():
    """Each is small enough; together they are the whole gradient, so a mask does not count by itself."""
    X, y = records(11)
    loose = replace(SiteRules(), by_mask=True, max_share=1.0, sparse_columns=True)
    masks = np.eye(D, dtype=bool)
    parts = [ask(site(X, y, loose), GradientTask(0, W, mask), regions=D).fragment for mask in masks]
    assert np.allclose(np.concatenate(parts), ask(site(X, y, OPEN), GradientTask(0, W)).fragment)
    strict = replace(loose, by_mask=False)
    for mask in masks:
        assert refused(ask(site(X, y, strict), GradientTask(0, W, mask), regions=D), "max-features-per-row")


def test_a_policy_that_isolates_a_coefficient():
    X, y = records(11)
    task = GradientTask(0, W, choose=True, round=1)
    from danl.policies import Magnitude

    strict = replace(SiteRules(), max_share=1.0, sparse_columns=True)
    assert refused(ask(site(X, y, strict), task, policy=Magnitude(0.25), regions=D), "max-features-per-row")
