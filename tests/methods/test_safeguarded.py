"""The default method gets to the optimum under any masks, with workers that come and go, and says when it cannot."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import danl
from danl.data import Shard
from danl.engines import Local
from danl.methods import DANL, Newton
from danl.methods.questions import Sampling
from danl.objective.losses import LOSSES
from danl.policies import Coverage, Schedule, Subset
from tests.problems import EXPONENTIAL, TARGETS, random_problem
from tests.tools import iterates

MASKS = {
    "full": None,
    "psi=1": Coverage(psi=1),
    "psi=2,gamma=2": Coverage(psi=2, gamma=2),
    "S=1": Subset(1),
    "S=1 random": Subset(1, order="random"),
    "random": "random:keep=0.3",
    "magnitude": "magnitude:keep=0.4",
}
MASKED = DANL(masks="always")  # on small problems whole gradients, and Hessians, cost hardly more than masked ones


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_under_every_kind_of_mask(loss, masks):
    for alpha in (1e-1, 1e-5):
        problem = random_problem(loss, alpha=alpha, weighted=True, as_sparse=masks == "psi=1")
        reference = danl.reference_optimum(problem)
        result = danl.solve(
            problem, method=MASKED, regions=4, policy=MASKS[masks], reference=reference, max_rounds=150, tol=1e-9
        )
        assert result.status == "converged"
        assert result.history[-1].gap < 1e-12
        assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) <= 1e-9


# Must hold 4: accepted models never rise, nothing diverges, nothing goes on for ever.


def hard_problem(seed, n_workers, d, condition, loss, weighted, weighting, alpha):
    """Features scaled over many orders, shards of very different sizes, labels sorted between them."""
    rng = np.random.default_rng(seed)
    sizes = 1 + rng.geometric(0.1, size=n_workers)
    scales = np.logspace(0, -0.5 * np.log10(condition), d)  # the Hessian's condition number is that of its square
    X = rng.normal(size=(sizes.sum(), d)) * rng.permutation(scales)
    z = X @ (rng.normal(size=d) / scales[rng.permutation(d)]) if d > 1 else X[:, 0]
    noise = rng.normal(size=len(z))
    if TARGETS[loss] == "binary":
        y = (z + noise * np.std(z) > 0).astype(float)
        y[:2] = [0.0, 1.0]
    elif TARGETS[loss] != "real":
        mean = np.exp(np.clip(z / max(np.abs(z).max(), 1e-9), -2, 2))
        y = rng.poisson(mean).astype(float) if TARGETS[loss] == "count" else mean * rng.gamma(2.0, 0.5, size=len(z))
    else:
        y = z + noise
    order = np.argsort(y, kind="stable") if rng.random() < 0.5 else np.arange(len(y))
    shards, start = [], 0
    for number, size in enumerate(sizes):
        own = order[start : start + size]
        weights = rng.uniform(0.1, 3.0, size=size) if weighted else None
        shards.append(Shard.of(X[own], y[own], weights=weights, name=f"worker-{number}"))
        start += size
    return danl.Problem(shards, loss=loss, alpha=alpha, weighting=weighting)


@pytest.mark.filterwarnings("ignore:nobody trained any region")  # by chance, where there are few to draw
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:region .* was trained by nobody")  # magnitude keeps to the largest regions
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    n_workers=st.integers(1, 30),
    d=st.integers(1, 12),
    condition=st.floats(1, 1e12),
    loss=st.sampled_from(sorted(LOSSES)),
    weighted=st.booleans(),
    weighting=st.sampled_from(["uniform", "samples"]),
    alpha=st.sampled_from([1e-12, 1e-8, 1e-4, 1e-1]),
    masks=st.sampled_from(["random:keep=0.3", "coverage:psi=1", "subset:S=1", "full", "magnitude:keep=0.2"]),
    asked=st.sampled_from(["auto", "always"]),
    start=st.sampled_from([0.0, 1.0, 30.0]),
    data=st.data(),
)
def test_hard_problems(seed, n_workers, d, condition, loss, weighted, weighting, alpha, masks, asked, start, data):
    problem = hard_problem(seed, n_workers, d, condition, loss, weighted, weighting, alpha)
    regions = data.draw(st.integers(1, d))
    w0 = (start / 30 if loss in EXPONENTIAL else start) * np.random.default_rng(seed).normal(size=d)
    method = DANL(masks=asked)
    result = danl.solve(
        problem, method=method, regions=regions, policy=masks, w0=w0, max_rounds=300, tol=1e-10, seed=seed
    )
    assert result.status in ("converged", "max_rounds")
    assert np.isfinite(result.w).all()
    f = np.array([problem.objective(w0), *result.history.column("objective")])
    assert (np.diff(f) <= 64 * np.finfo(float).eps * np.maximum(np.abs(f[:-1]), 1e-300)).all()
    # Where it says converged, safeguarded Newton on everything at once finds nothing better.
    if result.status == "converged":
        best = danl.solve(problem, method="newton", w0=result.w, regions=1, max_rounds=30, tol=0.0)
        drop = result.history[-1].objective - best.history[-1].objective
        assert drop <= 1e-12 * abs(result.history[-1].objective) + 1e-28 * abs(f[0])  # of a perfect fit nothing is left


def test_a_start_where_the_objective_is_infinite_is_refused():
    with pytest.raises(danl.InputError, match="w0: the objective is infinite there; start nearer to zero"):
        danl.solve(random_problem("poisson"), w0=np.full(7, 1e4))


# Must hold 5: what it is with full masks.


def test_with_full_masks_and_curvature_once_it_is_newton_zero():
    problem = random_problem(l2=2.0, weighted=True)
    w0 = np.full(7, 0.3)
    ours = iterates(problem, DANL(curvature="once"), w0=w0, max_rounds=20)
    theirs = iterates(problem, "newton-zero", w0=w0, max_rounds=20)
    for a, b in zip(ours, theirs, strict=True):
        assert np.linalg.norm(a - b) <= 1e-10 * np.linalg.norm(b)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("start", [0.0, -2.0, 3.0])
def test_with_a_hessian_exchange_every_round_it_is_safeguarded_newton(loss, start):
    problem, w0 = random_problem(loss, alpha=1e-3), np.full(7, start)
    ours = danl.solve(problem, method=DANL(curvature=1), policy="coverage:psi=1", w0=w0)
    theirs = danl.solve(problem, method=Newton(), w0=w0)
    assert ours.status == theirs.status == "converged"
    np.testing.assert_allclose(ours.w, theirs.w, rtol=1e-7, atol=1e-9)
    assert (np.diff(ours.history.column("objective")) <= 1e-13).all()
    if "loss" in theirs.history.column("kind"):  # refused: it halves the step, ours goes to the parabola's lowest point
        return
    assert list(ours.history.column("kind")) == list(theirs.history.column("kind"))
    np.testing.assert_allclose(ours.w, theirs.w, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(
        ours.history.column("objective"), theirs.history.column("objective"), rtol=1e-10, atol=1e-13
    )


def test_curvature_every_k_rounds():
    result = danl.solve(random_problem(), method=DANL(curvature=3), policy=Coverage(psi=1), tol=1e-13)
    kinds = list(result.history.column("kind"))
    assert result.status == "converged"
    assert kinds[:7] == ["hessian", "gradient", "gradient", "hessian", "gradient", "gradient", "hessian"]


def test_a_rise_is_refused_and_everyone_is_asked_for_the_whole_gradient_at_the_anchor():
    """Raw memory under one region a round proposes bad steps: each is refused, the model stays, no Hessians come."""
    problem, method = random_problem(alpha=1e-4), DANL(memory="raw", masks="always")
    result = danl.solve(problem, method=method, regions=7, policy=Subset(1), max_rounds=200, tol=1e-9)
    rows = list(result.history)
    masked = [k for k, row in enumerate(rows[:-1]) if min(row.coverage) < 4]
    refused = [k for k in masked if rows[k].step_norm == 0.0]
    assert result.status == "converged"
    assert refused
    assert all((rows[k + 1].kind, min(rows[k + 1].coverage)) == ("gradient", 4) for k in refused)
    assert "loss" not in result.history.column("kind")
    assert (np.diff(result.history.column("objective")) <= 1e-14).all()


def test_everyone_tells_the_loss_in_a_masked_round():
    problem, masks = random_problem(), np.zeros((30, 4, 3), dtype=bool)
    masks[:, 0] = True  # only worker 0 trains; the others send 8 bytes
    result = danl.solve(problem, method=MASKED, regions=3, policy=Schedule(masks), max_rounds=30, tol=1e-8)
    row = result.history[1]
    assert (row.kind, row.active, row.coverage) == ("gradient", 4, (1, 1, 1))
    assert row.bytes_up == (8 * 7 + 8 + 1) + 3 * 8
    assert row.bytes_down == 4 * 8 * 7 + 1


def test_converged_means_the_workers_sent_the_whole_gradient():
    result = danl.solve(random_problem(), method=MASKED, regions=7, policy=Subset(1), tol=1e-9)
    assert min(result.history[1].coverage) == 0  # masked rounds led there
    last = result.history[-1]
    assert result.status == "converged"
    assert last.coverage == (4,) * 7  # a full gradient, or a Hessian exchange
    assert last.grad_norm <= 1e-9


def test_at_rounding_level_it_stops_and_says_converged():
    for method in (DANL(), MASKED):
        result = danl.solve(random_problem(), method=method, policy=Coverage(psi=1), tol=1e-300, max_rounds=500)
        assert result.status == "converged"
        assert len(result.history) < 60
        assert result.history[-1].grad_norm < 1e-14


# Absences.


@pytest.mark.parametrize("masks", ["psi=1", "full", "S=1", "random"])
@pytest.mark.parametrize("alpha", [1e-2, 1e-6])
def test_workers_that_miss_exchanges_at_random(masks, alpha):
    problem = random_problem(alpha=alpha, sizes=(9, 14, 5, 12, 8, 11))
    reference = danl.reference_optimum(problem)
    for seed, method in ((0, DANL()), (1, MASKED), (2, MASKED), (3, DANL())):
        engine = Local(dropout=0.3, seed=seed)
        result = danl.solve(
            problem,
            method=method,
            regions=3,
            policy=MASKS[masks],
            engine=engine,
            reference=reference,
            max_rounds=300,
            tol=1e-9,
            seed=seed,
        )
        assert result.status == "converged"
        assert result.history[-1].gap < 1e-12
        assert result.notes == ()
        assert len(result.failures) >= 10


def test_those_missing_from_a_hessian_exchange_are_asked_again_for_the_same_model():
    problem = random_problem()
    result = danl.solve(problem, engine=Local(away={1: (0, 2)}), policy=Coverage(psi=1))
    assert list(result.history.column("kind")[:4]) == ["hessian"] * 4
    assert list(result.history.column("active")[:4]) == [3, 0, 0, 1]
    assert list(result.history.column("failed")[:4]) == [1, 1, 1, 0]
    whole = danl.solve(problem, policy=Coverage(psi=1))
    np.testing.assert_allclose(result.w, whole.w, rtol=1e-9)
    assert [row.objective for row in result.history][3] == pytest.approx(whole.history[0].objective, rel=1e-14)


def test_workers_that_leave_for_good_leave_the_objective_of_the_others():
    problem = random_problem(sizes=(9, 14, 5, 12, 8, 11))
    for method, since in ((DANL(), 2), (MASKED, 6)):
        engine = Local(away={1: (since, None), 4: (since, None)})
        result = danl.solve(problem, method=method, policy=Coverage(psi=1), engine=engine, max_rounds=200, tol=1e-11)
        assert_left_by_1_and_4(problem, result)


def assert_left_by_1_and_4(problem, result):
    rest = danl.Problem([shard for i, shard in enumerate(problem.shards) if i not in (1, 4)], l2=0.5)
    assert result.status == "converged"
    assert result.notes == ("without workers 1, 4: the objective is that of the 4 workers that are left",)
    np.testing.assert_allclose(result.w, danl.reference_optimum(rest).w, rtol=1e-8)
    assert result.history[-1].grad_norm <= 1e-11
    assert result.history[-1].objective == pytest.approx(rest.objective(result.w), rel=1e-12)
    assert result.summary()["notes"] == list(result.notes)


def test_a_worker_that_joins_late_is_taken_in():
    problem = random_problem(sizes=(9, 14, 5, 12, 8))
    for method, until in ((DANL(), 11), (MASKED, 15)):
        engine = Local(away={2: (0, until)})
        result = danl.solve(problem, method=method, policy=Coverage(psi=1), engine=engine, max_rounds=200, tol=1e-11)
        assert (result.status, result.notes) == ("converged", ())
        np.testing.assert_allclose(result.w, danl.reference_optimum(problem).w, rtol=1e-8)


def test_a_worker_that_comes_back_is_taken_in_again():
    """Patience of 3: gone from exchange 4 to 12, back afterwards; a tolerance it can only meet with everyone."""
    problem = random_problem(sizes=(9, 14, 5, 12, 8), alpha=1e-6)
    engine = Local(away={0: (4, 12)})
    method = DANL(patience=3, contraction=0.9, masks="always")
    result = danl.solve(problem, method=method, policy=Subset(1), engine=engine, max_rounds=200, tol=1e-11)
    assert result.history.column("coverage")[8:12].max() == 4  # it was gone for the others
    assert (result.status, result.notes) == ("converged", ())
    np.testing.assert_allclose(result.w, danl.reference_optimum(problem).w, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("seed", range(12))
def test_a_worker_that_leaves_at_any_moment_does_not_stop_the_others(seed):
    """Also in the middle of a Hessian exchange, where the model in hand may be worse than the anchor."""
    rng = np.random.default_rng(seed)
    problem = random_problem(seed=seed, alpha=1e-4, sizes=tuple(rng.integers(4, 15, size=rng.integers(3, 8))))
    since, method = (int(rng.integers(1, 6)), MASKED) if seed % 2 else (int(rng.integers(1, 4)), DANL())
    engine = Local(away={0: (since, None)})
    result = danl.solve(
        problem, method=method, regions=4, policy=Coverage(psi=1), engine=engine, max_rounds=150, tol=1e-9, seed=seed
    )
    rest = danl.Problem(problem.shards[1:], alpha=1e-4)
    assert result.status == "converged"
    assert rest.objective(result.w) - danl.reference_optimum(rest).objective < 1e-11


def test_a_model_nobody_answered_for_is_asked_about_again():
    problem = random_problem("poisson", alpha=1e-3, sizes=(12,))
    result = danl.solve(problem, w0=np.full(7, -2.0), engine=Local(away={0: (1, 1)}), tol=1e-9)
    whole = danl.solve(problem, w0=np.full(7, -2.0), tol=1e-9)
    assert result.status == whole.status == "converged"
    assert (result.history[1].active, result.history[1].step_norm) == (0, 0.0)
    np.testing.assert_allclose(result.w, whole.w, rtol=1e-9)


def test_the_floor_of_the_projection_is_that_of_the_workers_that_remain():
    """The paper's l2 / W_i penalises a tiny shard hard; once it has left, its share of mu must go with it."""
    rng = np.random.default_rng(0)
    shards = [Shard.of(rng.normal(size=(2, 3)), np.array([0.0, 1.0]))]
    for _ in range(4):
        X = np.column_stack([rng.normal(size=(400, 2)), 1e-3 * rng.normal(size=400)])
        shards.append(Shard.of(X, (X[:, 0] + rng.normal(size=400) > 0).astype(float)))
    result = danl.solve(danl.Problem(shards, l2=1.0), engine=Local(away={0: (1, None)}), max_rounds=60, tol=1e-10)
    rest = danl.reference_optimum(danl.Problem(shards[1:], l2=1.0))
    assert result.status == "converged"
    np.testing.assert_allclose(result.w, rest.w, rtol=1e-5, atol=1e-7)


def test_a_sampled_hessian_that_proposes_bad_steps_gives_way_to_all_rows():
    problem = random_problem(alpha=1e-5, sizes=(60, 60), d=6)
    for masks in ("auto", "always"):
        method = DANL(hessian_batch=2, masks=masks)
        result = danl.solve(problem, method=method, policy=Coverage(psi=1), max_rounds=100, tol=1e-9)
        assert result.status == "converged"
        assert np.sum(result.history.column("step_norm") == 0.0) < 20  # steps that were refused


def test_the_quorum_is_lost_in_bounded_time():
    problem = random_problem(sizes=(9, 14, 5, 12, 8, 11))
    engine = Local(away=dict.fromkeys((0, 2, 5), (3, None)))  # three of six: no majority is left
    result = danl.solve(problem, policy=Coverage(psi=1), engine=engine, max_rounds=500, tol=1e-300)
    assert result.status == "quorum_lost"
    assert len(result.history) <= 3 + 10
    assert np.isfinite(result.w).all()
    two = dict.fromkeys((0, 2), (3, None))
    assert danl.solve(problem, policy=Coverage(psi=1), engine=Local(away=two)).status == "converged"


# Mini-batches.


def noise(batch_size, **options):
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=10, seed=0), alpha=1e-2)
    reference = danl.reference_optimum(problem)
    return danl.solve(
        problem,
        method=DANL(batch_size=batch_size, **options),
        policy=Coverage(psi=3),
        w0="fedavg:rounds=10",
        reference=reference,
        max_rounds=100,
    )


@pytest.mark.slow
def test_the_noise_floor_shrinks_with_the_batch_size():
    floors = [np.median(noise(size, curvature="once").history.column("gap")[-30:]) for size in (8, 32, 128)]
    assert floors[0] > 4 * floors[1] > 16 * floors[2] > 0


@pytest.mark.parametrize("finish", [False, True])
@pytest.mark.parametrize("batch_size", [4, 32])
def test_mini_batches_do_not_diverge(batch_size, finish):
    result = noise(batch_size, finish=finish)
    gap = result.history.column("gap")
    assert result.status == "converged"
    assert (np.diff(gap) <= 1e-14).all()
    assert gap[-1] < 1e-13


@pytest.mark.parametrize("finish", [True, False])
def test_a_noisy_run_converges_by_its_hessian_exchanges(finish):
    problem = random_problem("squared", alpha=1e-3, sizes=(200, 200), d=5)
    method = DANL(batch_size=3, curvature=10**6, finish=finish)
    result = danl.solve(problem, method=method, policy=Coverage(psi=1), regions=2, max_rounds=80, tol=1e-12)
    assert (np.diff(result.history.column("objective")) <= 1e-14).all()
    assert result.status == "converged"


def test_where_exact_gradients_no_longer_help_finish_goes_over_to_whole_shards():
    before = Sampling(batch_size=3, hessian_batch=5, gain=1.0, length=0.5)
    assert before.after_exact(0.99, finish=True).batch_size is None
    assert before.after_exact(0.99, finish=False).at_floor
    for finish in (True, False):
        assert before.after_exact(0.01, finish=finish) == Sampling(batch_size=3, hessian_batch=5, gain=0.01)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("local:dropout=1.5", "dropout=1.5: must be a number of at least 0 and below 1"),
        (
            "local:drop=0.3",
            "engine='local:drop=0.3': local has no option 'drop'; it has dropout, away, seed, batched, threads",
        ),
    ],
)
def test_wrong_engine_options(spec, message):
    with pytest.raises(danl.InputError) as error:
        danl.solve(random_problem(), engine=spec)
    assert str(error.value) == message


def test_dropout_from_a_spec_is_seeded():
    runs = [danl.solve(random_problem(), engine=f"local:dropout=0.4,seed={seed}") for seed in (1, 1, 2)]
    active = [list(run.history.column("active")) for run in runs]
    assert active[0] == active[1] != active[2]
    engine = Local(dropout=0.4, seed=1)  # and an engine that is used again begins again
    again = [list(danl.solve(random_problem(), engine=engine).history.column("active")) for _ in range(2)]
    assert again == [active[0]] * 2
    assert runs[0].w.tobytes() == runs[1].w.tobytes()
