"""A run in MLflow: settings as parameters, a metric series for every column of the history, the ending as tags.

Rows are sent together, once a second at most, so that a run does not wait for the store after every exchange. MLflow
reports its own use to its makers when it is imported; danl turns that off unless MLFLOW_DISABLE_TELEMETRY is set. A
store that fails ends the logging, not the run.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from danl._version import __version__
from danl.callbacks.logger import Logger, reason_of
from danl.checks import check_installed
from danl.errors import InputError, bad_argument
from danl.methods.base import Status
from danl.run.result import Result

MOST_METRICS = 1000
"""What MLflow takes in one batch."""
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""Set where they are not: else MLflow tries a server that is not there for four minutes."""
MLFLOW_STATUS: dict[Status, str] = {
    "converged": "FINISHED",
    "max_rounds": "FINISHED",
    "stopped": "FINISHED",
    "interrupted": "KILLED",
    "diverged": "FAILED",
    "quorum_lost": "FAILED",
}
"""What MLflow calls the ways a run can end."""


class MLflow(Logger):
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
        MLflow's number of the newest run; None where the store failed before there was one.

    """

    _name = "MLflow"

    def __init__(
        self, experiment: str = "danl", *, tracking_uri: str | None = None, run_name: str | None = None
    ) -> None:
        for name, value in (("experiment", experiment), ("tracking_uri", tracking_uri), ("run_name", run_name)):
            if not (value is None and name != "experiment") and not (isinstance(value, str) and value):
                raise bad_argument(name, value, "a text that is not empty")
        check_installed("callbacks.MLflow", "mlflow", "mlflow")
        self.experiment, self.tracking_uri, self.run_name = experiment, tracking_uri, run_name
        self.run_id: str | None = None
        self._client: Any = None
        self._experiment_id = ""
        self._waiting: list[Any] = []

    def connect(self) -> None:
        """Open the store and find or make the experiment, before anything is computed."""
        if self._client is not None:
            return
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        try:
            client = MlflowClient(tracking_uri=self.tracking_uri)
            found = client.get_experiment_by_name(self.experiment)
            self._experiment_id = client.create_experiment(self.experiment) if found is None else found.experiment_id
        except Exception as error:  # MLflow's own, or that of whatever database or server is behind it
            raise InputError(
                f"tracking_uri={self.tracking_uri!r}: MLflow cannot use it ({reason_of(error)}); "
                "give the address of a server, or sqlite:///mlflow.db for a file here"
            ) from None
        self._client = client

    def _start(self, texts: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        self.run_id, self._waiting = None, []
        run = self._client.create_run(self._experiment_id, run_name=self.run_name or texts.get("method"))
        self.run_id = str(run.info.run_id)
        self._client.log_batch(self.run_id, params=[Param(name, text) for name, text in texts.items()])
        self._client.set_tag(self.run_id, "danl.version", __version__)

    def _log(self, exchange: int, numbers: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._waiting += [Metric(name, value, now, exchange) for name, value in numbers.items()]

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), MOST_METRICS):
            self._client.log_batch(self.run_id, metrics=waiting[first : first + MOST_METRICS])

    def _finish(self, result: Result | None) -> None:
        self._flush()
        self._client.set_tag(self.run_id, "danl.status", "error" if result is None else result.status)
        if result is not None and result.notes:
            self._client.set_tag(self.run_id, "danl.notes", "\n".join(result.notes))
        self._client.set_terminated(self.run_id, "FAILED" if result is None else MLFLOW_STATUS[result.status])

    @contextmanager
    def _sending(self, when: str) -> Iterator[None]:
        """As a warning of one line, without the pages that MLflow logs of an error of its database."""
        logger = logging.getLogger("mlflow")
        level = logger.level
        logger.setLevel(logging.CRITICAL + 1)
        try:
            with super()._sending(when):
                yield
        finally:
            logger.setLevel(level)
