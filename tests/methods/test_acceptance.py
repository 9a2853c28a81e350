"""Armijo's rule on one step: what is accepted, how it is shortened, when nothing is left."""

from dataclasses import replace

import numpy as np
import pytest

from danl.methods import DANL
from danl.methods.acceptance import (
    ROUNDING,
    SUFFICIENT_DECREASE,
    Step,
    anchored,
    low_enough,
    relative,
    scale_of,
    trial_accepted,
)
from danl.methods.ladder import Ladder
from danl.methods.membership import Membership
from danl.methods.safeguarded_state import Known, Point, SafeguardedState, Trial
from danl.server.curvature import ProjectedHessian, project
from danl.server.memory import Memory
from danl.server.partial_curvature import Diagonal
from tests.methods.test_senders import setup_of
from tests.problems import random_problem


def step(gradient=(3.0, -4.0), curvature=(1.0, 4.0), size=2.0):
    return Step.down(Diagonal(np.array(curvature)), np.array(gradient), size)


def test_a_step_down_a_quadratic():
    found = step()
    np.testing.assert_array_equal(found.direction, [-3.0, 1.0])
    assert found.slope == -13.0
    assert found.gain == found.left == 6.5
    assert found.decrement == pytest.approx(np.sqrt(13 / 2))
    assert not found.negligible


def test_it_is_accepted_where_the_loss_falls_as_promised_up_to_rounding():
    found = step()
    enough = 10.0 - SUFFICIENT_DECREASE * 13.0
    assert found.accepts(10.0, enough)
    assert found.accepts(10.0, enough + ROUNDING * 1.9)
    assert not found.accepts(10.0, enough + 1e-9)
    assert not found.accepts(10.0, np.nan)
    assert low_enough(10.0, 10.0, 2.0)
    assert not low_enough(10.0, np.inf, 2.0)


def test_it_is_halved_ten_times_and_then_cut_to_a_sixteenth():
    lengths, found = [], step()
    while found is not None:
        lengths.append(found.length)
        found = found.shorter()
    np.testing.assert_array_equal(lengths[:11], 2.0 ** -np.arange(11))
    assert lengths[11:14] == [2.0**-14, 2.0**-18, 2.0**-22]
    assert len(lengths) < 25  # until no length would show a decrease
    assert lengths[-1] * 13.0 <= ROUNDING * 2.0 < lengths[-2] * 13.0


def test_a_run_that_gives_up_has_converged_only_where_rounding_hides_what_is_left():
    assert step().given_up() == "max_rounds"
    tiny = np.sqrt(ROUNDING)
    assert step((tiny, 0.0)).given_up() == "converged"
    assert step((tiny, 0.0)).negligible
    assert not step((100 * tiny, 0.0)).negligible
    assert step((10 * tiny, 0.0)).given_up() == "converged"  # within a thousand times


def test_what_the_projection_hides_is_left_to_gain():
    curvature = project(np.diag([1e-3, 1.0]), 0.1, 1e-3)
    found = Step.down(curvature, np.array([1e-2, 0.0]), 1.0)
    assert found.hidden == pytest.approx(1e-4 * (1e3 - 10))
    assert found.left == pytest.approx(1e-4 * 1e3 / 2)
    assert found.decrement == pytest.approx(np.sqrt(1e-4 * 1e3))


def test_sizes_and_decrements_are_never_divided_by_nothing():
    assert scale_of(0.0, 0.0) > 0
    assert scale_of(-3.0, 1.0) == 3.0
    assert scale_of(0.0, 1e6) == ROUNDING * 1e6
    assert relative(0.0, 0.0) == 0.0
    assert np.isnan(relative(np.nan, 1.0))


# Trials beside their anchor.


class Quadratics:
    """Four workers with functions of one Hessian and different slopes, the anchor at 0, and a step from the base."""

    def __init__(self, *, owed=0.0, seed=0):
        rng = np.random.default_rng(seed)
        factor, self.slopes = rng.normal(size=(7, 7)), rng.normal(size=(4, 7))
        self.hessian, self.anchor = factor @ factor.T + np.eye(7), np.zeros(7)
        self.setup = setup_of(random_problem())
        memory = Memory.fresh(self.slopes, self.anchor, self.setup.regions.n_regions)
        self.known = Known(ProjectedHessian(self.hessian), memory, self.losses(self.anchor) + 10.0, 10.0, owed=owed)

    def losses(self, w):
        return 0.5 * w @ self.hessian @ w + self.slopes @ w

    def accepted(self, losses, *, fresh=False, step=True, at_anchor=True, to=None):
        """Whether a trial with these losses is; a step of slope -2 that is `fresh`, or not, leads to it."""
        tried = Step(np.ones(7), -2.0, 0.0, 10.0, 1.0, 1.0, 0.1, False) if step else None
        w = self.anchor if to is None else to
        state = SafeguardedState(
            w=self.anchor,
            weights=self.setup.weights,
            base=Point(self.anchor, self.known.losses, at_anchor=at_anchor, fresh=fresh),
            trial=Trial("full", w, tried),
            membership=Membership.everyone(4),
            ladder=Ladder.start(DANL(), self.setup),
            known=self.known,
        )
        return trial_accepted(state, self.known, losses, self.setup)


def test_an_exact_step_owes_its_own_decrease():
    case = Quadratics(owed=-1e6)  # of another step
    assert case.accepted(case.known.losses - 1.01 * SUFFICIENT_DECREASE * 2.0, fresh=True)
    assert not case.accepted(case.known.losses - 0.99 * SUFFICIENT_DECREASE * 2.0, fresh=True)


@pytest.mark.parametrize("step", [True, False])
def test_what_an_exact_step_owes_is_asked_of_the_next_anchor_however_it_is_reached(step):
    case = Quadratics(owed=-50.0)
    assert case.accepted(case.known.losses - 1.01 * SUFFICIENT_DECREASE * 50.0, step=step, at_anchor=False)
    assert not case.accepted(case.known.losses - 0.99 * SUFFICIENT_DECREASE * 50.0, step=step, at_anchor=False)


@pytest.mark.parametrize("step", [True, False])
def test_where_nothing_is_owed_not_to_rise_is_enough(step):
    case = Quadratics(owed=0.0)
    assert case.accepted(case.known.losses, step=step, at_anchor=False)
    assert not case.accepted(case.known.losses + 1e-9, step=step, at_anchor=False)


def test_at_a_new_anchor_nothing_is_owed():
    case = Quadratics(owed=-50.0)
    assert anchored(case.known, case.known.losses, case.setup.weights, np.ones(4, dtype=bool)).owed == 0.0


def test_the_anchor_itself_is_accepted():
    case = Quadratics(owed=-50.0)
    assert case.accepted(case.known.losses, step=False)
    assert not case.accepted(case.known.losses, step=False, at_anchor=False)  # another model that came to the same


def test_a_loss_that_has_overflown_is_refused_whoever_else_reported():
    case = Quadratics()
    assert not case.accepted(np.array([np.inf, -100.0, -100.0, np.nan]))


def partly(losses, reported):
    return np.where(reported, losses, np.nan)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("first", [True, False])
def test_where_some_reported_it_is_the_objective_of_everyone_that_must_not_rise(seed, first):
    """The functions curve alike, so the memory knows what the others' losses do; two workers' own tell little."""
    case, rng = Quadratics(seed=seed), np.random.default_rng(seed)
    reported = (np.arange(4) < 2) == first
    for _ in range(20):
        w = rng.normal(size=7) * 10.0 ** rng.uniform(-3, 1)
        changes = case.losses(w)
        if abs(changes.mean()) > 1e-6:
            assert case.accepted(partly(case.known.losses + changes, reported), to=w) == (changes.mean() < 0)


def test_what_is_owed_is_not_asked_of_some():
    case = Quadratics(owed=-1e6)
    step = -np.linalg.solve(case.hessian, case.slopes.mean(axis=0))
    losses = case.known.losses + case.losses(step)
    assert case.accepted(partly(losses, np.arange(4) != 2), to=step)
    assert not case.accepted(losses, to=step, at_anchor=False)


def test_a_very_short_step_can_be_made_shorter_and_longer_again():
    short = replace(step((1.0, -2.0), (1.0, 1.0), size=1e-250), length=1e-200)
    assert short.interpolated(1e3).length == pytest.approx(1e-201)  # the square of such a length is 0
    assert short.longest_next == pytest.approx(1e-100)
    assert replace(short, length=0.4).longest_next == pytest.approx(0.8)
    assert replace(short, length=1.0).interpolated(1.0).length == pytest.approx(5 / 12)  # where the parabola is lowest
