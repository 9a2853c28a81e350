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

from danl.callbacks.logger import Logger
from danl.checks import check_installed
from danl.errors import InputError, bad_argument
from danl.run.result import Result

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

    def connect(self) -> None:
        """Make the folder, before anything is computed."""
        try:
            self.logdir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"logdir={str(self.logdir)!r}: cannot be made ({error.strerror}); choose another folder"
            ) from None

    def _start(self, texts: Mapping[str, str]) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.summary import text

        lines = [f"| {name} | {value.replace('|', '/')} |" for name, value in texts.items()]
        self._events = EventsWriter(str(self.logdir / "events"), f".{os.getpid()}.{next(_NUMBERS)}")
        self._write(text("settings", "\n".join(["| setting | value |", "| --- | --- |", *lines])), 0)

    def _log(self, exchange: int, numbers: Mapping[str, float]) -> None:
        from tensorboardX.summary import scalar

        for name, value in numbers.items():
            self._write(scalar(name.replace("coverage_", "coverage/region_"), value), exchange)

    def _flush(self) -> None:
        self._events.flush()

    def _finish(self, result: Result | None) -> None:
        from tensorboardX.summary import text

        ended = "error" if result is None else "\n\n".join([result.status, *result.notes])
        self._write(text("status", ended), 0 if result is None else result.n_rounds)

    def _close(self) -> None:
        try:
            self._events.close()
        except Exception:
            with suppress(Exception):
                self._events._py_recordio_writer.close()  # its file is left open where flushing fails
            raise

    def _write(self, summary: Any, step: int) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._events.write_event(Event(wall_time=time.time(), step=step, summary=summary))
