"""`danl fit --resume`: what a run had when it went on, and workers.npz of the whole of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from danl.errors import InputError
from danl.objective.regions import IntArray
from danl.run.callback import Callback
from danl.run.history import History
from danl.run.result import Result
from danl.run.trace import Trace


class ResumedTrace(Callback):
    """The exchanges a resumed run already has; `rows` is None for a new run.

    With the `path` of workers.npz, what that file has is put before the trace of the run that goes on: only where it is
    of this very run, every exchange up to the checkpoint, with the bytes and the coverage of the rows that the
    checkpoint has. `notes` says why not, where it could not be done.
    """

    def __init__(self, trace: Trace, path: Path | None) -> None:
        self._trace, self._path = trace, path
        self.rows: int | None = None
        self.notes: tuple[str, ...] = ()

    def resumed(self, earlier: History) -> None:
        """Called once, before the first exchange."""
        self.rows = len(earlier)
        why = "" if self._path is None else self._joined(earlier, self._path)
        if why:
            self.notes = (f"workers.npz begins with exchange {len(earlier)}, where the run went on: {why}",)

    def _joined(self, earlier: History, path: Path) -> str:
        """Why it could not be done; empty where it was."""
        if not path.is_file():
            return f"{path} of its first part is not there"
        try:
            first = Trace.read(path)
        except InputError as error:
            return str(error)
        count = len(earlier)
        exchanges = first.exchanges[first.exchanges < count]
        if not len(exchanges) or exchanges[-1] != count - 1:
            return f"{path} ends before the checkpoint"
        if not _of_this_run(first, exchanges, earlier, self._trace):
            return f"{path} is of another run"
        self._trace.go_on_from(first, count)
        return ""


def nothing_left(result: Result, rounds: int) -> str:
    """What to say of a run that was at its end already."""
    ways = {"converged": "had converged", "max_rounds": "had used up its rounds"}
    had = ways.get(result.status, f"had ended ({result.status})")
    out_of_rounds = result.status == "max_rounds" and result.n_rounds >= rounds
    more = "; more --rounds go on with it" if out_of_rounds else ""
    return f"nothing was left to do: the run {had} after {len(result.history)} exchanges, and nobody was asked{more}"


def _of_this_run(first: Trace, exchanges: IntArray, rows: History, trace: Trace) -> bool:
    """Whether the workers of a trace sum to the rows."""
    if (first.n_workers, first.n_regions) != (trace.n_workers, trace.n_regions):
        return False
    if not np.array_equal(exchanges, np.arange(exchanges[0], len(rows))) or exchanges[0] < 0:
        return False
    known = slice(0, len(exchanges))
    sums = {
        "bytes_up": first.bytes_up[known].sum(axis=1),
        "bytes_down": first.bytes_down[known].sum(axis=1),
        "coverage": first.trained[known].sum(axis=1),
    }
    return all(np.array_equal(values, rows.column(name)[exchanges]) for name, values in sums.items())
