"""A run in MLflow: settings as parameters, a metric series for every column of the history, the ending as tags.

Rows are sent together, once a second at most, so that a run does not wait for the store after every exchange. MLflow
reports its own use to its makers when it is imported; danl turns that off unless MLFLOW_DISABLE_TELEMETRY is set.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from danl._version import __version__
from danl.callbacks.base import Callback
from danl.callbacks.series import numbers_of, texts_of
from danl.errors import InputError, bad_argument
from danl.history import Row
from danl.result import Result

SEND_EVERY = 1.0
"""Seconds between two batches of metrics."""
MOST_METRICS = 1000
"""What MLflow takes in one batch."""
ENDINGS = {
    "converged": "FINISHED",
    "max_rounds": "FINISHED",
    "stopped": "FINISHED",
    "interrupted": "KILLED",
    "diverged": "FAILED",
    "quorum_lost": "FAILED",
}
"""What MLflow calls the ways a run can end."""


class MLflow(Callback):
    """Logs every run it is a callback of as a run of an MLflow experiment.

    Parameters
    ----------
    experiment : str
        Its name; made if need be.
    tracking_uri : str, optional
        Where MLflow keeps runs: "sqlite:///mlflow.db", a server's address. Default: MLflow's own, MLFLOW_TRACKING_URI.
    run_name : str, optional
        Default: the method's name.

    Attributes
    ----------
    run_id : str or None
        MLflow's number of the newest run.

    """

    def __init__(
        self, experiment: str = "danl", *, tracking_uri: str | None = None, run_name: str | None = None
    ) -> None:
        for name, value in (("experiment", experiment), ("tracking_uri", tracking_uri), ("run_name", run_name)):
            if not (value is None and name != "experiment") and not (isinstance(value, str) and value):
                raise bad_argument(name, value, "a text that is not empty")
        if importlib.util.find_spec("mlflow") is None:
            raise InputError("callbacks.MLflow: needs MLflow; install it with pip install 'danl[mlflow]'")
        self.experiment, self.tracking_uri, self.run_name = experiment, tracking_uri, run_name
        self.run_id: str | None = None
        self._client: Any = None
        self._experiment_id = ""
        self._open = False
        self._waiting: list[Any] = []
        self._sent = 0.0

    def connect(self) -> None:
        """Open the store and find or make the experiment, before anything is computed."""
        if self._client is not None:
            return
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        try:
            client = MlflowClient(tracking_uri=self.tracking_uri)
            found = client.get_experiment_by_name(self.experiment)
            self._experiment_id = client.create_experiment(self.experiment) if found is None else found.experiment_id
        except Exception as error:  # MLflow's own, or that of whatever database or server is behind it
            reason = str(error).strip().partition("\n")[0][:200]
            raise InputError(
                f"tracking_uri={self.tracking_uri!r}: MLflow cannot use it ({reason}); "
                "give the address of a server, or sqlite:///mlflow.db for a file here"
            ) from None
        self._client = client

    def begin(self, settings: Mapping[str, Any]) -> None:
        """A new run, with the settings as its parameters."""
        self.connect()
        from mlflow.entities import Param

        texts = texts_of(settings)
        run = self._client.create_run(self._experiment_id, run_name=self.run_name or texts.get("method"))
        self.run_id, self._open, self._waiting, self._sent = str(run.info.run_id), True, [], time.monotonic()
        self._client.log_batch(self.run_id, params=[Param(name, text) for name, text in texts.items()])
        self._client.set_tag(self.run_id, "danl.version", __version__)

    def __call__(self, row: Row) -> None:
        """Note the row; send what is there once a second."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._waiting += [Metric(name, value, now, row.exchange) for name, value in numbers_of(row).items()]
        if time.monotonic() - self._sent >= SEND_EVERY:
            self._send()

    def end(self, result: Result | None) -> None:
        """Send what is left, and how it ended."""
        if not self._open:
            return
        self._open = False
        try:
            self._send()
            self._client.set_tag(self.run_id, "danl.status", "error" if result is None else result.status)
            if result is not None and result.notes:
                self._client.set_tag(self.run_id, "danl.notes", "\n".join(result.notes))
        finally:
            self._client.set_terminated(self.run_id, "FAILED" if result is None else ENDINGS[result.status])

    def _send(self) -> None:
        waiting, self._waiting, self._sent = self._waiting, [], time.monotonic()
        for first in range(0, len(waiting), MOST_METRICS):
            self._client.log_batch(self.run_id, metrics=waiting[first : first + MOST_METRICS])

    def __deepcopy__(self, memo: dict[int, Any]) -> MLflow:
        """The same for another run, as where scikit-learn copies an estimator: what is open is not shared."""
        return MLflow(self.experiment, tracking_uri=self.tracking_uri, run_name=self.run_name)

    def __enter__(self) -> MLflow:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(None)  # a run that is still open was left by an error
