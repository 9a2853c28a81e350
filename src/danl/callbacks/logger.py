"""What loggers have in common: what they write of a run, when, and what becomes of them where that fails.

A logger that fails does not take the run with it: it says so once, and the run goes on without it.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import Any, Self

from danl.errors import warn
from danl.run.callback import Callback
from danl.run.history import Row
from danl.run.result import Result

HEAD, TAIL = 190, 60
"""Characters of an error that are shown: of its beginning and of its end, where libraries say the cause."""
FLUSH_EVERY = 1.0
"""Seconds after which what was logged is where others can read it."""
LONGEST = 500
"""Characters of a setting's text; what is longer is cut."""
LEFT_OUT = ("w0",)
"""Settings that are as long as the model."""
_NUMBERS = tuple(field.name for field in fields(Row) if field.name not in ("exchange", "kind", "why", "coverage"))


class Logger(Callback):
    """A callback that writes a run elsewhere; a subclass says how, and any of that may fail."""

    _name = "the logger"
    _open = _lost = False
    _flushed = 0.0

    def connect(self) -> None:
        """See that there is somewhere to log to, before anything is computed."""

    def _start(self, texts: Mapping[str, str]) -> None:
        """A new run, with its settings."""

    def _log(self, exchange: int, numbers: Mapping[str, float]) -> None:
        """One exchange."""

    def _flush(self) -> None:
        """Have all of it where others can read it."""

    def _finish(self, result: Result | None) -> None:
        """How the run ended; None where it was with an error."""

    def _close(self) -> None:
        """Let go of what is open, also after a failure."""

    def begin(self, settings: Mapping[str, Any]) -> None:
        self.connect()
        self._open, self._lost, self._flushed = True, False, time.monotonic()
        with self._sending("before the first exchange"):
            self._start(texts_of(settings))

    def __call__(self, row: Row) -> None:
        if self._lost:
            return
        with self._sending(f"at exchange {row.exchange}"):
            self._log(row.exchange, metrics_of(row))
            if time.monotonic() - self._flushed >= FLUSH_EVERY:
                self._flush()
                self._flushed = time.monotonic()

    def end(self, result: Result | None) -> None:
        is_open, self._open = self._open, False
        if is_open and self._lost:
            with suppress(Exception):  # it is said already
                self._close()
        elif is_open:
            with self._sending("at the end"):
                self._finish(result)
                self._close()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *error: object) -> None:
        self.end(None)  # what is still open was left by an error

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The same for another run, as where scikit-learn copies an estimator: what is open is not shared."""
        return type(self)(**{name: getattr(self, name) for name in inspect.signature(type(self)).parameters})

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


def texts_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings, the method's options one by one; long lists are cut."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": str(each) for key, each in value.items()}
        elif name not in LEFT_OUT:
            flat[name] = str(value)
    return {name: text if len(text) <= LONGEST else text[: LONGEST - 3] + "..." for name, text in flat.items()}


def metrics_of(row: Row) -> dict[str, float]:
    """The columns of a row that are finite numbers; `hessian` is 1 for a Hessian exchange, coverage one a region."""
    values = {name: float(getattr(row, name)) for name in _NUMBERS}
    values["hessian"] = float(row.kind == "hessian")
    values |= {f"coverage_{region}": float(count) for region, count in enumerate(row.coverage)}
    return {name: value for name, value in values.items() if math.isfinite(value)}
