"""FedNL: its known cases, an independent loop beside it, its extensions, and what happens to those who forget."""

import numpy as np
import pytest

import danl
from danl.engines.local import Local
from danl.protocol.compressors import make_compressor
from danl.protocol.messages import pack, unpack
from danl.protocol.wire import decode, encode, most_bytes
from danl.tasks.learned_hessian import LearnReply, LearnTask

D = 8


def problem(workers=5, rows=200, d=D, alpha=1e-2, seed=0, **options):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d))
    y = (rng.random(rows) < 1 / (1 + np.exp(-X @ rng.normal(size=d)))).astype(float)
    return danl.Problem(danl.partition(X, y, workers=workers, seed=0), alpha=alpha, **options)


def iterates(made, method, rounds, **options):
    """The models after every exchange."""
    seen = []
    danl.solve(
        made, method=method, max_rounds=rounds, tol=0.0, callback=lambda row, w: seen.append(w) and False, **options
    )
    return np.array(seen)


def plain_fednl(made, compressor, alpha, rounds):
    """Algorithm 1 with the projection, written out: H_i^0 the Hessian at the start."""
    chosen, weights, d = make_compressor(compressor), made.weights, made.n_coefficients
    locals_, x, mu = made.local_objectives, np.zeros(d), made.alpha
    H = [each.hessian(x) for each in locals_]
    seen = []
    for _ in range(rounds + 1):
        mean = sum(w * each for w, each in zip(weights, H, strict=True))
        values, vectors = np.linalg.eigh(mean)
        gradient = sum(w * each.value_and_gradient(x)[1] for w, each in zip(weights, locals_, strict=True))
        news = [chosen.restore(chosen.compress(o.hessian(x) - h, None), d) for o, h in zip(locals_, H, strict=True)]
        H = [h + alpha * s for h, s in zip(H, news, strict=True)]
        x = x - vectors @ ((vectors.T @ gradient) / np.maximum(values, mu))
        seen.append(x)
    return np.array(seen)


@pytest.mark.parametrize("compressor", ["rankr:1", "rankr:3", "topk:5", "topk:20", "identity"])
def test_it_is_the_algorithm_of_its_box(compressor):
    made = problem()
    ours = iterates(made, f"fednl:compressor={compressor}", 9)
    np.testing.assert_allclose(ours, plain_fednl(made, compressor, 1.0, 9), rtol=1e-7, atol=1e-9)


def test_with_identity_and_alpha_1_it_is_newton_with_hessians_one_step_old():
    made, w = problem(), np.zeros(D)
    hessian, expected = made.hessian(w), []
    for _ in range(7):
        step = np.linalg.solve(hessian, made.value_and_gradient(w)[1])
        hessian, w = made.hessian(w), w - step
        expected.append(w)
    np.testing.assert_allclose(iterates(made, "fednl:compressor=identity", 6), expected, rtol=1e-9, atol=1e-12)


def test_with_alpha_0_it_is_newton_zero():
    made = problem()
    ours, other = (iterates(made, name, 12) for name in ("fednl:alpha=0", "newton-zero"))
    np.testing.assert_allclose(ours, other, rtol=1e-10, atol=1e-13)


def test_topk_with_all_entries_is_identity():
    made = problem()
    ours, other = (iterates(made, f"fednl:compressor={name}", 6) for name in (f"topk:{D * (D + 1) // 2}", "identity"))
    np.testing.assert_allclose(ours, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "options",
    [
        *("", "compressor=topk:12", "compressor=natural", "compressor=randk:30", "step=shift", "ls=true", "cr=true"),
        *("pp=3", "step=shift,initial=zero", "compressor=identity,pp=5"),
    ],
)
def test_it_reaches_the_optimum(options):
    made = problem()
    result = danl.solve(made, method=f"fednl:{options}" if options else "fednl", max_rounds=400)
    assert result.status in ("converged", "max_rounds")
    assert np.linalg.norm(made.value_and_gradient(result.w)[1]) < 1e-7


def test_with_an_intercept_and_with_several_classes():
    made = problem(intercept=True)
    assert danl.solve(made, method="fednl:ls=true", max_rounds=300).history[-1].grad_norm < 1e-6
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 4)), rng.integers(3, size=150)
    several = danl.Problem(danl.partition(X, y, workers=3, seed=0), loss="multinomial:classes=3", alpha=1e-2)
    assert danl.solve(several, method="fednl", max_rounds=200).status == "converged"


def test_bytes_are_those_of_what_travels():
    made = problem()
    history = danl.solve(made, method="fednl:compressor=topk:4", max_rounds=3, tol=0.0).history
    first, later = history.column("bytes_up")[:2] / 5
    assert first == 8 * (D + D * (D + 1) // 2 + 3)  # gradient, Hessian; error, bound and loss
    assert later == 8 * (D + 4 + 3) + 4 * 4


class Forgetful(Local):
    """Workers that lose what they keep before some exchanges."""

    def __init__(self, when):
        super().__init__()
        self.when = when

    def exchange(self, exchange, **options):
        for worker in self.when.get(exchange.task.exchange, ()):
            self._workers[worker].slots.clear()
        return super().exchange(exchange, **options)


@pytest.mark.parametrize("options", ["fednl", "fednl:pp=3", "fednl:ls=true", "fednl:step=shift,initial=zero"])
def test_a_worker_that_forgets_begins_anew_and_the_run_converges(options):
    made = problem()
    result = danl.solve(made, method=options, engine=Forgetful({4: [1], 7: [1, 3]}), max_rounds=400)
    assert {failure.kind for failure in result.failures} == {"forgot"}
    assert {failure.worker for failure in result.failures} <= {1, 3}
    assert np.linalg.norm(made.value_and_gradient(result.w)[1]) < 1e-7
    assert not result.settings.get("excluded")


def test_a_run_that_is_resumed_begins_its_workers_anew(tmp_path):
    made = problem()
    danl.solve(made, method="fednl", max_rounds=4, checkpoint=tmp_path / "kept")
    result = danl.solve(made, method="fednl", max_rounds=200, resume=tmp_path / "kept")
    assert result.status == "converged"
    assert {failure.kind for failure in result.failures} == {"forgot"}


def test_absences_do_not_stop_it():
    made = problem()
    result = danl.solve(made, method="fednl", engine="local:dropout=0.2", max_rounds=300)
    assert result.status in ("converged", "max_rounds")
    assert result.history[-1].grad_norm < 1e-4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("step=newton", "step='newton'"),
        ("initial=half", "initial='half'"),
        ("compressor=topq", "compressor='topq'"),
        ("alpha=2", "alpha=2"),
        ("pp=0", "pp=0"),
        ("pp=9", "at most 5"),
        ("ls=true,cr=true", "use one"),
        ("ls=yes", "ls='yes': must be True or False"),
        ("cr=1", "cr=1: must be True or False"),
        ("lipschitz=1", "add cr=true"),
    ],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(danl.InputError, match=said):
        danl.solve(problem(), method=f"fednl:{options}")


@pytest.mark.parametrize("basis", ["standard", "data"])
def test_task_and_reply_travel(basis):
    made = problem()
    task = LearnTask(3, np.zeros(D), "kept", 0, "topk:3", 1.0, basis=basis)
    assert encode(decode(encode(task), most_bytes=most_bytes(D, 4))) == encode(task)
    engine = Local(batched=False)
    engine.open(made, regions=made.layout.regions(2), policy=None, seed=0)
    reply = engine._workers[0].answer(task)
    assert isinstance(reply, LearnReply)
    again = decode(encode(reply), most_bytes=most_bytes(D, 4))
    assert encode(again) == encode(reply)
    assert task.fault(reply, D) is None
    assert task.fault(danl.frozen.replace(reply, gradient=reply.gradient[:-1]), D) is not None
    assert task.fault(danl.frozen.replace(reply, version=1), D) is not None
    assert task.fault(danl.frozen.replace(reply, error=-1.0), D) is not None


def test_the_cubic_step_minimises_its_model():
    from danl.methods.fednl import cubic_step

    rng = np.random.default_rng(0)
    for _ in range(20):
        A = rng.normal(size=(D, D))
        hessian, gradient, bound = A @ A.T, rng.normal(size=D), float(rng.uniform(0.1, 10))
        p = cubic_step(hessian, gradient, bound)
        slope = gradient + hessian @ p + bound / 2 * np.linalg.norm(p) * p
        assert np.linalg.norm(slope) < 1e-6 * np.linalg.norm(gradient)
    np.testing.assert_allclose(unpack(pack(hessian), D), hessian)


class Absent(Local):
    """Workers that never answer."""

    def __init__(self, workers, kind):
        super().__init__()
        self.gone, self.kind = workers, kind

    def exchange(self, exchange, **options):
        replies = super().exchange(exchange.without(self.gone), **options)
        missing = [worker for worker in self.gone if worker in exchange.workers]
        return danl.frozen.replace(
            replies, failures={worker: danl.protocol.messages.Failure(worker, self.kind) for worker in missing}
        )


@pytest.mark.parametrize("kind", ["timeout", "gone"])
@pytest.mark.parametrize("method", ["fednl", "fednl:pp=2", "fednl:step=shift"])
def test_a_worker_that_is_never_there_does_not_stop_the_others(method, kind):
    made = problem()
    result = danl.solve(made, method=method, engine=Absent([3], kind), max_rounds=150)
    others = [each for i, each in enumerate(made.local_objectives) if i != 3]
    gradient = np.mean([each.value_and_gradient(result.w)[1] for each in others], axis=0)
    assert np.linalg.norm(gradient) < 1e-6


def test_workers_that_forget_all_the_time_still_get_there():
    """Each then sends its whole Hessian: Newton's method."""

    class Always(Local):
        def exchange(self, exchange, **options):
            if exchange.task.exchange % 2:
                for worker in self._workers[::2]:
                    worker.slots.clear()
            else:
                for worker in self._workers[1::2]:
                    worker.slots.clear()
            return super().exchange(exchange, **options)

    made = problem()
    result = danl.solve(made, method="fednl", engine=Always(), max_rounds=100)
    assert np.linalg.norm(made.value_and_gradient(result.w)[1]) < 1e-6


def test_a_cubic_step_needs_a_bound():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.poisson(1.0, size=60)
    made = danl.Problem(danl.partition(X, y, workers=3, seed=0), loss="poisson", alpha=1e-2)
    with pytest.raises(danl.InputError, match="give one, for example --method fednl:cr=true,lipschitz=1"):
        danl.solve(made, method="fednl:cr=true")
    assert danl.solve(made, method="fednl:cr=true,lipschitz=5", max_rounds=200).status == "converged"


def test_a_bound_or_an_error_that_is_not_finite_is_a_broken_rule():
    class Lying(Local):
        def _one_by_one(self, exchange, deadline):
            answers = super()._one_by_one(exchange, deadline)
            if exchange.task.exchange == 2:
                answers[1] = danl.frozen.replace(answers[1], error=np.inf)
            return answers

    result = danl.solve(problem(), method="fednl:step=shift", engine=Lying(), max_rounds=200)
    assert [failure.kind for failure in result.failures][:1] == ["invalid"]
    assert any("error is not finite" in note for note in result.notes)
