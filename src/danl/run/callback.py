"""What a callback is, and several of them as one.

    begin(settings)     before the first exchange: what the run was asked to do, as in `Result.settings`
    resumed(earlier)    then, where the run goes on from a checkpoint: the rows it has already
    callback(row)       after every exchange; True (`danl.STOP`) ends the run with status "stopped"
    callback(row, w)    the same, where it has a parameter named `w`: the model the run would return if it ended here
    end(result)         after the last one; None where the run ended with an error

Any function of a row is one: `begin`, `resumed` and `end` are called where they are there. All callbacks of a run are
called after every exchange, also when an earlier one has said that the run is to end. An error of a callback is the
run's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from danl.errors import bad_argument
from danl.protocol.messages import Array
from danl.run.history import History, Row
from danl.run.result import Result

STOP = True
"""What a callback returns to end the run."""

AnyCallback = Callable[..., object]
"""A function of a row, or of a row and the model `w`."""


def with_model(callback: AnyCallback) -> Callable[[Row, Array | None], object]:
    """The callback as a function of row and model, whether it has a parameter `w` for a copy of the model or not."""
    if isinstance(callback, FunctionType) and not vars(callback):  # nothing says that its parameters are others
        code = callback.__code__
        wants = "w" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    else:
        try:
            wants = "w" in inspect.signature(callback).parameters
        except ValueError:  # some functions that are written in C
            wants = False
    if not wants:
        return lambda row, w: callback(row)
    return lambda row, w: callback(row, w=None if w is None else w.copy())


class Callback:
    """A callback that does nothing; derive from it, or write any class with some of these methods."""

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Before the first exchange."""

    def resumed(self, earlier: History) -> None:
        """After `begin`, where the run goes on from a checkpoint: the rows it has, for which it is not called."""

    def __call__(self, row: Row) -> bool | None:
        """After every exchange; True ends the run. With a parameter `w` beside the row it sees the model."""
        return None

    def end(self, result: Result | None) -> None:
        """After the last exchange; None where the run ended with an error."""


class Callbacks:
    """The callbacks of a run, called one after the other."""

    def __init__(self, callbacks: AnyCallback | Sequence[AnyCallback] | None) -> None:
        several = isinstance(callbacks, list | tuple)
        self._all: list[Any] = [] if callbacks is None else list(callbacks) if several else [callbacks]  # type: ignore[arg-type]
        self._begun: list[Any] = []
        for each in self._all:
            if not callable(each) or isinstance(each, type):
                raise bad_argument(
                    "callback", each, "a function of a danl.Row, an object of danl.callbacks, or a list of them"
                )
        self._calls = [with_model(each) for each in self._all]

    def __bool__(self) -> bool:
        return bool(self._all)

    def begin(self, settings: Callable[[], Mapping[str, Any]], earlier: History | None = None) -> None:
        """Begin all; the settings are made where somebody wants to know them."""
        for each in self._all:
            self._begun.append(each)  # before, so that what has begun in part is ended
            if hasattr(each, "begin"):
                each.begin(settings())
            if earlier is not None and hasattr(each, "resumed"):
                each.resumed(History(earlier))  # a copy each: the run goes on with its own

    def __call__(self, row: Row, w: Array | None = None) -> bool:
        """Whether one of them says that the run is to end; `w` is None where only the rows of a run are here."""
        said = [call(row, w) for call in self._calls]
        return any(isinstance(word, bool | np.bool_) and bool(word) for word in said)

    def end(self, result: Result | None) -> None:
        """End all that have begun, also when ending one of them fails; the first such error is raised."""
        errors: list[BaseException] = []
        while self._begun:
            each = self._begun.pop(0)
            try:
                if hasattr(each, "end"):
                    each.end(result)
            except Exception as error:
                errors.append(error)
        if errors and result is not None:  # where the run has an error, that is the one to see
            raise errors[0]
