"""VR-SQN: linear convergence to the optimum, trackers that keep the mean gradient, and curvature within its bounds."""

import numpy as np
import pytest
from benchmarks.watched_states import Watched

import danl
from danl.methods.node_curvature import NodePairs
from danl.protocol.graph import make_graph
from tests.problems import random_problem
from tests.tools import Absent

W0 = np.full(7, 0.3)
GRAPHS = ["ring", "grid", "complete", "erdos"]
SIZES = (9, 14, 5, 12, 8, 11)
UPDATES = ["bfgs", "dfp"]


def watched(problem, method="vr-sqn", **options):
    run = Watched(method)
    result = danl.solve(problem, method=run, monitor=False, **options)
    return run.states, result


def even_problem(workers=6, rows=240, d=7, **options):
    """Nodes with about the same data: consensus is quick."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, d))
    y = (rng.random(rows) < 1 / (1 + np.exp(-X @ rng.normal(size=d)))).astype(float)
    return danl.Problem(danl.partition(X, y, workers=workers, seed=0), **{"alpha": 0.1} | options)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("update", UPDATES)
def test_with_whole_shards_all_nodes_end_at_the_optimum(graph, update):
    problem = even_problem(weighting="samples")
    optimum = danl.reference_optimum(problem).w
    states, result = watched(problem, f"vr-sqn:batch_size=all,update={update},alpha=0.3", graph=graph, max_rounds=700)
    models = states[-1].models
    assert np.abs(models - models[0]).max() < 1e-8
    assert np.abs(models - optimum).max() < 1e-8
    np.testing.assert_allclose(result.w, optimum, atol=1e-8)
    assert result.status == "max_rounds"


@pytest.mark.parametrize("update", UPDATES)
def test_mini_batches_converge_linearly_to_the_optimum_itself(update):
    problem = even_problem(workers=4)
    optimum = danl.reference_optimum(problem).w
    states, _ = watched(problem, f"vr-sqn:batch_size=8,T=5,alpha=0.3,update={update}", max_rounds=300)
    errors = np.array([np.abs(state.models - optimum).max() for state in states])
    assert errors[100] < 0.1 * errors[75] < 0.01 * errors[50] < 1e-6  # linearly
    assert errors[-1] < 1e-12  # to the optimum itself
    noisy, _ = watched(problem, "dsgd:batch_size=8,learning_rate=0.3", max_rounds=300)
    assert np.abs(noisy[-1].models - optimum).max() > 1e4 * errors[-1]


@pytest.mark.parametrize("options", ["batch_size=all", "batch_size=2,T=4", "batch_size=3,T=5,update=bfgs"])
@pytest.mark.parametrize("engine", ["local", "local:dropout=0.3"])
def test_the_mean_of_trackers_is_the_mean_of_estimates_at_all_times(options, engine):
    problem = random_problem(sizes=SIZES, weighting="samples")
    states, result = watched(problem, f"vr-sqn:alpha=0.1,{options}", engine=engine, graph="grid", max_rounds=60)
    assert result.status == "max_rounds"
    for state in states:
        means = state.trackers.mean(axis=0), state.estimates.mean(axis=0)
        np.testing.assert_allclose(*means, rtol=0, atol=1e-12 * (1 + np.abs(state.estimates).max()))
    assert np.abs(states[-1].estimates).max() > 1e-3


def test_estimates_are_whole_gradients_at_snapshots_and_with_whole_shards():
    problem = random_problem(sizes=SIZES, weighting="samples")
    for options, exact in (("batch_size=2,T=4", range(0, 20, 4)), ("batch_size=all", range(20))):
        states, result = watched(problem, f"vr-sqn:{options}", w0=W0, max_rounds=19)
        for k, state in enumerate(states):
            own = zip(problem.weights, problem.local_objectives, state.models, strict=True)
            gradients = np.array([6 * weight * local.value_and_gradient(x)[1] for weight, local, x in own])
            assert (np.abs(state.estimates - gradients).max() < 1e-12) == (k in exact)
            if k % 4 == 0 and options.startswith("batch_size=2"):
                np.testing.assert_array_equal(state.snapshots, state.models)
        kinds = result.history.column("kind").tolist()
        assert kinds[0] == "step-constants"
        assert [k for k in range(1, 20) if kinds[k] == "batch-gradient"] == [k for k in exact if k]


def test_on_a_complete_graph_without_memory_the_mean_takes_gradient_steps():
    """Equal starts and mixing that keeps the mean; nodes differ a little, as a lazy W does not mix them at once."""
    problem = even_problem()
    states, _ = watched(
        problem, "vr-sqn:batch_size=all,memory=0,update=bfgs,alpha=0.6,hi=3", graph="complete", max_rounds=5
    )
    gradients = [state.trackers.mean(axis=0) for state in states]
    for before, after, gradient in zip(states, states[1:], gradients, strict=False):
        np.testing.assert_allclose(after.w, before.w - 0.2 * gradient, rtol=1e-10)
    np.testing.assert_allclose(gradients[0], problem.value_and_gradient(np.zeros(7))[1], rtol=1e-10)


def test_it_is_the_algorithm_of_its_box():
    problem, n, d, alpha, lo, hi = random_problem(sizes=SIZES), 6, 7, 0.1, 0.5, 4.0
    mixing = (np.eye(n) + make_graph("erdos", n).mixing) / 2
    options = f"batch_size=all,update=bfgs,alpha={alpha},lo={lo},hi={hi},memory=3"
    states, _ = watched(problem, f"vr-sqn:{options}", graph="erdos", w0=W0, max_rounds=12)

    def gradients(models):
        return np.array([o.value_and_gradient(x)[1] for o, x in zip(problem.local_objectives, models, strict=True)])

    x = np.tile(W0, (n, 1))
    v = g = gradients(x)
    pairs = [[] for _ in range(n)]
    gamma = [hi] * n
    for state in states:
        np.testing.assert_allclose(state.models, x, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(state.trackers, g, rtol=1e-7, atol=1e-9)
        directions = np.array([dense_bfgs(pairs[i][-3:], gamma[i], d) @ g[i] for i in range(n)])
        after = mixing @ (x - alpha * directions)
        told = gradients(after)
        tracked = mixing @ (g + told - v)
        for i in range(n):
            s, ybar, gamma[i] = damped(after[i] - x[i], tracked[i] - g[i], lo, hi)
            pairs[i].append((s, ybar))
        x, v, g = after, told, tracked


def damped(s, y, lo, hi):
    gamma = min(max(y @ y / (s @ y), lo), hi) if s @ y > 0 else lo
    theta = 1.0
    if s @ y < 0.25 * gamma * (s @ s):
        theta = 0.75 * gamma * (s @ s) / (gamma * (s @ s) - s @ y)
    theta = min(theta, hi * np.linalg.norm(s) / np.linalg.norm(y))
    return s, theta * y + (1 - theta) * gamma * s, gamma


def dense_bfgs(pairs, gamma, d):
    H = np.eye(d) / gamma
    for s, y in pairs:
        V = np.eye(d) - np.outer(y, s) / (s @ y)
        H = V.T @ H @ V + np.outer(s, s) / (s @ y)
    return H


def dense_dfp(pairs, gamma, d, hi):
    H = np.eye(d) / gamma
    for s, y in pairs:
        H = H - np.outer(H @ y, H @ y) / (y @ H @ y) + np.outer(s, s) / (s @ y)
    return H + np.eye(d) / hi


@pytest.mark.parametrize("seed", range(4))
def test_the_curvature_of_nodes_is_that_of_dense_formulas_within_its_bounds(seed):
    rng, n, d, memory, lo, hi = np.random.default_rng(seed), 5, 6, 4, 0.5, 3.0
    made, kept, gamma = NodePairs.none(n, memory, d, hi), [[] for _ in range(n)], [hi] * n
    for _ in range(9):
        s, y = rng.normal(size=(n, d)), 10 ** rng.uniform(-3, 3, size=(n, 1)) * rng.normal(size=(n, d))
        which = rng.random(n) < 0.8
        s[0] = 0.0 if rng.random() < 0.3 else s[0]
        made = made.with_pairs(s, y, which, lo, hi)
        for i in np.flatnonzero(which & s.any(axis=1)):
            _, ybar, gamma[i] = damped(s[i], y[i], lo, hi)
            assert s[i] @ ybar >= 0.25 * gamma[i] * (s[i] @ s[i]) * (1 - 1e-12)
            assert np.linalg.norm(ybar) <= (hi + gamma[i]) * np.linalg.norm(s[i]) * (1 + 1e-12)
            kept[i].append((s[i], ybar))
    vectors = np.eye(d)
    bfgs = np.array([made.bfgs(np.tile(e, (n, 1))) for e in vectors]).transpose(1, 2, 0)
    dfp = np.array([made.dfp(np.tile(e, (n, 1)), hi) for e in vectors]).transpose(1, 2, 0)
    for i in range(n):
        expected = dense_bfgs(kept[i][-memory:], gamma[i], d)
        np.testing.assert_allclose(bfgs[i], expected, atol=1e-8 * np.abs(expected).max())
        expected = dense_dfp(kept[i][-memory:], gamma[i], d, hi)
        np.testing.assert_allclose(dfp[i], expected, atol=1e-8 * np.abs(expected).max())
        values = np.linalg.eigvalsh((bfgs[i] + bfgs[i].T) / 2)
        assert values[0] >= (1 - 1e-6) / (hi + 4 * memory * (hi + lo) ** 2 / lo)
        values = np.linalg.eigvalsh((dfp[i] + dfp[i].T) / 2)
        assert values[0] >= (1 - 1e-6) / hi
        assert values[-1] <= (1 + 1e-6) * ((1 + 4 * memory) / lo + 1 / hi)


def test_the_bounds_follow_from_the_largest_smoothness():
    problem = random_problem(weighting="samples")
    largest = max(
        4 * weight * local.smoothness() for weight, local in zip(problem.weights, problem.local_objectives, strict=True)
    )
    for options, lo, hi in (
        ("", largest / 4, 2 * largest),
        (":update=bfgs", largest, 2 * largest),
        (":lo=1e3", 1e3, 1e3),
        (":hi=8", 1.0, 8.0),
        (":hi=8,lo=2", 2.0, 8.0),
    ):
        state = watched(problem, f"vr-sqn{options}", max_rounds=0)[0][0]
        assert (state.lo, state.hi) == pytest.approx((lo, hi), rel=1e-12)


def test_an_iteration_sends_two_vectors_to_every_neighbour():
    rows = danl.solve(random_problem(), method="vr-sqn:batch_size=2,T=3", max_rounds=4).history
    one = 4 * 2 * 7 * 8
    assert [row.bytes_up for row in rows] == [row.bytes_down for row in rows] == [one, *[2 * one] * 4]
    assert [row.kind for row in rows] == ["step-constants", "difference", "difference", "batch-gradient", "difference"]


def test_the_default_period_is_a_pass_over_the_rows():
    _, result = watched(random_problem(sizes=(32,) * 4), "vr-sqn", max_rounds=6)
    kinds = result.history.column("kind").tolist()
    assert [k for k, kind in enumerate(kinds) if kind == "batch-gradient"] == [2, 4, 6]


def test_who_misses_the_first_exchange_counts_from_the_next_snapshot_on():
    problem, run = random_problem(), Watched("vr-sqn:batch_size=2,T=3")
    engine = danl.engines.Local(away={1: (0, 0)})
    result = danl.solve(problem, method=run, engine=engine, w0=W0, max_rounds=30, monitor=False)
    assert [failure.worker for failure in result.failures] == [1]
    for state in run.states[:3]:
        np.testing.assert_array_equal(state.models[1], W0)
        assert not state.known[1]
    assert run.states[3].known.all()
    assert np.abs(run.states[3].estimates[1]).max() > 0
    np.testing.assert_allclose(run.states[-1].trackers.mean(axis=0), run.states[-1].estimates.mean(axis=0), atol=1e-12)


def test_who_is_absent_keeps_its_model():
    problem, run = random_problem(), Watched("vr-sqn:batch_size=all")
    result = danl.solve(problem, method=run, engine=Absent([1], since=2), max_rounds=6)
    assert result.status == "max_rounds"
    for state in run.states[2:]:
        np.testing.assert_array_equal(state.models[1], run.states[1].models[1])
    assert danl.solve(problem, method="vr-sqn", engine=Absent(range(4)), max_rounds=3).status == "quorum_lost"


@pytest.mark.parametrize("update", UPDATES)
def test_a_run_that_is_resumed_takes_the_same_steps(tmp_path, update):
    problem, method = random_problem(), f"vr-sqn:batch_size=2,T=4,update={update}"
    whole = danl.solve(problem, method=method, max_rounds=30)
    danl.solve(problem, method=method, max_rounds=10, checkpoint=tmp_path / "kept")
    resumed = danl.solve(problem, method=method, max_rounds=30, resume=tmp_path / "kept")
    np.testing.assert_array_equal(resumed.w, whole.w)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("update=sr1", "update='sr1'.*'bfgs' or 'dfp'"),
        ("alpha=0", "alpha=0"),
        ("T=0", "T=0"),
        ("batch_size=0", "batch_size=0"),
        ("memory=-1", "memory=-1"),
        ("lo=0", "lo=0"),
        ("hi=-1", "hi=-1"),
        ("lo=3,hi=2", "lo=3.*at most hi, which is 2"),
    ],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(danl.InputError, match=said):
        danl.solve(random_problem(), method=f"vr-sqn:{options}")


def test_a_loss_without_a_bound_needs_bounds():
    problem = random_problem("poisson")
    with pytest.raises(danl.InputError, match=r"hi=None.*vr-sqn:hi=1,lo=0.1"):
        danl.solve(problem, method="vr-sqn")
    result = danl.solve(problem, method="vr-sqn:hi=20,lo=10,batch_size=all", max_rounds=400)
    assert result.history[-1].grad_norm < 0.05


@pytest.mark.parametrize("loss", ["logistic", "multinomial:classes=3"])
def test_with_an_intercept_and_with_several_classes(loss):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(80, 3)), rng.integers(2 if loss == "logistic" else 3, size=80)
    problem = danl.Problem(danl.partition(X, y, workers=4, seed=0), loss=loss, alpha=1e-1, intercept=True)
    result = danl.solve(problem, method="vr-sqn:batch_size=4", max_rounds=300)
    assert result.history[-1].grad_norm < 1e-3


@pytest.mark.slow
def test_the_defaults_converge_linearly_on_a1a():
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=10, seed=0), alpha=1e-3)
    optimum = danl.reference_optimum(problem)
    for update in UPDATES:
        gaps = danl.solve(
            problem, method=f"vr-sqn:update={update}", reference=optimum, max_rounds=600, monitor=True
        ).history.column("gap")
        ratios = gaps[[300, 400, 500, 600]] / gaps[[200, 300, 400, 500]]
        assert (ratios < 0.75).all()
