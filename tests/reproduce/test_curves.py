"""From rows to medians and bands, on runs made by hand."""

import dataclasses
import json
import math

import pytest

from danl.errors import InputError
from danl.reproduce.curves import (
    Masks,
    View,
    curve_data,
    overviews,
    panels,
    penalties_view,
    read_figure_runs,
    read_panels,
    slug,
    views,
    write_panels,
)
from danl.reproduce.execute import digest
from danl.reproduce.runs import FIGURES, MILD, PAPER, Plan
from danl.reproduce.store import Store
from danl.run.history import History, Row

FIGURE = FIGURES["fig1"]
OPTIMUM = 0.5
PLAN = Plan(data=("a1a",), n_seeds=3, penalties=(PAPER, MILD))


def row(exchange, objective):
    return Row(exchange, "gradient", 10, 0, 1, 2, 4, *[0.0, objective, *[0.0] * 5], 1, 1, 0.0, math.nan, (1, 1, 1, 1))


def write_run(store, run, gaps, *, status="max_rounds", newton20=OPTIMUM, measured=(1, 4, 2)):
    """Keep a run with these gaps after 0, 1, 2, ... exchanges."""
    start, *after = [OPTIMUM + gap for gap in gaps]
    names = ("min_coverage", "min_trained", "max_staleness")
    record = {
        "status": status,
        "summary": dict(zip(names, measured, strict=True)),
        "promised": dict(zip(names, (1, 4, None), strict=True)),
        "optimum": {"objective": OPTIMUM},
        "newton20": {"objective": newton20},
        "start": {"objective": start},
    }
    store.write(
        run,
        History(row(k, value) for k, value in enumerate(after)),
        record,
        digest(run.data) if run.data == "a1a" else "digest",
    )


def fill(store, plan, names, gaps=(1.0, 0.25, 0.125), **how):
    """Keep every run of the figures; seeds and lines differ."""
    for name in names:
        policies = [curve.policy for curve in FIGURES[name].curves]
        for run in plan.figure_runs(name):
            factor = (1 + run.seed) * 4.0 ** policies.index(run.policy)
            write_run(store, run, [factor * gap for gap in gaps], **how)


def stored(tmp_path, *runs):
    """Read back the runs of one line, one a seed, each given as (gaps, how)."""
    store = Store(tmp_path)
    plan = Plan(data=("a1a",), n_seeds=len(runs))
    line = list(plan.curve_runs("a1a", PAPER, "danl", FIGURE.curves[0]))
    for run, (gaps, how) in zip(line, runs, strict=True):
        write_run(store, run, gaps, **how)
    return [store.read(run) for run in line]


def test_median_and_band_are_those_of_the_seeds(tmp_path):
    curve = curve_data("a", stored(tmp_path, ([4.0, 2.0, 1.0], {}), ([8.0, 1.0, 0.5], {}), ([2.0, 16.0, 0.25], {})))
    assert curve.median[:3] == (4.0, 2.0, 0.5)
    assert curve.low[:3] == (2.0, 1.0, 0.25)
    assert curve.high[:3] == (8.0, 16.0, 1.0)
    assert len(curve.median) == len(curve.low) == len(curve.high) == 102  # the start and rounds + 1 exchanges
    assert curve.median[-1] == 0.5  # an ended run keeps its last value
    assert curve.seeds == 3


def test_of_two_seeds_the_median_is_the_middle(tmp_path):
    assert curve_data("a", stored(tmp_path, ([4.0, 2.0], {}), ([8.0, 1.0], {}))).median[:2] == (6.0, 1.5)


def test_another_row_makes_another_curve(tmp_path):
    before = curve_data("a", stored(tmp_path, ([4.0, 2.0, 1.0], {})))
    after = curve_data("a", stored(tmp_path, ([4.0, 3.0, 1.0], {})))
    assert after.median[1] == 3.0
    assert dataclasses.replace(after, median=before.median, low=before.low, high=before.high) == before


def test_diverged_runs_are_infinite_after_their_end(tmp_path):
    diverged = ([1.0, 1e9], {"status": "diverged"})
    curve = curve_data("a", stored(tmp_path, diverged, diverged, ([1.0, 0.5], {"status": "converged"})))
    assert curve.median[1:3] == (1e9, math.inf)
    assert (curve.low[2], curve.high[2]) == (0.5, math.inf)
    assert curve.endings == (("converged", 1), ("diverged", 2))
    assert curve.diverged
    assert not curve_data("a", stored(tmp_path, diverged, ([1.0, 0.5], {"status": "converged"}))).diverged


def test_a_value_that_is_no_number_counts_as_infinite(tmp_path):
    assert curve_data("a", stored(tmp_path, ([1.0, math.nan, 2.0], {}))).median[:3] == (1.0, math.inf, 2.0)


def test_measured_is_the_worst_over_the_seeds(tmp_path):
    runs = [([1.0, 1.0], {"measured": measured}) for measured in ((3, 4, 2), (2, 4, 7), (5, 3, 1))]
    curve = curve_data("a", stored(tmp_path, *runs))
    assert curve.measured == Masks(psi=2, S=3, gamma=7)
    assert curve.promised == Masks(psi=1, S=4, gamma=None)


def test_against_twenty_newton_steps(tmp_path):
    runs = stored(tmp_path, ([4.0, 1.0], {"newton20": OPTIMUM + 2.0}), ([4.0, 1.0], {"newton20": None}))
    curve = curve_data("a", runs, "newton20")
    assert (curve.median[:2], curve.seeds) == ((2.0, -1.0), 1)  # kept negative: the drawing decides
    assert curve.endings == (("max_rounds", 2),)
    (panel,) = panels({"a1a": {FIGURE.curves[0]: runs}}, "newton20")
    assert panel.reference == (2.0, math.inf)
    (panel,) = panels({"a1a": {FIGURE.curves[0]: runs}})
    assert panel.reference == (0.0, 0.0)


def test_without_any_reference_there_is_no_gap(tmp_path):
    curve = curve_data("a", stored(tmp_path, ([4.0, 1.0], {"newton20": None})), "newton20")
    assert all(math.isnan(value) for value in (*curve.median, *curve.low, *curve.high))
    assert curve.seeds == 0


def test_the_data_file_says_everything_exactly(tmp_path):
    store = Store(tmp_path)
    plan = dataclasses.replace(PLAN, data=("a1a", "a2a"))
    fill(store, plan, ["fig1"], gaps=(1.0, 1 / 3, -5e-17, 1e300), status="diverged")
    made = panels(read_figure_runs(store, plan, "fig1", PAPER, "danl"))
    path = write_panels(made, tmp_path / "data.csv")
    assert read_panels(path) == made
    assert [panel.data for panel in made] == ["a1a", "a2a"]
    assert [curve.label for curve in made[0].curves] == [curve.label for curve in FIGURE.curves]
    assert len(path.read_text().splitlines()) == 1 + 2 * 3 * 102
    assert write_panels(made, tmp_path / "again.csv").read_bytes() == path.read_bytes()


def test_each_line_is_made_of_its_own_runs(tmp_path):
    store = Store(tmp_path)
    fill(store, PLAN, ["fig1"])
    (panel,) = panels(read_figure_runs(store, PLAN, "fig1", MILD, "danl-masked"))
    assert [curve.median[0] for curve in panel.curves] == [2.0, 8.0, 32.0]  # the second of three seeds, times 4^line


@pytest.mark.parametrize("text", ["", "data,curve\na1a,b\n", "nonsense"], ids=["empty", "columns", "nonsense"])
def test_a_file_that_is_no_data_is_told(tmp_path, text):
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"data\.csv: is not the data of a figure"):
        read_panels(path)
    with pytest.raises(InputError, match=r"none\.csv: is not the data of a figure"):
        read_panels(tmp_path / "none.csv")


def test_missing_runs_are_told(tmp_path):
    with pytest.raises(InputError, match="run danl reproduce again"):
        read_figure_runs(Store(tmp_path), PLAN, "fig1", PAPER, "danl")


def test_names():
    assert [slug(penalty) for penalty in Plan().penalties] == ["lambda-1e-4", "alpha-1e-4", "alpha-1e-3"]
    assert slug("alpha=0.00025") == "alpha-2.5e-4"
    assert [view.name for view in views("fig2-longest", PLAN)] == [
        "fig2-longest-danl-masked-lambda-1e-4",
        "fig2-longest-danl-masked-lambda-1e-4-newton20",
        "fig2-longest-danl-masked-alpha-1e-3",
    ]
    assert [view.name for view in overviews("fig1", PLAN)] == ["fig1-overview-lambda-1e-4", "fig1-overview-alpha-1e-3"]
    assert overviews("fig2-longest", PLAN) == []
    assert penalties_view(PLAN).name == "penalties"


def test_the_config_says_what_decides_a_picture():
    view = View("fig1", ("danl",), (PAPER,))
    config = view.config(PLAN)
    assert config == json.loads(json.dumps(config))
    assert config["curves"][0] == {"label": "psi*=1, S*=4", "policy": "coverage:psi=1"}
    assert (config["n_seeds"], config["rounds"], config["data"]) == (3, 100, ["a1a"])
    others = [
        dataclasses.replace(view, against="newton20").config(PLAN),
        dataclasses.replace(view, readings=("danl-paper",)).config(PLAN),
        view.config(dataclasses.replace(PLAN, n_seeds=4)),
    ]
    assert all(other != config for other in others)
