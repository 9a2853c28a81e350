"""How large the report of a long run is and how long a browser takes to open it; and a picture of a report.

python -m tests.report.measure                                  # 5,000 exchanges, 100 workers, 16 regions
python -m tests.report.measure --page run/report.html --picture report.png
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from danl.report import write_report
from tests.report.browser import Browser
from tests.report.made import large_run

PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
TIMES = 5


def measure(exchanges: int, workers: int, regions: int) -> None:
    """Print the size of a page and the milliseconds from the start of its loading to the first picture of all of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_report([large_run(exchanges, workers, regions)], Path(folder) / "report.html")
        browser = Browser()
        try:
            taken = []
            for _ in range(TIMES):
                browser.go(path.as_uri())
                taken.append(browser.evaluate(PAINTED))
            moved = slider(browser)
        finally:
            browser.close()
        size = path.stat().st_size / 1e6
    print(f"{exchanges:,} exchanges x {workers} workers x {regions} regions: {size:.1f} MB")
    print(f"opened and drawn in {min(taken) / 1e3:.1f} to {max(taken) / 1e3:.1f} s ({TIMES} times)")
    print(f"a move of the slider: {moved:.0f} ms")


def slider(browser: Browser) -> float:
    """Milliseconds from a move of the slider to the picture of the exchange it is moved to."""
    browser.evaluate("window.begun = performance.now()")
    browser.change("exchange", browser.evaluate("document.getElementById('exchange').max"), "input")
    return browser.evaluate(f"{PAINTED}.then(now => now - window.begun)")


def picture(page: Path, to: Path, height: int) -> None:
    """The top of a page, 1280 pixels wide, as a small PNG."""
    from PIL import Image

    browser = Browser()
    try:
        browser.go(page.resolve().as_uri(), height=height)
        browser.screenshot(to, whole=False)
    finally:
        browser.close()
    with Image.open(to) as image:
        image.convert("RGB").quantize(256).save(to, optimize=True)
    print(f"{to}: {to.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure a report, or take a picture of one.")
    parser.add_argument("--shape", type=int, nargs=3, default=(5000, 100, 16), metavar=("T", "N", "Q"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--height", type=int, default=2050)
    given = parser.parse_args()
    if given.page is not None and given.picture is not None:
        picture(given.page, given.picture, given.height)
    else:
        measure(*given.shape)
