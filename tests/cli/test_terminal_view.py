"""`danl fit --live`: a view that fits any terminal, plain lines elsewhere, and an honest word on what is left."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import danl
from danl.cli import terminal_view as module
from danl.cli.chart import AXIS, HESSIAN, MOST_BINS, REFUSED, BinnedSeries, curve_lines, matrix
from danl.cli.forecast import Observation, duration, forecast
from danl.cli.terminal_view import STOP_HINT, TerminalView
from danl.wording import FLOOR, gap_text
from tests.cli.shell import run
from tests.problems import random_problem

ROW = danl.Row(
    exchange=3, kind="gradient", active=4, failed=0, min_coverage=1, max_staleness=1, min_trained=3, pruning_error=0.0,
    objective=0.5, gap=math.nan, grad_norm=1e-2, step_norm=0.1, model_norm=1.0, distance=math.nan, bytes_up=1500,
    bytes_down=2500, seconds=0.1, simulated_seconds=math.nan, coverage=(2, 1, 1),
)  # fmt: skip


@pytest.fixture
def screen():
    options = {"force_terminal": True, "color_system": "truecolor", "highlight": False, "legacy_windows": False}
    return Console(width=80, height=24, record=True, file=io.StringIO(), **options)


def watched(target, *, policy="coverage:psi=2", reference=True, tol=1e-10, **arguments):
    """A view that has seen a whole run."""
    problem, trace = random_problem(alpha=1e-6, seed=2), danl.Trace(newest=1)
    view = TerminalView(target, "four workers, three regions", "danl", 40, tol, trace)
    known = danl.reference_optimum(problem) if reference else None
    settings = {"regions": 3, "policy": policy, "max_rounds": 40, "tol": tol, "reference": known} | arguments
    result = danl.solve(problem, w0=np.full(7, 3.0), callback=view, trace=trace, **settings)
    return view, result


@pytest.mark.parametrize("reference", [True, False])
@pytest.mark.parametrize("size", [(80, 24), (50, 20), (120, 50), (40, 9), (20, 4), (10, 2), (1, 1)])
def test_it_fits(screen, size, reference):
    view, _ = watched(screen, reference=reference)
    width, height = size
    lines = view.lines(width, height - 1)
    assert 1 <= len(lines) <= max(height - 1, 1)
    assert max(line.cell_len for line in lines) <= width


def test_what_it_shows(screen):
    view, result = watched(screen)
    text = [line.plain for line in view.lines(80, 23)]
    last = result.history[-1]
    assert text[0] == "four workers, three regions"
    assert text[1].startswith(f"danl  round {last.exchange}/40")
    assert f"gap {gap_text(last.gap, '.2e', last.objective)}" in text[2]
    assert f"|grad| {last.grad_norm:.2e}" in text[2]
    history = result.history
    marks = next(line for line in text if set(line.strip()) <= set("Hx# ") and "H" in line)[AXIS + 1 :]
    for row, mark in zip(history, marks.ljust(len(history)), strict=True):
        assert mark == {(0, 0): " ", (1, 0): "H", (0, 1): "x", (1, 1): "#"}[row.kind == "hessian", row.refused]
    counts = next(line for line in text if " up, " in line)
    hessians, refused = np.sum(history.column("kind") == "hessian"), history.column("refused").sum()
    assert f"{hessians} with Hessians  {refused} refused  0 replies missing" in counts
    assert text[-1] == STOP_HINT


def test_without_a_trace_the_workers_on_each_region_are_counted(screen):
    """As over a federation's sites, where only the rows come here."""
    view = TerminalView(screen, "title", "danl", 40, 1e-10)
    view(ROW)
    assert "workers on each region: 2 1 1" in [line.plain for line in view.lines(80, 23)]


def test_the_matrix_is_of_the_newest_exchange_that_trained_something(screen):
    trace = danl.Trace(newest=1)
    trace.begin(4, 3)
    view = TerminalView(screen, "title", "danl", 40, 1e-10, trace)
    zeros, ones = np.zeros(4, dtype=np.int64), np.ones(4, dtype=np.int8)
    trace.note(3, ones, np.eye(4, 3, dtype=bool), zeros, zeros)
    view(ROW)
    trace.note(4, ones, np.zeros((4, 3), dtype=bool), zeros, zeros)
    view(replace(ROW, exchange=4, kind="loss"))
    text = [line.plain for line in view.lines(80, 23)]
    assert "exchange 3: █ trained, · not, x no answer, blank not asked" in "\n".join(text)
    assert " 1 · █ · ·  1" in text


def test_before_the_first_exchange(screen):
    view = TerminalView(screen, "title", "danl", 40, 1e-10)
    assert [line.plain for line in view.lines(80, 23)] == ["title", "waiting for the workers"]


def test_without_a_reference_the_curve_is_the_gradient_norm(screen):
    view, _ = watched(screen, reference=False)
    text = "\n".join(line.plain for line in view.lines(80, 23))
    assert "|grad|, log scale: H Hessians, x step refused, # both" in text
    assert "gap" not in text


def test_on_a_terminal_it_is_drawn_and_the_last_frame_stays(screen):
    problem, trace = random_problem(), danl.Trace()
    with TerminalView(screen, "title", "danl", 9, 1e-10, trace) as view:
        danl.solve(problem, regions=3, policy="coverage:psi=2", max_rounds=9, callback=view, trace=trace)
    shown = screen.export_text()
    assert "title" in shown
    assert "regions x 4 workers, exchange" in shown
    last = shown[shown.rindex("title") :]
    assert STOP_HINT not in last  # it is over
    assert "to decrement" not in last


def test_colour_is_never_the_only_sign(screen):
    trained = np.array([[True, False], [False, False], [False, False], [True, True]])
    asked = np.array([1, 1, 2, 0], dtype=np.int8)
    lines = [line.plain for line in matrix(trained[:3], asked[:3], 40, 5)]
    assert lines == [" 0 █ · x  1", " 1 · · x  0"]
    assert [line.plain for line in matrix(trained[:3], asked[:3], 40, 5, plain=True)] == [
        " 0 # . x  1",
        " 1 . . x  0",
    ]
    bright = matrix(trained[:3], asked[:3], 40, 5)[0].get_style_at_offset(Console(), 3)
    assert (bright.color.name, bright.dim) == ("green", None)  # and the labels are dim, not what they are of
    assert matrix(trained[3:], asked[3:], 40, 5)[0].plain == " 0    1"  # not asked: blank


@pytest.mark.parametrize(("workers", "regions"), [(10, 4), (300, 4), (10_000, 100), (1, 1)])
@pytest.mark.parametrize(("width", "height"), [(80, 8), (30, 3)])
def test_many_workers_are_condensed(workers, regions, width, height):
    rng = np.random.default_rng(0)
    trained, asked = rng.random((workers, regions)) < 0.5, np.ones(workers, dtype=np.int8)
    lines = matrix(trained, asked, width, height)
    assert len(lines) == min(height, regions)
    assert max(line.cell_len for line in lines) <= width


def test_shares_of_several_workers():
    trained = np.repeat(np.array([True, False, True, False, True, False]), [30, 30, 10, 20, 25, 5])[:, None]
    line = matrix(trained, np.ones(120, dtype=np.int8), 11, 1)[0].plain  # 4 cells of 30 workers
    assert line == " 0 █·▒▓  65"


def test_the_curve_is_on_a_log_scale():
    course = BinnedSeries()
    for exponent in range(0, -9, -1):
        course.add(10.0**exponent, HESSIAN if exponent == 0 else 0)
    lines = [line.plain for line in curve_lines(course, 40, 1)]
    assert lines == ["  1e+00 █▇▆▅▄▃▂▁▁", "        H        "]
    tall = [line.plain[AXIS + 1 :] for line in curve_lines(course, 40, 8)]
    assert [sum(row[column] == "█" for row in tall[:8]) for column in range(9)] == [8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert [line.plain[:AXIS].strip() for line in curve_lines(course, 40, 8)[:8:7]] == ["1e+00", "1e-08"]


def test_values_that_are_not_known_and_gaps_below_zero():
    course = BinnedSeries()
    for value in (1.0, math.nan, 10 * FLOOR, -1e-17, 0.0, math.inf):
        course.add(value)
    assert curve_lines(course, 40, 1)[0].plain == "  1e+00 █ ▁▁▁█"
    empty = BinnedSeries()
    empty.add(math.nan)
    assert len(curve_lines(empty, 40, 3)) == 4


def test_long_runs_stay_small_and_lose_no_mark():
    course = BinnedSeries()
    for exchange in range(5 * MOST_BINS):
        course.add(1.0 / (1 + exchange), REFUSED if exchange == 777 else 0)
    columns = course.columns(60)
    assert len(columns) <= 60
    assert sum(each.marks == REFUSED for each in columns) == 1
    assert columns[-1].value == 1.0 / (5 * MOST_BINS)
    assert len(course._bins) <= MOST_BINS


def test_a_terminal_without_blocks_gets_letters(screen):
    view, _ = watched(screen)
    assert all(line.plain.isascii() for line in view.lines(80, 23, plain=True))


# How far it is.


def seen(norms, pace=0.5):
    return [Observation(norm, pace * index) for index, norm in enumerate(norms)]


@pytest.mark.parametrize(
    ("norms", "tol", "left", "said"),
    [
        ([], 1e-8, 90, "unclear"),
        ([1.0, 0.1], 1e-8, 90, "unclear"),
        ([10.0**-k for k in range(5)], 1e-8, 90, "about 4 exchanges, 2.0 s"),
        ([10.0 ** (-k / 2) for k in range(9)], 1e-10, 90, "about 12 exchanges, 6.0 s"),
        ([10.0**-k for k in range(5)], 1e-8, 3, "about 4 exchanges, more than the 3 left"),
        ([1.0, 1.1, 0.9, 1.2, 1.0, 0.8, 1.3], 1e-8, 90, "unclear: it does not fall steadily"),
        ([1e-3] * 9, 1e-8, 90, "unclear: it does not fall steadily"),
        ([0.999**k for k in range(20)], 1e-8, 90, "unclear: it falls too slowly to tell"),
        ([10.0**k for k in range(9)], 1e-8, 90, "unclear: it does not fall steadily"),
        ([math.nan] * 9, 1e-8, 90, "unclear"),
        ([1.0, 1e-9], 1e-8, 90, "reached; the workers have the last word"),
        ([1.0, 0.5, 0.25], 0.0, 40, "no tolerance; 40 exchanges left, 20 s"),
    ],
)
def test_forecasts(norms, tol, left, said):
    assert forecast(seen(norms), tol=tol, left=left) == said


@pytest.mark.parametrize("falls", [[1e-3] * 9, [0.999**k for k in range(20)], [1.0, 1.1, 0.9, 1.2, 1.0, 0.8, 1.3]])
def test_60_columns_have_room_for_what_is_unclear(screen, falls):
    view = TerminalView(screen, "title", "gd", 10_000, 1e-10)
    for exchange, norm in enumerate(falls):
        view(replace(ROW, exchange=exchange, decrement=norm))
    (reported,) = [line.plain for line in view.lines(60, 23) if line.plain.startswith("to decrement 1e-10: unclear: ")]
    assert "…" not in reported


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.04, "0.0 s"), (9.96, "10.0 s"), (12.4, "12 s"), (60, "1 min 0 s"), (185.2, "3 min 5 s"), (7800, "2 h 10 min")],
)
def test_durations(seconds, said):
    assert duration(seconds) == said


# Without a terminal.


def test_plain_lines_at_a_bounded_rate(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    target = Console(width=80)
    with TerminalView(target, "title", "danl", 1000, 1e-10) as view:
        for exchange in range(1000):
            clock[0] += 0.01
            view(replace(ROW, exchange=exchange))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "danl  round 0/1000  gradient  |grad| 1.00e-02  1.5 kB up, 2.5 kB down  0.0 s"
    assert lines[-1].startswith("danl  round 999/1000")
    assert 15 <= len(lines) <= 25  # ten seconds, half a second between two


def test_a_slow_run_says_something_at_least_every_ten_seconds(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    with TerminalView(Console(width=80), "title", "danl", 5, 1e-10) as view:
        for exchange in range(4):
            view(replace(ROW, exchange=exchange))
            clock[0] += 11
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_as_a_command_without_a_terminal(capsys):
    ended = run(
        capsys, "fit", "a1a", "--rounds", "30", "--policy", "coverage:psi=3", "--live", "--json", "--method", "gd"
    )
    assert ended.status == 0
    assert ended.json["exchanges"] == 31
    lines = [line for line in ended.err.splitlines() if line.startswith("gd  round ")]
    assert lines[0].startswith("gd  round 0/30  smoothness  |grad| ")
    assert lines[-1].startswith("gd  round 30/30")
    assert "\x1b" not in ended.err


def test_live_changes_nothing(capsys):
    words = ("fit", "a1a", "--rounds", "5", "--policy", "coverage:psi=3", "--json")
    assert run(capsys, *words, "--live").json["w_sha256"] == run(capsys, *words).json["w_sha256"]


def test_live_and_quiet_are_refused_together(capsys):
    ended = run(capsys, "fit", "a1a", "--live", "--quiet")
    assert (ended.status, ended.out) == (2, "")
    assert "--live and --quiet: one shows the run, the other nothing of it; give one of them" in ended.err


def test_the_run_does_not_wait_for_the_drawing(screen, monkeypatch):
    """A row is noted where the run is, and drawn elsewhere."""
    view = TerminalView(screen, "title", "danl", 10_000, 1e-10)
    monkeypatch.setattr(TerminalView, "lines", lambda *arguments, **options: pytest.fail("drawn by the run"))
    for exchange in range(20):
        view(replace(ROW, exchange=exchange))
    monkeypatch.undo()
    assert "round 19/10000" in view.lines(80, 23)[1].plain
