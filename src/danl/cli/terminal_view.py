"""`danl fit --live`: a run as it goes. A view that fits the terminal, or plain lines where there is none.

    the curve       gap or gradient norm, log scale, with Hessian exchanges and refused steps marked below it
    the matrix      which worker trained which region in the newest round
    the numbers     bytes, replies that did not come, time, and how far it still is

The run only hands its rows over; drawing happens in rich's own thread a few times a second.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from danl.cli.chart import HESSIAN, MARKS_MEAN, REFUSED, BinnedSeries, curve_lines, matrix, matrix_means
from danl.cli.display import ProgressLine, gap_or_gradient
from danl.cli.forecast import WINDOW, Observation, forecast
from danl.protocol.messages import Mask
from danl.run.history import TRAINING, History, Row
from danl.run.trace import Int8Array, Trace
from danl.wording import duration, human_bytes

PER_SECOND = 8
LINE_EVERY = 5
"""Without a terminal a line is printed every so many exchanges."""
LINE_SECONDS, LONGEST_SILENCE = 0.5, 10.0
"""The fewest seconds between two such lines, and the most."""
STOP_HINT = "Ctrl-C ends the run with what it has"


class TerminalView(ProgressLine):
    """Follows one run; a callback of `danl.solve`, and a context.

    `title` says what is solved and `label` by which method; without the run's `trace` counts stand for the matrix.
    """

    def __init__(
        self, target: Console, title: str, label: str, max_rounds: int, tol: float, trace: Trace | None = None
    ) -> None:
        super().__init__(target, label, max_rounds, quiet=True)
        self._title, self._tol, self._trace = title, tol, trace
        self._series, self._seen = BinnedSeries(), deque[Observation](maxlen=WINDOW)
        self._row: Row | None = None
        self._round: tuple[Row, Mask, Int8Array] | None = None  # the newest that trained something
        self._sums = Counter[str]()
        self._said, self._said_of = -math.inf, -1
        self._ended = False
        if target.is_terminal:
            self._live = Live(self, console=target, refresh_per_second=PER_SECOND, vertical_overflow="crop")

    def __exit__(self, *error: object) -> None:
        self._ended = True
        super().__exit__(*error)
        if self._live is None and self._row is not None and self._said_of != self._row.exchange:
            self._say(self._row)

    def resumed(self, earlier: History) -> None:
        """Take in the rows of the run that goes on; they took what they took, before it went on."""
        ago = float(earlier.column("seconds").sum())
        for row in earlier:
            ago -= row.seconds
            self._take(row, -ago)

    def __call__(self, row: Row) -> None:
        """Take the newest row in."""
        self._take(row, time.perf_counter() - self._begun)
        if self._trace is not None and len(self._trace) and row.kind in TRAINING:
            self._round = (row, self._trace.trained_in(-1), self._trace.asked_in(-1))
        silent = time.perf_counter() - self._said
        due = (row.exchange % LINE_EVERY == 0 and silent >= LINE_SECONDS) or silent >= LONGEST_SILENCE
        if self._live is None and due:
            self._say(row)

    def _take(self, row: Row, elapsed: float) -> None:
        hessian, value = row.kind == "hessian", row.grad_norm if math.isnan(row.gap) else row.gap
        self._sums.update(up=row.bytes_up, down=row.bytes_down, failed=row.failed, refused=row.refused, hessian=hessian)
        self._series.add(value, HESSIAN * hessian | REFUSED * row.refused)
        self._seen.append(Observation(row.decrement, elapsed))
        self._row = row

    def _say(self, row: Row) -> None:
        """A line, where there is no terminal."""
        self._said, self._said_of = time.perf_counter(), row.exchange
        parts = [self._label, self._position(row), row.kind, gap_or_gradient(row), self._traffic(), self._elapsed()]
        self._console.print("  ".join(parts), soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.lines(options.max_width, console.height - 1, plain=options.ascii_only)

    def lines(self, width: int, height: int, *, plain: bool = False) -> list[Text]:
        """The view for a terminal of this size: what matters least is left out first."""
        row = self._row
        if row is None:
            return [_cut(Text(self._title, "bold"), width), Text("waiting for the workers", "dim")][:height]
        spare = max(height - 9, 0)  # what the other lines leave to curve and matrix
        matrix_height = min(len(row.coverage), max(spare // 2, 1))
        curve_height = min(max(spare - matrix_height, 1), 10)
        scale = f"{'|grad|' if math.isnan(row.gap) else 'gap'}, log scale: "
        sums = self._sums
        happened = (
            f"{sums['hessian']} with Hessians",
            f"{sums['refused']} refused",
            f"{sums['failed']} replies missing",
        )
        rounds_left = max(self._max_rounds - row.exchange, 0)
        left = "" if self._ended else forecast(list(self._seen), tol=self._tol, left=rounds_left)
        marks = Text((scale if len(scale) + len(MARKS_MEAN) <= width else "") + MARKS_MEAN, "dim")
        sections: list[tuple[int, list[Text]]] = [  # what matters less has the larger number
            (6, [Text(self._title, "bold")]),
            (0, [_joined([self._label, self._position(row), row.kind], width, "bold")]),
            (1, [_joined(self._numbers(row), width)]),
            (2, curve_lines(self._series, width, curve_height, plain=plain)),
            (7, [marks]),
            (3, self._who(row, width, matrix_height, plain)),
            (4, [_joined([self._traffic(), *happened], width)]),
            (1, [] if self._ended else [Text(f"to decrement {self._tol:g}: {left}" if self._tol > 0 else left)]),
            (5, [] if self._ended else [Text(STOP_HINT, "dim")]),
        ]
        return [_cut(line, width) for line in _fitting(sections, height)]

    def _who(self, row: Row, width: int, height: int, plain: bool) -> list[Text]:
        """The matrix of the newest round, or the counts where there is no trace of it."""
        newest = self._round
        if newest is None:
            return [Text(f"workers on each region: {' '.join(map(str, row.coverage))}")]
        row, trained, asked = newest
        means = matrix_means(len(trained), trained.shape[1], width, height, plain=plain)
        heads = (f"regions x {len(trained)} workers, exchange {row.exchange}: ", f"exchange {row.exchange}: ", "")
        head = next((each for each in heads if len(each) + len(means) <= width), "")
        return [Text(head + means, "dim"), *matrix(trained, asked, width, height, plain=plain)]

    def _position(self, row: Row) -> str:
        return f"round {row.exchange}/{self._max_rounds}"

    def _numbers(self, row: Row) -> Iterable[str]:
        yield gap_or_gradient(row)
        if not math.isnan(row.gap):
            yield f"|grad| {row.grad_norm:.2e}"
        if not math.isnan(row.decrement):
            yield f"decrement {row.decrement:.1e}"
        yield self._elapsed()
        yield f"objective {row.objective:.8g}"

    def _traffic(self) -> str:
        return f"{human_bytes(self._sums['up'])} up, {human_bytes(self._sums['down'])} down"

    def _elapsed(self) -> str:
        return duration(time.perf_counter() - self._begun)


def _joined(parts: Iterable[str], width: int, style: str = "") -> Text:
    """As many of the parts as fit."""
    kept: list[str] = []
    for part in parts:
        if kept and len("  ".join([*kept, part])) > width:
            break
        kept.append(part)
    return Text("  ".join(kept), style)


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    line.no_wrap = True
    return line


def _fitting(sections: list[tuple[int, list[Text]]], height: int) -> list[Text]:
    """The lines of as many sections as fit, the least important left out first."""
    kept = list(sections)
    while sum(len(lines) for _, lines in kept) > height and len(kept) > 1:
        kept.remove(max(kept, key=lambda section: section[0]))
    return [line for _, lines in kept for line in lines][: max(height, 1)]
