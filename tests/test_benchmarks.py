"""The machinery of the benchmarks on tiny and made-up data: what is counted, and what is made of it. Never a time."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks import (
    THREADS,
    certificates,
    document,
    growth,
    memory,
    network,
    parts,
    rounds,
    senders,
    speed,
    start,
    threads,
)
from benchmarks.__main__ import OTHERS, PARTS, main
from benchmarks.blocks import BLOCKS
from benchmarks.measure import (
    Contestant,
    Stamps,
    amount,
    digits,
    environment,
    exponent,
    geometric_mean,
    gradient_norm,
    last_decade,
    prose,
    race,
    sparse_problem,
    table,
)
from scipy.special import expit

import danl

pytestmark = pytest.mark.slow

# --- arithmetic ---


def test_geometric_mean():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([0.5]) == pytest.approx(0.5)
    assert math.isnan(geometric_mean([]))


def test_exponent_of_a_power_is_found_exactly():
    sizes = [10, 100, 1000, 10_000]
    assert exponent(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)
    assert exponent(sizes, [7.0] * 4) == pytest.approx(0.0, abs=1e-12)
    assert math.isnan(exponent([10], [1.0]))


def test_the_last_decade_is_where_what_does_not_grow_matters_least():
    sizes = [10, 30, 100, 1000, 3000, 10_000]
    values = [50 + size for size in sizes]
    kept = last_decade(sizes, values)
    assert kept == ([1000, 3000, 10_000], [1050, 3050, 10_050])
    assert exponent(sizes, values) < exponent(*kept) < 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0123456, "0.0123"),
        (1234.5, "1,234"),
        (99.96, "100.0"),
        (0, "0"),
        (2e-7, "2.00e-07"),
        (None, "-"),
        (3, "3.00"),
    ],
)
def test_digits(value, shown):
    assert digits(value) == shown


def test_amounts_and_tables():
    assert [amount(count) for count in (12, 3_400, 5.6e6, 7.89e9)] == ["12 B", "3.40 kB", "5.60 MB", "7.89 GB"]
    assert table(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
    assert max(map(len, prose("word " * 100 + "{n:g}", n=1e-3).splitlines())) <= 120


def test_gradient_norm_is_zero_at_the_optimum_alone():
    X, y = sparse_problem(200, 8, 3)
    problem = danl.Problem(danl.partition(X, y, workers=4, seed=0), alpha=1e-2, weighting="samples")
    best = danl.reference_optimum(problem).w
    assert gradient_norm(X, y, best, 1e-2) < 1e-12 < gradient_norm(X, y, best + 1e-3, 1e-2)


def test_made_up_rows_are_what_was_asked_for():
    X, y = sparse_problem(500, 40, 5)
    assert X.shape == (500, 40)
    assert set(np.diff(X.indptr)) == {5}
    assert X.has_canonical_format
    assert set(y) == {0.0, 1.0}


# --- the race ---


def test_a_race_is_run_in_turn_and_the_warm_up_does_not_count():
    order = []

    def contestant(name):
        def prepare():
            order.append(f"prepare {name}")
            return len(order)

        def run(prepared):
            order.append(f"run {name}")
            return prepared

        return Contestant(name, run, prepare, seconds=lambda result, _: float(result))

    timings = race([contestant("a"), contestant("b")], repeats=2, warm_up=1)
    runs = [entry.split()[1] for entry in order if entry.startswith("run")]
    assert runs == ["b", "a", "a", "b", "b", "a"]  # who begins changes
    assert order[0::2] == [entry.replace("run", "prepare") for entry in order[1::2]]
    assert {name: len(timing.seconds) for name, timing in timings.items()} == {"a": 2, "b": 2}
    assert timings["a"].best == min(timings["a"].seconds) == 5.0
    assert timings["a"].result == 11


def test_stamps_tell_the_kinds_of_exchange_apart():
    stamps = Stamps()
    stamps.begun, stamps.times = 0.0, [1.0, 3.0, 6.0, 10.0]
    stamps.kinds = ["hessian", "gradient", "hessian", "gradient"]
    assert stamps.first == 1.0
    assert stamps.spans("gradient") == [2.0, 4.0]
    assert rounds.mean_round(stamps) == 3.0


def test_stamps_are_a_callback_of_solve():
    X, y = sparse_problem(100, 8, 3)
    problem = danl.Problem(danl.partition(X, y, workers=10, seed=0), alpha=1e-3)
    stamps = rounds.run(problem, 4)
    assert len(stamps.spans("gradient")) == 4
    assert stamps.kinds[0] == "hessian"


# --- speed ---


def newton(X, y, tol):
    """A peer that goes on until its own gradient is below its tolerance times ten."""
    w, rows = np.zeros(X.shape[1]), len(y)
    for _ in range(50):
        p = expit(X @ w)
        gradient = X.T @ (p - y) / rows + speed.ALPHA * w
        if np.linalg.norm(gradient) <= 10 * tol:
            break
        weights = (p * (1 - p) / rows)[:, None]
        dense = X if isinstance(X, np.ndarray) else X.toarray()
        w = w - np.linalg.solve(dense.T @ (weights * dense) + speed.ALPHA * np.eye(len(w)), gradient)
    return w


def never(X, y, tol):
    return np.full(X.shape[1], tol)


@pytest.fixture(scope="module")
def speed_rows():
    X, y = sparse_problem(300, 12, 4)
    return speed.measure_one("tiny", X, y, repeats=1, peers={"newton": newton, "never": never})


def test_the_loosest_tolerance_that_reaches_the_norm_is_found():
    X, y = sparse_problem(300, 12, 4)

    def fit(_X, _y, tol):
        return newton(X, y, 1e-13) if tol <= 1e-4 else np.zeros(12)

    found = speed.search(fit, X, y)
    assert found.tol == pytest.approx(1e-4)
    assert found.norm <= speed.NORM
    lost = speed.search(never, X, y)
    assert lost.tol is None
    assert lost.norm > speed.NORM
    assert len(speed.GRID) == 27
    assert (speed.GRID[0], speed.GRID[-1]) == pytest.approx((1e-1, 1e-14))


def test_everyone_is_held_to_the_true_norm(speed_rows):
    by_solver = {(row["solver"], row["given"]): row for row in speed_rows}
    assert set(by_solver) == {
        *((label, "10 shards") for label in ("danl", "danl, again", "danl, monitor=False")),
        *((peer, form) for peer in ("newton", "never") for form in ("CSR", "dense")),
    }
    for (solver, _), row in by_solver.items():
        assert row["reaches"] == (row["norm"] <= speed.NORM) == (solver != "never")
        assert (row["seconds"] is None) == (solver == "never")
    json.dumps(speed_rows, allow_nan=False)


def test_what_is_judged_is_the_default_call(speed_rows):
    assert speed.CALLS["danl"] == {}
    own = {row["solver"]: row for row in speed_rows if row["solver"].startswith("danl")}
    assert {row["tol"] for row in own.values()} == {1e-8}
    assert len({row["exchanges"] for row in own.values()}) == 1  # the monitor changes nothing


def test_a_peer_that_does_not_reach_it_is_shown_with_its_norm(speed_rows):
    text = speed.markdown(speed_rows)
    norm = next(row["norm"] for row in speed_rows if row["solver"] == "never")
    assert f"| never | CSR | does not reach it ({norm:.1e}) |" in text
    assert "| newton | CSR | does not" not in text


def made_up(data, solver, given, seconds, norm=1e-10):
    row = {"data": data, "solver": solver, "given": given, "seconds": seconds, "norm": norm, "tol": 1e-9}
    return {**row, "reaches": norm <= speed.NORM, "repeats": 9, "exchanges": 9, "hessians": 3}


MADE_UP = [
    made_up("one", "danl", "10 shards", 0.010),
    made_up("one", "quick but wrong", "CSR", 0.001, norm=1e-8),
    made_up("one", "right", "CSR", 0.020),
    made_up("one", "right", "dense", 0.005),
    made_up("two", "danl", "10 shards", 0.040),
    made_up("two", "right", "CSR", 0.005),
    made_up("three", "danl", "10 shards", 0.040),
    made_up("three", "quick but wrong", "CSR", 0.001, norm=1e-8),
]


def test_ratios_are_to_the_fastest_peer_that_reaches_it():
    assert speed.ratios(MADE_UP) == pytest.approx({"one": 2.0, "two": 8.0})
    assert speed.ratios(MADE_UP, forms=("CSR",)) == pytest.approx({"one": 0.5, "two": 8.0})
    text = speed.markdown(MADE_UP)
    assert "| danl to peers given CSR | 0.500 x | 8.00 x | - | 2.00 x |" in text
    assert "| fastest peer | right, dense | right, CSR | - |  |" in text
    assert "| right | CSR | 20.0 ms | 5.00 ms | not tried |" in text
    assert "| danl | 10 shards | 10.0 ms (1.0e-10) | 40.0 ms (1.0e-10) | 40.0 ms (1.0e-10) |" in text
    assert [goal[1:] for goal in speed.goals(MADE_UP)] == [("4.00 x", "0.5 x", False), ("8.00 x", "0.8 x", False)]


@pytest.mark.parametrize(
    ("bare", "shown", "met"), [(0.0099, "1.0 %", True), (0.009, "10.0 %", False), (1, "0.0 %", True)]
)
def test_the_share_of_the_monitor_is_what_a_run_without_it_saves(bare, shown, met):
    rows = [made_up("one", "danl", "10 shards", 0.010), made_up("one", speed.BARE, "10 shards", bare)]
    assert speed.goals(rows)[2][1:] == (shown, "5 %", met)
    assert f"| the monitor's share | {shown} |  |" in speed.markdown(rows)


def test_a_solver_of_ours_that_does_not_reach_it_has_no_ratio():
    rows = [made_up("one", "danl", "10 shards", 0.001, norm=1e-3), made_up("one", "right", "CSR", 1.0)]
    assert speed.ratios(rows) == {}
    assert [goal[1:] for goal in speed.goals(rows)] == [
        ("-, and does not reach it on one", "0.5 x", False),
        ("-, and does not reach it on one", "0.8 x", False),
    ]
    assert speed.goals(rows[1:]) == []
    assert "| danl | 10 shards | does not reach it (1.0e-03) |" in speed.markdown(rows)


# --- the other parts, small ---


def test_rounds():
    X, y = sparse_problem(200, 12, 4)
    row = rounds.measure_one("a9a", X, y, rounds=3, repeats=1)
    assert row["rounds"] == 3
    assert row["entries"] == X.nnz
    assert np.isfinite([row["round"], row["bare"], row["whole"]]).all()
    row |= {"round": 0.006, "bare": 0.002, "whole": 0.004}
    assert "| 2.00 ms | 4.00 ms | 6.00 ms | 3.00 x | 1.50 x |" in rounds.markdown([row])
    assert rounds.goals([row]) == [("masked round over a bare gradient, a9a", "3.00 x", "2 x", False)]


def test_growth():
    sweeps = (
        growth.Sweep("workers", "workers", (4, 8), rows=100, features=12, entries=4),
        growth.Sweep("features", "features", (8, 16), rows=100, entries=4),
    )
    rows = growth.measure(quick=True, sweeps=sweeps)
    assert [(row["sweep"], row["size"], row["workers"], row["features"]) for row in rows] == [
        ("workers", 4, 4, 12),
        ("workers", 8, 8, 12),
        ("features", 8, 10, 8),
        ("features", 16, 10, 16),
    ]
    assert all(row["round"] > 0 and row["hessian"] > 0 for row in rows)
    assert "Against workers, with 100 rows, 12 features, 4 entries a row:" in growth.markdown(rows)


def growth_rows():
    shape = {"rows": 1000, "features": 50, "entries": 10, "workers": 10, "rounds": 5, "repeats": 2}
    return [
        {**shape, "sweep": "workers", "what": "workers", "size": size, "workers": size}
        | {"round": 1e-3 * size**0.5, "masked": 1e-3, "few": 2e-3, "hessian": 1e-4 * size}
        for size in (10, 100, 1000)
    ]


def test_exponents_and_growth_of_made_up_rows():
    rows = growth_rows()
    assert growth.exponents(rows, "round") == pytest.approx((0.5, 0.5))
    assert growth.exponents(rows, "hessian") == pytest.approx((1.0, 1.0))
    text = growth.markdown(rows)
    shape = "1,000 rows, 50 features, 10 entries a row"
    assert f"| workers | {shape} | 10 to 1,000 | round, full masks | 10.0 x | 0.50 | 0.50 |" in text
    assert growth.goals(rows) == [
        ("time of a round, full masks, 10 to 1,000 workers, 1,000 rows", "10.0 x", "3 x", False),
        ("time of a round, masked, 10 to 1,000 workers, 1,000 rows", "1.00 x", "3 x", True),
        ("time of a round that asks a few, 10 to 1,000 workers, 1,000 rows", "1.00 x", "3 x", True),
    ]


def test_network():
    X, y = sparse_problem(200, 12, 4)
    methods = {name: {"method": name} for name in ("newton", "gd")}
    rows = network.measure_one("tiny", X, y, max_rounds=12, methods=methods)
    assert [(row["network"], row["method"], row["reached"]) for row in rows] == [
        ("slow", "newton", True),
        ("slow", "gd", False),
        ("fast", "newton", True),
        ("fast", "gd", False),
    ]
    slow, fast = rows[0], rows[2]
    assert slow["exchanges"] == fast["exchanges"] == slow["hessians"]
    assert slow["bytes"] == fast["bytes"]
    assert slow["seconds"] > fast["seconds"] > 0
    assert slow["seconds_with_latency"] == pytest.approx(slow["seconds"] + 0.1 * slow["exchanges"])
    text = network.markdown(rows)
    assert f"| `gd` | does not reach it in 13: gap {rows[1]['gap']:.1e} |" in text
    assert f"| `newton` | {slow['exchanges']} | {slow['hessians']} |" in text
    json.dumps(rows, allow_nan=False)


def test_a_gap_counts_from_where_it_stays():
    gaps = [1.0, 1e-9, 1e-3, 1e-9, 1e-10]
    rows = [danl.Row(*[0] * 19) for _ in gaps]
    for row, gap in zip(rows, gaps, strict=True):
        object.__setattr__(row, "gap", gap)
    assert network.reached(danl.History(rows)) == 3
    assert network.reached(danl.History(rows[:3])) is None


def test_memory_in_a_process_of_its_own():
    row = memory.in_process({"kind": "rounds", "rounds": 6})
    assert row["exchanges"] == 7
    assert row["peak"] >= row["base"] > 10e6
    assert 7 * 300 < row["history"] < 7 * 5000


def memory_rows():
    one = {"kind": "dense-shards", "rows": 10, "columns": 5, "data": 100, "empty": 50, "base": 150, "peak": 170}
    runs = [
        {"kind": "rounds", "rounds": n, "exchanges": n + 1, "base": 1000, "peak": 1000 + n, "history": n // 2}
        for n in (100, 5000)
    ]
    sweep = [
        {"kind": "sweep", "what": "features", "size": d, "features": d, "workers": 10, "rows": 100}
        | {"data": 10**6, "base": 10**7, "peak": 10**7 + 80 * d * d}
        for d in (100, 1000)
    ]
    return [{**one, "status": "converged"}, *runs, *sweep]


def test_memory_of_made_up_rows():
    text = memory.markdown(memory_rows())
    assert "| shards that are there | 10 x 5 | 100 B | 120 B | 1.20 x | 20 B | converged |" in text
    assert "A run of 5,001 exchanges peaks 4.90 kB higher than one of 101" in text
    assert "2.45 kB of it by their sizes, which leaves 2.45 kB." in text.replace("\n", " ")
    assert "exponent 2.0 over all, 2.0 over the last decade" in text
    assert "| over 8 d^2 | 10.0 x | 10.0 x |" in text


def threads_rows():
    seconds = {threads.OWN: 0.8, "DANLClassifier": 0.9} | dict.fromkeys(threads.PEERS, 1.0)
    return [{"data": "a9a", "solver": name, "one": 1.2, "two": two, "cores": 2} for name, two in seconds.items()]


def test_threads():
    text = threads.markdown(threads_rows())
    assert "| a9a | danl.solve | 1,200 ms | 800 ms | 1.50 x |" in text
    assert threads.goals(threads_rows()) == [
        ("two threads over one, a9a: the best peer's gain over danl's", "0.800 x", "1 x", True)
    ]


@pytest.mark.slow
def test_threads_are_those_of_the_children():
    pytest.importorskip("glum")
    rows = threads.measure(quick=True, data=())
    assert [row["solver"] for row in rows] == [threads.OWN, "DANLClassifier", *threads.PEERS]
    assert {row["data"] for row in rows} == {"dense, 2,000 x 10"}
    assert all(row["one"] > 0 and row["two"] > 0 for row in rows)


def test_parts_of_other_commits_are_named():
    run = a_run()
    run["threads"]["environment"] = run["threads"]["environment"] | {"commit": "commit 1234567"}
    assert document.commits_of(run)[1:] == ["threads with commit 1234567"]


def start_rows():
    seconds = dict.fromkeys(start.COMMANDS, 0.2) | {"danl --version": 0.05}
    cpu = dict.fromkeys(start.COMMANDS, 0.15) | {start.BARE: 0.01, start.FIT: 0.4}
    processes = [
        {"kind": "process", "what": what, "seconds": value, "cpu": cpu[what], "repeats": 3}
        for what, value in seconds.items()
    ]
    return [
        *processes,
        {"kind": "imports", "what": "import danl", "packages": []},
        {"kind": "reading", "what": "a9a", "bytes": 2_000_000, "danl": 0.03, "scikit_learn": 0.12, "repeats": 3},
    ]


def test_start():
    text = start.markdown(start_rows())
    assert "| command | time | over the first | CPU beyond the interpreter |" in text
    assert "| `danl --version` | 50.0 ms | 0.250 x | 140 ms |" in text
    assert "| `danl fit a1a` | 200 ms | 1.00 x | 390 ms |" in text
    assert "| a9a | 2.00 MB | 30.0 ms | 120 ms | 0.250 x |" in text
    assert [goal[3] for goal in start.goals(start_rows())] == [True, True, True, True]


def test_start_of_a_slow_fit_and_a_heavy_import():
    rows = [row | {"cpu": 0.6} if row["what"] == start.UNPINNED else row for row in start_rows()]
    rows = [row | {"packages": ["numpy", "scipy"]} if row["kind"] == "imports" else row for row in rows]
    _, fit, imports, _ = start.goals(rows)
    assert fit == ("`danl fit a1a`, CPU seconds beyond the interpreter", "0.59 s", "0.5 s", False)
    assert imports == ("third-party packages of `import danl`", "numpy, scipy", "numpy", False)


def test_start_of_rows_without_processor_time():
    """Those of a document that was made before it was measured."""
    rows = [{name: value for name, value in row.items() if name != "cpu"} for row in start_rows()]
    assert "| command | time | over the first |\n" in start.markdown(rows)
    assert "CPU" not in " ".join(goal[0] for goal in start.goals(rows))


@pytest.mark.slow
def test_the_processes_of_start_are_measured(monkeypatch):
    monkeypatch.setattr(start, "COMMANDS", {name: start.COMMANDS[name] for name in (start.BARE, start.FIT)})
    bare, fit, imports = start.measure(quick=True, data=())
    assert fit["cpu"] > bare["cpu"] > 0
    assert set(imports["packages"]) <= {"numpy"}


def test_reading_is_raced_on_a_file(tmp_path):
    path = tmp_path / "x"
    path.write_text("1 1:0.5\n-1 2:1\n")
    found = start.reading(path, repeats=1)
    assert found["bytes"] == 15
    assert np.isfinite([found["danl"], found["scikit_learn"]]).all()


# --- certificates ---


@pytest.fixture(scope="module")
def certified_runs():
    return {run: certificates.Verdict.of(certificates.certified(run)) for run in certificates.runs()}


def test_48_runs_are_certified_and_violate_no_theorem_that_applies(certified_runs):
    assert len(certified_runs) == 48
    assert not [run for run, verdict in certified_runs.items() if verdict.violated]
    assert sum(verdict.inexact for verdict in certified_runs.values()) >= 12
    assert all(verdict.applies for run, verdict in certified_runs.items() if run.method not in certificates.ALGORITHM_1)
    printed = [verdict for verdict in certified_runs.values() if verdict.printed_applies]
    assert any(verdict.printed_violated for verdict in printed)
    text = certificates.report(certified_runs)
    assert text.startswith("48 runs, 0 of them violate a theorem that applies.\n\n| runs of | runs |")
    assert text.splitlines()[-1].startswith("| all | 48 | ")


def test_a_violated_theorem_is_counted_and_is_the_status(capsys, monkeypatch):
    run = certificates.Run("squared", 1e2, "danl", "full")
    broken = certificates.Verdict(True, False, True, False, False)
    monkeypatch.setattr(certificates, "runs", lambda: iter([run]))
    monkeypatch.setattr(certificates.Verdict, "of", lambda certificate: broken)
    assert certificates.main([]) == 1
    shown = capsys.readouterr().out
    assert "1 runs, 1 of them violate a theorem that applies." in shown
    assert "| all | 1 | 1 | 0 | 1 | 0 | 0 |" in shown
    assert "violated: Run(loss='squared', alpha=100.0, method='danl'" in shown


# --- senders ---


def test_quick_senders_print_the_table_and_miss_no_bar(capsys):
    assert senders.main(["--quick"]) == 0
    shown = capsys.readouterr()
    lines, (first, second) = shown.out.splitlines(), senders.headers()
    assert lines[0] == f"| {' | '.join(first)} |"
    assert [line.split(" | ")[:2] for line in lines[2:5]] == [[f"| {penalty}", "a1a"] for penalty in senders.PENALTIES]
    assert "not in" not in shown.out
    assert second[-1] not in shown.out  # the many workers are left out
    assert lines[-1].startswith("Measured with danl ")
    assert shown.err == ""


def test_a_missed_bar_of_senders_is_printed_and_is_the_status(capsys, monkeypatch):
    bars = {("alpha 1e-3", senders.TWO): {"a1a": 1e-3}, ("alpha 1e-4", "danl"): {"a1a": 1e3, "a9a": 0.0}}
    monkeypatch.setattr(senders, "BARS", bars)
    assert senders.main(["--quick"]) == 1
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    assert line.startswith(f"missed: alpha 1e-3, a1a, {senders.TWO}: ")
    assert line.endswith(" MB, above 0.001")
    assert shown.out.startswith("| penalty | data |")


def test_many_workers_that_do_not_converge_are_missed(capsys, monkeypatch):
    X, y = sparse_problem(300, 8, 3)
    monkeypatch.setattr(senders, "DATA", ())
    monkeypatch.setattr(senders.danl, "load_dataset", lambda name: SimpleNamespace(X=X, y=y))
    monkeypatch.setattr(senders, "MANY", 150)
    assert senders.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"| {' | '.join(senders.headers()[1])} |" in lines
    assert sum(" | converged | " in line for line in lines) == 9
    monkeypatch.setattr(senders, "MANY_ROUNDS", 1)
    assert senders.main([]) == 1
    missed = capsys.readouterr().err.splitlines()
    assert missed[0] == "missed: 150 workers, alpha 1e-3, seed 0: max_rounds"
    assert len(missed) == 9


# --- the document ---


def a_run():
    where = environment()
    rows = {
        "speed": MADE_UP,
        "growth": growth_rows(),
        "threads": threads_rows(),
        "memory": memory_rows(),
        "start": start_rows(),
    }
    run = {name: {"quick": False, "seconds": 60.0, "environment": where, "rows": own} for name, own in rows.items()}
    return json.loads(json.dumps(run, allow_nan=False))


def test_the_document_is_made_of_rows_alone(tmp_path):
    run = a_run()
    images = document.draw(run, tmp_path, "images/")
    text = document.markdown(run, images)
    for name in run:
        assert f"## {parts.part(name).TITLE}\n\n`python -m benchmarks {name}`" in text
        for path, _ in images[name]:
            assert f"]({path})" in text
            assert (tmp_path / path.removeprefix("images/")).stat().st_size > 1000
    assert "| `danl --version` over a bare `import numpy` | 0.250 x | 2 x | yes |" in text
    assert "0.5 x | **no** |" in text
    assert "The run took 5 minutes." in text.replace("\n", " ")
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith(("|", "!"))] == []


def test_quick_rows_do_not_get_into_the_document(tmp_path, capsys):
    run = a_run()
    run["speed"]["quick"] = True
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(run))
    with pytest.raises(SystemExit):
        document.main(["--from-json", str(path), "--docs"])
    assert "takes no quick rows" in capsys.readouterr().err
    assert document.main(["--from-json", str(path)]) == 0
    assert capsys.readouterr().out.startswith("# Benchmarks\n")


def test_the_document_that_is_there_is_that_of_its_rows(tmp_path):
    run = json.loads(document.ROWS.read_text(encoding="utf-8"))
    assert set(run) == set(PARTS)
    images = document.draw(run, tmp_path, "images/")
    assert document.DOCUMENT.read_text(encoding="utf-8") == document.markdown(run, images)
    for own in images.values():
        for path, _ in own:
            assert (document.DOCUMENT.parent / path).exists()


def test_the_table_of_the_readme_is_that_of_the_rows():
    run = json.loads(document.ROWS.read_text(encoding="utf-8"))
    assert BLOCKS["speed"].read() == document.speed_block(run)


def test_the_short_table_names_the_fastest_of_each_package(monkeypatch):
    monkeypatch.setattr(speed, "PEERS", {"right one": newton, "right two": newton, "lost": never})
    rows = [
        made_up("a", "danl", "10 shards", 0.010),
        made_up("a", "right one", "CSR", 0.030),
        made_up("a", "right one", "dense", 0.020),
        made_up("a", "right two", "CSR", 0.025),
        made_up("a", "lost", "CSR", 0.001, norm=1e-8),
    ]
    danl_line, right, lost = speed.short_table(rows).splitlines()[2:]
    assert danl_line == "| danl's defaults, 10 shards | 10.0 ms |"
    assert right == "| right, pooled | 20.0 ms (one, dense) |"
    assert lost == "| lost, pooled | not reached |"


def test_a_part_shows_the_rows_it_reads(tmp_path, capsys):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"rows": growth_rows()}))
    assert parts.main("growth", ["--from-json", str(path), "--plots", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == growth.markdown(growth_rows())
    assert (tmp_path / "bench-growth.png").exists()


def test_the_names_there_are(capsys, monkeypatch):
    for name in THREADS:
        monkeypatch.setenv(name, "1")  # put back afterwards
    documents = {"all", "readme", "convergence", "reproduction", "ray", "structured", "method", "fleets", "tree"}
    assert set(OTHERS) == documents | {
        "certify",
        "compressed",
        "fednl",
        "field",
        "flower",
        "senders",
        "walk",
        "recorded",
        "versions",
    }
    for name in (*OTHERS, *PARTS):
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        assert f"python -m benchmarks {name}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2


@pytest.mark.slow
def test_two_versions_take_turns(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)
    for name in THREADS:
        monkeypatch.setenv(name, "1")  # put back afterwards
    own = str(Path(danl.__file__).parents[1])
    assert main(["versions", own, "--repeats", "1", "--like", "one by one"]) in (0, 1)  # by the times of this machine
    shown = capsys.readouterr().out
    assert shown.count("a1a: danl, one by one") == 1
    assert "geometric mean" in shown
    with pytest.raises(SystemExit, match="has no danl"):
        main(["versions", str(tmp_path)])


def test_the_environment_says_how_many_threads():
    where = environment()
    assert set(where["threads"]) == set(THREADS)
    assert where["versions"]["danl"] == danl.__version__
    assert all(pool["num_threads"] >= 1 for pool in where["pools"])
