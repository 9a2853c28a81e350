"""Compressors: known answers, what their theory asks of them, and messages that are not of their form."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from danl.errors import InputError
from danl.protocol.compressors import Compressed, Identity, Natural, RandK, RankR, TopK, make_compressor
from danl.protocol.messages import pack, packed_size, unpack

SPECS = ["identity", "topk", "topk:3", "topk:999", "rankr:1", "rankr:2", "rankr:99", "randk", "randk:4", "natural"]
UNBIASED = ["randk", "randk:4", "randk:999", "natural"]
DRAWS = 4000


def rng(seed=0):
    return np.random.default_rng(seed)


def symmetric(d, seed=0):
    """A matrix with eigenvalues of both signs."""
    square = rng(seed).standard_normal((d, d))
    return square + square.T


def through(compressor, matrix, seed=0):
    compressor = make_compressor(compressor) if isinstance(compressor, str) else compressor
    message = compressor.compress(matrix, rng(seed))
    assert compressor.fault(message, len(matrix)) is None
    return compressor.restore(message, len(matrix))


def energy(matrix):
    return float(np.sum(matrix**2))


@st.composite
def matrices(draw, elements=None):
    d = draw(st.integers(1, 6))
    elements = st.floats(-1e100, 1e100) if elements is None else elements
    return unpack(draw(arrays(np.float64, packed_size(d), elements=elements)), d)


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        ("identity", Identity()),
        ("natural", Natural()),
        ("topk", TopK()),
        ("topk:123", TopK(123)),
        ("randk", RandK()),
        ("randk:50", RandK(50)),
        ("rankr", RankR(1)),
        ("rankr:3", RankR(3)),
    ],
)
def test_text_makes_a_compressor_and_its_name_makes_it_again(spec, made):
    assert make_compressor(spec) == made
    assert make_compressor(made.name) == made


def test_names_are_those_that_were_given():
    given = ["identity", "natural", "topk", "topk:123", "randk", "randk:50", "rankr:1"]
    assert [make_compressor(spec).name for spec in given] == given


@pytest.mark.parametrize("number", ["", "0", "-1", "1.5", "01", "+1", " 1", "1e3", "k", "1:2", "٣", "1234567890"])
def test_a_number_is_whole_and_at_least_one(number):
    with pytest.raises(InputError, match=r"compressor='topk:.*must be 'topk', or 'topk:' and a whole number >= 1"):
        make_compressor(f"topk:{number}")


@pytest.mark.parametrize("spec", ["identity:3", "natural:"])
def test_some_take_no_number(spec):
    with pytest.raises(InputError, match=r"must be '(identity|natural)'; it takes no number"):
        make_compressor(spec)


@pytest.mark.parametrize("spec", ["", "tpok", "TopK", "topk5", " topk", ":5", None, 5, RankR(1)])
def test_other_text_is_told_what_there_is(spec):
    with pytest.raises(InputError, match=r"^compressor=.*must be one of .*rankr.*as in 'rankr:1'$"):
        make_compressor(spec)


def test_the_closest_name_comes_first():
    with pytest.raises(InputError, match="must be one of topk, "):
        make_compressor("topk5")


@pytest.mark.parametrize("spec", SPECS)
@given(matrix=matrices(), seed=st.integers(0, 2**32))
def test_what_is_restored_is_symmetric_and_finite(spec, matrix, seed):
    restored = through(spec, matrix, seed)
    assert restored.shape == matrix.shape
    assert restored.dtype == np.float64
    assert np.isfinite(restored).all()
    assert np.array_equal(restored, restored.T)


@pytest.mark.parametrize("spec", SPECS)
def test_the_same_generator_gives_the_same_bits(spec):
    compressor, matrix = make_compressor(spec), symmetric(7)
    one, other = (compressor.compress(matrix, rng(5)) for _ in range(2))
    for name in ("numbers", "places", "codes"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    assert compressor.restore(one, 7).tobytes() == compressor.restore(other, 7).tobytes()


@pytest.mark.parametrize("spec", SPECS)
def test_the_matrix_is_left_as_it_is(spec):
    matrix = symmetric(5)
    through(spec, matrix)
    assert np.array_equal(matrix, symmetric(5))


@pytest.mark.parametrize("spec", SPECS)
def test_only_the_upper_triangle_is_looked_at(spec):
    matrix = symmetric(5)
    assert through(spec, np.triu(matrix)) == pytest.approx(through(spec, matrix), abs=1e-12)


@pytest.mark.parametrize("spec", SPECS)
def test_nothing_stays_nothing(spec):
    assert not through(spec, np.zeros((4, 4))).any()


@pytest.mark.parametrize("spec", SPECS)
def test_one_entry(spec):
    assert through(spec, np.array([[-4.0]])) == pytest.approx(np.array([[-4.0]]), rel=1e-15)


@pytest.mark.parametrize("spec", SPECS)
def test_numbers_are_as_many_as_are_counted(spec):
    compressor = make_compressor(spec)
    message = compressor.compress(symmetric(7), rng())
    assert (message.codes if spec == "natural" else message.numbers).size == compressor.floats(7)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_matrix_that_is_not_finite_is_a_fault(spec, value):
    matrix, compressor = symmetric(5), make_compressor(spec)
    where = slice(None) if spec.startswith("randk") else ([1, 3], [3, 1])  # randk draws some of them
    matrix[where] = value
    message = compressor.compress(matrix, rng())
    assert "finite" in compressor.fault(message, 5)
    assert not np.isfinite(compressor.restore(message, 5)).all()


@given(matrix=matrices(st.floats(allow_nan=False, allow_infinity=False)))
def test_identity_is_exact(matrix):
    assert np.array_equal(through("identity", matrix), matrix)


def test_topk_known_answer():
    matrix = np.array([[1.0, -9.0, 2.0], [-9.0, 3.0, 4.0], [2.0, 4.0, -5.0]])
    message = TopK(3).compress(matrix, rng())
    assert message.places.tolist() == [1, 4, 5]
    assert message.numbers.tolist() == [-9.0, 4.0, -5.0]
    kept = [[0.0, -9.0, 0.0], [-9.0, 0.0, 4.0], [0.0, 4.0, -5.0]]
    assert TopK(3).restore(message, 3).tolist() == kept


def test_topk_takes_equal_entries_by_their_place():
    matrix = np.where(np.eye(4) == 1, -2.0, 1.0)
    assert TopK(6).compress(matrix, rng()).places.tolist() == [0, 1, 2, 4, 7, 9]


@given(matrix=matrices(st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0])), k=st.integers(1, 25))
def test_topk_chooses_as_a_stable_sort_does(matrix, k):
    order = np.argsort(-np.abs(pack(matrix)), kind="stable")[:k]
    assert TopK(k).compress(matrix, rng()).places.tolist() == sorted(order.tolist())


@given(matrix=matrices(), more=st.integers(0, 5))
def test_topk_of_all_entries_is_the_identity(matrix, more):
    assert np.array_equal(through(TopK(packed_size(len(matrix)) + more), matrix), matrix)


@given(diagonal=arrays(np.float64, 5, elements=st.floats(-1e100, 1e100)), k=st.sampled_from([None, 5, 6, 11]))
def test_topk_of_a_diagonal_matrix_is_exact(diagonal, k):
    assert np.array_equal(through(TopK(k), np.diag(diagonal)), np.diag(diagonal))


@pytest.mark.parametrize("k", [1, 3, 8, 20, 36])
def test_topk_contracts(k):
    cases = [*(symmetric(8, seed) for seed in range(30)), np.ones((8, 8))]
    for matrix in cases:
        assert energy(through(TopK(k), matrix) - matrix) <= (1 - k / 64) * energy(matrix) * (1 + 1e-12)


def test_topk_reaches_its_bound():
    """Equal entries, of which those of the diagonal are kept: they count once, and the others twice."""
    matrix = np.ones((2, 2))
    assert energy(through(TopK(1), matrix) - matrix) == (1 - 1 / 4) * energy(matrix)


def test_rankr_known_answer():
    """Eigenvalues 1, 2 and -4: the largest in absolute value is the negative one."""
    matrix = np.array([[1.5, 0.5, 0.0], [0.5, 1.5, 0.0], [0.0, 0.0, -4.0]])
    message = RankR(1).compress(matrix, rng())
    assert message.codes.tolist() == [-1]
    assert np.abs(message.numbers) == pytest.approx([0.0, 0.0, 2.0], abs=1e-14)
    message = RankR(2).compress(matrix, rng())
    assert message.codes.tolist() == [-1, 1]
    kept = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, -4.0]])
    assert RankR(2).restore(message, 3) == pytest.approx(kept, abs=1e-14)


@pytest.mark.parametrize("rank", [12, 13, 500])
def test_rankr_of_all_eigenpairs_is_the_identity(rank):
    matrix = symmetric(12)
    assert through(RankR(rank), matrix) == pytest.approx(matrix, abs=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_rankr_of_a_matrix_of_that_rank_is_exact(rank):
    factors, signs = rng(1).standard_normal((9, rank)), np.array([1.0, -1.0, 1.0])[:rank]
    matrix = (factors * signs) @ factors.T
    assert through(RankR(rank), matrix) == pytest.approx(matrix, abs=1e-12)


@pytest.mark.parametrize("rank", [1, 3, 7, 10])
def test_rankr_contracts(rank):
    for matrix in (*(symmetric(10, seed) for seed in range(30)), np.eye(10)):
        error = energy(through(RankR(rank), matrix) - matrix)
        assert error <= (1 - rank / 10) * energy(matrix) + 1e-12 * energy(matrix)


def test_rankr_reaches_its_bound():
    assert energy(through(RankR(3), np.eye(10)) - np.eye(10)) == pytest.approx((1 - 3 / 10) * 10)


@pytest.mark.parametrize("spec", UNBIASED)
def test_the_mean_is_the_matrix_and_the_variance_is_bounded(spec):
    matrix, compressor, draw = symmetric(4), make_compressor(spec), rng(1)
    errors = np.array([compressor.restore(compressor.compress(matrix, draw), 4) - matrix for _ in range(DRAWS)])
    slack = 5 * errors.std(axis=0) / np.sqrt(DRAWS) + 1e-14
    assert (np.abs(errors.mean(axis=0)) <= slack).all()
    energies, omega = np.sum(errors**2, axis=(1, 2)), 1 / compressor.rate(4) - 1
    slack = 5 * energies.std() / np.sqrt(DRAWS) + 1e-14
    assert energies.mean() <= omega * energy(matrix) + slack
    if spec.startswith("randk"):  # there it is no bound, but what it is
        assert energies.mean() == pytest.approx(omega * energy(matrix), abs=slack)


@pytest.mark.parametrize(
    ("spec", "rate"), [("randk", 4 / 10), ("randk:3", 3 / 10), ("randk:99", 1), ("natural", 8 / 9)]
)
def test_rates_of_unbiased_compressors(spec, rate):
    assert make_compressor(spec).rate(4) == pytest.approx(rate, rel=1e-15)


@pytest.mark.parametrize("spec", ["identity", "topk", "rankr:2"])
def test_the_rate_of_contractive_compressors_is_one(spec):
    assert make_compressor(spec).rate(4) == 1.0


def test_randk_scales_what_it_draws():
    matrix = symmetric(6)
    message = RandK(7).compress(matrix, rng())
    assert np.unique(message.places).size == 7
    assert message.numbers == pytest.approx(3.0 * pack(matrix)[message.places], rel=1e-15)


def test_randk_of_all_entries_is_the_identity():
    assert np.array_equal(through(RandK(21), symmetric(6)), symmetric(6))


def test_randk_gives_every_place_the_same_chance():
    draw = rng(2)
    drawn = np.concatenate([RandK(3).compress(np.eye(3), draw).places for _ in range(DRAWS)])
    counts = np.bincount(drawn, minlength=6)
    assert counts == pytest.approx(np.full(6, DRAWS / 2), abs=5 * np.sqrt(DRAWS / 4))


def test_randk_shows_what_is_not_finite_if_it_is_drawn():
    matrix = np.diag([np.nan, 1.0])
    faults = [RandK(1).fault(RandK(1).compress(matrix, rng(seed)), 2) for seed in range(20)]
    assert set(faults) == {None, "its numbers are not finite"}


@given(matrix=matrices(st.floats(allow_nan=False, allow_infinity=False)), seed=st.integers(0, 2**32))
def test_natural_makes_entries_a_power_of_two_beside_them(matrix, seed):
    before, after = pack(matrix), pack(through("natural", matrix, seed))
    assert np.array_equal(np.sign(before), np.sign(after))
    before, after = np.abs(before[before != 0]), np.abs(after[after != 0])
    assert (np.frexp(after)[0] == 0.5).all()
    assert (after - before < before).all()  # less than twice the entry, and more than half of it
    assert (before - after < after).all()


@pytest.mark.parametrize("exponent", [-1074, -1073, -1022, -1, 0, 1, 1023])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_natural_leaves_powers_of_two(exponent, sign):
    matrix = np.full((40, 40), sign * 2.0**exponent)
    assert np.array_equal(through("natural", matrix), matrix)


@given(code=st.integers(-2098, 2098))
def test_natural_has_a_code_for_every_power_of_two(code):
    matrix = Natural().restore(Compressed(codes=np.array([code], dtype=np.int16)), 1)
    assert Natural().compress(matrix, rng()).codes.tolist() == [code]
    assert matrix[0, 0] == (0.0 if code == 0 else np.sign(code) * 2.0 ** (abs(code) - 1075))


@pytest.mark.parametrize("x", [4 / 3, -4 / 3, 1.01, 3.99, 1e-3, 7e300, 3 * 2.0**-1074])
def test_natural_mean_and_variance_of_an_entry(x):
    low = 2.0 ** np.floor(np.log2(abs(x)))
    rounded = np.abs(pack(through("natural", np.full((200, 200), x)))) / low  # 20,100 draws, each 1 or 2
    t = abs(x) / low
    assert set(rounded.tolist()) == {1.0, 2.0}
    assert rounded.mean() == pytest.approx(t, abs=5 * rounded.std() / np.sqrt(rounded.size))
    squares = (rounded - t) ** 2
    assert squares.mean() <= t**2 / 8 + 5 * squares.std() / np.sqrt(squares.size)


def test_natural_reaches_its_bound_at_four_thirds():
    rounded = pack(through("natural", np.full((200, 200), 4 / 3)))
    assert np.mean((rounded - 4 / 3) ** 2) == pytest.approx((4 / 3) ** 2 / 8, rel=0.02)


def test_natural_keeps_the_largest_numbers_finite():
    largest = np.finfo(float).max
    assert through("natural", np.diag([largest, -largest])).tolist() == [[2.0**1023, 0.0], [0.0, -(2.0**1023)]]


@pytest.mark.parametrize(
    ("spec", "floats", "bits"),
    [
        ("identity", 7626, 244032),
        ("rankr:1", 123, 3936),
        ("rankr:2", 246, 7872),
        ("rankr:200", 123 * 123, 32 * 123 * 123),
        ("topk", 123, 3936),
        ("topk:50", 50, 1600),
        ("topk:9999", 7626, 244032),
        ("randk", 123, 3936),
        ("randk:50", 50, 1600),
        ("natural", 7626, 68634),
    ],
)
def test_as_the_authors_count_them_on_a1a(spec, floats, bits):
    compressor = make_compressor(spec)
    assert (compressor.floats(123), compressor.bits(123)) == (floats, bits)


def test_a_round_of_fednl_with_its_gradient():
    assert RankR(1).bits(123) + 32 * 123 == 7872


def places(*values):
    return np.array(values, dtype=np.int32)


def codes(*values):
    return np.array(values, dtype=np.int16)


NUMBERS, PLACES, CODES = "its numbers is not", "its places is not", "its codes is not"
ORDER = "its places are not increasing, or not in the triangle"
NOT_FINITE = "its codes are not those of finite numbers"
FAULTS = {
    "too few": ("identity", {"numbers": np.ones(9)}, NUMBERS),
    "too many": ("identity", {"numbers": np.ones(11)}, NUMBERS),
    "two-dimensional": ("identity", {"numbers": np.ones((10, 1))}, NUMBERS),
    "float32": ("identity", {"numbers": np.ones(10, dtype=np.float32)}, NUMBERS),
    "another byte order": ("identity", {"numbers": np.ones(10, dtype=">f8")}, NUMBERS),
    "a list": ("identity", {"numbers": [1.0] * 10}, NUMBERS),
    "nothing": ("identity", {"numbers": None}, NUMBERS),
    "nan": ("identity", {"numbers": np.full(10, np.nan)}, "its numbers are not finite"),
    "places nobody asked for": ("identity", {"places": places(1)}, PLACES),
    "codes nobody asked for": ("identity", {"codes": codes(1)}, CODES),
    "numbers nobody asked for": ("natural", {"numbers": np.ones(1)}, NUMBERS),
    "too few entries": ("topk:3", {"numbers": np.ones(2)}, NUMBERS),
    "too few places": ("topk:3", {"places": places(1, 2)}, PLACES),
    "too many places": ("randk:3", {"places": places(1, 2, 3, 4)}, PLACES),
    "long places": ("randk:3", {"places": np.array([1, 2, 3])}, PLACES),
    "infinite": ("randk:3", {"numbers": np.array([1.0, np.inf, 1.0])}, "its numbers are not finite"),
    "below the triangle": ("topk:3", {"places": places(-1, 0, 1)}, ORDER),
    "beyond the triangle": ("topk:3", {"places": places(0, 1, 10)}, ORDER),
    "a place twice": ("topk:3", {"places": places(0, 1, 1)}, ORDER),
    "out of order": ("randk:3", {"places": places(0, 2, 1)}, ORDER),
    "far out in the middle": ("randk:3", {"places": places(0, 2**31 - 1, 1)}, ORDER),
    "eigenvectors too short": ("rankr:2", {"numbers": np.ones(7)}, NUMBERS),
    "eigenvectors of nan": ("rankr:2", {"numbers": np.full(8, np.nan)}, "its numbers are not finite"),
    "a sign too few": ("rankr:2", {"codes": codes(1)}, CODES),
    "a sign of 0": ("rankr:2", {"codes": codes(1, 0)}, "its codes are not signs"),
    "a sign of 3": ("rankr:2", {"codes": codes(-3, 1)}, "its codes are not signs"),
    "the least sign": ("rankr:2", {"codes": codes(-32768, 1)}, "its codes are not signs"),
    "floating signs": ("rankr:2", {"codes": np.ones(2)}, CODES),
    "squares that overflow": ("rankr:2", {"numbers": np.full(8, 1e200)}, "its matrix is not finite"),
    "sums that overflow": ("rankr:2", {"numbers": np.full(8, 1.2e154)}, "its matrix is not finite"),
    "too few codes": ("natural", {"codes": codes(*range(9))}, CODES),
    "long codes": ("natural", {"codes": np.arange(10)}, CODES),
    "a code too large": ("natural", {"codes": codes(*range(9), 2099)}, NOT_FINITE),
    "a code too small": ("natural", {"codes": codes(*range(9), -2099)}, NOT_FINITE),
    "the least code": ("natural", {"codes": codes(*range(9), -32768)}, NOT_FINITE),
}


@pytest.mark.parametrize("case", FAULTS)
def test_whatever_is_not_of_its_form_is_named(case):
    spec, changed, said = FAULTS[case]
    compressor = make_compressor(spec)
    message = compressor.compress(symmetric(4), rng())
    assert compressor.fault(message, 4) is None
    assert compressor.fault(replace(message, **changed), 4).startswith(said)


@pytest.mark.parametrize("spec", SPECS)
def test_something_else_is_a_fault_too(spec):
    for other in (None, 3, "text", np.ones(10)):
        assert make_compressor(spec).fault(other, 4) is not None


@pytest.mark.parametrize("spec", ["identity", "topk", "rankr:1", "randk", "natural"])
@pytest.mark.parametrize("d", [3, 5])
def test_a_message_for_another_matrix_is_a_fault(spec, d):
    compressor = make_compressor(spec)
    assert compressor.fault(compressor.compress(symmetric(d), rng()), 4) is not None
