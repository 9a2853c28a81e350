"""The trace: worker by worker what the history's rows sum up, on every path a message takes; files that come back."""

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import danl
from danl.engines import Local
from danl.methods import PRESETS
from danl.policies import Profile
from tests.problems import random_problem
from tests.tools import Absent, Reordered

PROFILES = [
    Profile(rows_per_second=10, uplink=100, downlink=1000),
    Profile(),
    Profile(rows_per_second=3),
    Profile(uplink=50),
]
POLICIES = ["full", "coverage:psi=2", "subset:S=1", "random:keep=0.4", "magnitude:keep=0.5"]
ENGINES = {
    "together": lambda: "local",
    "one by one": lambda: Local(batched=False),
    "dropout": lambda: Local(dropout=0.3, seed=4),
    "dropout, one by one": lambda: Local(dropout=0.3, seed=4, batched=False),
    "one that left": lambda: Absent([2], since=3),
    "another order": lambda: Reordered(),
}


def traced(problem=None, **arguments):
    trace = danl.Trace()
    settings = {"regions": 3, "max_rounds": 8, "tol": 0.0, "seed": 3} | arguments
    return danl.solve(problem or random_problem(), trace=trace, **settings), trace


def check(result, trace):
    """What a trace must be, by the rows of its run."""
    rows = [result.history[int(index)] for index in trace.exchanges]
    workers, regions = len(result.settings["rows"]), len(result.settings["regions"])
    assert trace.asked.shape == trace.bytes_up.shape == trace.bytes_down.shape == (len(rows), workers)
    assert trace.trained.shape == (len(rows), workers, regions)
    assert (trace.asked.dtype, trace.trained.dtype, trace.bytes_up.dtype) == (np.int8, bool, np.int64)
    for index, row in enumerate(rows):
        asked, trained, seconds = trace.asked[index], trace.trained[index], trace.simulated_seconds[index]
        assert (row.bytes_up, row.bytes_down) == (trace.bytes_up[index].sum(), trace.bytes_down[index].sum())
        assert (row.active, row.failed) == (np.sum(asked == 1), np.sum(asked == 2))
        assert row.coverage == tuple(trained.sum(axis=0))
        assert not trained[asked != 1].any()
        assert not trace.bytes_up[index][asked != 1].any()
        assert not trace.bytes_down[index][asked == 0].any()
        assert (trace.bytes_up[index][asked == 1] > 0).all()
        if np.isnan(row.simulated_seconds):
            assert np.isnan(seconds).all()
        else:
            np.testing.assert_array_equal(np.isnan(seconds), asked != 1)
            assert row.simulated_seconds == max(seconds[asked == 1], default=0.0)
        np.testing.assert_array_equal(trace.trained_in(index), trained)
        np.testing.assert_array_equal(trace.asked_in(index), asked)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("method", ["danl", "danl-paper", "danl:curvature=block"])
def test_workers_sum_to_the_rows(method, policy, engine):
    result, trace = traced(method=method, policy=policy, engine=ENGINES[engine](), profiles=PROFILES)
    assert len(trace) == len(result.history)
    check(result, trace)


@pytest.mark.parametrize("method", [*PRESETS, "danl:batch_size=3", "danl:curvature=lowrank:2", "danl:curvature=diag"])
def test_every_method(method):
    for engine in ("local", Local(dropout=0.2, seed=1)):
        result, trace = traced(method=method, policy="coverage:psi=1", engine=engine)
        assert np.isnan(trace.simulated_seconds).all()
        check(result, trace)


@pytest.mark.filterwarnings("ignore:nobody trained any region:danl.DanlWarning")  # few workers, most away
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(3, 12), min_size=1, max_size=9),
    st.integers(1, 9),
    st.sampled_from(POLICIES[1:]),
    st.floats(0, 0.6),
    st.booleans(),
    st.integers(0, 99),
)
def test_any_shape(sizes, regions, policy, dropout, batched, seed):
    problem = random_problem(sizes=tuple(sizes), d=9, seed=seed)
    policy = "coverage:psi=1" if policy == "coverage:psi=2" else policy
    engine = Local(dropout=dropout, seed=seed, batched=batched)
    result, trace = traced(problem, regions=regions, policy=policy, engine=engine, seed=seed)
    check(result, trace)


def test_the_two_ways_of_asking_trace_the_same():
    traces = [traced(policy="coverage:psi=2", engine=Local(batched=batched))[1] for batched in (True, False)]
    for name in ("exchanges", "asked", "trained", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(getattr(traces[0], name), getattr(traces[1], name))


def test_a_trace_changes_nothing():
    without = danl.solve(random_problem(), regions=3, policy="coverage:psi=2", max_rounds=8, tol=0.0, seed=3)
    assert traced(policy="coverage:psi=2")[0].w.tobytes() == without.w.tobytes()


def test_exchanges_of_the_start_are_not_in_it():
    result, trace = traced(w0="fedavg:rounds=4")
    np.testing.assert_array_equal(trace.exchanges, np.arange(len(result.history)))
    check(result, trace)


def test_a_worker_that_was_quarantined_is_not_asked_again():
    class Liar(Local):
        def exchange(self, exchange, *, deadline=None):
            from dataclasses import replace

            replies = super().exchange(exchange, deadline=deadline)
            lied = (exchange.kind == "gradient") & (replies.workers == 1)
            return replace(replies, losses=np.where(lied, -np.inf, replies.losses))

    result, trace = traced(method="danl-masked", engine=Liar(batched=False))
    check(result, trace)
    assert trace.asked[:, 1].tolist() == [1, 2] + [0] * 7


def test_after_a_resume_it_begins_where_the_run_went_on(tmp_path):
    arguments = {"policy": "coverage:psi=2", "checkpoint": tmp_path}
    traced(max_rounds=4, **arguments)
    result, trace = traced(policy="coverage:psi=2", resume=tmp_path)
    assert trace.exchanges.tolist() == list(range(5, 9))
    check(result, trace)
    whole = traced(policy="coverage:psi=2")[1]
    np.testing.assert_array_equal(trace.trained, whole.trained[5:])


def test_ctrl_c_leaves_a_trace_as_long_as_the_history():
    def interrupt(row):
        if row.exchange == 4:
            raise KeyboardInterrupt

    result, trace = traced(callback=interrupt)
    assert len(trace) == len(result.history) == 5
    check(result, trace)


def test_masks_take_a_bit_each():
    trace = danl.Trace()
    trace.begin(100, 80)
    masks = np.random.default_rng(0).random((100, 80)) < 0.5
    zeros = np.zeros(100, dtype=np.int64)
    trace.note(0, zeros.astype(np.int8), masks, zeros, zeros)
    assert trace._rows[0].trained.nbytes == 1000
    np.testing.assert_array_equal(trace.trained[0], masks)


def test_only_the_newest_are_kept():
    whole, trace = traced()[1], danl.Trace(newest=2)
    danl.solve(random_problem(), regions=3, max_rounds=8, tol=0.0, seed=3, trace=trace)
    assert trace.exchanges.tolist() == [7, 8]
    np.testing.assert_array_equal(trace.trained, whole.trained[-2:])
    with pytest.raises(danl.InputError, match="newest=0: must be a whole number >= 1"):
        danl.Trace(newest=0)


# Files.


@pytest.mark.parametrize("profiles", [None, PROFILES])
def test_a_file_comes_back(tmp_path, profiles):
    result, trace = traced(policy="coverage:psi=2", engine=Local(dropout=0.3), profiles=profiles)
    trace.save(tmp_path / "workers.npz")
    again = danl.Trace.read(tmp_path / "workers.npz")
    assert repr(again) == repr(trace) == "Trace(9 exchanges, 4 workers, 3 regions)"
    for name in ("exchanges", "asked", "trained", "bytes_up", "bytes_down", "simulated_seconds"):
        one, other = getattr(trace, name), getattr(again, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    check(result, again)
    assert [path.name for path in tmp_path.iterdir()] == ["workers.npz"]


def test_an_empty_trace_comes_back(tmp_path):
    danl.Trace().save(tmp_path / "workers.npz")
    again = danl.Trace.read(tmp_path / "workers.npz")
    assert (len(again), again.trained.shape, again.asked.shape) == (0, (0, 0, 0), (0, 0))


def test_every_damaged_byte_is_found_or_does_not_matter(tmp_path):
    path = tmp_path / "workers.npz"
    trace = traced(policy="coverage:psi=2", max_rounds=2)[1]
    trace.save(path)
    whole, found = path.read_bytes(), 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            again = danl.Trace.read(path)
        except danl.InputError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
            assert str(error).endswith("give the workers.npz of a run, or what Trace.save wrote")  # noqa: PT017
            found += 1
        else:
            np.testing.assert_array_equal(again.trained, trace.trained)
            np.testing.assert_array_equal(again.bytes_up, trace.bytes_up)
    assert found > 50


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is torn, or no trace (BadZipFile)"),
        (b"a,b\n1,2\n", "is torn, or no trace (BadZipFile)"),
        (b"PK\x03\x04 and then nothing", "is torn, or no trace (BadZipFile)"),
    ],
)
def test_a_file_that_is_no_trace(tmp_path, content, message):
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(danl.InputError) as error:
        danl.Trace.read(path)
    assert str(error.value) == f"{path}: {message}; give the workers.npz of a run, or what Trace.save wrote"


def test_other_npz_files_are_refused(tmp_path):
    path = tmp_path / "x.npz"

    def said():
        with pytest.raises(danl.InputError) as error:
            danl.Trace.read(path)
        return str(error.value)

    np.savez(path, w=np.zeros(3))
    assert "x.npz: is no trace; give" in said()
    traced()[1].save(path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {"version": np.array(2)})
    assert "is of another version (format 2, this is 1)" in said()
    np.savez(path, **arrays | {"asked": arrays["asked"][:, :2]})
    assert "its asked has shape (9, 2) of int8, not (9, 4)" in said()
    np.savez(path, **arrays | {"bytes_up": np.array([object()])})
    assert "is torn, or no trace (ValueError)" in said()
    np.savez_compressed(path, **arrays)
    assert "is packed, which no trace is" in said()
    np.save(tmp_path / "x.npy", np.zeros(3))
    path = tmp_path / "x.npy"
    assert "x.npy: is" in said()
    path = tmp_path / "none.npz"
    assert "none.npz: cannot be read (No such file or directory)" in said()


def test_an_array_that_claims_too_much_is_refused_before_room_is_made(tmp_path):
    path = tmp_path / "x.npz"
    traced()[1].save(path)
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    claimed = io.BytesIO()
    header = {"descr": "<i8", "fortran_order": False, "shape": (10**13,)}
    np.lib.format.write_array_header_1_0(claimed, header)
    entries["exchanges.npy"] = claimed.getvalue() + bytes(8 * 9)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    with pytest.raises(danl.InputError, match="an array claims to be longer than it is"):
        danl.Trace.read(path)


@pytest.mark.parametrize("trace", [1, "workers.npz", danl.Trace])
def test_wrong_traces(trace):
    with pytest.raises(danl.InputError, match=r"trace=.*: must be True, or a new danl.Trace\(\)"):
        danl.solve(random_problem(), trace=trace)


def test_a_trace_is_of_one_run():
    trace = traced()[1]
    with pytest.raises(danl.InputError, match=r"trace=Trace\(9 exchanges, .*: must be True, or a new danl.Trace\(\)"):
        danl.solve(random_problem(), trace=trace)


# Refused steps, told in the history.


def far_off(**arguments):
    """A logistic run from where the losses are steep and flat: full steps are too long."""
    return danl.solve(random_problem(alpha=1e-6, seed=2), w0=np.full(7, 3.0), regions=3, **arguments).history


@pytest.mark.parametrize("method", ["danl", "newton", "danl-secant", "danl:curvature=diag", "danl:batch_size=3"])
def test_refused_steps_are_marked_and_leave_the_model_where_it_was(method):
    history = far_off(method=method, policy="coverage:psi=1", max_rounds=40)
    assert set(history.column("refused")) == {0, 1}
    assert all(row.step_norm == 0.0 for row in history if row.refused)


def test_newton_asks_for_losses_exactly_after_refusals():
    history = far_off(method="newton", tol=1e-9)
    kinds, refused = history.column("kind"), history.column("refused")
    assert (kinds == "loss").any()
    np.testing.assert_array_equal(kinds[1:] == "loss", refused[:-1] == 1)


@pytest.mark.parametrize("method", ["gd", "newton-zero", "fedavg", "danl-paper", "danl-masked"])
def test_methods_without_a_safeguard_refuse_nothing(method):
    assert not traced(method=method, policy="coverage:psi=1")[0].history.column("refused").any()


def test_the_first_exchanges_are_a_trace_of_their_own():
    trace = danl.Trace()
    danl.solve(random_problem(), policy="coverage:psi=2", max_rounds=4, tol=0.0, trace=trace)
    first = trace.first(3)
    assert (len(first), len(trace)) == (3, 5)
    assert np.array_equal(first.trained, trace.trained[:3])
    assert np.array_equal(first.bytes_up, trace.bytes_up[:3])
    assert (first.n_workers, first.n_regions) == (trace.n_workers, trace.n_regions)


# Two parts of a run as one.


def parts(tmp_path, stopped_at=4):
    """The traces of a run's first part, of its second, and of the whole run in one go."""
    first = traced(policy="coverage:psi=2", max_rounds=stopped_at, checkpoint=tmp_path)[1]
    second = traced(policy="coverage:psi=2", resume=tmp_path)[1]
    return first, second, traced(policy="coverage:psi=2")[1]


def same(one, other):
    for name in ("exchanges", "asked", "trained", "bytes_up", "bytes_down", "simulated_seconds"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_two_parts_are_the_whole(tmp_path):
    first, second, whole = parts(tmp_path)
    second.go_on_from(first, 5)
    same(second, whole)
    second.save(tmp_path / "workers.npz")
    same(danl.Trace.read(tmp_path / "workers.npz"), whole)


def test_what_lies_beyond_where_the_run_went_on_is_cut(tmp_path):
    _, second, whole = parts(tmp_path)
    second.go_on_from(whole.first(9), 5)
    same(second, whole)


def test_a_run_that_went_no_further_keeps_its_first_part(tmp_path):
    first = parts(tmp_path)[0]
    nothing = danl.Trace()
    nothing.begin(4, 3)
    nothing.go_on_from(first, 3)
    same(nothing, first.first(3))


def test_a_trace_of_the_newest_alone_stays_one(tmp_path):
    whole, newest = parts(tmp_path)[2], danl.Trace(newest=2)
    newest.begin(4, 3)
    newest.go_on_from(whole, 6)
    assert newest.exchanges.tolist() == [4, 5]


def test_parts_that_do_not_fit_are_refused_and_nothing_is_changed(tmp_path):
    first, second, whole = parts(tmp_path)
    other = danl.Trace()
    other.begin(5, 3)
    for earlier, exchange in ((first.first(3), 5), (first, 6), (danl.Trace(), 5), (other, 5), (whole, 4), (second, 5)):
        with pytest.raises(danl.InputError, match=r"^earlier=Trace\(.*: must have "):
            second.go_on_from(earlier, exchange)
    np.testing.assert_array_equal(second.trained, whole.trained[5:])
