"""Checkpoints: a run that is killed and taken up again is the run that was never interrupted, to the bit."""

import errno
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
from danl.engines import Local
from danl.errors import DanlWarning, InputError
from danl.methods import PRESETS
from danl.protocol.messages import Failure
from danl.run import checkpoint
from danl.run.checkpoint import Checkpoints, rows_from_lines, rows_to_line
from danl.server.memory import Memory
from danl.storage.appended import Appended
from danl.storage.arrays import UnreadableError
from danl.storage.serialize import from_file, to_file
from tests.problems import random_problem

pytestmark = pytest.mark.slow

SETTINGS = {"regions": 3, "policy": "coverage:psi=2", "max_rounds": 25, "tol": 1e-11, "seed": 3}


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch):
    """A process that ends takes nothing from the system's own copy; only a power cut would."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class StopError(Exception):
    """Stands for a process that ends."""


def until(exchange):
    def stop(row):
        if row.exchange == exchange:
            raise StopError

    return stop


def goes_on_to_the_bit(problem, arguments, whole, exchanges, folder):
    """Stop a run after some exchanges and go on from there: it is the run that was not stopped."""
    for exchange in exchanges:
        own = folder / str(exchange)
        with pytest.raises(StopError):
            danl.solve(problem, checkpoint=own, callback=until(exchange), **arguments)
        again = danl.solve(problem, resume=own, **arguments)
        assert again.w.tobytes() == whole.w.tobytes()
        assert rows(again) == rows(whole)


def rows(result):
    names = [name for name in danl.Row.__dataclass_fields__ if name != "seconds"]
    return [[repr(getattr(row, name)) for name in names] for row in result.history]


METHODS = [
    *PRESETS,
    "danl:masks=always",
    "danl:curvature_from=1",
    "danl:curvature_from=2,masks=always",
    "danl:batch_size=4",
    "danl:batch_size=4,masks=always",
    "danl-masked:batch_size=3,hessian_batch=4",
    "fedavg:batch_size=3",
]


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("method", ["danl-masked", "danl-paper"])
def test_a_running_sum_goes_on_to_the_bit(method, tmp_path, monkeypatch):
    monkeypatch.setattr("danl.objective.batch_parts.MANY_NUMBERS", 0)
    monkeypatch.setattr("danl.objective.batch_parts.FEW", 1)
    monkeypatch.setattr("danl.server.memory.UPDATES", 4)
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
        danl.solve(problem, checkpoint=tmp_path, callback=until(3), **SETTINGS)
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
        (
            {"checkpoint": __file__},
            r"checkpoint='.*test_checkpoint.py': must be a folder, and '.*.py' is a file; choose",
        ),
        (
            {"checkpoint": Path(__file__) / "x"},
            r"checkpoint='.*.py/x': must be a folder, and '.*.py' is a file; choose",
        ),
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
    again = danl.History.from_columns(history.to_columns())
    assert [repr(row) for row in again] == [repr(row) for row in history]
    failures = [Failure(2, "timeout", 'after 3 s, "\n\N{SNOWMAN}"')]
    lines = rows_to_line(list(history)[:3], []) + rows_to_line([], failures) + rows_to_line(list(history)[3:], failures)
    logged, failed = rows_from_lines(lines)
    assert [repr(row) for row in logged] == [repr(row) for row in history]
    assert failed == [*failures, *failures]


# A folder is one run's.


@pytest.mark.parametrize("other", [{"seed": 4}, {}])
def test_a_folder_that_holds_checkpoints_is_refused_and_left_as_it_is(other, tmp_path):
    """Those of another run, and those of this very run, which a new one would go through again."""
    danl.solve(random_problem(), checkpoint=tmp_path, **SETTINGS)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    name = Checkpoints(tmp_path).there()[0].name
    with pytest.raises(InputError) as error:
        danl.solve(random_problem(), checkpoint=tmp_path, **(SETTINGS | other))
    assert str(error.value) == (
        f"checkpoint={str(tmp_path)!r}: holds the checkpoints of a run already ({name}); "
        "go on with that run by resuming it from this folder, or choose another folder"
    )
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_only_the_runs_own_checkpoints_are_let_go(tmp_path):
    """Another run's files, put there by hand, with higher numbers and lower ones: neither removed nor taken up."""
    problem, whole = random_problem(), danl.solve(random_problem(), **SETTINGS)
    danl.solve(problem, checkpoint=tmp_path / "other", **(SETTINGS | {"seed": 4}))
    others = [path.read_bytes() for path in Checkpoints(tmp_path / "other").there()]
    with pytest.raises(StopError):
        danl.solve(problem, checkpoint=tmp_path / "own", callback=until(3), **SETTINGS)
    own = Checkpoints(tmp_path / "own")
    foreign = [own.path(99), own.path(98), own.path(1)]
    for path, data in zip(foreign, [*others, others[0]], strict=True):
        path.write_bytes(data)
    for _ in range(2):  # the second time it is at its end
        with pytest.warns(DanlWarning, match="of another run") as warned:
            again = danl.solve(problem, resume=tmp_path / "own", **SETTINGS)
        assert len(warned) == 2
        assert again.w.tobytes() == whole.w.tobytes()
    count = len(whole.history)
    assert own.there() == [own.path(99), own.path(98), own.path(count), own.path(count - 1), own.path(1)]


def test_going_on_into_another_folder(tmp_path):
    problem, whole = random_problem(), danl.solve(random_problem(), engine="local:dropout=0.2", **SETTINGS)
    arguments = SETTINGS | {"engine": "local:dropout=0.2"}
    with pytest.raises(StopError):
        danl.solve(problem, checkpoint=tmp_path / "a", callback=until(5), **arguments)
    before = {path: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    with pytest.raises(StopError):
        danl.solve(problem, resume=tmp_path / "a", checkpoint=tmp_path / "b", callback=until(8), **arguments)
    assert {path: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before
    again = danl.solve(problem, resume=tmp_path / "b", **arguments)
    assert again.w.tobytes() == whole.w.tobytes()
    assert rows(again) == rows(whole)
    assert again.failures == whole.failures
    with pytest.raises(InputError, match="holds the checkpoints of a run already"):
        danl.solve(problem, resume=tmp_path / "a", checkpoint=tmp_path / "b", **arguments)
    danl.solve(problem, resume=tmp_path / "a", checkpoint=f"{tmp_path}/b/../a", **arguments)  # the same folder


def test_a_checkpoint_of_an_older_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "VERSION", 1)
    danl.solve(random_problem(), checkpoint=tmp_path, **(SETTINGS | {"max_rounds": 0}))
    monkeypatch.undo()
    with pytest.raises(InputError) as error:
        danl.solve(random_problem(), resume=tmp_path, **SETTINGS)
    assert str(error.value) == (
        f"resume={str(tmp_path)!r}: holds no checkpoint of this run (checkpoint-00000001.npz: written by another "
        "version of danl (format 1, this is 5)); go on with the danl that wrote them, or begin anew in another folder"
    )


def test_a_run_that_is_refused_leaves_no_folder(tmp_path):
    with pytest.raises(InputError, match="tol=-1"):
        danl.solve(random_problem(), checkpoint=tmp_path / "a" / "b", tol=-1)
    assert list(tmp_path.iterdir()) == []


def test_two_runs_with_one_folder(tmp_path):
    """The second is refused while the first goes on, and the first does not notice."""
    refused = []

    def second(row):
        for how in ({"checkpoint": tmp_path}, {"resume": tmp_path}):
            with pytest.raises(InputError, match=rf"in use by another run of this process \({os.getpid()}\)") as error:
                danl.solve(random_problem(), **how, **SETTINGS)
            refused.append(str(error.value).partition("=")[0])

    first = danl.solve(random_problem(), checkpoint=tmp_path, callback=second, **SETTINGS)
    assert refused == ["checkpoint", "resume"] * len(first.history)
    assert first.w.tobytes() == danl.solve(random_problem(), **SETTINGS).w.tobytes()
    assert not list(tmp_path.glob(".*"))


def test_through_a_power_cut_the_rows_are_there_before_the_checkpoint_that_counts_them(tmp_path, monkeypatch):
    done, replace = [], Path.replace

    def synced(handle):
        done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)

    def renamed(self, target):
        done.append(f"-> {Path(target).name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs /proc to tell which file it is")
    danl.solve(random_problem(), checkpoint=tmp_path / "ck", **(SETTINGS | {"max_rounds": 0}))
    first = "checkpoint-00000001"
    assert done[1:] == ["checkpoint-rows.jsonl", f"{first}.partial.npz", f"-> {first}.npz", "ck"]


# What it costs.


def test_a_checkpoint_costs_the_same_however_long_the_run_is(tmp_path, monkeypatch):
    """Bytes written for each of 200 exchanges of 20 workers, a third of which do not answer."""
    written, log, keep = [], Appended.append, Checkpoints.write

    def append(self, data):
        written.append(len(data))
        log(self, data)

    def write(self, *arguments):
        path = keep(self, *arguments)
        written[-1] += path.stat().st_size
        return path

    monkeypatch.setattr(Appended, "append", append)
    monkeypatch.setattr(Checkpoints, "write", write)
    result = danl.solve(
        random_problem(sizes=(6,) * 20),
        method="danl:batch_size=3,patience=1000,curvature=diag,pairs=0",  # slow, and with a memory
        policy="coverage:psi=3",
        engine="local:dropout=0.35",
        max_rounds=200,
        tol=0.0,
        checkpoint=tmp_path,
    )
    assert len(written) == len(result.history) == 201
    assert len(result.failures) > 600
    early, late = np.array(written[25:76]), np.array(written[150:])
    assert late.mean() <= 1.05 * early.mean()
    assert late.max() <= 1.5 * early.max()


def test_what_grows_is_not_copied(tmp_path):
    """Neither the rows nor the failures of a run, in any exchange."""
    seen = []

    class Saver:
        def save(self, state, history, failures, *, last):
            seen.append((history, failures, state.exchanges, state.n_failures))

    from danl.run import loop, solver

    inner = loop.run_loop
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            solver, "run_loop", lambda run, engine, callback, saver, resumed: inner(run, engine, None, Saver())
        )
        result = danl.solve(random_problem(), engine="local:dropout=0.4,seed=5", **SETTINGS)
    assert [count for _, _, count, _ in seen] == list(range(1, len(result.history) + 1))
    assert all(history is seen[0][0] and failures is seen[0][1] for history, failures, _, _ in seen)
    assert seen[-1][3] == len(result.failures) > 0


# Disks that are full, logs that are torn.


def full(monkeypatch, where, name, exchanges):
    """Let the disk be full while the run has as many exchanges."""
    inner, now = getattr(where, name), [0]

    def write(self, *arguments):
        if now[0] in exchanges:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return inner(self, *arguments)

    monkeypatch.setattr(where, name, write)
    return lambda row: now.__setitem__(0, row.exchange + 1)


@pytest.mark.parametrize("target", [(Appended, "append"), (Checkpoints, "write")])
@pytest.mark.parametrize("exchanges", [range(3, 4), range(3, 99), range(99)])
def test_a_checkpoint_that_cannot_be_written_is_one_warning(target, exchanges, tmp_path, monkeypatch):
    problem, whole = random_problem(), danl.solve(random_problem(), **SETTINGS)
    tick = full(monkeypatch, *target, exchanges)
    with pytest.warns(DanlWarning) as warned:
        result = danl.solve(problem, checkpoint=tmp_path, callback=tick, **SETTINGS)
    monkeypatch.undo()
    first = exchanges.start
    there = "the newest one is of 3 exchanges" if first else "there is none"
    after = "4 exchanges" if first else "1 exchange"
    assert [str(each.message) for each in warned] == [
        f"checkpoint={str(tmp_path)!r}: cannot be written (No space left on device) after {after}; "
        f"the run goes on, and {there}"
    ]
    assert (result.status, result.w.tobytes()) == (whole.status, whole.w.tobytes())
    if first:
        newest = Checkpoints(tmp_path).there()[0]
        assert newest == Checkpoints(tmp_path).path(3 if exchanges.stop == 99 else len(whole.history))
        again = danl.solve(problem, resume=tmp_path, **SETTINGS)
        assert again.w.tobytes() == whole.w.tobytes()
        assert rows(again) == rows(whole)
    assert not list(tmp_path.glob("*.partial*"))


def test_a_folder_that_is_removed_is_made_again(tmp_path):
    import shutil

    folder = tmp_path / "ck"

    def remove(row):
        if row.exchange == 3:
            shutil.rmtree(folder)

    whole = danl.solve(random_problem(), checkpoint=folder, callback=remove, **SETTINGS)
    again = danl.solve(random_problem(), resume=folder, **(SETTINGS | {"tol": 1e-13}))
    assert rows(again)[: len(whole.history)] == rows(whole)


def test_a_log_that_is_changed_or_gone_is_refused(tmp_path):
    problem = random_problem()
    with pytest.raises(StopError):
        danl.solve(problem, checkpoint=tmp_path, callback=until(3), **SETTINGS)
    log = Checkpoints(tmp_path).log
    data = log.read_bytes()
    whole = danl.solve(problem, **SETTINGS)
    log.write_bytes(data[:-1])  # of the newest: the one before it is used
    with pytest.warns(DanlWarning, match=r"checkpoint-00000004.npz: checkpoint-rows.jsonl is torn or changed"):
        again = danl.solve(problem, resume=tmp_path, checkpoint=tmp_path / "again", **SETTINGS)
    assert rows(again) == rows(whole)
    log.write_bytes(b"x" + data[1:])
    with pytest.raises(InputError, match=r"00000003.npz: checkpoint-rows.jsonl is torn or changed\); give the folder"):
        danl.solve(problem, resume=tmp_path, **SETTINGS)
    log.unlink()
    with pytest.raises(InputError, match=r"00000003.npz: checkpoint-rows.jsonl cannot be read \(No such file"):
        danl.solve(problem, resume=tmp_path, **SETTINGS)


# A run that is at its end.


class Counting(Local):
    """Counts what is asked of it."""

    def open(self, *arguments, **options):
        ASKED.append("open")
        super().open(*arguments, **options)

    def exchange(self, exchange):
        ASKED.append(exchange.kind)
        return super().exchange(exchange)


ASKED = []


@pytest.mark.parametrize("method", [name for name in PRESETS if name not in ("danl-paper", "fedavg")])
def test_a_run_that_had_converged_asks_nobody_anything(method, tmp_path):
    problem, arguments = random_problem(), SETTINGS | {"method": method, "max_rounds": 3000, "tol": 1e-4}
    whole = danl.solve(problem, checkpoint=Checkpoints(tmp_path, every=1000), **arguments)
    assert whole.status == "converged"  # which the two others do not
    ASKED.clear()
    reported = []
    again = danl.solve(problem, resume=tmp_path, engine=Counting(), callback=reported.append, **arguments)
    assert (ASKED, reported) == ([], [])
    assert (again.status, again.w.tobytes()) == ("converged", whole.w.tobytes())
    assert rows(again) == rows(whole)
    assert (again.notes, again.failures, again.dropped) == (whole.notes, whole.failures, whole.dropped)
    easier = danl.solve(problem, resume=tmp_path, engine=Counting(), **(arguments | {"tol": 1e-3, "max_rounds": 1}))
    assert (ASKED, easier.status, len(easier.history)) == ([], "converged", len(whole.history))


def test_a_smaller_tolerance_goes_on(tmp_path):
    problem, arguments = random_problem(), SETTINGS | {"max_rounds": 200}
    first = danl.solve(problem, checkpoint=tmp_path, **(arguments | {"tol": 1e-3}))
    assert first.status == "converged"
    again = danl.solve(problem, resume=tmp_path, **(arguments | {"tol": 1e-11}))
    assert again.status == "converged"
    assert len(again.history) > len(first.history)
    assert np.linalg.norm(problem.value_and_gradient(again.w)[1]) <= 2e-11


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ({"method": "gd", "max_rounds": 5, "tol": 0.0}, "max_rounds"),
        ({"method": "fedavg:rounds=4", "max_rounds": 500, "tol": 0.0}, "max_rounds"),
        ({"method": "gd:learning_rate=1e6", "max_rounds": 500}, "diverged"),
    ],
)
def test_other_ends_are_ends_as_well(arguments, status, tmp_path):
    problem = random_problem()
    whole = danl.solve(problem, checkpoint=tmp_path, **arguments)
    assert whole.status == status
    ASKED.clear()
    again = danl.solve(problem, resume=tmp_path, engine=Counting(), **arguments)
    assert ASKED == []
    assert (again.status, again.w.tobytes()) == (status, whole.w.tobytes())
    assert rows(again) == rows(whole)


@pytest.mark.parametrize("method", ["danl", "newton", "gd"])
def test_a_quorum_that_was_lost_may_be_back(method, tmp_path):
    problem, arguments = random_problem(), SETTINGS | {"method": method, "max_rounds": 4000, "tol": 1e-3}
    lost = danl.solve(problem, checkpoint=tmp_path, engine="local:dropout=0.999", **arguments)
    assert lost.status == "quorum_lost"
    again = danl.solve(problem, resume=tmp_path, **arguments)
    assert again.status == "converged"
    assert rows(again)[: len(lost.history)] == rows(lost)
    assert again.failures == lost.failures


# Killed by the system, in the middle of anything.

KILLED = """
import os, signal, sys
import danl
from danl.run import checkpoint
sys.path.insert(0, {root!r})
from tests.problems import random_problem
folder, exchange, moment, log_share = {folder!r}, {exchange}, {moment}, {log_share}
if moment is not None:
    # Die inside the write of that exchange's checkpoint, after a share of its bytes.
    real = checkpoint.to_file
    calls = [0]
    def torn(values, **options):
        data = real(values, **options)
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
    checkpoint.to_file = torn
if log_share is not None:
    # Die inside the append to the rows, after a share of its bytes.
    from danl.storage.appended import Appended
    append, appends = Appended.append, [0]
    def half(self, data):
        appends[0] += 1
        if appends[0] == exchange + 1:
            append(self, data[: int(log_share * len(data))])
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, data)
    Appended.append = half
def die(row):
    if log_share is None and moment is None and row.exchange == exchange:
        os.kill(os.getpid(), signal.SIGKILL)
danl.solve(random_problem(), checkpoint=folder, callback=die, **{settings!r})
"""


def killed(folder, exchange, moment=None, log_share=None):
    root = str(Path(__file__).resolve().parents[2])
    reported = {"exchange": exchange, "moment": moment, "log_share": log_share}
    code = KILLED.format(root=root, folder=str(folder), settings=SETTINGS, **reported)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.engines
@pytest.mark.filterwarnings("ignore::danl.DanlWarning")
def test_killed_at_every_exchange(tmp_path):
    whole = danl.solve(random_problem(), **SETTINGS)
    for exchange in range(len(whole.history) - 1):
        folder = tmp_path / str(exchange)
        killed(folder, exchange)
        again = danl.solve(random_problem(), resume=folder, **SETTINGS)
        assert again.w.tobytes() == whole.w.tobytes()
        assert rows(again) == rows(whole)


@pytest.mark.engines
@pytest.mark.filterwarnings("ignore::danl.DanlWarning")
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
        assert not list(folder.glob("*.partial*"))


@pytest.mark.timeout(240)
def test_killed_while_rows_are_added(tmp_path):
    """Nothing, a part and all of what was to be added: what belongs to no checkpoint is cut off, without a word."""
    whole = danl.solve(random_problem(), **SETTINGS)
    rng = np.random.default_rng(1)
    for number, share in enumerate((0.0, *rng.random(2), 1.0)):
        exchange = int(rng.integers(1, len(whole.history) - 1))
        folder = tmp_path / str(number)
        killed(folder, exchange, log_share=float(share))
        assert Checkpoints(folder).there()[0] == Checkpoints(folder).path(exchange)
        again = danl.solve(random_problem(), resume=folder, **SETTINGS)
        assert again.w.tobytes() == whole.w.tobytes()
        assert rows(again) == rows(whole)
        history, _ = rows_from_lines(Checkpoints(folder).log.read_bytes())
        assert [row.exchange for row in history] == list(range(len(whole.history)))


# Files nobody wrote.

KIND = {"magic": "danl-checkpoint", "version": 4}


@pytest.fixture(scope="module")
def good():
    state = {"w": np.arange(3.0), "n": 2, "x": float("nan"), "t": (1, "a", None), "m": {3: np.ones((2, 2))}}
    return to_file(state, fingerprint="mark", **KIND)


def read(data, fingerprint="mark"):
    return from_file(data, fingerprint=fingerprint, **KIND)


def test_what_was_packed_is_unpacked(good):
    got = read(good)
    assert (got["n"], got["t"], np.isnan(got["x"])) == (2, (1, "a", None), True)
    np.testing.assert_array_equal(got["m"][3], np.ones((2, 2)))
    with pytest.raises(UnreadableError, match="of another run"):
        read(good, "other")


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_changed_bytes_are_refused(good, data):
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(good))))
    try:
        got = read(bytes(changed[:cut]))
    except UnreadableError:
        return
    again = read(good)  # a byte of the archive that says nothing, a date for example
    assert repr(got) == repr(again)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_are_refused(data):
    with pytest.raises(UnreadableError):
        read(data)


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
    head = np.frombuffer(json.dumps({"magic": "danl-checkpoint", "version": 4, "digest": ""}).encode(), dtype=np.uint8)
    planted = [
        pickle.dumps(Trap()),
        npy(objects, allow_pickle=True),
        archive(head=npy(objects, allow_pickle=True), text=npy(head)),
        archive(head=npy(head), text=npy(head), a0=npy(objects, allow_pickle=True)),
        archive(head=pickle.dumps(Trap()), text=npy(head)),
    ]
    for data in planted:
        with pytest.raises(UnreadableError):
            read(data)
    assert not Path("trapped").exists()


def test_an_array_that_claims_to_be_huge_takes_no_memory():
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**40,)})
    with pytest.raises(UnreadableError, match="claims to be longer than it is"):
        read(archive(head=header.getvalue()))
