"""What a worker manages in one exchange where masks bind: never past the deadline, and how many exchanges it takes."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import danl
from danl.engines import Local
from danl.methods import DANL
from danl.methods.curvature_exchange import hessian_task
from danl.methods.portions import Portions
from danl.policies import ResourceAware
from danl.protocol.costs import seconds_each
from danl.protocol.messages import Exchange, GradientTask, LossTask
from tests.methods.test_senders import setup_of
from tests.problems import random_problem

SEEDS = st.integers(0, 10**6)
DTYPES = st.sampled_from(["float64", "float32"])


def one_of(rng, low):
    """A number between 10^low and 10^(low + 3), now and then no limit."""
    return 10.0 ** rng.uniform(low, low + 3) if rng.random() < 0.85 else np.inf


def random_fleet(rng, count):
    """Machines of many kinds; each takes some time for its rows."""
    return [danl.Profile(10.0 ** rng.uniform(2, 5), one_of(rng, 3), one_of(rng, 3)) for _ in range(count)]


def least_deadline(problem, sizes, profiles):
    """Seconds until everyone has its loss and its largest region."""
    d, largest, mask = problem.n_coefficients, max(sizes), -(-len(sizes) // 8)
    return max(
        (8 * d + mask) / own.downlink
        + rows * (1 + largest / d) / 2 / own.rows_per_second
        + (8 * largest + 8 + mask) / own.uplink
        for own, rows in zip(profiles, problem.rows, strict=True)
    )


def random_case(seed, *, equal=False):
    """A problem, its regions, and a policy with a deadline that everyone can keep, some with little to spare."""
    rng = np.random.default_rng(seed)
    count, d = int(rng.integers(1, 6)), int(rng.integers(1, 16))
    n_regions = int(rng.integers(1, d + 1))
    cuts = np.sort(rng.choice(np.arange(1, d), size=n_regions - 1, replace=False)) if n_regions > 1 else []
    sizes = np.diff([0, *cuts, d]).tolist()
    if equal:
        size = int(rng.integers(1, 5))
        sizes, d = [size] * n_regions, size * n_regions
    rows = tuple(rng.integers(2, 60, size=count).tolist())
    problem = random_problem(sizes=rows, d=d, seed=seed, as_sparse=bool(rng.random() < 0.5))
    profiles = random_fleet(rng, count)
    deadline = least_deadline(problem, sizes, profiles) * (1 + 10 ** rng.uniform(-6, 1.5))
    return problem, sizes, ResourceAware(profiles, deadline=deadline), rng


def portions_of(problem, sizes, policy, dtype="float64", rows=None, **options):
    method = DANL(**options)
    return Portions(method, setup_of(problem, method, policy=policy, regions=sizes), dtype, rows)


def gather(portions, *, curvature, most=20_000):
    """Exchanges until every worker has sent everything, one after the other, margins kept after the first; (N,)."""
    count, n_regions = portions.setup.n_workers, portions.setup.regions.n_regions
    missing, unsent = np.ones((count, n_regions), dtype=bool), np.full(count, portions.numbers if curvature else 0)
    taken, kept = np.zeros(count), np.zeros(count, dtype=bool)
    for _ in range(most):
        busy = missing.any(axis=1) | (unsent > 0)
        if not busy.any():
            break
        masks, more = portions.next(missing, unsent, kept)
        if not (masks.any() or more.any()):
            return np.where(busy, np.inf, taken)
        taken, missing, unsent, kept = taken + busy, missing & ~masks, unsent - more, np.ones(count, dtype=bool)
    return np.where(missing.any(axis=1) | (unsent > 0), np.inf, taken)


def largest_portion(portions):
    """Numbers of curvature that each worker sends in an exchange of nothing else, (N,)."""
    count, n_regions = portions.setup.n_workers, portions.setup.regions.n_regions
    nothing = np.zeros((count, n_regions), dtype=bool)
    return portions.next(nothing, np.full(count, portions.numbers), np.ones(count, dtype=bool))[1]


# No portion is past the deadline.


def exchange_of(portions, masks, first, more, kept):
    """The exchange that asks everyone for a portion, as the method asks it."""
    w, everyone = np.zeros(portions.setup.n_coefficients), np.arange(portions.setup.n_workers)
    if not more.any():
        return Exchange("gradient", GradientTask(0, w), everyone, masks, idle=LossTask(0, w), kept=kept)
    task = hessian_task(portions.options.hessian_form, 0, w, dtype=portions.dtype, hessian_batch=portions.rows)
    pieces = np.stack([first, first + more], axis=1)
    return Exchange("hessian", task, everyone, masks, pieces=pieces, kept=kept)


def seconds_of(portions, problem, exchange):
    regions, limits = portions.setup.regions, portions.setup.limits
    engine = Local()
    engine.open(problem, regions=regions, policy=None, seed=0)
    replies = engine.exchange(exchange)
    assert not replies.failures
    rows, entries = np.array(problem.rows), np.array([info.entries_per_row for info in problem.shard_info])
    return seconds_each(exchange, replies, limits.profiles, rows, entries, regions)


@settings(max_examples=80)
@given(
    seed=SEEDS,
    dtype=DTYPES,
    curvature=st.sampled_from(["full", "block", "lowrank:1", "diag"]),
    rows=st.sampled_from([None, 1, 10]),
)
def test_no_portion_is_past_the_deadline_whoever_has_its_margins(seed, dtype, curvature, rows):
    problem, sizes, policy, rng = random_case(seed)
    portions = portions_of(problem, sizes, policy, dtype, rows, curvature=curvature)
    count = len(policy.profiles)
    missing = rng.random((count, len(sizes))) < rng.random()
    unsent = rng.integers(0, portions.numbers + 1, size=count)
    kept = rng.random(count) < 0.5
    masks, more = portions.next(missing, unsent, kept)
    assert not (masks & ~missing).any()
    assert (more >= 0).all()
    assert (more <= unsent).all()
    exchange = exchange_of(portions, masks, portions.numbers - unsent, more, kept)
    assert seconds_of(portions, problem, exchange).max() <= policy.deadline


@settings(max_examples=60)
@given(seed=SEEDS)
def test_every_portion_has_something_in_it_until_the_gradient_is_whole(seed):
    problem, sizes, policy, rng = random_case(seed)
    portions = portions_of(problem, sizes, policy)
    missing = rng.random((len(policy.profiles), len(sizes))) < 0.5
    masks, _ = portions.next(missing, np.zeros(len(missing), dtype=np.int64), np.zeros(len(missing), dtype=bool))
    assert (masks.any(axis=1) == missing.any(axis=1)).all()


@settings(max_examples=60)
@given(seed=SEEDS)
def test_who_has_its_margins_is_asked_for_no_less(seed):
    problem, sizes, policy, _ = random_case(seed, equal=True)
    portions = portions_of(problem, sizes, policy)
    count = len(policy.profiles)
    everything = np.ones((count, len(sizes)), dtype=bool), np.full(count, portions.numbers)
    without, with_margins = (portions.next(*everything, np.full(count, kept)) for kept in (False, True))
    assert (with_margins[0].sum(axis=1) >= without[0].sum(axis=1)).all()
    assert (with_margins[1] >= without[1]).all()


def test_margins_that_are_kept_leave_their_half_pass_for_more_regions():
    """Time for the margins, half a pass, and one of four regions, an eighth; without the margins for all four."""
    problem, profile = random_problem(sizes=(40,), d=8), danl.Profile(rows_per_second=100)
    policy = ResourceAware([profile], deadline=(1 + 1e-6) * least_deadline(problem, [2] * 4, [profile]))
    portions, everything = portions_of(problem, [2] * 4, policy), np.ones((1, 4), dtype=bool)
    for kept, fit in ((False, 1), (True, 4)):
        masks, _ = portions.next(everything, np.zeros(1, dtype=np.int64), np.array([kept]))
        assert masks.sum() == fit
    assert portions.rounds(curvature=False).tolist() == [2]


def test_curvature_comes_with_the_last_regions_and_not_before():
    problem = random_problem(sizes=(40,), d=8)
    profile = danl.Profile(rows_per_second=400, uplink=1e3, downlink=1e4)
    policy = ResourceAware([profile], deadline=1.5 * least_deadline(problem, [2] * 4, [profile]))
    portions = portions_of(problem, [2] * 4, policy)
    missing, asked = np.ones((1, 4), dtype=bool), []
    kept = np.zeros(1, dtype=bool)
    while missing.any():
        masks, more = portions.next(missing, np.array([portions.numbers]), kept)
        missing, kept = missing & ~masks, np.ones(1, dtype=bool)
        asked.append(int(more[0]))
    assert len(asked) > 1
    assert not any(asked[:-1])


def test_a_portion_fits_into_the_memory():
    problem = random_problem(sizes=(30,), d=8)
    room = problem.shard_info[0].nbytes + 8 * 8 + 8 * 3  # for three numbers at a time
    policy = ResourceAware([danl.Profile(memory=room)], deadline=1.0)
    portions = portions_of(problem, [2, 2, 3, 1], policy)
    missing, unsent = np.ones((1, 4), dtype=bool), np.array([portions.numbers])
    while missing.any() or unsent.any():
        masks, more = portions.next(missing, unsent, np.zeros(1, dtype=bool))
        assert 1 <= int(masks[0] @ portions.setup.regions.sizes) + int(more[0]) <= 3
        missing, unsent = missing & ~masks, unsent - more


# How many it takes.


@settings(max_examples=80)
@given(seed=SEEDS)
def test_whole_gradients_take_as_many_exchanges_as_said_where_regions_are_of_one_size(seed):
    problem, sizes, policy, _ = random_case(seed, equal=True)
    portions = portions_of(problem, sizes, policy)
    np.testing.assert_array_equal(gather(portions, curvature=False), portions.rounds(curvature=False))


@settings(max_examples=80)
@given(seed=SEEDS)
def test_whole_gradients_take_no_more_exchanges_than_said(seed):
    """Every region is taken for the largest one, unless all of them fit together."""
    problem, sizes, policy, _ = random_case(seed)
    portions = portions_of(problem, sizes, policy)
    said, taken = portions.rounds(curvature=False), gather(portions, curvature=False)
    assert np.isfinite(taken).all()
    assert (taken <= said).all()
    assert (said <= len(sizes)).all()
    assert ((said == 1) == (taken == 1)).all()


@settings(max_examples=80)
@given(seed=SEEDS, dtype=DTYPES)
def test_what_is_said_of_curvature_is_the_least_it_takes_where_regions_are_of_one_size(seed, dtype):
    """It may take more: time that is left beside regions counts for curvature, which comes with the last ones alone.

    Never more than if nothing came beside the gradient.
    """
    problem, sizes, policy, _ = random_case(seed, equal=True)
    portions = portions_of(problem, sizes, policy, dtype)
    said, taken, gradient = (
        portions.rounds(curvature=True),
        gather(portions, curvature=True),
        gather(portions, curvature=False),
    )
    most = largest_portion(portions)
    able = most > 0
    assert np.isinf(said[~able]).all()
    assert (gradient[able] <= said[able]).all()
    assert (said[able] <= taken[able]).all()
    assert (taken[able] <= gradient[able] + np.ceil(portions.numbers / most[able])).all()


@settings(max_examples=60)
@given(seed=SEEDS)
def test_curvature_takes_as_many_exchanges_as_said_where_naming_it_costs_nothing_and_there_is_one_region(seed):
    """With one exchange for the gradient, what is left of it is what curvature gets; up to the one that is rounded."""
    problem, _, policy, _ = random_case(seed)
    d = problem.n_coefficients
    profiles = [replace(own, downlink=math.inf) for own in policy.profiles]
    policy = ResourceAware(profiles, deadline=policy.deadline + least_deadline(problem, [d], profiles))
    portions = portions_of(problem, [d], policy)
    said, taken, able = portions.rounds(curvature=True), gather(portions, curvature=True), largest_portion(portions) > 0
    assert (np.abs(taken - said)[able] <= 1).all()


def test_a_sample_of_the_rows_takes_no_more_exchanges():
    for seed in range(20):
        problem, sizes, policy, _ = random_case(seed)
        rounds = [portions_of(problem, sizes, policy, rows=rows).rounds(curvature=True) for rows in (1, 5, None)]
        assert (rounds[0] <= rounds[1]).all()
        assert (rounds[1] <= rounds[2]).all()


def test_without_limits_everything_takes_one_exchange():
    problem = random_problem()
    portions = portions_of(problem, [3, 4], ResourceAware([danl.Profile()] * 4, deadline=1.0))
    np.testing.assert_array_equal(portions.rounds(curvature=True), 1)
    np.testing.assert_array_equal(gather(portions, curvature=True), 1)
    with_pieces = portions.next(np.ones((4, 2), bool), np.full(4, portions.numbers), np.zeros(4, bool))
    assert with_pieces[0].all()
    assert (with_pieces[1] == portions.numbers).all()


def test_memory_binds_where_numbers_take_no_time_but_naming_them_would():
    """Computing and sending take no time; the 16 bytes that name a range of numbers take more than there is."""
    problem = random_problem(sizes=(20,), d=8)
    profile = danl.Profile(downlink=1e3, memory=problem.shard_info[0].nbytes + 8 * 8 + 8 * 8)
    policy = ResourceAware([profile], deadline=(1 + 1e-6) * least_deadline(problem, [4, 4], [profile]))
    portions = portions_of(problem, [4, 4], policy)
    nothing, kept = np.zeros((1, 2), dtype=bool), np.ones(1, dtype=bool)
    assert portions.next(nothing, np.array([portions.numbers]), kept)[1][0] <= 8


def test_what_is_said_of_curvature_counts_the_memory():
    problem = random_problem(sizes=(30,), d=8)
    room = problem.shard_info[0].nbytes + 8 * 8 + 8 * 3  # for three numbers at a time, of 8 and 36
    portions = portions_of(problem, [2] * 4, ResourceAware([danl.Profile(memory=room)], deadline=1.0))
    assert gather(portions, curvature=True)[0] > 12
    assert portions.rounds(curvature=True)[0] >= 12
