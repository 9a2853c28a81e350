"""The in-process engine passes what every engine must pass, and reads shards by reference."""

from functools import partial

import numpy as np
import pytest

import danl
from danl.engines import Local
from danl.errors import InputError
from danl.methods import FIELD, PRESETS
from tests.engines import conformance
from tests.problems import random_problem, random_shards


@pytest.mark.parametrize("make", [Local, partial(Local, batched=False), conformance.ThroughBytes])
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_conformance(check, make):
    check(make)


@pytest.mark.parametrize("policy", conformance.POLICIES)
@pytest.mark.parametrize("method", conformance.METHODS)
def test_the_same_run(method, policy):
    conformance.same_run(Local, method=method, policy=policy)


@pytest.mark.parametrize("method", [*PRESETS, *FIELD])
def test_every_method_is_the_same_through_bytes(method):
    """What its tasks and replies say is all in their fields, and no message is longer than the longest there may be."""
    run = {"method": method, "problem": random_problem(sizes=(9, 14, 11, 12)), "max_rounds": 6}
    conformance.same_run(conformance.ThroughBytes, **run)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize(
    "method", ["fednl", "fednl:ls=true", "fednl:cr=true", "fednl:pp=3", "fednl:initial=zero,cr=true"]
)
def test_a_worker_that_loses_what_it_learned_is_begun_anew(method, batched):
    problem, engine = random_problem(), Local(batched=batched)

    def lose(row):
        if row.exchange in (3, 6):
            engine._workers[1].slots.clear()

    best = danl.reference_optimum(problem)
    result = danl.solve(problem, method=method, engine=engine, callback=lose, max_rounds=300, tol=1e-9)
    forgot = [(failure.worker, failure.kind) for failure in result.failures]
    assert set(forgot) == {(1, "forgot")}
    assert 1 <= len(forgot) <= 2
    assert sum(row.failed for row in result.history) == len(forgot)
    assert "keeps nothing as " in result.failures[0].detail
    if "pp" not in method:
        assert result.status == "converged"
    assert np.linalg.norm(result.w - best.w) <= 1e-6 * np.linalg.norm(best.w)


def write_libsvm(path, shard, *, signed=False):
    lines = []
    for row, target in zip(shard.X, shard.y, strict=True):
        entries = " ".join(f"{index + 1}:{float(value)!r}" for index, value in enumerate(row) if value)
        lines.append(f"{'+1' if target else '-1' if signed else '0'} {entries}")
    path.write_text("\n".join(lines) + "\n")


def write_csv(path, shard):
    header = ",".join([*(f"x{i}" for i in range(shard.X.shape[1])), "y"])
    rows = [
        ",".join([*(repr(float(value)) for value in row), str(int(target))])
        for row, target in zip(shard.X, shard.y, strict=True)
    ]
    path.write_text("\n".join([header, *rows]) + "\n")


def test_shards_by_reference_give_the_same_model(tmp_path):
    shards = random_shards()
    d = shards[0].X.shape[1]
    write_libsvm(tmp_path / "a.txt", shards[0])
    write_libsvm(tmp_path / "b.txt", shards[1], signed=True)
    write_csv(tmp_path / "c.csv", shards[2])
    header, _, rows = (tmp_path / "c.csv").read_text().partition("\n")
    counted = ",".join(map(str, range(header.count(",") + 1)))  # a table without names, as the others are
    (tmp_path / "c.csv").write_text(f"{counted}\n{rows}")
    references = [
        danl.ShardReference(path=tmp_path / "a.txt", n_features=d),
        danl.ShardReference(path=tmp_path / "b.txt", n_features=d),
        danl.ShardReference(path=tmp_path / "c.csv"),
        danl.ShardReference(load=lambda: (shards[3].X, shards[3].y)),
    ]
    remote = danl.solve(danl.RemoteProblem(references, l2=0.5), policy="coverage:psi=2", seed=1)
    here = danl.solve(danl.Problem(shards, l2=0.5), policy="coverage:psi=2", seed=1)
    np.testing.assert_allclose(remote.w, here.w, atol=1e-13)
    assert (remote.status, len(remote.history)) == (here.status, len(here.history))
    assert remote.summary()["objective"] == pytest.approx(here.summary()["objective"], abs=1e-14)
    assert remote.summary()["grad_norm"] <= 1e-10
    assert [row.bytes_up for row in remote.history] == [row.bytes_up for row in here.history]


def test_a_site_with_one_class_is_coded_like_the_others(tmp_path):
    (tmp_path / "one.txt").write_text("+1 1:1\n+1 2:1\n")
    shard = danl.ShardReference(path=tmp_path / "one.txt", n_features=2).read()
    assert shard.y.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("2 1:1\n3 1:2\n", {}, "must be coded 0 and 1, or -1 and 1, or positive="),
        ("2 1:1\n3 1:2\n", {"positive": 3}, None),
    ],
)
def test_targets_of_a_site(tmp_path, text, arguments, message):
    (tmp_path / "x.txt").write_text(text)
    reference = danl.ShardReference(path=tmp_path / "x.txt", **arguments)
    if message is None:
        assert reference.read().y.tolist() == [0.0, 1.0]
        return
    with pytest.raises(InputError, match=message):
        reference.read()


def test_labels_in_words(tmp_path):
    (tmp_path / "x.csv").write_text("a,y\n1,ill\n2,well\n3,ill\n")
    assert danl.ShardReference(path=tmp_path / "x.csv", positive="ill").read().y.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: danl.ShardReference(), "give a path or a function"),
        (lambda: danl.ShardReference(path="x", load=list), "give a path or a function"),
        (lambda: danl.ShardReference(load=3), "load=3: must be a function without arguments"),
        (lambda: danl.ShardReference(path="x", target="odd"), "target='odd': must be 'binary' or 'real'"),
        (lambda: danl.ShardReference(load=lambda: 3).read(), "must be a Shard, or X and y"),
        (lambda: danl.ShardReference(load=list).to_dict(), "a function cannot be written down"),
        (lambda: danl.RemoteProblem([3]), "must be references"),
        (lambda: danl.solve(danl.RemoteProblem([])), "no worker answered"),
        (lambda: danl.RemoteProblem([]).n_workers, "have not reported their shards yet"),
    ],
)
def test_wrong_references(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_sites_of_different_width_are_refused():
    narrow, wide = random_shards(d=3)[0], random_shards(d=4)[0]
    references = [danl.ShardReference(load=lambda shard=shard: shard) for shard in (narrow, wide)]
    with pytest.raises(InputError, match=r"found 3 at worker 0 \(worker-0\) and 4 at worker 1"):
        danl.solve(danl.RemoteProblem(references))


def test_a_checkpoint_of_a_problem_by_reference(tmp_path):
    shards = random_shards()
    remote = danl.RemoteProblem([danl.ShardReference(load=lambda shard=shard: shard) for shard in shards], l2=0.5)
    whole = danl.solve(remote, policy="coverage:psi=2")
    danl.solve(remote, policy="coverage:psi=2", max_rounds=3, checkpoint=tmp_path)
    assert danl.solve(remote, policy="coverage:psi=2", resume=tmp_path).w.tobytes() == whole.w.tobytes()


def test_a_problem_in_memory_needs_no_connect():
    assert danl.solve(random_problem(), engine=Local()).status == "converged"


def test_an_engine_has_every_part_of_the_interface():
    class Half:
        name = "half"

        def open(self, problem, *, regions, policy, seed):
            raise NotImplementedError

    with pytest.raises(InputError, match="name, connect, open, exchange, close; it lacks connect, exchange, close "):
        danl.solve(random_problem(), engine=Half())


def test_an_engine_that_returns_something_else_is_named():
    class Junk(Local):
        def exchange(self, exchange, *, deadline=None):
            return {0: "answered"}

    with pytest.raises(InputError, match=r"engine 'local': exchange returned \{0: 'answered'\}; must be a Replies"):
        danl.solve(random_problem(), engine=Junk())
