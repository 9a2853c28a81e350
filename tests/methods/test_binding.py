"""Masks that bind: no exchange takes a worker past its deadline or memory, and the run still ends at the optimum."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import danl
from danl.engines import Local
from danl.methods import DANL
from danl.methods.prices import Prices
from danl.methods.senders import rungs_of
from danl.policies import ResourceAware
from danl.protocol.costs import seconds_each
from tests.methods.test_ladder import lacking
from tests.methods.test_senders import setup_of
from tests.problems import random_problem, random_shards

SLOW = danl.Profile(rows_per_second=200, uplink=400, downlink=1e4)
FAST = danl.Profile(rows_per_second=4_000, uplink=2e4, downlink=1e5)
PROFILES = [SLOW, SLOW, FAST, FAST]


class Strict(Local):
    """An engine that carries nothing that takes a worker longer than the deadline."""

    def __init__(self, profiles, deadline, **options):
        super().__init__(**options)
        self.profiles, self.deadline, self.longest = profiles, deadline, 0.0

    def open(self, problem, *, regions, policy, seed):
        super().open(problem, regions=regions, policy=policy, seed=seed)
        self.rows = np.array(problem.rows)
        self.entries = np.array([info.entries_per_row for info in problem.shard_info])
        self.regions = regions

    def exchange(self, exchange, *, deadline=None):
        replies = super().exchange(exchange, deadline=deadline)
        each = seconds_each(exchange, replies, self.profiles, self.rows, self.entries, self.regions)
        self.longest = max(self.longest, float(np.nanmax(each, initial=0.0)))
        if self.longest > self.deadline:
            raise danl.InputError(f"an exchange of kind {exchange.kind} takes {self.longest} s, past the deadline")
        return replies


def deadline_for(problem, share, profiles=PROFILES):
    """What the slowest worker needs for its loss and this share of its gradient, with a little room for a region."""
    rows, d = np.array(problem.rows), problem.n_coefficients
    each = [
        (8 * d + 1) / own.downlink + count * (1 + share) / 2 / own.rows_per_second + (8 * share * d + 9) / own.uplink
        for own, count in zip(profiles, rows, strict=True)
    ]
    return 1.001 * max(each)


def solve(problem, deadline, engine=None, **options):
    policy = ResourceAware(PROFILES, deadline=deadline)
    engine = engine or Strict(PROFILES, deadline)
    return danl.solve(problem, policy=policy, engine=engine, regions=7, max_rounds=2000, **options)


@pytest.mark.parametrize("share", [1 / 7, 0.5, 1.0])
@pytest.mark.parametrize("loss", ["logistic", "squared", "poisson"])
def test_no_exchange_is_past_the_deadline_and_the_optimum_is_reached(loss, share):
    problem = random_problem(loss, alpha=1e-3, sizes=(30, 20, 40, 25))
    deadline, reference = deadline_for(problem, share), danl.reference_optimum(problem)
    engine = Strict(PROFILES, deadline)
    result = solve(problem, deadline, engine, reference=reference)
    assert result.status == "converged"
    assert abs(result.history[-1].gap) < 1e-12
    assert 0 < engine.longest <= deadline
    assert result.history.column("simulated_seconds").max() <= deadline


def test_without_binding_exchanges_may_take_longer():
    problem = random_problem(alpha=1e-3, sizes=(30, 20, 40, 25))
    deadline = deadline_for(problem, 1 / 7)
    policy = ResourceAware(PROFILES, deadline=deadline, binding=False)
    with pytest.raises(danl.InputError, match="past the deadline"):
        danl.solve(problem, policy=policy, engine=Strict(PROFILES, deadline), regions=7)


PARTS = [{"curvature": "block"}, {"curvature": "lowrank:2"}, {"curvature": "diag"}, {"pairs": 0}]


@pytest.mark.parametrize("options", PARTS)
def test_parts_of_hessians_and_no_pairs(options):
    problem = random_problem(alpha=1e-2, sizes=(30, 20, 40, 25))
    deadline, reference = deadline_for(problem, 0.5), danl.reference_optimum(problem)
    result = solve(problem, deadline, method=danl.methods.DANL(**options), reference=reference)
    assert result.status == "converged"
    assert abs(result.history[-1].gap) < 1e-10


def test_with_an_intercept_the_means_are_left_out_where_they_do_not_fit():
    problem = danl.Problem(random_shards(sizes=(30, 20, 40, 25)), alpha=1e-2, intercept=True)
    deadline = deadline_for(problem, 2 / 7)
    result = solve(problem, deadline)
    assert result.status == "converged"
    assert "moments" not in result.history.column("kind")
    generous = solve(problem, 10.0)
    assert generous.history[0].kind == "moments"
    np.testing.assert_allclose(result.w, generous.w, atol=1e-7)


def test_workers_that_miss_exchanges_at_random():
    problem = random_problem(alpha=1e-2, sizes=(30, 20, 40, 25))
    deadline, reference = deadline_for(problem, 0.5), danl.reference_optimum(problem)
    engine = Strict(PROFILES, deadline, dropout=0.3, seed=1)
    result = solve(problem, deadline, engine, reference=reference)
    assert result.status == "converged"
    assert abs(result.history[-1].gap) < 1e-12
    assert result.failures


def test_a_worker_that_leaves_while_its_curvature_is_gathered():
    problem = random_problem(alpha=1e-2, sizes=(30, 20, 40, 25))
    deadline = deadline_for(problem, 0.5)
    result = solve(problem, deadline, Strict(PROFILES, deadline, away={2: (1, None)}))
    rest = danl.Problem([shard for i, shard in enumerate(problem.shards) if i != 2], alpha=1e-2)
    assert result.status == "converged"
    np.testing.assert_allclose(result.w, danl.reference_optimum(rest).w, atol=1e-7)


@pytest.mark.parametrize("stop", [1, 3, 8, 15])
def test_a_run_goes_on_from_any_portion_to_the_bit(tmp_path, stop):
    problem = random_problem(alpha=1e-3, sizes=(30, 20, 40, 25))
    deadline = deadline_for(problem, 1 / 7)
    whole = solve(problem, deadline)
    assert len(whole.history) > stop + 1
    solve(problem, deadline, checkpoint=tmp_path / "ck", callback=lambda row: row.exchange == stop)
    resumed = solve(problem, deadline, resume=tmp_path / "ck")
    assert np.array_equal(resumed.w, whole.w)
    assert len(resumed.history) == len(whole.history)


def test_memory_binds_as_well():
    problem = random_problem(alpha=1e-3, sizes=(30, 20, 40, 25))
    d, shard = problem.n_coefficients, [info.nbytes for info in problem.shard_info]
    small = danl.Profile(memory=shard[0] + 8 * d + 8 * 2)  # room for two coordinates at a time
    policy = ResourceAware([small, *[danl.Profile()] * 3], deadline=1.0)
    result = danl.solve(problem, policy=policy, regions=7, max_rounds=2000)
    assert result.status == "converged"
    assert result.trace is None
    trace = danl.Trace()
    danl.solve(problem, policy=policy, regions=7, max_rounds=2000, trace=trace)
    sent = np.array([trace.bytes_up[k][0] for k in range(len(trace))])
    assert sent.max() <= 8 * 2 + 8 + 8 * 2 + 1


def test_what_cannot_be_done_at_all_is_refused_at_the_start():
    problem = random_problem(alpha=1e-3, sizes=(30, 20, 40, 25))
    too_short = deadline_for(problem, 0.0) / 2
    with pytest.raises(danl.InputError, match=r"deadline=.*must be at least .* seconds, which worker 0 needs"):
        solve(problem, too_short)


# Whose margins are counted on.


class Recording(Strict):
    """It remembers every exchange, and who did not answer; what `kind` of absence it was can be told."""

    def __init__(self, *arguments, kind="timeout", **options):
        super().__init__(*arguments, **options)
        self.kind, self.seen = kind, []

    def exchange(self, exchange, *, deadline=None):
        replies = super().exchange(exchange, deadline=deadline)
        self.seen.append((exchange, set(replies.failures)))
        failures = {worker: replace(own, kind=self.kind) for worker, own in replies.failures.items()}
        return replace(replies, failures=failures)

    def counted_on(self):
        """Of every exchange after the first: who is counted on to have its margins, and who was there before.

        These are the workers whose newest answer is about this model, without an absence since.
        """
        has = {}
        for exchange, failed in self.seen:
            w, asked = exchange.task.w.tobytes(), exchange.workers
            kept = set() if exchange.kept is None else set(asked[exchange.kept].tolist())
            yield exchange, kept, {worker for worker in asked.tolist() if has.get(worker) == w}
            has |= {worker: None if worker in failed else w for worker in asked.tolist()}


def recorded(dropout, share=1 / 7, **options):
    problem = random_problem(alpha=1e-2, sizes=(30, 20, 40, 25))
    deadline = deadline_for(problem, share)
    engine = Recording(PROFILES, deadline, dropout=dropout, seed=1, **options)
    assert solve(problem, deadline, engine).status == "converged"
    return list(engine.counted_on()), engine


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [1 / 7, 0.5])
def test_one_that_missed_an_exchange_is_not_counted_on_to_have_its_margins(share, seed):
    problem = random_problem(alpha=1e-2, sizes=(30, 20, 40, 25))
    deadline = deadline_for(problem, share)
    engine = Recording(PROFILES, deadline, dropout=0.3, seed=seed)
    solve(problem, deadline, engine)
    missed, after_an_absence, counted = set(), 0, 0
    for (_, failed), (exchange, kept, _) in zip(engine.seen, engine.counted_on(), strict=True):
        assert not kept & missed
        after_an_absence, counted = after_an_absence + len(missed & set(exchange.workers)), counted + len(kept)
        missed = (missed - set(exchange.workers.tolist())) | failed
    assert after_an_absence
    assert counted


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_only_those_who_answered_about_this_model_are_counted_on(dropout):
    rows, _ = recorded(dropout)
    assert all(kept <= have for _, kept, have in rows)


def test_without_absences_all_who_answered_about_this_model_are_counted_on():
    rows, _ = recorded(0.0)
    assert all(kept == have for _, kept, have in rows)
    assert any(kept for _, kept, _ in rows)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_at_a_new_model_nobody_is_counted_on(dropout):
    rows, _ = recorded(dropout)
    models = [exchange.task.w.tobytes() for exchange, _, _ in rows]
    new = [kept for number, (_, kept, _) in enumerate(rows) if number == 0 or models[number] != models[number - 1]]
    assert 1 < len(new) < len(rows)
    assert not any(new)


def test_one_that_is_started_anew_is_not_counted_on_to_have_its_margins():
    rows, engine = recorded(0.3, kind="restarting")
    assert any(failed for _, failed in engine.seen)
    assert all(kept <= have for _, kept, have in rows)


# Too little for curvature.

ABLE = danl.Profile(1e5, 1e5, 1e5)
DEAF = danl.Profile(1e6, 1e6, 1e3)  # the 16 bytes that name a range of numbers are long on this line
WAYS = ["danl", "danl:curvature=diag", "danl:curvature=block", "danl:curvature=lowrank:2"]


def smallest_legal(problem, profiles, regions):
    """The deadline that leaves the slowest worker its largest region, and nothing more."""
    d = problem.n_coefficients
    return deadline_for(problem, -(-d // regions) / d, profiles) / 1.001


def run(problem, profiles, deadline, regions=7, method="danl", **options):
    engine = Strict(profiles, deadline)
    policy = ResourceAware(profiles, deadline=deadline)
    result = danl.solve(
        problem, method=method, policy=policy, engine=engine, regions=regions, max_rounds=3000, **options
    )
    assert 0 < engine.longest <= deadline
    return result


def least_of(error):
    """The deadline that a refusal names."""
    return float(re.search(r"must be at least (\S+) seconds", str(error)).group(1))


@pytest.mark.parametrize("method", WAYS)
@pytest.mark.parametrize("times", [1.0005, 1.1, 1.2])
def test_a_deadline_without_time_for_curvature_is_refused_and_the_one_that_is_named_will_do(times, method):
    problem, profiles = random_problem(alpha=1e-3, sizes=(30, 20, 40, 25)), [DEAF] * 4
    deadline = times * smallest_legal(problem, profiles, 7)
    told = r"deadline=0\.0\d+: must be at least 0\.0\d+ seconds, to send a number of curvature; raise the deadline"
    with pytest.raises(danl.InputError, match=told) as refused:
        run(problem, profiles, deadline, method=method)
    least = least_of(refused.value)
    assert deadline < least
    reference = danl.reference_optimum(problem)
    result = run(problem, profiles, least, method=method, reference=reference)
    assert result.status == "converged"
    assert abs(result.history[-1].gap) < 1e-10
    with pytest.raises(danl.InputError, match="to send a number of curvature"):
        run(problem, profiles, 0.998 * least, method=method)  # these machines are alike: none can with less


def test_a_machine_that_cannot_send_curvature_leaves_it_to_the_others():
    """Its curvature is missing, and that of everyone would be asked for, if that were possible."""
    problem, profiles = lacking(), [ABLE] * 3 + [DEAF] * 3
    deadline = 1.001 * smallest_legal(problem, profiles, 5)
    setup = setup_of(problem, policy=ResourceAware(profiles, deadline=deadline), regions=5)
    prices = Prices.of(DANL(), setup)
    assert np.isfinite(prices.gradient)
    assert np.isinf(prices.hessian["float32"]).tolist() == [False] * 3 + [True] * 3
    rungs = rungs_of(DANL(), setup, prices)
    assert np.isfinite([rung.price for rung in rungs]).all()
    assert {tuple(rung.senders.tolist()) for rung in rungs} == {(True,) * 3 + (False,) * 3}
    result = run(problem, profiles, deadline, regions=5)
    assert result.status == "converged"
    np.testing.assert_allclose(result.w, danl.reference_optimum(problem).w, atol=1e-6)


@pytest.mark.parametrize("curvature_from", ["everyone", 3])
def test_where_those_who_cannot_send_curvature_are_asked_for_it_the_deadline_is_refused(curvature_from):
    problem, profiles = random_problem(alpha=1e-3, sizes=(30, 20, 40, 25)), [ABLE] * 3 + [DEAF]
    method, deadline = DANL(curvature_from=curvature_from), 1.001 * smallest_legal(problem, profiles, 7)
    with pytest.raises(danl.InputError, match="to send a number of curvature") as refused:
        run(problem, profiles, deadline, method=method)
    assert run(problem, profiles, least_of(refused.value), method=method).status == "converged"


@pytest.mark.parametrize("method", WAYS)
def test_memory_for_one_coordinate_is_enough_for_curvature(method):
    problem = random_problem(alpha=1e-2, sizes=(30, 20, 40, 25))
    d, shard = problem.n_coefficients, [info.nbytes for info in problem.shard_info]
    profiles = [danl.Profile(memory=own + 8 * d + 8) for own in shard]
    result = run(problem, [replace(own, uplink=1e5) for own in profiles], 1.0, method=method)
    assert result.status == "converged"
    np.testing.assert_allclose(result.w, danl.reference_optimum(problem).w, atol=1e-6)
    small = [replace(profiles[0], memory=profiles[0].memory - 1), *profiles[1:]]
    with pytest.raises(danl.InputError, match=rf"profiles\[0\]\.memory=.* at least {profiles[0].memory:.0f} bytes"):
        danl.solve(problem, method=method, policy=ResourceAware(small, deadline=1.0), regions=7)


three_decades = st.floats(2, 5).map(lambda exponent: 10.0**exponent)


@pytest.mark.slow
@settings(max_examples=60, phases=[Phase.generate])  # to make a run that hangs smaller takes minutes
@given(
    profiles=st.lists(st.builds(danl.Profile, three_decades, three_decades, three_decades), min_size=1, max_size=6),
    loss=st.sampled_from(["logistic", "squared", "poisson"]),
    method=st.sampled_from(WAYS),
    d=st.integers(1, 7),
    times=st.floats(1.0005, 1.5),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_every_fleet_and_deadline_converges_or_is_refused_at_the_start(profiles, loss, method, d, times, seed, data):
    sizes = np.random.default_rng(seed).integers(5, 40, len(profiles))
    problem, regions = random_problem(loss, alpha=1e-2, sizes=sizes, d=d, seed=seed), data.draw(st.integers(1, d))
    deadline = times * smallest_legal(problem, profiles, regions)
    try:
        result = run(problem, profiles, deadline, regions, method)
    except danl.InputError as refused:
        if "to send a number of curvature" not in str(refused):
            raise  # an exchange was past the deadline
        result = run(problem, profiles, least_of(refused), regions, method)
    assert result.status == "converged"


@pytest.mark.parametrize("method", ["danl", "danl:curvature=diag"])
def test_the_smallest_deadline_itself_will_do(method):
    """A region takes exactly a second; nothing is left beside it."""
    problem, profiles = random_problem(alpha=1e-3), [danl.Profile(uplink=17.0)] * 4
    policy, engine = ResourceAware(profiles, deadline=1.0), Strict(profiles, 1.0)
    result = danl.solve(problem, method=method, policy=policy, regions=7, engine=engine, max_rounds=1000)
    assert result.status == "converged"
    assert engine.longest == 1.0
    with pytest.raises(danl.InputError, match="must be at least 1 seconds"):
        danl.solve(problem, method=method, policy=ResourceAware(profiles, deadline=0.999), regions=7)
