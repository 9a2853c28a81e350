"""Armijo's rule on one step: what is accepted, how it is shortened, when nothing is left."""

import numpy as np
import pytest

from danl.methods.acceptance import ROUNDING, SUFFICIENT_DECREASE, Step, low_enough, relative, scale_of
from danl.server.curvature import project
from danl.server.partial_curvature import Diagonal


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
