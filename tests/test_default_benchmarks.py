"""The parts of docs/benchmarks.md that hold the default call against bars, on tiny and made-up data. Never a time."""

import itertools
import json

import numpy as np
import pytest
from benchmarks import bits, document, ending, limited_memory, shape_cases, shapes
from benchmarks.measure import environment
from benchmarks.shape_cases import Shape

import danl

pytestmark = pytest.mark.slow


# --- shapes ---


@pytest.mark.parametrize("shape", [*shapes.QUICK, *shapes.SHAPES[3:4]], ids=lambda shape: shape.label)
def test_rows_of_a_shape_are_what_was_asked_for(shape):
    X, y = shape_cases.made(shape)
    assert X.shape == (shape.rows, shape.columns)
    assert isinstance(X, np.ndarray) == (shape.entries is None)
    if shape.entries is not None:
        assert X.has_canonical_format
        assert 0.8 * shape.entries < X.nnz / shape.rows <= shape.entries
        assert shape_cases.data_bytes(X) == 12 * X.nnz + 4 * (shape.rows + 1)
    if shape.kind != "ridge":
        counts = np.unique(y)
        assert {"binary": len(counts) == 2, "classes": len(counts) == 5}.get(shape.kind, 1.0 < y.mean() < 3.0)


@pytest.mark.parametrize("shape", shapes.QUICK, ids=lambda shape: shape.label)
def test_both_estimators_minimise_the_objective_that_is_compared(shape):
    X, y = shape_cases.made(shape)
    model = shape_cases.ours(shape).fit(X, y)
    best = shape_cases.objective(shape, X, y, model)
    assert best == pytest.approx(model.history_[-1].objective, rel=1e-13)
    tight = shape_cases.peer(shape)
    if shape.kind != "ridge":
        tight.set_params(tol=1e-10, max_iter=10_000)
    assert shape_cases.objective(shape, X, y, tight.fit(X, y)) == pytest.approx(best, rel=1e-10)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_shape_stage_by_stage():
    shape = Shape("binary", 300, 8)
    stages = list(shape_cases.play("time", shape))
    assert len(stages) == 4
    assert "danl_processor" not in stages[0]
    last = stages[-1]
    assert last["reaches"]
    assert last["objective"] <= last["target"] * (1 + shape_cases.SLACK)
    assert 1 <= last["exchanges"] <= last["end_exchanges"]
    assert last["status"] == "converged"
    for earlier, later in itertools.pairwise(stages):
        assert set(earlier) <= set(later)
    json.dumps(last, allow_nan=False)


def test_a_shape_in_processes_of_its_own():
    row = shapes.measure_one(Shape("ridge", 200, 6))
    assert row["reaches"]
    assert row["iterations"] is None
    assert row["added"] >= 0
    assert row["data"] == 200 * 6 * 8


def test_a_fit_that_is_not_back_in_time_is_given_up():
    row = shapes.measure_one(Shape("binary", 20_000, 40), limit=1e-3)
    assert row["peer_processor"] > 0
    assert "danl_processor" not in row
    assert "added" not in row
    text = shapes.markdown([row])
    assert "| not in 0.001 s | - | - | not in 0.001 s | - |" in text


def test_an_error_of_a_shape_is_raised():
    with pytest.raises(RuntimeError, match="binary, 100 x 0 dense"):
        shapes.in_process("time", Shape("binary", 100, 0), 60.0)


def shape_row(label, peer, own, *, added=None, data=10_000_000, reaches=True):
    row = {"label": label, "data": data, "limit": 60.0, "iterations": 12, "target": 0.5, "repeats": 9}
    row |= {"peer_processor": peer, "peer_wall": 2 * peer}
    if own is not None:
        row |= {"danl_processor": own, "danl_wall": 2 * own, "exchanges": 7, "hessians": 2, "reaches": reaches}
        row |= {"objective": 0.5 if reaches else 0.6, "end_processor": 3 * own, "end_wall": own, "end_exchanges": 9}
    return row if added is None else {**row, "added": added}


def test_shapes_of_made_up_rows(tmp_path):
    rows = [
        shape_row("binary, 4 x 2 dense", 0.2, 0.1, added=5_000_000),
        shape_row("ridge, 4 x 2 dense", 0.1, 0.2, added=10_000_000),
        shape_row("binary, 2 x 2 dense", 0.1, 0.05, added=10**9, data=100),
    ]
    text = shapes.markdown(rows)
    assert "| binary, 4 x 2 dense | 0.200 s (0.400) | 12 | 0.100 s (0.200) | 7 (2) | 0.500 x | 0.300 s" in text
    assert "| ridge, 4 x 2 dense | 10.0 MB | 10.0 MB | 2.00 x |" in text
    mean, worst, memory = shapes.goals(rows)
    assert mean[1:] == ("0.794 x", "1 x", True)
    assert worst[1:] == ("2.00 x", "1.5 x", False)
    assert memory[1:] == ("2.00 x", "2.5 x", True)  # the smallest is not judged
    ((path, _),) = shapes.plots(rows, tmp_path)
    assert path.stat().st_size > 1000


def test_a_shape_that_is_not_reached_misses_every_bar():
    rows = [shape_row("one", 0.2, 0.1, added=1), shape_row("two", 0.1, None), shape_row("three", 1, 1, reaches=False)]
    assert shapes.ratios(rows) == {"one": 0.5}
    assert "| does not reach it (2.0e-01 above) |" in shapes.markdown(rows)
    goals = shapes.goals(rows)
    assert [goal[3] for goal in goals] == [False, False, False]
    assert "2 of 3 shapes not reached" in goals[0][1]
    assert "2 of 3 shapes not known" in goals[2][1]


def test_the_callback_ends_a_fit_at_the_target():
    stop = shape_cases.stop_at(2.0)
    X, y = shape_cases.made(Shape("ridge", 50, 3))
    (row, *_) = danl.DANLRegressor().fit(X, y).history_
    object.__setattr__(row, "objective", 2.0 + 1e-13)
    assert stop(row)
    object.__setattr__(row, "objective", 2.0 + 1e-11)
    assert not stop(row)


# --- limited memory ---


def test_one_hot_rows_have_one_level_of_every_group():
    X, y = limited_memory.one_hot(200, 4, 5)
    assert X.shape == (200, 20)
    assert (X.toarray().reshape(200, 4, 5).sum(axis=2) == 1).all()
    assert set(y) == {0.0, 1.0}


@pytest.fixture(scope="module")
def small_problem():
    X, y = limited_memory.one_hot(300, 4, 5)
    return danl.Problem(danl.partition(X, y, workers=10, seed=0), alpha=1e-3)


def test_evaluations_are_counted_until_the_gap_is_there(small_problem):
    optimum = danl.reference_optimum(small_problem).objective
    count = limited_memory.evaluations(small_problem, optimum)
    assert 3 < count < 100
    assert limited_memory.evaluations(small_problem, optimum, at_most=3) is None
    found = limited_memory.counted(small_problem, optimum, {"method": "danl:curvature=diag"}, 200)
    assert found["reached"]
    assert found["gap"] <= limited_memory.GAP * 1.01
    assert found["curvature"] <= found["evaluations"] <= found["exchanges"] <= 200
    short = limited_memory.counted(small_problem, optimum, {"method": "danl:curvature=diag"}, 1)
    assert (short["reached"], short["status"], short["exchanges"]) == (False, "max_rounds", 2)
    assert short["gap"] > limited_memory.GAP


def test_quick_parts_of_hessians():
    rows = limited_memory.measure(quick=True)
    assert [(row["penalty"], row["method"]) for row in rows] == [
        (penalty, method) for penalty in limited_memory.PENALTIES for method in limited_memory.METHODS
    ]
    assert "| one-hot 300 x 20 | alpha 1e-3 |" in limited_memory.markdown(rows)
    json.dumps(rows, allow_nan=False)


def evaluated(method, count, refused=0, **other):
    row = {"data": "one", "penalty": "alpha 1", "method": method, "max_rounds": 1000, "bfgs": 20, "exchanges": 50}
    row["bfgs_more_pairs"] = 15
    row |= {"reached": True, "status": "stopped", "gap": 0.0, "evaluations": count, "curvature": 2, "refused": refused}
    return row | other


def test_parts_of_hessians_of_made_up_rows():
    rows = [evaluated("danl", 10, refused=1), evaluated("diag", 30, refused=10)]
    text = limited_memory.markdown(rows)
    assert "| one | alpha 1 | 20 | 15 | 10 (2) | 30 (2) |" in text
    assert "| one | alpha 1 | 0.500 x (2 %) | 1.50 x (20 %) |" in text
    assert [goal[1:] for goal in limited_memory.goals(rows)] == [
        ("0.500 x", "1.1 x", True),
        ("2.00 %", "10 %", True),
        ("1.50 x", "1.1 x", False),
        ("20.0 %", "10 %", False),
    ]
    assert [goal[3] for goal in limited_memory.goals(rows[:1])] == [True, True]


@pytest.mark.parametrize(("status", "ended"), [("max_rounds", ""), ("converged", " and has ended")])
def test_a_gap_that_is_not_reached_misses_the_bar(status, ended):
    rows = [evaluated("danl", 10), evaluated("diag", 1001, reached=False, gap=2e-9, status=status)]
    assert f"| 2.0e-09 after 1,001 (2){ended} |" in limited_memory.markdown(rows)
    assert limited_memory.goals(rows)[2][1:] == ("-, 1 not reached", "1.1 x", False)


# --- bits ---


def test_bits_are_those_of_the_replies_of_one_worker():
    X, y = limited_memory.one_hot(300, 4, 5)
    danls, newtons = bits.measure_one("tiny", X, y, methods=("danl", "newton"))
    problem = danl.Problem(danl.partition(X, y, workers=10, seed=0), alpha=bits.ALPHA)
    history = danl.solve(problem, method="newton", max_rounds=bits.MAX_ROUNDS).history
    assert newtons["all_bits"] == history.column("bytes_up").sum() * 8 / 10
    assert newtons["reached"]
    assert newtons["bits"] <= newtons["all_bits"]
    assert newtons["senders"] == 10 * newtons["exchanges"]
    assert danls["curve"]["bits"] == sorted(danls["curve"]["bits"])
    json.dumps([danls, newtons], allow_nan=False)


def bits_row(data, method, count, *, reached=True, gap=1e-16):
    row = {"data": data, "method": method, "bits": count, "all_bits": 2 * count, "reached": reached, "gap": gap}
    curve = {"bits": [1.0, 2.0], "gap": [1e-1, 1e-13]}
    return row | {"exchanges": 7, "all_exchanges": 9, "senders": 20, "status": "converged", "curve": curve}


def test_bits_of_made_up_rows(tmp_path):
    rows = [
        bits_row("a1a", "danl", 299_000.0),
        bits_row("a1a", "newton", 9e9),
        bits_row("phishing", "danl", 71_000.0),
        bits_row("other", "danl", 1.0),
    ]
    text = bits.markdown(rows)
    assert "On a1a:" in text
    assert "| `danl` | 2.99e5 (5.98e5) | 7 (9) | 20 |" in text
    assert [goal[1:] for goal in bits.goals(rows)] == [("2.99e5", "3.00e5", True), ("7.10e4", "7.00e4", False)]
    ((path, _),) = bits.plots(rows, tmp_path)
    assert path.stat().st_size > 1000


def test_a_gap_that_bits_do_not_reach_misses_the_bar():
    rows = [bits_row("a1a", "danl", 10.0, reached=False, gap=3e-9)]
    assert "| does not reach it in 2.00e1: gap 3.0e-09 |" in bits.markdown(rows)
    assert bits.goals(rows)[0][3] is False


# --- ending ---


def test_the_decrement_is_zero_at_the_optimum_alone(small_problem):
    best = danl.reference_optimum(small_problem).w
    assert ending.decrement(small_problem, best) < 1e-12 < ending.decrement(small_problem, best + 1e-3)


def test_a_default_run_is_watched_to_its_end(small_problem):
    row = ending.watched(small_problem)
    assert row["tol"] == 1e-8
    assert row["status"] == "converged"
    assert row["met"] + row["later"] == row["exchanges"]
    assert row["left"] <= row["tol"]
    assert ending.watched(small_problem, tol=1e-4)["exchanges"] < row["exchanges"]


def test_what_comes_after_the_tolerance_is_counted(small_problem):
    history = danl.solve(small_problem, method="newton", tol=0.0, max_rounds=4).history
    found = ending.after(history, [1.0, 1e-3, 1e-11, 1e-12, 1e-13], 1e-10)
    assert (found["met"], found["later"], found["later_hessians"], len(found["why"])) == (3, 2, 2, 2)
    never = ending.after(history, [1.0] * 5, 1e-10)
    assert (never["met"], never["later"], never["later_hessians"], never["why"]) == (None, None, None, [])


def ending_row(met, exchanges, hessians=0):
    later = None if met is None else exchanges - met
    row = {"data": "one", "penalty": "alpha 1", "tol": 1e-10, "met": met, "own": met, "exchanges": exchanges}
    row |= {"later": later, "later_hessians": None if met is None else hessians, "why": []}
    return row | {"left": 2e-11, "status": "converged"}


def test_endings_of_made_up_rows():
    rows = [ending_row(5, 6), ending_row(5, 8, hessians=1)]
    assert "| one | alpha 1 | 1e-10 | 5 | 5 | 8 | 3 | 1 | 2.0e-11 | converged |" in ending.markdown(rows)
    assert [goal[1:] for goal in ending.goals(rows)] == [("3", "1", False), ("1", "0", False)]
    assert [goal[3] for goal in ending.goals(rows[:1])] == [True, True]
    assert [goal[1:] for goal in ending.goals([rows[0], ending_row(None, 9)])] == [
        ("1, 1 of 2 not met", "1", False),
        ("0, 1 of 2 not met", "0", False),
    ]


# --- the document ---


def test_the_document_has_these_parts(tmp_path):
    rows = {
        "shapes": [shape_row("binary, 4 x 2 dense", 0.2, 0.1, added=5_000_000)],
        "limited_memory": [evaluated("danl", 10)],
        "bits": [bits_row("a1a", "danl", 299_000.0)],
        "ending": [ending_row(5, 6)],
    }
    run = {name: {"quick": False, "seconds": 60.0, "environment": environment(), "rows": rows[name]} for name in rows}
    text = document.markdown(run, document.draw(run, tmp_path, "images/"))
    for name in rows:
        assert f"`python -m benchmarks {name}`" in text
    assert text.count("| yes |") == 8
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith(("|", "!"))] == []
