"""A run as TensorBoard's event files: a scalar series for every column of the history, settings and ending as text.

Events are written where the run is, not in a thread of tensorboardX's: a disk that is full is then an error here, which
ends the logging, and not a queue that nobody empties, which would end the run.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from danl.callbacks.giving_up import Logger
from danl.callbacks.series import numbers_of, texts_of
from danl.checks import check_installed
from danl.errors import InputError, bad_argument
from danl.run.history import Row
from danl.run.result import Result

FLUSH_EVERY = 1.0
"""Seconds after which what was written is on the disk, for a TensorBoard that follows the run."""
_NUMBERS = itertools.count()
"""Of the event files of this process: tensorboardX names them by the second and the host alone."""


class TensorBoard(Logger):
    """Writes every run it is a callback of as events that `tensorboard --logdir` shows.

    TensorBoard keeps scalars as float32. A folder is one run in its list: give each run its own. Every run writes a
    file of its own, also where several write into one folder at once.

    Parameters
    ----------
    logdir : path
        The folder; made if need be.

    """

    _name = "TensorBoard"

    def __init__(self, logdir: str | Path) -> None:
        if not isinstance(logdir, str | Path) or not str(logdir):
            raise bad_argument("logdir", logdir, "the path of a folder")
        check_installed("callbacks.TensorBoard", "tensorboardX", "tensorboard")
        self.logdir = Path(logdir)
        self._events: Any = None
        self._flushed = 0.0

    def connect(self) -> None:
        """Make the folder, before anything is computed."""
        try:
            self.logdir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"logdir={str(self.logdir)!r}: cannot be made ({error.strerror}); choose another folder"
            ) from None

    def begin(self, settings: Mapping[str, Any]) -> None:
        """A new event file, with the settings as a table."""
        self.connect()
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.summary import text

        self._lost, self._flushed = False, time.monotonic()
        lines = [f"| {name} | {value.replace('|', '/')} |" for name, value in texts_of(settings).items()]
        with self._sending("before the first exchange"):
            self._events = EventsWriter(str(self.logdir / "events"), f".{os.getpid()}.{next(_NUMBERS)}")
            self._write(text("settings", "\n".join(["| setting | value |", "| --- | --- |", *lines])), 0)

    def __call__(self, row: Row) -> None:
        """One point of every series."""
        if self._lost:
            return
        from tensorboardX.summary import scalar

        with self._sending(f"at exchange {row.exchange}"):
            for name, value in numbers_of(row).items():
                self._write(scalar(name.replace("coverage_", "coverage/region_"), value), row.exchange)
            if time.monotonic() - self._flushed >= FLUSH_EVERY:
                self._events.flush()
                self._flushed = time.monotonic()

    def end(self, result: Result | None) -> None:
        """The ending, and everything on the disk."""
        if self._events is None:
            return
        if self._lost:
            with suppress(Exception):  # it is said already
                self._close()
        else:
            from tensorboardX.summary import text

            ended = "error" if result is None else "\n\n".join([result.status, *result.notes])
            with self._sending("at the end"):
                self._write(text("status", ended), 0 if result is None else result.n_rounds)
                self._close()

    def _close(self) -> None:
        events, self._events = self._events, None
        try:
            events.close()
        except Exception:
            with suppress(Exception):
                events._py_recordio_writer.close()  # its file is left open where flushing fails
            raise

    def _write(self, summary: Any, step: int) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._events.write_event(Event(wall_time=time.time(), step=step, summary=summary))

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorBoard:
        """The same for another run, as where scikit-learn copies an estimator: what is open is not shared."""
        return TensorBoard(self.logdir)
