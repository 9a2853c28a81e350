"""Checkpoints: a run that is killed and taken up again is the run that was never interrupted, to the bit."""

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import danl
from danl.checkpoint import Checkpoints, UnreadableError, columns_of, history_of, packed, unpacked
from danl.core.memory import Memory
from danl.errors import DanlWarning, InputError
from danl.methods import PRESETS
from tests.problems import random_problem

SETTINGS = {"regions": 3, "policy": "coverage:psi=2", "max_rounds": 25, "tol": 1e-11, "seed": 3}


class StopError(Exception):
    """Stands for a process that ends."""


def until(exchange):
    def stop(row):
        if row.exchange == exchange:
            raise StopError

    return stop


def rows(result):
    names = [name for name in danl.Row.__dataclass_fields__ if name != "seconds"]
    return [[repr(getattr(row, name)) for name in names] for row in result.history]


METHODS = [*PRESETS, "danl:batch_size=4", "danl-masked:batch_size=3,hessian_batch=4", "fedavg:batch_size=3"]


@pytest.mark.parametrize("method", METHODS)
def test_a_run_taken_up_at_any_exchange_ends_the_same_to_the_bit(method, tmp_path):
    problem = random_problem()
    whole = danl.solve(problem, method=method, w0="fedavg:rounds=2", **SETTINGS)
    for exchange in range(0, len(whole.history) - 1, 3):
        folder = tmp_path / str(exchange)
        with pytest.raises(StopError):
            danl.solve(
                problem, method=method, w0="fedavg:rounds=2", checkpoint=folder, callback=until(exchange), **SETTINGS
            )
        again = danl.solve(problem, method=method, w0="fedavg:rounds=2", resume=folder, **SETTINGS)
        assert again.w.tobytes() == whole.w.tobytes()
        assert rows(again) == rows(whole)
        assert (again.status, again.notes, again.failures) == (whole.status, whole.notes, whole.failures)
        assert rows(again.start) == rows(whole.start)
        assert again.start.w.tobytes() == whole.start.w.tobytes()


@pytest.mark.parametrize("method", ["danl-masked", "danl-paper"])
def test_a_running_sum_goes_on_to_the_bit(method, tmp_path, monkeypatch):
    monkeypatch.setattr("danl.kernels.MANY_NUMBERS", 0)
    monkeypatch.setattr("danl.kernels.FEW", 1)
    monkeypatch.setattr("danl.core.memory.UPDATES", 4)
    updates, inner = set(), Memory._with_rows
    noted = lambda made: updates.add(made.running.updates) or made  # noqa: E731
    monkeypatch.setattr(Memory, "_with_rows", lambda *arguments: noted(inner(*arguments)))
    problem, settings = random_problem(), SETTINGS | {"policy": "coverage:psi=1", "tol": 0.0}
    whole = danl.solve(problem, method=method, **settings)
    for exchange in range(len(whole.history) - 1):
        folder = tmp_path / str(exchange)
        with pytest.raises(StopError):
            danl.solve(problem, method=method, checkpoint=folder, callback=until(exchange), **settings)
        again = danl.solve(problem, method=method, resume=folder, **settings)
        assert again.w.tobytes() == whole.w.tobytes()
        assert rows(again) == rows(whole)
    assert {0, 1, 2} <= updates


def test_absences_go_on_as_they_would_have(tmp_path):
    problem, engine = random_problem(), "local:dropout=0.4,seed=5"
    arguments = SETTINGS | {"max_rounds": 60}
    whole = danl.solve(problem, engine=engine, **arguments)
    assert whole.failures
    with pytest.raises(StopError):
        danl.solve(problem, engine=engine, checkpoint=tmp_path, callback=until(7), **arguments)
    again = danl.solve(problem, engine=engine, resume=tmp_path, **arguments)
    assert again.w.tobytes() == whole.w.tobytes()
    assert again.failures == whole.failures


def test_a_run_that_ends_by_its_rounds_is_kept_to_its_end(tmp_path):
    settings = {**SETTINGS, "max_rounds": 5, "tol": 0.0}
    result = danl.solve(random_problem(), checkpoint=Checkpoints(tmp_path, every=4), **settings)
    assert (result.status, len(result.history)) == ("max_rounds", 6)
    assert Checkpoints(tmp_path).there()[0] == Checkpoints(tmp_path).path(6)


def test_every_k_exchanges_and_the_last(tmp_path):
    result = danl.solve(random_problem(), checkpoint=Checkpoints(tmp_path, every=4), **SETTINGS)
    kept = Checkpoints(tmp_path).there()
    assert len(kept) <= 2
    assert kept[0] == Checkpoints(tmp_path).path(len(result.history))
    assert not list(tmp_path.glob("*.partial*"))


def test_more_rounds_than_before(tmp_path):
    problem = random_problem()
    danl.solve(problem, method="gd", checkpoint=tmp_path, max_rounds=5, tol=0.0)
    longer = danl.solve(problem, method="gd", resume=tmp_path, max_rounds=12, tol=0.0)
    assert longer.w.tobytes() == danl.solve(problem, method="gd", max_rounds=12, tol=0.0).w.tobytes()
    assert len(longer.history) == 13


def test_a_torn_checkpoint_is_passed_over_and_the_one_before_it_used(tmp_path):
    problem = random_problem()
    whole = danl.solve(problem, **SETTINGS)
    with pytest.raises(StopError):
        danl.solve(problem, checkpoint=tmp_path, callback=until(6), **SETTINGS)
    newest = Checkpoints(tmp_path).there()[0]
    newest.write_bytes(newest.read_bytes()[:-200])
    with pytest.warns(DanlWarning, match=f"{newest.name}: torn, or no danl-checkpoint"):
        again = danl.solve(problem, resume=tmp_path, **SETTINGS)
    assert again.w.tobytes() == whole.w.tobytes()


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 4},
        {"policy": "coverage:psi=3"},
        {"regions": 2},
        {"method": "danl-masked"},
        {"method": "danl:window=5"},
        {"w0": np.ones(7)},
    ],
)
def test_a_checkpoint_of_another_run_is_refused(other, tmp_path):
    danl.solve(random_problem(), checkpoint=tmp_path, **SETTINGS)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"holds no checkpoint of this run .*of another run"):
        danl.solve(random_problem(), resume=tmp_path, **(SETTINGS | other))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_data_are_another_run(tmp_path):
    danl.solve(random_problem(), checkpoint=tmp_path, **SETTINGS)
    with pytest.raises(InputError, match="of another run"):
        danl.solve(random_problem(seed=1), resume=tmp_path, **SETTINGS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"resume": "no/such/folder"}, "resume='no/such/folder': must be a folder with checkpoints"),
        ({"checkpoint": 3}, "checkpoint=3: must be a folder, or danl.Checkpoints"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        danl.solve(random_problem(), **arguments)
    with pytest.raises(InputError, match="every=0: must be a whole number"):
        Checkpoints(Path("x"), every=0)


def test_an_empty_folder_says_so(tmp_path):
    with pytest.raises(InputError, match="holds no checkpoint of this run; give the folder"):
        danl.solve(random_problem(), resume=tmp_path)


def test_histories_keep_every_digit():
    history = danl.solve(random_problem(), **SETTINGS).history
    again = history_of(columns_of(history))
    assert [repr(row) for row in again] == [repr(row) for row in history]


# Killed by the system, in the middle of anything.

KILLED = """
import os, signal, sys
import danl
from danl import checkpoint
sys.path.insert(0, {root!r})
from tests.problems import random_problem
folder, exchange, moment = {folder!r}, {exchange}, {moment}
if moment is not None:
    # Die inside the write of that exchange's checkpoint, after a share of its bytes.
    real = checkpoint.packed
    calls = [0]
    def torn(carried, fingerprint):
        data = real(carried, fingerprint)
        calls[0] += 1
        if calls[0] == exchange + 1:
            path = checkpoint.Checkpoints(folder).path(exchange + 1)
            path.parent.mkdir(parents=True, exist_ok=True)
            cut = int(abs(moment) * len(data))
            with open(path.with_name(path.stem + ".partial.npz") if moment >= 0 else path, "wb") as file:
                file.write(data[:cut])
                file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return data
    checkpoint.packed = torn
def die(row):
    if moment is None and row.exchange == exchange:
        os.kill(os.getpid(), signal.SIGKILL)
danl.solve(random_problem(), checkpoint=folder, callback=die, **{settings!r})
"""


def killed(folder, exchange, moment=None):
    root = str(Path(__file__).resolve().parents[1])
    code = KILLED.format(root=root, folder=str(folder), exchange=exchange, moment=moment, settings=SETTINGS)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.filterwarnings("ignore::danl.DanlWarning")
def test_killed_at_every_exchange(tmp_path):
    whole = danl.solve(random_problem(), **SETTINGS)
    for exchange in range(len(whole.history) - 1):
        folder = tmp_path / str(exchange)
        killed(folder, exchange)
        again = danl.solve(random_problem(), resume=folder, **SETTINGS)
        assert again.w.tobytes() == whole.w.tobytes()
        assert rows(again) == rows(whole)


@pytest.mark.filterwarnings("ignore::danl.DanlWarning")
@pytest.mark.timeout(240)
def test_killed_at_random_moments_inside_a_write(tmp_path):
    """Twenty moments: half leave a partial file, half a torn one under the checkpoint's own name."""
    whole = danl.solve(random_problem(), **SETTINGS)
    rng = np.random.default_rng(0)
    for number in range(20):
        exchange = int(rng.integers(1, len(whole.history) - 1))
        share = float(rng.random())
        folder = tmp_path / str(number)
        killed(folder, exchange, share if number % 2 else -max(share, 1e-9))
        again = danl.solve(random_problem(), resume=folder, **SETTINGS)
        assert again.w.tobytes() == whole.w.tobytes()


# Files nobody wrote.


@pytest.fixture(scope="module")
def good():
    carried = {}
    danl.solve(random_problem(), callback=None, **SETTINGS)
    state = {"w": np.arange(3.0), "n": 2, "x": float("nan"), "t": (1, "a", None), "m": {3: np.ones((2, 2))}}
    return packed(carried | state, "mark")


def test_what_was_packed_is_unpacked(good):
    got = unpacked(good, "mark")
    assert (got["n"], got["t"], np.isnan(got["x"])) == (2, (1, "a", None), True)
    np.testing.assert_array_equal(got["m"][3], np.ones((2, 2)))
    with pytest.raises(UnreadableError, match="of another run"):
        unpacked(good, "other")


@settings(max_examples=2000, deadline=None)
@given(data=st.data())
def test_changed_bytes_are_refused(good, data):
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(good))))
    try:
        got = unpacked(bytes(changed[:cut]), "mark")
    except UnreadableError:
        return
    again = unpacked(good, "mark")  # a byte of the archive that says nothing, a date for example
    assert repr(got) == repr(again)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_are_refused(data):
    with pytest.raises(UnreadableError):
        unpacked(data, "mark")


class Trap:
    def __reduce__(self):
        return (os.system, ("touch trapped",))


def archive(**entries):
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:
        for name, value in entries.items():
            file.writestr(f"{name}.npy", value)
    return whole.getvalue()


def npy(array, **options):
    whole = io.BytesIO()
    np.lib.format.write_array(whole, array, **options)
    return whole.getvalue()


def test_a_planted_pickle_is_never_loaded(good, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    objects = np.empty(1, dtype=object)
    objects[0] = Trap()
    head = np.frombuffer(json.dumps({"magic": "danl-checkpoint", "version": 2, "digest": ""}).encode(), dtype=np.uint8)
    planted = [
        pickle.dumps(Trap()),
        npy(objects, allow_pickle=True),
        archive(head=npy(objects, allow_pickle=True), text=npy(head)),
        archive(head=npy(head), text=npy(head), a0=npy(objects, allow_pickle=True)),
        archive(head=pickle.dumps(Trap()), text=npy(head)),
    ]
    for data in planted:
        with pytest.raises(UnreadableError):
            unpacked(data, "mark")
    assert not Path("trapped").exists()


def test_an_array_that_claims_to_be_huge_takes_no_memory():
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**40,)})
    with pytest.raises(UnreadableError, match="claims to be longer than it is"):
        unpacked(archive(head=header.getvalue()), "mark")
