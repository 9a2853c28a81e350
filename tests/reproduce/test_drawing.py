"""Pictures: their names, their configs, their bytes, and what they show of runs made by hand."""

import dataclasses
import math
import re

import numpy as np
import pytest

from danl.errors import InputError
from danl.reproduce import drawing
from danl.reproduce.curves import View, panels, penalties_view, read_figure_runs, read_panels, views
from danl.reproduce.drawing import CEILING, GREEK, config_of, draw_all, draw_figure, draw_penalties
from danl.reproduce.runs import FIGURES, PAPER, Plan
from danl.reproduce.store import Store, code_digest
from danl.wording import FLOOR
from tests.reproduce.test_curves import OPTIMUM, fill, write_run

pytestmark = pytest.mark.slow

PLAN = Plan(data=("a1a",), n_seeds=2, penalties=(PAPER,))
VIEW = View("fig1", ("danl",), (PAPER,))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Everything drawn from a store of made-up runs."""
    root = tmp_path_factory.mktemp("store")
    store = Store(root)
    fill(store, PLAN, ["fig1", "fig2"])
    return store, draw_all(store, PLAN, ["fig1"], root / "figures")


@pytest.fixture
def looked_at(monkeypatch, tmp_path):
    """Draw without writing: give the matplotlib figure to look at."""
    kept = []
    monkeypatch.setattr(drawing, "_write", lambda figure, *rest: kept.append(figure) or [])

    def draw(parts, view=VIEW):
        draw_figure(view, parts, PLAN, tmp_path)
        return kept.pop()

    return draw


@pytest.fixture
def panel_of(tmp_path):
    """Make a panel whose lines all have these gaps, on every seed."""

    def make(gaps, against="optimum", **how):
        store = Store(tmp_path)
        for run in PLAN.figure_runs("fig1"):
            if run.method == "danl":
                write_run(store, run, gaps, **how)
        (panel,) = panels(read_figure_runs(store, PLAN, "fig1", PAPER, "danl"), against)
        return panel

    return make


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def crosses(axes):
    return [line.get_xydata().tolist()[0] for line in axes.lines if line.get_marker() == "x"]


@pytest.mark.slow
def test_draw_all_writes_what_it_says(drawn):
    store, written = drawn
    stems = [f"fig1-{reading}-lambda-1e-4{end}" for reading in FIGURES["fig1"].readings for end in ("", "-newton20")]
    expected = {f"{stem}.{suffix}" for stem in stems for suffix in ("csv", "png", "svg")}
    expected |= {f"{stem}.{suffix}" for stem in ("fig1-overview-lambda-1e-4", "penalties") for suffix in ("png", "svg")}
    assert sorted(path.name for path in written) == sorted(expected)
    assert {path.name for path in (store.root / "figures").iterdir()} == expected


def test_penalties_wait_for_all_runs_and_overviews_for_readings(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "_write", lambda figure, view, plan, out: [out / f"{view.name}.png"])
    store = Store(tmp_path)
    fill(store, PLAN, ["fig2-longest"])
    names = {
        path.name for path in draw_all(store, PLAN, ["fig2-longest"], tmp_path / "figures") if path.suffix == ".png"
    }
    assert names == {f"fig2-longest-danl-masked-lambda-1e-4{end}.png" for end in ("", "-newton20")}


@pytest.mark.slow
def test_penalties_are_not_drawn_from_runs_of_other_code(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "_write", lambda figure, view, plan, out: [out / view.name])
    store = Store(tmp_path)
    fill(store, PLAN, ["fig1", "fig2"])
    assert draw_all(store, PLAN, ["fig1"], tmp_path / "figures")[-1].name == "penalties"
    path = store.path(PLAN.figure_runs("fig2")[0])
    path.write_text(path.read_text().replace(code_digest(), "other"))
    assert draw_all(store, PLAN, ["fig1"], tmp_path / "figures")[-1].name == "fig1-overview-lambda-1e-4"


def test_every_picture_carries_its_config(drawn):
    store, _ = drawn
    folder = store.root / "figures"
    overview = View("fig1", FIGURES["fig1"].readings, (PAPER,))
    for view in (*views("fig1", PLAN), overview, penalties_view(PLAN)):
        assert config_of(folder / f"{view.name}.png") == view.config(PLAN)
        assert "n_seeds" in (folder / f"{view.name}.svg").read_text()


def test_a_picture_without_config_is_told(tmp_path):
    from matplotlib.figure import Figure

    Figure((1, 1)).savefig(tmp_path / "other.png")
    with pytest.raises(InputError, match="carries no danl config"):
        config_of(tmp_path / "other.png")
    (tmp_path / "torn.png").write_bytes(b"no picture at all")
    with pytest.raises(InputError, match=r"torn\.png"):
        config_of(tmp_path / "torn.png")
    with pytest.raises(InputError, match="cannot be read"):
        config_of(tmp_path / "none.png")


def test_the_same_data_make_the_same_bytes(drawn, tmp_path):
    store, _ = drawn
    import matplotlib

    parts = read_panels(store.root / "figures" / f"{VIEW.name}.csv")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):  # somebody's own settings
        again = draw_figure(VIEW, parts, PLAN, tmp_path)
    assert {path.suffix for path in again} >= {".png", ".svg"}
    for path in again:
        assert path.read_bytes() == (store.root / "figures" / path.name).read_bytes()


def test_other_data_make_another_picture(drawn, tmp_path):
    store, _ = drawn
    (panel,) = read_panels(store.root / "figures" / f"{VIEW.name}.csv")
    first, *rest = panel.curves
    changed = dataclasses.replace(first, median=(first.median[0], 10 * first.median[1], *first.median[2:]))
    other = draw_figure(VIEW, (dataclasses.replace(panel, curves=(changed, *rest)),), PLAN, tmp_path)
    assert {path.suffix for path in other} >= {".png", ".svg"}
    for path in other:
        assert path.read_bytes() != (store.root / "figures" / path.name).read_bytes()


@pytest.mark.parametrize("n_panels", [1, 2, 3, 4])
def test_one_to_four_data_sets_fit(panel_of, looked_at, n_panels):
    panel = panel_of([1.0, 0.1])
    figure = looked_at([dataclasses.replace(panel, data=f"set{number}") for number in range(n_panels)])
    shown = [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()]
    assert shown == [f"set{number}" for number in range(n_panels)]


def test_a_line_shows_the_median_and_its_band(panel_of, looked_at):
    panel = panel_of([1.0, 0.5, 0.25])
    first = dataclasses.replace(panel.curves[0], low=(1.0, 0.1, *panel.curves[0].low[2:]))
    axes = looked_at([dataclasses.replace(panel, curves=(first, *panel.curves[1:]))]).axes[0]
    assert axes.lines[0].get_xdata()[:3].tolist() == [0, 1, 2]
    assert axes.lines[0].get_ydata()[:3].tolist() == [1.0, 0.5, 0.25]
    band, other = (collection.get_paths()[0].vertices.tolist() for collection in axes.collections[:2])
    assert [1.0, 0.1] in band
    assert [1.0, 0.1] not in other


def test_a_line_that_leaves_ends_with_a_cross(panel_of, looked_at):
    axes = looked_at([panel_of([1.0, 10 * CEILING, 5.0, 10 * CEILING], status="diverged")]).axes[0]
    assert axes.lines[0].get_xydata().tolist() == [[0, 1.0], [1, CEILING], [2, 5.0], [3, CEILING]]  # comes back once
    assert crosses(axes) == [[3, CEILING]] * 3


def test_a_line_of_diverged_runs_inside_the_axis_ends_with_a_cross(panel_of, looked_at):
    gaps = [1.0] + [50.0] * 101
    assert crosses(looked_at([panel_of(gaps, status="diverged")]).axes[0]) == [[101, 50.0]] * 3
    assert crosses(looked_at([panel_of(gaps)]).axes[0]) == []


def test_rounding_is_drawn_at_the_floor_and_what_is_below_zero_is_not(panel_of, looked_at):
    line = looked_at([panel_of([1.0, 0.0, -1.2e-16, -0.25], status="converged")]).axes[0].lines[0]
    assert line.get_ydata()[:3].tolist() == [1.0, FLOOR, FLOOR]
    assert np.isnan(line.get_ydata()[3:]).all()


def test_an_unusual_reference_is_told(panel_of, looked_at):
    view = dataclasses.replace(VIEW, against="newton20")

    def note(newton20):
        return words(looked_at([panel_of([1.0, 0.1], "newton20", newton20=newton20)], view))[1]

    assert "0.25 above the optimum" in note(OPTIMUM + 0.25)
    assert "nowhere finite" in note(None)
    assert note(OPTIMUM) == ""


def test_measured_masks_are_told_where_they_differ(panel_of, looked_at):
    panel = panel_of([1.0, 0.1], measured=(1, 3, 7))
    psi, gamma = GREEK["psi"], GREEK["gamma"]
    assert words(looked_at([panel]))[0] == f"measured S* = 3, 3, 3; {gamma} = 7, 7, 7; {psi}* as promised"
    kept = tuple(dataclasses.replace(curve, promised=curve.measured) for curve in panel.curves)
    assert words(looked_at([dataclasses.replace(panel, curves=kept)]))[0] == "measured as promised"


def test_the_table_of_penalties_shows_powers_and_divergence(tmp_path):
    store = Store(tmp_path)
    fill(store, PLAN, ["fig1", "fig2"], gaps=(1.0, 1e-9))
    for run in PLAN.figure_runs("fig1"):
        if run.policy == "coverage:psi=1":
            write_run(store, run, [1.0, math.inf], status="diverged")
    wanted = [view for name in ("fig1", "fig2") for view in views(name, PLAN) if view.against == "optimum"]
    parts = {view: panels(read_figure_runs(store, PLAN, view.figure, PAPER, *view.readings)) for view in wanted}
    _, svg = draw_penalties(parts, PLAN, tmp_path)
    cells = re.findall(r"<!-- (inf x|-\d+) -->", svg.read_text())  # matplotlib writes texts beside their outlines
    # The medians are 1.5e-9 times 4^line, of three lines and of four; the first line of fig1 diverged.
    assert cells == ["inf x", "-8", "-8", "-9", "-8", "-8", "-7"] * 3
