import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from danl.data import partition
from danl.errors import InputError
from danl.objective.log_link import NegativeBinomial, Poisson
from danl.objective.loss_trial import try_loss
from danl.objective.losses import LOSSES, Multinomial, SquaredError, make_loss
from danl.objective.problem import Problem

MARGINS = np.linspace(-6, 6, 41) + 0.013  # off the hinge's corner at +-1


def targets(loss):
    binary = {"logistic": (0.0, 1.0), "squared_hinge": (0.0, 1.0)}
    return (binary | {"poisson": (0.0, 3.0), "squared": (-1.5, 2.0), "gamma": (0.5, 3.0)}).get(loss, (0.0, 1.0, 40.0))


BINOMIALS = [f"negative-binomial:alpha={alpha}" for alpha in ("1e-06", "0.5", "30.0")]


@pytest.mark.parametrize("name", [*LOSSES, *BINOMIALS])
def test_derivatives_agree_with_finite_differences(name):
    loss, h = make_loss(name), 1e-5
    for target in targets(name):
        y = np.full_like(MARGINS, target)
        first = (loss.value(y, MARGINS + h) - loss.value(y, MARGINS - h)) / (2 * h)
        second = (loss.first(y, MARGINS + h) - loss.first(y, MARGINS - h)) / (2 * h)
        np.testing.assert_allclose(loss.first(y, MARGINS), first, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(loss.second(y, MARGINS), second, rtol=1e-7, atol=1e-8)
        together = getattr(loss, "value_and_first", None)
        if together is not None:
            for terms in (None, loss.target_terms(y)):
                value, slope = together(y, MARGINS, terms)
                np.testing.assert_allclose(value, loss.value(y, MARGINS), rtol=1e-13, atol=1e-14)
                np.testing.assert_allclose(slope, loss.first(y, MARGINS), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", [*LOSSES, *BINOMIALS])
def test_bounds_hold_and_are_tight(name):
    loss = make_loss(name)
    z = np.linspace(-30, 30, 200_001)
    for target in targets(name):
        y = np.full_like(z, target)
        second = loss.second(y, z)
        assert second.min() >= 0  # convex
        if np.isfinite(loss.second_bound):
            assert second.max() <= loss.second_bound * (1 + 1e-12)
            assert second.max() >= loss.second_bound * 0.999
        if loss.name == "logistic":
            assert np.abs(loss.first(y, z)).max() <= 1.0
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


def test_large_margins_of_amounts_and_of_counts_that_vary_more():
    z, gamma, binomial = np.array([-1e4, 1e4]), LOSSES["gamma"], NegativeBinomial(0.5)
    np.testing.assert_array_equal(gamma.value(np.array([1.0, 1.0]), z), [np.inf, 1e4 - 1])
    np.testing.assert_array_equal(gamma.first(np.array([1.0, 1.0]), z), [-np.inf, 1.0])
    np.testing.assert_array_equal(gamma.second(np.array([1.0, 1.0]), z), [np.inf, 0.0])
    # (y + 2) log(1 + m / 2) - y z, less what it is at m = y
    at_count = 5 * np.log(2.5) - 3 * np.log(3.0)
    expected = [3e4 - at_count, 5 * (1e4 - np.log(2)) - 3e4 - at_count]
    np.testing.assert_allclose(binomial.value(np.array([3.0, 3.0]), z), expected, rtol=1e-14)
    np.testing.assert_allclose(binomial.value(np.array([0.0, 0.0]), z), [0.0, 2 * (1e4 - np.log(2))], rtol=1e-14)
    np.testing.assert_array_equal(binomial.first(np.array([3.0, 3.0]), z), [-3.0, 2.0])
    np.testing.assert_array_equal(binomial.second(np.array([3.0, 3.0]), z), [0.0, 0.0])


@pytest.mark.parametrize("y", [1.0, 7.0, 1e4, 1e9])
@pytest.mark.parametrize("alpha", [1e-9, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("u", [-40.0, -1.0, -1e-3, 1e-3, 1.0, 40.0])
def test_half_the_deviance_of_a_count_is_exact_however_small(y, alpha, u):
    """Against 60 digits: (y + 1/a) log((1 + a m) / (1 + a y)) - y log(m / y) with m = y exp(u)."""
    z = np.log(y) + u
    with localcontext() as context:
        context.prec = 60
        count, a, mean = Decimal(y), Decimal(alpha), Decimal(float(z)).exp()
        exact = (count + 1 / a) * ((1 + a * mean) / (1 + a * count)).ln() - count * (mean / count).ln()
        amount = count / mean - 1 - (count / mean).ln()
    one = np.ones(1)
    # what the rounding of z alone may do, and some more
    rounding = (
        4 * np.finfo(float).eps * (1 + abs(z)) * max(1.0, abs(float(NegativeBinomial(alpha).first(y * one, z)[0])))
    )
    found = float(NegativeBinomial(alpha).value(y * one, z * one)[0])
    assert found == pytest.approx(float(exact), rel=1e-9, abs=rounding)
    slope = 4 * np.finfo(float).eps * (1 + abs(z)) * max(1.0, np.exp(-u))
    assert float(LOSSES["gamma"].value(y * one, z * one)[0]) == pytest.approx(float(amount), rel=1e-9, abs=slope)


@pytest.mark.parametrize("u", [-3.0, 1e-2, 2.0])
def test_negative_binomial_lies_between_poisson_and_gamma(u):
    y = np.array([3.0, 50.0])
    z = np.log(y) + u
    np.testing.assert_allclose(NegativeBinomial(1e-12).value(y, z), LOSSES["poisson"].value(y, z), rtol=1e-8)
    np.testing.assert_allclose(1e9 * NegativeBinomial(1e9).value(y, z), LOSSES["gamma"].value(y, z), rtol=1e-7)


def test_the_mean_at_a_margin_is_that_of_the_model_without_features():
    for name, target in (("logistic", 0.3), ("squared", -2.0), ("poisson", 3.0), ("gamma", 0.2), (BINOMIALS[1], 3.0)):
        loss = make_loss(name)
        assert float(loss.mean(loss.null_margins(np.array([target])))[0]) == pytest.approx(target, rel=1e-14)


@given(st.floats(30, 700))
def test_logistic_keeps_the_tiny_loss_of_a_confident_right_answer(z):
    y, z = np.array([1.0, 0.0]), np.array([z, -z])
    np.testing.assert_allclose(LOSSES["logistic"].value(y, z), np.exp(-np.abs(z)), rtol=1e-12)
    np.testing.assert_allclose(np.abs(LOSSES["logistic"].first(y, z)), np.exp(-np.abs(z)), rtol=1e-12)


def test_a_loss_of_ones_own_is_taken():
    class Huber:
        name, binary, second_bound, third_bound = "huber", False, 1.0, np.inf

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
            "gamma",
            [0.5, 0.0, -2.0],
            "y[1]=0.0: loss 'gamma' needs targets > 0, and 2 of 3 are not; use loss='poisson' where 0 occurs, or "
            "correct the targets",
        ),
        (
            "negative-binomial:alpha=0.5",
            [0.0, 1.5, -2.0],
            "y[1]=1.5: loss 'negative-binomial' needs counts, and 2 of 3 are none; use loss='gamma' for amounts above "
            "0, or correct the targets",
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
        make_loss(name).check_targets(np.array(y))
    assert str(error.value) == message
    assert error.value.redacted == f"y[1]: {message.split(': ', 1)[1]}".replace(" (0, 1, 2)", "")


def test_unknown_loss_lists_the_closest_first():
    with pytest.raises(InputError) as error:
        make_loss("square")
    assert str(error.value) == (
        "loss='square': must be one of squared, squared_hinge, logistic, poisson, gamma, negative-binomial, multinomial"
    )


def test_the_dispersion_of_a_negative_binomial_is_an_option():
    assert make_loss("negative-binomial:alpha=1").name == "negative-binomial:alpha=1.0"
    assert make_loss(make_loss("negative-binomial:alpha=1e-7").name).alpha == 1e-7
    with pytest.raises(InputError) as error:
        make_loss("negative-binomial")
    assert str(error.value) == (
        "loss='negative-binomial': must be negative-binomial with alpha; try 'negative-binomial:alpha=0.5'"
    )
    with pytest.raises(InputError) as error:
        make_loss("negative-binomial:alpha=0")
    assert str(error.value) == (
        "alpha=0: must be a finite number > 0; negative-binomial:alpha=0.5; alpha=0 is loss='poisson'"
    )


class Own:
    """Gamma with a log link, and a slip where a function is given."""

    name, binary, second_bound, third_bound = "own", False, math.inf, math.inf

    def __init__(self, **slips):
        vars(self).update(slips)

    def value(self, y, z):
        return y * np.exp(-z) + z

    def first(self, y, z):
        return 1 - y * np.exp(-z)

    def second(self, y, z):
        return y * np.exp(-z)

    def check_targets(self, y):
        pass


def in_place(y, z):
    z -= y
    return z * z / 2


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ({"value": lambda y, z: (y * np.exp(-z) + z).sum()}, "value(y, z) has shape () for 9 rows; must be (9,)"),
        ({"first": lambda y, z: np.ones((9, 1))}, "first(y, z) has shape (9, 1) for 9 rows; must be (9,)"),
        ({"value": lambda y, z: y * np.log(z)}, "value(y, z) is not finite for a margin from -1 to 1; "),
        ({"second": lambda y, z: np.nan * z}, "second(y, z) is not finite for a margin from -1 to 1; "),
        ({"second": lambda y, z: -y * np.exp(-z)}, "second(y, z) is negative; must be >= 0: losses are convex"),
        ({"value": in_place}, "value(y, z) changes y or z; must leave them as they are"),
        ({"first": lambda y, z: y * np.exp(-z) - 1}, "first(y, z) is 7.155 at z = -1, where the slope of value is "),
        ({"first": lambda y, z: 1.01 * (1 - y * np.exp(-z))}, "first(y, z) is "),
    ],
)
def test_a_slip_in_a_loss_of_ones_own_is_named(slip, message):
    shards = partition(np.eye(4), np.array([1.0, 2.0, 0.5, 3.0]), workers=2)
    assert Problem(shards, loss=Own()).loss.name == "own"
    with pytest.raises(InputError) as caught:
        Problem(shards, loss=Own(**slip))
    assert str(caught.value).startswith(f"loss 'own': {message}")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4), st.sampled_from([1e-9, 1e-5, 1e-3, 1.0, 1e4]))
def test_right_losses_are_never_refused(y, delta):
    def value(y, z):
        return delta**2 * (np.hypot(1.0, (z - y) / delta) - 1.0)

    def first(y, z):
        return (z - y) / np.hypot(1.0, (z - y) / delta)

    def second(y, z):
        return np.hypot(1.0, (z - y) / delta) ** -3.0

    assert try_loss(Own(value=value, first=first, second=second), np.array(y)) is None
    corner = {
        "value": lambda y, z: np.maximum(0, 1 - z),
        "first": lambda y, z: -1.0 * (z < 1),
        "second": lambda y, z: 0 * z,
    }
    try_loss(Own(**corner), np.array(y))
    for loss in (SquaredError(), Poisson()):
        try_loss(Own(value=loss.value, first=loss.first, second=loss.second), np.round(np.abs(y)))  # counts


def test_a_loss_in_single_precision_and_rounding_below_zero_are_not_refused():
    single = {
        "value": lambda y, z: (z - y).astype(np.float32) ** 2 / 2,
        "first": lambda y, z: (z - y).astype(np.float32),
        "second": lambda y, z: np.where(z > 0, 1.0, -1e-17),
    }
    for scale in (1.0, 1e3, 1e5):
        assert try_loss(Own(**single), scale * np.array([1.7, -2.3, 0.4])) is None


def test_a_loss_of_several_margins_is_tried_as_far_as_it_goes():
    own = type("Several", (Multinomial,), {"__module__": "mine"})
    try_loss(own(classes=3), np.array([0.0, 1.0, 2.0]))
    wrong = type("Several", (own,), {"value": lambda self, y, z: z})
    with pytest.raises(InputError, match=r"value\(y, z\) has shape \(9, 3\) for 9 rows; must be \(9,\)"):
        try_loss(wrong(classes=3), np.array([0.0, 1.0, 2.0]))


@given(
    st.lists(st.tuples(st.integers(0, 900), st.floats(-30, 30)), min_size=1, max_size=8),
)
def test_poisson_from_one_exponential_is_the_loss(rows):
    y, z = (np.array(part, dtype=float) for part in zip(*rows, strict=True))
    loss = Poisson()
    value, first = loss.value_and_first(y, z, loss.target_terms(y))
    size = np.exp(z) + y * (np.abs(z) + np.log(np.maximum(y, 1.0)) + 1.0)
    assert (np.abs(value - loss.value(y, z)) <= 1e-14 * size).all()
    np.testing.assert_allclose(first, loss.first(y, z), rtol=1e-12, atol=0)


def test_large_counts_keep_their_digits():
    assert Poisson().target_terms(np.array([1.0, 1e6])) is None


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.floats(-800, 800), min_size=3, max_size=3)), min_size=1))
def test_multinomial_from_one_exponential_is_the_loss(rows):
    y, z = np.array([label for label, _ in rows], dtype=float), np.array([margins for _, margins in rows])
    loss = Multinomial(3)
    value, first = loss.value_and_first(y, z)
    np.testing.assert_allclose(value, loss.value(y, z), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(first, loss.first(y, z), rtol=1e-12, atol=1e-300)
