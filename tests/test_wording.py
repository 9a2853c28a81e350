"""One floor for a gap of zero: every figure, the report, the comparison and the terminal have the same."""

import io
import math

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from danl.cli.chart import BinnedSeries, curve_lines
from danl.cli.display import ProgressLine, comparison_table
from danl.plots.figures import draw_progress
from danl.report.findings import ending
from danl.report.payload import payload_of
from danl.reproduce.drawing import _drawn
from danl.reproduce.tables import shown_gap
from danl.run.history import History
from danl.wording import FLOOR, floored, gap_text, is_rounding, ratio_text
from tests.report.made import row, run_of

ZEROS = (0.0, -5.6e-17, 5.6e-17, 1.1e-16, FLOOR, -2.2e-16)
"""What a gap is at the optimum, on one machine or another."""


def printed(table):
    screen = Console(file=io.StringIO(), width=100)
    screen.print(table)
    return screen.file.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.0000"), (1.0000012, "1.00000120"), (0.99955, "0.999550"), (1.2, "1.2000"), (2e-5, "2.000e-05")],
)
def test_a_ratio_near_one_says_how_far_it_is(value, text):
    assert ratio_text(value) == text
    assert ratio_text(math.nan) == "nan"
    assert ratio_text(1 + 3e-16) == "1.000000000000"


def test_what_is_at_the_floor():
    np.testing.assert_array_equal(
        floored(np.array([1.0, FLOOR, 0.0, -1.0, np.inf])), [1.0, FLOOR, FLOOR, FLOOR, np.inf]
    )
    assert math.isnan(floored(math.nan))
    assert all(is_rounding(gap) for gap in ZEROS)
    assert not is_rounding(2 * FLOOR)
    assert not is_rounding(-1e-9)
    assert not is_rounding(math.nan)
    assert is_rounding(-1e-12, objective=1000.0)  # as small as it can be told of such a number
    assert gap_text(0.25) == "2.5e-01"
    assert gap_text(-1e-9) == "-1.0e-09"  # the reference is no optimum: that is said


@pytest.mark.parametrize("gap", ZEROS)
def test_a_gap_of_zero_is_the_same_wherever_it_is_shown(gap):
    reported = f"<={FLOOR:.0e}"
    rows = [row(0, gap=1.0), row(1, gap=gap)]
    by_rounds, by_bytes = Figure().subplots(1, 2)
    draw_progress(by_rounds, by_bytes, {"run": History(rows)})
    for axes in (by_rounds, by_bytes):
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), [1.0, FLOOR])
    np.testing.assert_array_equal(_drawn([1.0, gap]), [1.0, FLOOR])
    assert shown_gap(gap) == reported

    run = run_of(rows, status="converged")
    page = payload_of([run])
    assert page["floor"] == FLOOR
    assert page["runs"][0]["summary"]["rounding"]
    assert f", gap {reported}. It cost" in next(iter(ending(run))).text

    course = BinnedSeries()
    for value in (1.0, gap):
        course.add(value)
    assert str(curve_lines(course, 40, 5)[4])[:8].strip() == f"{FLOOR:.0e}"
    summary = dict.fromkeys(("exchanges", "hessian_exchanges", "bytes_up", "bytes_down", "seconds"), 1)
    summary |= {"label": "danl", "status": "converged", "objective": 0.3, "gap": gap, "grad_norm": 1e-11}
    assert reported in printed(comparison_table([summary | {"simulated_seconds": None}]))
    live = ProgressLine(Console(file=io.StringIO()), "danl", 10, quiet=True)
    assert f"gap {reported:>9}" in live.line(rows[1], 100)
