"""More than a hundred workers, of whom somebody is always missing: those who answer will do, and everyone decides."""

from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import danl
from danl.engines import Local
from danl.methods import DANL
from danl.methods.base import Turn
from danl.methods.ladder import MOST_REFUSED, Ladder
from danl.methods.safeguarded import Safeguarded
from danl.methods.safeguarded_state import UNCONFIRMED
from danl.protocol.replies import Replies
from tests.methods.test_senders import setup_of
from tests.problems import random_problem, random_shards

EVERYONE = ("full", "hessian")


@dataclass(frozen=True)
class Absorbed:
    """One exchange of a run: what was asked, what came, and what the method made of it."""

    loop: Safeguarded
    before: Any
    replies: Replies
    setup: Any
    after: Any

    @property
    def everyone_answered(self):
        """Whether every member's word about this model is there, with this exchange."""
        return self.before.trial.question in EVERYONE and self.after.trial.answers is None


@pytest.fixture
def exchanges(monkeypatch):
    """What happened in every exchange of a run."""
    seen, absorb = [], Safeguarded.absorb

    def listening(self, state, replies, setup):
        after, info = absorb(self, state, replies, setup)
        seen.append(Absorbed(self, state, replies, setup, after))
        return after, info

    monkeypatch.setattr(Safeguarded, "absorb", listening)
    return seen


def many_problem(d=30, n_workers=150):
    """Few rows each, and so many coefficients that curvature is not nearly free."""
    return random_problem(alpha=1e-4, sizes=(3,) * n_workers, d=d)


def solve(problem, seed=0, tol=1e-12, max_rounds=80, **options):
    engine = Local(dropout=0.3, seed=seed)
    return danl.solve(problem, engine=engine, max_rounds=max_rounds, tol=tol, **options)


# Everyone's word.


@pytest.mark.parametrize("gamma_max", [2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_no_more_than_gamma_max_rounds_go_by_without_everyones_word(gamma_max, seed, exchanges):
    """Beside the one in which the step from everyone's word is tried."""
    solve(many_problem(), seed, method=DANL(gamma_max=gamma_max))
    assert not any(each.after.ladder.free for each in exchanges)
    rounds, longest = 0, 0
    for each in exchanges:
        rounds = 0 if each.before.trial.question in EVERYONE else rounds + 1
        longest = max(longest, rounds)
    assert 2 <= longest <= gamma_max + 1


def test_with_few_workers_gamma_max_does_not_ask_for_everyones_word(exchanges):
    problem = random_problem(alpha=1e-4, sizes=(3,) * 100, d=30)
    danl.solve(problem, method=DANL(gamma_max=1), tol=1e-12, max_rounds=60)
    assert not any(each.after.ladder.many for each in exchanges)
    assert "everyone's word, for certain" not in {each.after.ladder.why for each in exchanges}


class Told:
    """A run that goes on from a state, with everyone there and losses that can be told higher than they are."""

    def __init__(self, problem, last, state):
        self.loop, self.setup, self.state, self.rejected = last.loop, last.setup, state, False
        self.engine = Local()
        self.engine.open(problem, regions=self.setup.regions, policy=None, seed=0)

    def answered(self, more=0.0):
        """The run after everyone's answer, with so much more loss."""
        staleness = np.zeros((self.setup.n_workers, self.setup.regions.n_regions), dtype=np.int64)
        replies = self.engine.exchange(self.loop.plan(self.state, self.setup, Turn(99, staleness)))
        made = copy(self)
        made.state, info = self.loop.absorb(self.state, replace(replies, losses=replies.losses + more), self.setup)
        made.rejected = info.trial_rejected
        return made


def accepted_by_some(problem, exchanges):
    """The run after an exchange whose model some accepted, where everyone is asked about the next one."""
    solve(problem)
    for each in exchanges:
        after = each.after
        if after.status is None and not after.base.at_anchor and after.trial.question == "gradient":
            return Told(problem, each, replace(after, trial=replace(after.trial, question="full")))
    raise AssertionError("no such exchange")


def test_what_only_some_accepted_everyone_may_refuse(exchanges):
    run = accepted_by_some(many_problem(), exchanges)
    assert not np.array_equal(run.state.base.w, run.state.w)
    refused = run.answered(more=10.0)
    assert refused.rejected
    for w in (refused.state.w, refused.state.base.w, refused.state.trial.w):
        np.testing.assert_array_equal(w, run.state.w)  # what everyone accepted
    assert refused.state.ladder.certain
    assert refused.state.trial.question in EVERYONE


def test_what_everyone_refused_stays_uncertain_until_an_exact_step_is_settled(exchanges):
    run = accepted_by_some(many_problem(), exchanges).answered(more=10.0).answered()
    assert run.state.trial.step is not None  # an exact one, not settled yet
    assert run.state.base.fresh
    assert run.state.ladder.certain
    run.state = replace(run.state, trial=replace(run.state.trial, question="full"))
    refused, settled = run.answered(more=10.0), run.answered()
    assert refused.rejected
    assert refused.state.ladder.certain
    assert refused.state.trial.question in EVERYONE
    assert not settled.rejected
    assert not settled.state.ladder.certain
    np.testing.assert_array_equal(settled.state.w, run.state.trial.w)


def test_everyone_is_asked_about_the_exact_step_that_comes_after_what_everyone_refused(exchanges):
    run = accepted_by_some(many_problem(), exchanges).answered(more=10.0).answered()
    assert run.state.ladder.certain
    assert run.state.trial.question in EVERYONE


def test_what_some_refuse_makes_nothing_certain():
    options = DANL()
    ladder = Ladder.start(options, setup_of(many_problem(), options))
    assert ladder.many
    assert ladder.after_rejection(options, everyone=True)[0].certain
    assert not ladder.after_rejection(options, everyone=False)[0].certain
    certain = replace(ladder, certain=True)
    assert certain.after_rejection(options, everyone=False)[0].certain


def test_those_who_answer_will_do_until_that_was_refused_again_and_again():
    ladder = Ladder.start(DANL(), setup_of(many_problem()))
    assert (ladder.of_these("hessian"), ladder.of_these("full")) == ("curvature", "gradient")
    often = replace(ladder, n_rejected=2, n_refused=MOST_REFUSED - 1)
    for asked in (replace(ladder, certain=True), often, replace(ladder, many=False)):
        assert (asked.of_these("hessian"), asked.of_these("full")) == EVERYONE[::-1]
    assert replace(often, n_refused=MOST_REFUSED - 2).of_these("full") == "gradient"


def test_the_model_that_is_returned_is_one_whose_loss_everyone_reported(exchanges):
    problem = many_problem()
    solve(problem)
    w = exchanges[0].before.w
    for each in exchanges:
        if not np.array_equal(each.after.w, w):
            assert each.everyone_answered
            assert problem.objective(each.after.w) <= problem.objective(w) + 1e-14
            w = each.after.w


# From end to end.


def fitted(alpha, *, intercept=False, max_rounds=100, seed=0):
    """Four hundred workers of three rows each, and masks."""
    problem = danl.Problem(random_shards(seed, sizes=(3,) * 400), alpha=alpha, intercept=intercept)
    return problem, solve(problem, seed, tol=1e-8, policy="random:keep=0.5", max_rounds=max_rounds)


CASES = [(alpha, intercept, seed) for alpha in (1e-3, 1e-6) for intercept in (False, True) for seed in (0, 1)]


@pytest.mark.parametrize(("alpha", "intercept", "seed"), CASES)
def test_hundreds_of_workers_that_miss_exchanges_reach_the_optimum(alpha, intercept, seed):
    problem, result = fitted(alpha, intercept=intercept, seed=seed)
    assert result.failures
    assert result.status == "converged"
    assert len(result.history) <= 100
    assert problem.objective(result.w) - danl.reference_optimum(problem).objective < 1e-10


@pytest.mark.parametrize(("alpha", "intercept", "seed"), CASES)
def test_none_of_hundreds_that_miss_exchanges_is_declared_gone(alpha, intercept, seed, exchanges):
    _, result = fitted(alpha, intercept=intercept, seed=seed)
    assert result.notes == ()
    assert all(each.after.membership.members.all() for each in exchanges)


@pytest.mark.parametrize(("alpha", "intercept", "seed"), CASES)
def test_the_objective_of_hundreds_never_rises(alpha, intercept, seed):
    _, result = fitted(alpha, intercept=intercept, seed=seed)
    f = result.history.column("objective")
    f = f[~np.isnan(f)]
    assert len(f) > 1
    assert (np.diff(f) <= 64 * np.finfo(float).eps * np.abs(f[:-1])).all()


def test_a_newer_model_that_is_not_confirmed_is_said(exchanges):
    for max_rounds in (8, 12, 20):
        exchanges.clear()
        problem, result = fitted(1e-3, max_rounds=max_rounds)
        newest = exchanges[-1].after
        assert result.status == "max_rounds"
        assert (UNCONFIRMED in result.notes) == (not newest.base.at_anchor)
        np.testing.assert_array_equal(result.w, newest.w)
    assert UNCONFIRMED in result.notes
    assert problem.objective(newest.base.w) < problem.objective(result.w)


def test_one_of_hundreds_that_leaves_for_good_is_left_out_and_named():
    shards = random_shards(0, sizes=(3,) * 400)
    engine = Local(dropout=0.3, seed=0, away={7: (0, None)})
    result = danl.solve(danl.Problem(shards, alpha=1e-3), engine=engine, max_rounds=150, tol=1e-8)
    assert result.status == "converged"
    assert result.notes == ("without worker 7: the objective is that of the 399 workers that are left",)
    rest = danl.Problem([shard for number, shard in enumerate(shards) if number != 7], alpha=1e-3)
    assert rest.objective(result.w) - danl.reference_optimum(rest).objective < 1e-10
