import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from danl.errors import InputError
from danl.objective.losses import LOSSES, make_loss

MARGINS = np.linspace(-6, 6, 41) + 0.013  # off the hinge's corner at +-1


def targets(loss):
    return {"logistic": (0.0, 1.0), "squared_hinge": (0.0, 1.0), "poisson": (0.0, 3.0), "squared": (-1.5, 2.0)}[loss]


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_agree_with_finite_differences(name):
    loss, h = LOSSES[name], 1e-5
    for target in targets(name):
        y = np.full_like(MARGINS, target)
        first = (loss.value(y, MARGINS + h) - loss.value(y, MARGINS - h)) / (2 * h)
        second = (loss.first(y, MARGINS + h) - loss.first(y, MARGINS - h)) / (2 * h)
        np.testing.assert_allclose(loss.first(y, MARGINS), first, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(loss.second(y, MARGINS), second, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", LOSSES)
def test_bounds_hold_and_are_tight(name):
    loss = LOSSES[name]
    z = np.linspace(-30, 30, 200_001)
    for target in targets(name):
        y = np.full_like(z, target)
        second = loss.second(y, z)
        assert second.min() >= 0  # convex
        if np.isfinite(loss.second_bound):
            assert second.max() <= loss.second_bound * (1 + 1e-12)
            assert second.max() >= loss.second_bound * 0.999
        if np.isfinite(loss.first_bound):
            assert np.abs(loss.first(y, z)).max() <= loss.first_bound
        if np.isfinite(loss.third_bound):
            slope = np.abs(np.diff(second) / np.diff(z)).max()
            assert slope <= loss.third_bound * (1 + 1e-6)
            assert slope >= loss.third_bound * 0.999


def test_large_margins_give_the_right_double():
    z = np.array([-1e4, 1e4])
    logistic, hinge, poisson = LOSSES["logistic"], LOSSES["squared_hinge"], LOSSES["poisson"]
    np.testing.assert_array_equal(logistic.value(np.array([0.0, 1.0]), z), [0.0, 0.0])
    np.testing.assert_array_equal(logistic.value(np.array([1.0, 0.0]), z), [1e4, 1e4])
    np.testing.assert_array_equal(logistic.first(np.array([1.0, 0.0]), z), [-1.0, 1.0])
    np.testing.assert_array_equal(logistic.second(np.array([1.0, 0.0]), z), [0.0, 0.0])
    np.testing.assert_array_equal(hinge.value(np.array([1.0, 1.0]), z), [(1e4 + 1) ** 2, 0.0])
    np.testing.assert_allclose(poisson.value(np.array([2.0, 2.0]), z), [2e4 + 2 * np.log(2) - 2, np.inf])
    np.testing.assert_array_equal(poisson.value(np.array([0.0, 1.0]), np.array([-1e4, 0.0])), [0.0, 0.0])
    np.testing.assert_array_equal(poisson.first(np.array([2.0, 2.0]), z), [-2.0, np.inf])


@given(st.floats(30, 700))
def test_logistic_keeps_the_tiny_loss_of_a_confident_right_answer(z):
    y, z = np.array([1.0, 0.0]), np.array([z, -z])
    np.testing.assert_allclose(LOSSES["logistic"].value(y, z), np.exp(-np.abs(z)), rtol=1e-12)
    np.testing.assert_allclose(np.abs(LOSSES["logistic"].first(y, z)), np.exp(-np.abs(z)), rtol=1e-12)


def test_a_loss_of_ones_own_is_taken():
    class Huber:
        name, binary, first_bound, second_bound, third_bound = "huber", False, 1.0, 1.0, np.inf

        def value(self, y, z):
            return np.where(abs(z - y) < 1, 0.5 * (z - y) ** 2, abs(z - y) - 0.5)

        def first(self, y, z):
            return np.clip(z - y, -1, 1)

        def second(self, y, z):
            return (abs(z - y) < 1).astype(float)

        def check_targets(self, y):
            pass

    loss = Huber()
    assert make_loss(loss) is loss


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [
        (
            "logistic",
            [0.0, 2.0, 1.0],
            "y[1]=2.0: loss 'logistic' needs targets 0 and 1, and found 3 values (0, 1, 2); danl.load_dataset maps any "
            "two values to 0 and 1, and loss='squared' takes real targets",
        ),
        (
            "poisson",
            [0.0, -1.0, -2.0],
            "y[1]=-1.0: loss 'poisson' needs targets >= 0, and 2 of 3 are negative; use loss='squared' or correct the "
            "targets",
        ),
    ],
)
def test_wrong_targets(name, y, message):
    with pytest.raises(InputError) as error:
        LOSSES[name].check_targets(np.array(y))
    assert str(error.value) == message


def test_unknown_loss_lists_the_closest_first():
    with pytest.raises(InputError) as error:
        make_loss("square")
    assert str(error.value) == "loss='square': must be one of squared, squared_hinge, logistic, poisson, multinomial"
