"""End a run when a condition of its rows is met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from danl.errors import bad_argument
from danl.protocol.messages import Array
from danl.run.callback import Callback, with_model
from danl.run.history import Row


class StopWhen(Callback):
    """Ends the run, with status "stopped", after the first exchange whose row meets the condition.

    Parameters
    ----------
    condition : callable
        From a row to whether the run is to end, such as ``lambda row: row.gap < 1e-6``, or from row and model,
        ``lambda row, w: abs(w).max() > 10``. A gap is known only with a reference; a comparison with nan is False.

    """

    def __init__(self, condition: Callable[[Row], Any]) -> None:
        if not callable(condition):
            raise bad_argument("condition", condition, "a function of a danl.Row", "such as lambda row: row.gap < 1e-6")
        self._condition = with_model(condition)

    def __call__(self, row: Row, w: Array | None = None) -> bool:
        return bool(self._condition(row, w))
