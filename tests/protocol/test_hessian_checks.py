"""Parts of Hessians: honest ones pass, whatever breaks a rule is named."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import danl
from danl.engines import Local
from danl.objective.problem import Problem
from danl.objective.regions import Regions
from danl.protocol.guards import Guards
from danl.protocol.hessian_form import HessianForm
from danl.protocol.messages import CurvatureTask
from danl.protocol.replies import ReplyRules
from danl.protocol.wire import decode, encode, most_bytes
from danl.worker.worker import Worker
from tests.problems import TARGETS, random_shards
from tests.protocol.validated import fault, validated
from tests.server.test_partial_curvature import multinomial

STEEP = ("poisson", "gamma")
REGIONS = Regions.make([3, 2, 2], 7)
W = np.linspace(-1, 1, 7)


def setting(kind, dtype="float64", loss="logistic", w=W, alpha=0.1, intercept=False, seed=0):
    problem = Problem(random_shards(seed, targets=TARGETS[loss]), loss=loss, alpha=alpha, intercept=intercept)
    d = problem.n_coefficients
    regions = REGIONS if d == 7 else Regions.make(3, d)
    rules = ReplyRules(regions, problem.penalties, problem.layout.penalised, overflows=loss in STEEP)
    form = HessianForm.parse(kind)
    task = CurvatureTask(5, np.resize(w, d), form.kind, form.rank, sketch=3, dtype=dtype)
    return rules, task, Worker(0, problem.local_objectives[0], regions, None, 0).answer(task)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["full", "block", "lowrank:3", "diag"])
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(sorted(TARGETS)),
    scale=st.sampled_from([0.0, 1.0, 30.0]),
    alpha=st.sampled_from([0.0, 1e-12, 1e-4, 1e6]),
    intercept=st.booleans(),
)
def test_honest_parts_pass(kind, dtype, seed, loss, scale, alpha, intercept):
    w = scale / (30 if loss in STEEP else 1) * np.random.default_rng(seed).normal(size=8)
    rules, task, reply = setting(kind, dtype, loss, w, alpha, intercept, seed)
    assert fault(rules, 0, task, reply) is None
    longest = most_bytes(rules.regions.n_coefficients, 3)
    assert fault(rules, 0, task, decode(encode(reply), most_bytes=longest)) is None


@pytest.mark.parametrize("kind", ["full", "block", "lowrank:3", "diag"])
@pytest.mark.parametrize("intercept", [False, True])
def test_honest_parts_of_several_classes_pass(kind, intercept):
    problem = multinomial(intercept=intercept, as_sparse=True)
    d = problem.n_coefficients
    regions, form = Regions.make(4, d), HessianForm.parse(kind)
    rules = ReplyRules(regions, problem.penalties, problem.layout.penalised, overflows=False)
    task = CurvatureTask(0, np.ones(d), form.kind, form.rank)
    assert fault(rules, 0, task, Worker(0, problem.local_objectives[0], regions, None, 0).answer(task)) is None


def lower(place):
    return lambda numbers: np.where(np.arange(numbers.size) == place, -1.0, numbers)


FAULTS = {
    "wrong length": ("diag", lambda n: n[:-1], "its curvature has shape (6,), not (7,)"),
    "two-dimensional": ("diag", lambda n: n[:, None], "its curvature has shape (7, 1), not (7,)"),
    "wrong dtype": ("diag", lambda n: n.astype(np.float32), "its curvature is float32, not an array of float64"),
    "no array": ("diag", list, "its curvature is list, not an array of float64"),
    "not finite": ("diag", lambda n: n * np.nan, "its curvature is not finite"),
    "infinite": ("lowrank:3", lambda n: n + np.inf, "its curvature is not finite"),
    "below the penalty": ("diag", lower(4), "its Hessian is indefinite: entry 4 of the diagonal is below the penalty"),
    "the same of a sketch": ("lowrank:3", lower(2), "entry 2 of the diagonal is below the penalty"),
    "of a block": ("block", lower(0), "region 0: its Hessian is indefinite"),
    "of the last block": ("block", lower(11), "region 2: its Hessian is indefinite"),
    "of the whole": ("full", lower(0), "its Hessian is indefinite"),
    "a sketch that is too large": ("lowrank:3", lambda n: np.append(n[:7], 1e3 * n[7:]), "larger than its diagonal"),
    "a sketch of nothing symmetric": (
        "lowrank:3",
        lambda n: np.append(n[:7], np.roll(n[7:], 1)),
        "its sketch is that of no symmetric matrix",
    ),
    "a negative sketch": (
        "lowrank:3",
        lambda n: np.append(n[:7], -n[7:]),
        "its sketch is that of an indefinite matrix",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_breaks_a_rule_is_named(name):
    kind, change, expected = FAULTS[name]
    rules, task, reply = setting(kind)
    assert expected in fault(rules, 0, task, replace(reply, numbers=change(reply.numbers)))


def test_float32_only_where_it_was_asked_for():
    rules, task, reply = setting("diag", "float32")
    assert fault(rules, 0, task, reply) is None
    wide = replace(reply, numbers=reply.numbers.astype(np.float64))
    assert fault(rules, 0, task, wide) == "its curvature is float64, not an array of float32"


def test_the_gradient_and_the_loss_are_looked_at_as_ever():
    rules, task, reply = setting("diag")
    assert fault(rules, 0, task, replace(reply, gradient=np.ones(6))) == "its gradient has shape (6,), not (7,)"
    assert fault(rules, 0, task, replace(reply, loss=np.nan)) == "its loss is nan"
    assert fault(rules, 0, task, replace(reply, exchange=4)) == "answered in the name of exchange '4'"
    assert "where CurvatureReply was asked for" in fault(rules, 0, task, object())


def test_a_model_that_blew_up_is_held_against_nobody():
    for kind in ("block", "lowrank:3", "diag"):
        rules, task, reply = setting(kind, loss="poisson", w=np.full(7, 1e200))
        assert fault(rules, 0, task, reply) is None


def test_a_gradient_far_above_the_others_is_clipped():
    rules, task, reply = setting("diag")
    replies = {i: replace(reply, worker=i, gradient=np.ones(7) * (1.0 if i else 1e6)) for i in range(4)}
    guarded = replace(rules, guards=Guards(clip=3.0))
    np.testing.assert_allclose(validated(guarded, task, replies).gradients[0], 3.0)


class Liar(Local):
    """Worker 2's curvature is that of an indefinite matrix."""

    def exchange(self, exchange, *, deadline=None):
        replies = super().exchange(exchange, deadline=deadline)
        if 2 not in replies.curvatures:
            return replies
        return replace(replies, curvatures={**replies.curvatures, 2: -replies.curvatures[2]})


@pytest.mark.parametrize("curvature", ["block", "lowrank:3", "diag"])
def test_a_liar_is_shut_out_and_the_run_ends_where_the_others_lead(curvature):
    shards = random_shards(sizes=(9, 14, 5, 12, 11))
    result = danl.solve(
        Problem(shards, alpha=0.1), method=f"danl:curvature={curvature}", engine=Liar(batched=False), tol=1e-10
    )
    rest = Problem([shard for i, shard in enumerate(shards) if i != 2], alpha=0.1)
    assert result.status == "converged"
    assert "worker 2 was quarantined in exchange 0" in result.notes[0]
    np.testing.assert_allclose(result.w, danl.reference_optimum(rest).w, atol=1e-8)
