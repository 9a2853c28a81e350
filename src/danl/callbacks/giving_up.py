"""A logger that fails does not take the run with it: it says so once, and the run goes on without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from danl.errors import warn
from danl.run.callback import Callback

HEAD, TAIL = 190, 60
"""Characters of an error that are shown: of its beginning and of its end, where libraries say the cause."""


class Logger(Callback):
    """A callback whose sending may fail; `_lost` says whether it has, in the run that goes on."""

    _name = "the logger"
    _lost = False

    def connect(self) -> None:
        """See that there is somewhere to log to, before anything is computed."""

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(None)  # what is still open was left by an error

    @contextmanager
    def _sending(self, when: str) -> Iterator[None]:
        """Take an error of what is inside for the end of the logging, with one warning."""
        try:
            yield
        except Exception as error:  # whatever a store, a server or a disk raises
            self._lost = True
            warn(f"{self._name}: logging ended {when} ({reason_of(error)}); the run goes on without it")


def reason_of(error: Exception) -> str:
    """An error as one line, not too long, or its name where it says nothing."""
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= HEAD + TAIL else f"{said[:HEAD]} ... {said[-TAIL:]}"
