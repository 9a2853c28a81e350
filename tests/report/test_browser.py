"""The page in Chromium: no complaint, no request, and what a person does with it works; skipped where there is none."""

import itertools
import json
import math
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from danl.report import live_page as live_module
from danl.report import write_report
from danl.report.live_page import LivePage, LiveServer
from danl.run.trace import Trace
from danl.wording import FLOOR
from tests.report.browser import Browser
from tests.report.made import config_of, large_run, row, run_of
from tests.report.test_findings import resumed
from tests.report.test_page import HOSTILE, hostile_run

pytestmark = [pytest.mark.engines, pytest.mark.timeout(280)]


@pytest.fixture(scope="module")
def browser():
    made = Browser()
    yield made
    made.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages by name, each written once."""
    folder = tmp_path_factory.mktemp("pages")
    runs = {
        "one": [large_run(30, 10, 4)],
        "two": [large_run(30, 10, 4, name="first"), large_run(80, 6, 3, seed=1, name="second")],
        "rounding": [run_of([row(i, gap=[1e-3, 1e-9, 0.0, -1e-17][i]) for i in range(4)], **config_of("converged"))],
        "hostile": [hostile_run(), large_run(8, 3, 2, name=HOSTILE)],
        "empty": [run_of([], **config_of("interrupted"))],
        "six": [large_run(30, 10, 4, seed=seed, name=f"danl:window={seed},hessian_dtype=float32") for seed in range(6)],
        "one empty": [large_run(30, 10, 4, name="full"), run_of([], name="empty", **config_of("interrupted"))],
        "resumed": [resumed()],
        "large": [large_run(5000, 100, 16)],
        "model": [replace(large_run(30, 10, 4), tables=model_tables())],
    }
    for name, values in RATIOS.items():
        tables = model_tables([[f"x{place}", value, abs(value) / 5] for place, value in enumerate(values)])
        runs[name] = [replace(large_run(8, 3, 2), tables=tables)]
    return {name: write_report(made, folder / f"{name}.html").as_uri() for name, made in runs.items()}


LINES = [["(intercept)", -1.0, 0.5], ["age", 0.05, 0.01], [HOSTILE, 0.2624, 0.1], ["gone", 0.1, None]]
RATIOS = {"narrow": [0.01, 0.03], "about": [-0.9, 0.6], "wide": [-3.2, 2.6]}
"""Logarithms of ratios near 1, from 0.3 to 2, and far from it."""


def model_tables(lines=LINES):
    """What a summary.json has, with a name that tries to be markup, and a coefficient that has no standard error."""
    coefficients = []
    for name, coef, error in lines:
        low, high = (None, None) if error is None else (coef - 1.96 * error, coef + 1.96 * error)
        ratio = {"age": 1.0513, HOSTILE: 1.3}.get(name, math.exp(coef))
        coefficients.append(
            {
                "name": name,
                "coef": coef,
                "std_err": error,
                "z": None if error is None else coef / error,
                "p_value": None if error is None else 1e-6,
                "ci_low": low,
                "ci_high": high,
                "odds_ratio": ratio,
                "odds_ratio_low": None if low is None else math.exp(low),
                "odds_ratio_high": None if high is None else math.exp(high),
            }
        )
    return {
        "title": "Logistic regression: y ~ age + smoking",
        "level": 0.95,
        "statistic": "z",
        "ratio": "odds ratio",
        "covariance": "HC0",
        "coefficients": coefficients,
        "numbers": {"records": 1234, "aic": 567.8, "events": None},
        "sites": [{"name": HOSTILE, "records": 1234, "events": 12.0, "left_out": 3, "unknown_levels": 0}],
        "remarks": ["standard errors: robust (HC0)", "event: y=1"],
        "absent": ["west: refused"],
        "notes": ["a note"],
    }


def text(browser, selector):
    return browser.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")


def drawn_series(browser, figure="progress"):
    return browser.evaluate(f"document.getElementById('{figure}').data.filter(t => t.mode !== 'markers').length")


@pytest.mark.parametrize("name", ["one", "two", "rounding", "empty", "hostile", "model"])
def test_it_opens_without_a_complaint_and_asks_for_nothing(browser, pages, name):
    browser.go(pages[name])
    assert browser.complaints() == []
    assert browser.requests() == [pages[name]]


def test_the_slider_moves_the_map(browser, pages):
    browser.go(pages["one"])
    run = large_run(30, 10, 4)
    browser.evaluate("document.getElementById('exchange').focus()")
    assert text(browser, "#exchange-number") == "2 of 29 (gradient)"  # the first exchange that has masks
    for _ in range(5):
        browser.key("ArrowRight", 39)
    browser.until("document.getElementById('exchange-number').textContent.startsWith('7 ')")
    trained = int(run.trace.trained_in(7).sum())
    assert f"{trained} of 40 pairs of worker and region trained" in text(browser, "#who-value")
    shown = browser.evaluate("document.getElementById('who-map').data[0].z.map(line => line.map(v => v === 2))")
    assert shown == run.trace.trained_in(7).tolist()
    assert browser.evaluate("document.getElementById('coverage').layout.shapes[0].x0") == 7


def test_staleness_is_counted_as_the_run_counts_it(browser, pages):
    browser.go(pages["one"])
    run = large_run(30, 10, 4)
    browser.change("exchange", "29", "input")
    browser.evaluate("document.querySelector('#map input[value=staleness]').click()")
    browser.until("document.getElementById('exchange-number').textContent.startsWith('29 ')")
    stale = [[0] * 4 for _ in range(10)]
    for number in range(30):
        if run.history[number].kind == "loss":
            continue
        mask = run.trace.trained_in(number)
        stale = [[0 if mask[i, q] else stale[i][q] + 1 for q in range(4)] for i in range(10)]
    assert browser.evaluate("document.getElementById('who-map').data[0].z") == stale


def test_series_are_toggled_by_keyboard(browser, pages):
    browser.go(pages["two"])
    assert drawn_series(browser) == 2
    browser.evaluate("document.querySelector('#series input').focus()")
    browser.send("Input.dispatchKeyEvent", type="keyDown", key=" ", code="Space", windowsVirtualKeyCode=32, text=" ")
    browser.send("Input.dispatchKeyEvent", type="keyUp", key=" ", code="Space", windowsVirtualKeyCode=32)
    browser.until("document.getElementById('progress').data.filter(t => t.mode !== 'markers').length === 1")
    browser.evaluate("document.querySelector('#marks input').click()")
    assert browser.complaints() == []


def test_quantity_and_axis_are_chosen(browser, pages):
    browser.go(pages["one"])
    run = large_run(30, 10, 4)
    browser.evaluate("document.querySelector('#quantity input[value=objective]').click()")
    browser.evaluate("document.querySelector('#axis input[value=bytes]').click()")
    assert browser.evaluate("document.getElementById('progress').data[0].y[3]") == run.history[3].objective
    assert browser.evaluate("document.getElementById('progress').data[0].x[3]") == run.history.total_bytes()[3]
    browser.evaluate("document.querySelector('#axis input[value=simulated]').click()")
    total = float(run.history.column("simulated_seconds").cumsum()[29])
    assert browser.evaluate("document.getElementById('progress').data[0].x[29]") == pytest.approx(total)


def test_a_value_is_read_from_the_table(browser, pages):
    browser.go(pages["one"])
    run = large_run(30, 10, 4)
    browser.evaluate("document.querySelector('#progress-table summary').click()")
    browser.until("document.querySelectorAll('#progress-table tbody tr').length === 30")
    cells = browser.evaluate(
        "[...document.querySelectorAll('#progress-table tbody tr')[4].children].map(cell => cell.textContent)"
    )
    assert cells[:2] == ["4", "gradient"]
    assert float(cells[2]) == pytest.approx(run.history[4].gap, rel=1e-3)
    assert cells[5] == f"{run.history.total_bytes()[4]:,}"
    browser.evaluate("document.querySelector('#workers-table summary').click()")
    browser.until("document.querySelectorAll('#workers-table tbody tr').length === 10")
    up = browser.evaluate("document.querySelectorAll('#workers-table tbody tr')[3].children[1].textContent")
    assert int(up.replace(",", "")) == run.trace.bytes_up[:, 3].sum()


def test_gaps_of_rounding_are_drawn_at_a_floor_and_it_is_said(browser, pages):
    browser.go(pages["rounding"])
    assert browser.evaluate("document.getElementById('progress').data[0].y") == pytest.approx(
        [1e-3, 1e-9, FLOOR, FLOOR]
    )
    assert text(browser, "#progress-note") == f"2 values of {FLOOR:.0e} or less (rounding) are drawn there."
    assert "There is no workers.npz in the folder" in text(browser, "#no-masks")
    assert browser.evaluate("document.getElementById('who').hidden")


def test_hostile_names_are_shown_and_do_nothing(browser, pages):
    browser.go(pages["hostile"])
    browser.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    browser.change("run", "1")
    browser.evaluate(
        "Plotly.Fx.hover('progress', [{ curveNumber: 4, pointNumber: 1 }]); new Promise(done => setTimeout(done, 300))"
    )
    assert browser.evaluate("typeof window.hit") == "undefined"
    assert browser.evaluate("document.querySelectorAll('img, b, main script').length") == 0
    assert (
        browser.evaluate("[...document.querySelectorAll('#series label')].map(label => label.textContent)")[0]
        == HOSTILE
    )
    hovered = browser.evaluate("document.querySelector('#progress .hoverlayer').textContent")
    assert "</script>" in hovered  # as text
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["one", "two", "hostile", "model"])
def test_nothing_is_cut_off_at_the_side(browser, pages, name, width):
    browser.go(pages[name], width=width)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    wide = browser.evaluate(
        """[...document.querySelectorAll('main *')].filter(part => {
            const box = part.getBoundingClientRect();
            return box.width && !part.closest('.scroll, svg') && (box.right > innerWidth + 1 || box.left < -1)
                && getComputedStyle(part).position !== 'absolute' && !part.closest('thead');
        }).map(part => part.outerHTML.slice(0, 80))"""
    )
    assert wide == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["one", "two", "model"])
def test_the_curve_comes_before_the_sentences(browser, pages, name, width):
    browser.go(pages[name], width=width)
    top = "document.getElementById('{}').getBoundingClientRect().top"
    curve = browser.evaluate(top.format("progress"))
    assert curve < 250
    assert curve < browser.evaluate(top.format("quantity"))
    assert curve < browser.evaluate(top.format("findings-body"))
    assert curve < browser.evaluate(top.format("summary-body"))


@pytest.mark.parametrize("width", [1280, 390])
def test_a_model_has_a_table_and_a_forest_plot(browser, pages, width):
    browser.go(pages["model"], width=width)
    assert text(browser, "#model-title") == "Logistic regression: y ~ age + smoking"
    cells = browser.evaluate("[...document.querySelectorAll('#model-coefficients tbody tr')].map(r => r.innerText)")
    assert [line.split("\t")[0] for line in cells] == ["(intercept)", "age", HOSTILE, "gone"]
    told = ["0.0500", "0.0100", "5.00", "<0.001", "0.0304 to 0.0696", "1.0513", "1.0309 to 1.0721"]
    assert cells[1].split("\t")[1:] == told
    drawn = browser.evaluate("document.getElementById('forest').data[0].x")
    assert drawn == pytest.approx([1.0513, 1.3])  # no intercept, and nothing of what has no interval
    assert browser.evaluate("document.getElementById('forest').layout.xaxis.type") == "log"
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", RATIOS)
def test_the_ticks_of_ratios_are_the_ratios(browser, pages, name, width):
    browser.go(pages[name], width=width)
    marks = """[...document.querySelectorAll('#forest .xtick')].map(tick => [tick.querySelector('text').textContent,
        tick.getBoundingClientRect().left, tick.getBoundingClientRect().right, tick.getBoundingClientRect().top])"""
    ticks = sorted(browser.evaluate(marks), key=lambda tick: tick[1])
    low, high = browser.evaluate("document.getElementById('forest').layout.xaxis.range")
    shown = [float(text) for text, *_ in ticks]
    assert len({round(top) for *_, top in ticks}) == 1
    assert len(shown) >= 2
    assert shown == sorted(set(shown))
    assert 10**low * 0.999 <= shown[0] < shown[-1] <= 10**high * 1.001
    assert all(one[2] < other[1] for one, other in itertools.pairwise(ticks))  # none on another


def test_without_a_model_there_is_none(browser, pages):
    browser.go(pages["one"])
    assert browser.evaluate("document.getElementById('model').hidden")


def test_themes_recolour_the_figures(browser, pages):
    background = "document.getElementById('progress').layout.paper_bgcolor"
    browser.go(pages["one"], dark=True)
    assert browser.evaluate(background) == "#14171a"
    browser.change("theme", "light")
    assert browser.evaluate(background) == "#ffffff"
    browser.go(pages["one"])
    assert browser.evaluate(background) == "#ffffff"


def test_it_prints_in_light_colours(browser, pages):
    browser.go(pages["one"], dark=True)
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert browser.evaluate("document.getElementById('progress').layout.paper_bgcolor") == "#ffffff"
    assert len(browser.send("Page.printToPDF")["data"]) > 10_000
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    assert browser.evaluate("document.getElementById('progress').layout.paper_bgcolor") == "#14171a"


@pytest.mark.parametrize("name", ["one", "two", "six"])
def test_nothing_is_cut_off_on_paper(browser, pages, name):
    browser.go(pages[name], width=670)
    browser.send("Emulation.setEmulatedMedia", media="print")
    try:
        browser.evaluate("dispatchEvent(new Event('beforeprint'))")
        cut = browser.evaluate(
            """[...document.querySelectorAll('main *')].filter(part => {
                const box = part.getBoundingClientRect();
                return box.width && !part.closest('svg') && (box.right > innerWidth + 1 || box.left < -1
                    || (part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).overflowX !== 'visible'));
            }).map(part => part.outerHTML.slice(0, 80))"""
        )
        assert cut == []
        browser.evaluate("dispatchEvent(new Event('afterprint'))")
    finally:
        browser.send("Emulation.setEmulatedMedia", media="")


def test_a_run_without_rows_does_not_show_the_map_of_another(browser, pages):
    browser.go(pages["one empty"])
    assert browser.evaluate("document.getElementById('coverage').offsetHeight") > 0
    browser.change("run", "1")
    assert browser.evaluate("document.getElementById('coverage').offsetHeight") == 0
    assert text(browser, "#no-masks") == "No exchange was made: there is nothing to show."
    browser.change("run", "0")
    assert browser.evaluate("document.querySelector('#coverage .heatmaplayer image') !== null")
    assert browser.complaints() == []


def test_what_is_known_of_workers_only_since_an_exchange_is_said_to_be_so(browser, pages):
    browser.go(pages["resumed"])
    assert ", counted from exchange 5 on." in text(browser, "#who-value")
    assert text(browser, "#workers-note").startswith("What each worker did is known from exchange 5 on")
    browser.evaluate("document.querySelector('#workers-table summary').click()")
    browser.until("document.querySelector('#workers-table caption') !== null")
    assert text(browser, "#workers-table caption") == "Sums since exchange 5."


def test_a_served_page_keeps_open_what_was_opened_and_only_the_newest_masks(browser, monkeypatch):
    monkeypatch.setattr(live_module, "frames_that_fit", lambda trace: 6)
    whole, trace = large_run(40, 4, 3), Trace()
    trace.begin(4, 3)
    page = LivePage(trace, dict(whole.config))

    def go_on(first, end):
        for number in range(first, end):
            arrays = (whole.trace.bytes_up[number], whole.trace.bytes_down[number], None)
            trace.note(number, whole.trace.asked_in(number), whole.trace.trained_in(number), *arrays)
            page(whole.history[number])

    go_on(0, 5)
    server = LiveServer(page)
    try:
        browser.go(server.address)
        browser.until("document.getElementById('live').textContent.includes('5 exchanges')")
        browser.evaluate("document.querySelectorAll('#made details')[1].firstChild.click()")
        go_on(5, 9)
        browser.until("document.getElementById('live').textContent.includes('9 exchanges')")
        assert browser.evaluate("document.querySelectorAll('#made details')[1].open")
        assert browser.evaluate("Array.from(state.runs[0].masks.exchange)") == [3, 4, 5, 6, 7, 8]
        assert text(browser, "#exchange-number").startswith("8 of 8")
        shown = browser.evaluate("document.getElementById('who-map').data[0].z.map(line => line.map(v => v === 2))")
        assert shown == whole.trace.trained_in(8).tolist()
        page.finish(dict(whole.config) | {"machine": {"platform": "another"}})
        browser.until("document.getElementById('live').textContent.includes('ended')")
        assert browser.evaluate("document.querySelectorAll('#made details')[1].open")
        assert browser.complaints() == []
    finally:
        server.close()


def test_every_control_has_a_name_and_can_be_reached(browser, pages):
    browser.go(pages["two"])
    nameless = browser.evaluate(
        "[...document.querySelectorAll('input, select')].filter(part => !part.labels.length).map(part => part.id)"
    )
    assert nameless == []
    assert (
        browser.evaluate(
            "[...document.querySelectorAll('[role=img]')].filter(p => !p.hidden && p.data && !p.ariaLabel).length"
        )
        == 0
    )
    assert (
        browser.evaluate('document.querySelectorAll(\'[tabindex]:not([tabindex="0"]):not([tabindex="-1"])\').length')
        == 0
    )


def test_the_wheel_scrolls_the_page_over_a_figure(browser, pages):
    browser.go(pages["one"])
    browser.evaluate("document.getElementById('progress').scrollIntoView({ block: 'center' })")
    x, y = browser.evaluate(
        "(() => { const b = document.getElementById('progress').getBoundingClientRect(); "
        "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    before = browser.evaluate("scrollY")
    ranges = browser.evaluate("JSON.stringify(document.getElementById('progress').layout.yaxis.range)")
    browser.send("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=200)
    browser.until(f"scrollY > {before}")
    assert browser.evaluate("JSON.stringify(document.getElementById('progress').layout.yaxis.range)") == ranges


def test_a_large_report_opens_and_its_slider_answers(browser, pages):
    browser.go(pages["large"])  # docs/report.md has the time it takes
    run = large_run(5000, 100, 16)
    browser.change("exchange", "4321", "input")
    browser.until("document.getElementById('exchange-number').textContent.startsWith('4321 ')")
    assert f"{int(run.trace.trained_in(4321).sum())} of 1600 pairs" in text(browser, "#who-value")
    assert "A column is the mean of 9 exchanges." in text(browser, "#coverage-scale")
    assert "80 of 4,315 absences are marked." in text(browser, "#progress-note")
    assert browser.complaints() == []


SERVED = """
import threading
from danl.report import live_page as live
live.LAST_LOOK_SECONDS = live.OPEN_SECONDS = 240.0
opened, page, noted = threading.Event(), live.LivePage.page, live.LivePage.__call__
live.LivePage.page = lambda self: opened.set() or page(self)
live.LivePage.__call__ = lambda self, row: opened.wait(240.0) and noted(self, row)
from danl.__main__ import main
main()
"""
"""The command line of a process whose run goes on when the page has been opened, and waits for its last look."""


def test_a_served_run_is_followed_to_its_end(browser, monkeypatch):
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)
    words = ["fit", "a1a", "--method", "gd", "--rounds", "2500", "--reference", "--serve"]
    command = [sys.executable, "-c", SERVED, *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        address = re.search(r"http://\S+", process.stderr.readline())[0]
        browser.go(address)
        browser.until("document.getElementById('live').textContent.includes('ended')")
        assert text(browser, "#live") == "The run has ended: max rounds."
        assert browser.evaluate("document.getElementById('progress').data[0].x.length") == 2501
        assert text(browser, "#exchange-number") == "2500 of 2500 (gradient)"
        assert text(browser, "#findings-body li").startswith("Note:Used up its rounds")
        assert browser.complaints() == []
        assert {asked.partition("?")[0] for asked in browser.requests()} == {address, f"{address}rows"}
        process.communicate(timeout=240)
        assert process.returncode == 0
