"""Rows that are kept: what counts as there, what is computed anew, and what is read back."""

import dataclasses
import json

import numpy as np
import pytest

from danl.errors import InputError
from danl.reproduce import store as store_module
from danl.reproduce.execute import digest, execute
from danl.reproduce.runs import MILD, RunSpec
from danl.reproduce.store import Store

RUN = RunSpec("a1a", MILD, "danl-masked", "coverage:psi=3", rounds=4)


@pytest.fixture(scope="module")
def executed():
    return execute(RUN)


@pytest.fixture
def store(tmp_path, executed):
    store = Store(tmp_path)
    store.write(RUN, *executed, digest("a1a"))
    return store


def test_a_run_that_is_kept_is_there_and_reads_back(store, executed):
    history, record = executed
    assert store.has(RUN, digest("a1a"))
    stored = store.read(RUN)
    np.testing.assert_array_equal(stored.history.column("gap"), history.column("gap"))
    assert stored.record["optimum"] == record["optimum"]
    assert stored.status == record["status"]


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_half_a_run_is_no_run(store, suffix):
    assert store.has(RUN, digest("a1a"))
    store.path(RUN).with_suffix(suffix).unlink()
    assert not store.has(RUN, digest("a1a"))


def test_a_torn_record_is_no_run(store):
    path = store.path(RUN)
    path.write_bytes(path.read_bytes()[:100])
    assert not store.has(RUN, digest("a1a"))
    with pytest.raises(InputError, match="run danl reproduce again"):
        store.read(RUN)


def test_other_data_or_other_code_are_computed_anew(store, monkeypatch):
    assert store.has(RUN, digest("a1a"))
    assert not store.has(RUN, "0" * 64)
    monkeypatch.setattr(store_module, "code_digest", lambda: "another")
    assert not store.has(RUN, digest("a1a"))


def test_a_record_under_another_name_is_not_taken_for_the_run(store):
    other = dataclasses.replace(RUN, seed=1)
    for suffix in (".csv", ".json"):
        source = store.path(RUN).with_suffix(suffix)
        store.path(other).with_suffix(suffix).write_bytes(source.read_bytes())
    assert not store.has(other, digest("a1a"))


def test_every_field_of_a_run_is_in_its_name():
    changed = {
        "data": "a2a",
        "penalty": "alpha=0.1",
        "method": "danl",
        "policy": "full",
        "seed": 3,
        "partition": "dirichlet:alpha=0.1",
        "start": "zero",
        "decades": 2.0,
        "rounds": 5,
        "workers": 3,
        "regions": 2,
        "certified": True,
    }
    assert set(changed) == {field.name for field in dataclasses.fields(RunSpec)}
    names = {(run.data, run.name) for run in (RUN, *(dataclasses.replace(RUN, **{k: v}) for k, v in changed.items()))}
    assert len(names) == len(changed) + 1


def test_the_gap_begins_at_the_start_and_goes_on_to_the_last_round(store, executed):
    history, record = executed
    stored = store.read(RUN)
    gaps = stored.gaps()
    assert len(gaps) == RUN.rounds + 2
    assert gaps[0] == record["start"]["objective"] - record["optimum"]["objective"]
    np.testing.assert_allclose(gaps[1:], history.column("gap"))
    np.testing.assert_allclose(stored.gaps("newton20"), stored.objectives - record["newton20"]["objective"])


@pytest.mark.parametrize(("status", "end"), [("converged", "last"), ("diverged", np.inf)])
def test_a_run_that_ended_early_is_filled_up(store, status, end):
    path = store.path(RUN)
    record = json.loads(path.read_text()) | {"status": status}
    path.write_text(json.dumps(record))
    lines = path.with_suffix(".csv").read_text().splitlines()
    path.with_suffix(".csv").write_text("\n".join(lines[:3]) + "\n")
    objectives = store.read(RUN).objectives
    assert len(objectives) == RUN.rounds + 2
    assert (objectives[3:] == (objectives[2] if end == "last" else end)).all()


def test_newton_that_ends_nowhere_gives_no_gap(store):
    path = store.path(RUN)
    record = json.loads(path.read_text())
    record["newton20"]["objective"] = None
    path.write_text(json.dumps(record))
    assert np.isnan(store.read(RUN).gaps("newton20")).all()
