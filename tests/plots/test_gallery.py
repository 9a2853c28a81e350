"""The gallery: four panels of runs, from their rows alone."""

from itertools import combinations
from math import gcd

import numpy as np
import pytest

import danl
from danl.plots.figures import COLOURS, MARKERS, STYLES, draw_progress
from danl.plots.gallery import MOST_EXCHANGES, _draw_bytes, bytes_by_kind, coverage_of, plot_gallery
from danl.run.history import History
from tests.problems import random_problem


@pytest.fixture(scope="module")
def runs():
    problem = random_problem()
    reference = danl.reference_optimum(problem)
    return {
        name: danl.solve(problem, method=name, policy="coverage:psi=2", reference=reference, max_rounds=60).history
        for name in ("danl", "danl-masked", "gd")
    }


def test_it_is_drawn_in_colour(runs, tmp_path):
    from matplotlib.image import imread

    picture = imread(plot_gallery(runs, tmp_path / "g.png", title="three runs"))
    assert picture.shape[:2] == (1110, 1500)
    quarters = [picture[i : i + 555, j : j + 750, :3] for i in (0, 555) for j in (0, 750)]
    assert all((quarter.std(axis=(0, 1)) > 0.05).all() for quarter in quarters)  # something in each of the panels
    assert [entry.name for entry in tmp_path.iterdir()] == ["g.png"]


def test_it_says_what_it_shows(runs, tmp_path):
    from xml.etree import ElementTree

    text = plot_gallery(runs, tmp_path / "g.svg").read_text()
    ElementTree.fromstring(text)
    for words in (
        "danl-masked",
        "Workers on each region",
        "kind of exchange",
        f"{len(runs['gd'])} exchanges",
        "hessian",
    ):
        assert words in text
    assert "local-steps" not in text  # nobody made any


def test_coverage_is_that_of_the_rows(runs):
    shown = coverage_of(runs["danl-masked"])
    rows = np.array([row.coverage for row in runs["danl-masked"]], dtype=float)
    assert shown.shape == (rows.shape[1], MOST_EXCHANGES)
    assert (shown == rows[:MOST_EXCHANGES].T).all()
    short = coverage_of(History(list(runs["danl"])[:3]))
    assert np.isfinite(short[:, :3]).all()
    assert np.isnan(short[:, 3:]).all()


def test_bytes_by_kind_add_up(runs):
    for history in runs.values():
        assert sum(bytes_by_kind(history).values()) == history.total_bytes()[-1]
    assert set(bytes_by_kind(runs["danl-masked"])) >= {"hessian", "gradient"}


def test_kinds_of_the_fields_methods_have_names_and_colours_of_their_own():
    from matplotlib.figure import Figure

    problem = random_problem()
    histories = {
        name: danl.solve(problem, method=name, max_rounds=6).history for name in ("danl", "fednl:ls=true", "giant")
    }
    axes = Figure().subplots()
    _draw_bytes(axes, histories)
    bars = dict(zip(axes.get_legend_handles_labels()[1], axes.containers, strict=True))
    assert {"hessian", "learn", "newton-direction"} <= set(bars)
    assert len({bar.patches[0].get_facecolor() for bar in bars.values()}) == len(bars)


def test_one_run_is_enough_and_none_is_not(runs, tmp_path):
    assert plot_gallery({"danl": runs["danl"]}, tmp_path / "one.png").exists()
    with pytest.raises(danl.InputError, match="at least one run"):
        plot_gallery({}, tmp_path / "none.png")


def test_many_runs_are_told_apart(runs, tmp_path):
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 2)
    draw_progress(*axes, {str(number): runs["gd"] for number in range(16)})
    looks = [(line.get_color(), line.get_marker()) for line in axes[0].get_lines()]
    assert len(set(looks)) == 16
    assert all(gcd(len(one), len(other)) == 1 for one, other in combinations((COLOURS, STYLES, MARKERS), 2))


def test_the_kinds_of_exchange_are_named_beside_the_bars_and_not_on_them(runs):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    _draw_bytes(axes, {str(number): runs["danl"] for number in range(8)})
    figure.draw_without_rendering()
    legend = axes.get_legend().get_window_extent()
    assert not legend.overlaps(axes.get_window_extent())
    assert legend.y0 >= 0
