"""The comparison of the field: runs that are stored and not done twice, what is counted, the tables made of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.field_report import (
    GAPS,
    Judged,
    against_table,
    by_problem,
    overview,
    sentences,
    solved_within,
    winners,
    winners_table,
)
from benchmarks.field_runs import QUICK, RIVALS, FieldRun, FieldStore, Rival, execute

FEW = tuple(rival for rival in RIVALS if rival.label in ("danl", "newton", "giant", "gd"))
PLAN = replace(QUICK, rivals=FEW, rounds=12)


def test_a_run_is_stored_and_found_again(tmp_path):
    store, run = FieldStore(tmp_path), FieldRun("a1a", "alpha=0.001", 10, "iid", 0, "newton", rounds=3)
    assert store.missing([run]) == [run]
    store.write(run, execute(run))
    assert store.missing([run]) == []
    assert store.missing([replace(run, seed=1)]) == [replace(run, seed=1)]
    store.path(run).write_text("torn")
    assert store.missing([run]) == [run]


def test_a_claim_is_stored_for_this_code_alone(tmp_path, monkeypatch):
    store, claim = FieldStore(tmp_path), {"method": "gd", "holds": False, "seconds": 0.5}
    assert store.read_claim("gd") is None
    store.write_claim("gd", claim)
    assert store.read_claim("gd") == claim
    monkeypatch.setattr("benchmarks.field_runs.code_digest", lambda: "another")
    assert store.read_claim("gd") is None


@pytest.mark.parametrize(("limit", "value"), [("PASSES", 5), ("LOST", 1e-3)])
def test_a_run_that_leads_nowhere_ends_sooner(limit, value, monkeypatch):
    run = FieldRun("a1a", "alpha=0.001", 10, "iid", 0, "gd", rounds=12)
    assert len(execute(run)["gaps"]) == 13
    monkeypatch.setattr(f"benchmarks.field_runs.{limit}", value)
    assert len(execute(run)["gaps"]) < 8


def test_what_is_counted_is_what_the_history_says():
    run = FieldRun("a1a", "alpha=0.001", 10, "iid", 0, "newton", rounds=3)
    record = execute(run)
    d = 123
    assert record["up"][0] == 8 * (d + d * (d + 1) / 2 + 1)
    assert record["down"][0] == 8 * d
    assert len(record["gaps"]) == len(record["up"]) == len(record["passes"]) == 4
    assert np.all(np.diff(record["slow"]) > 0)


@pytest.fixture(scope="module")
def rows():
    return [
        Judged.of(run, rival, execute(run))
        for rival in FEW
        for run in [FieldRun("a1a", "alpha=0.001", 10, "iid", 0, rival.spec, rounds=12)]
    ]


def test_tables_are_made_of_the_runs(rows):
    assert "`gd`" in overview(rows)
    assert winners(rows, "exchanges", 1e-4)
    assert all(f"{gap:.0e}" in winners_table(rows) for gap in GAPS)
    assert "`newton`" in against_table(rows)
    assert "a1a, alpha=0.001" in by_problem(rows, "up", 1e-8, 10, "iid")
    assert 1 <= len(sentences(rows)) <= 10
    gd = next(row for row in rows if row.rival.label == "gd")
    assert math.isinf(gd.costs["exchanges", 1e-12])  # 13 exchanges are not enough


def made_up(label, seed, exchanges):
    """A run that got to every gap after so many exchanges."""
    rival = next(each for each in RIVALS if each.label == label)
    run = FieldRun("a1a", "alpha=0.001", 10, "iid", seed, rival.spec)
    return Judged(run, rival, "max_rounds", {("exchanges", gap): float(exchanges) for gap in GAPS}, {})


def test_all_of_a_tie_take_the_least():
    rows = [made_up("danl", 0, 5), made_up("newton", 0, 5), made_up("danl", 1, 7), made_up("newton", 1, 6)]
    assert winners(rows, "exchanges", 1e-8) == {"newton": 2, "danl": 1}


def test_who_gets_nowhere_is_named_below_the_table():
    rows = [made_up("danl", 0, 5), made_up("gd", 0, math.inf)]
    table, below = by_problem(rows, "exchanges", 1e-8, 10, "iid").split("\n\n")
    assert "`danl` | 5 |" in table
    assert "`gd`" not in table
    assert below == "On none of them there: `gd`."


def test_a_profile_is_of_the_problems_that_a_method_was_run_on():
    rows = [
        *(made_up("danl", seed, 5) for seed in range(4)),
        made_up("fednl-ls", 0, 10),
        made_up("fednl-ls", 1, math.inf),
    ]
    assert solved_within(rows, "danl", "exchanges", 1e-8)[0] == 1.0
    assert solved_within(rows, "fednl-ls", "exchanges", 1e-8)[0] == 0.0
    assert solved_within(rows, "fednl-ls", "exchanges", 1e-8)[-1] == 0.5  # of the two it was run on


def test_a_step_size_is_the_one_that_ended_lowest(tmp_path):
    rival = Rival("gd", "gd:learning_rate={}/L", "tuned", (0.01, 1.0))
    plan, store = replace(QUICK, rivals=(rival,), rounds=5), FieldStore(tmp_path)
    for run in plan.tuning():
        store.write(run, execute(run))
    assert plan.chosen(store, "a1a", "alpha=0.001", rival) == 1.0
    assert plan.spec(store, "a1a", "alpha=0.001", rival) == "gd:learning_rate=1/L"
    assert len(plan.runs(store)) == 1
