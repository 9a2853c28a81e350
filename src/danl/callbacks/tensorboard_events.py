"""A run as TensorBoard's event files: a scalar series for every column of the history, settings and ending as text."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from danl.callbacks.base import Callback
from danl.callbacks.series import numbers_of, texts_of
from danl.errors import InputError, bad_argument
from danl.history import Row
from danl.result import Result


class TensorBoard(Callback):
    """Writes every run it is a callback of as events that `tensorboard --logdir` shows.

    TensorBoard keeps scalars as float32. A folder is one run in its list: give each run its own.

    Parameters
    ----------
    logdir : path
        The folder; made if need be.

    """

    def __init__(self, logdir: str | Path) -> None:
        if not isinstance(logdir, str | Path) or not str(logdir):
            raise bad_argument("logdir", logdir, "the path of a folder")
        if importlib.util.find_spec("tensorboardX") is None:
            raise InputError(
                "callbacks.TensorBoard: needs tensorboardX; install it with pip install 'danl[tensorboard]'"
            )
        self.logdir = Path(logdir)
        self._writer: Any = None

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
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(self.logdir))
        lines = [f"| {name} | {text.replace('|', '/')} |" for name, text in texts_of(settings).items()]
        self._writer.add_text("settings", "\n".join(["| setting | value |", "| --- | --- |", *lines]), 0)

    def __call__(self, row: Row) -> None:
        """One point of every series."""
        for name, value in numbers_of(row).items():
            self._writer.add_scalar(name.replace("coverage_", "coverage/region_"), value, row.exchange)

    def end(self, result: Result | None) -> None:
        """The ending, and everything on the disk."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            told = "error" if result is None else "\n\n".join([result.status, *result.notes])
            writer.add_text("status", told, 0 if result is None else result.n_rounds)
        finally:
            writer.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorBoard:
        """The same for another run, as where scikit-learn copies an estimator: what is open is not shared."""
        return TensorBoard(self.logdir)

    def __enter__(self) -> TensorBoard:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(None)  # events that are still open were left by an error
