"""Callbacks of `danl.solve`: stop a run early, and log it to MLflow or TensorBoard (docs/callbacks.md)."""

from __future__ import annotations

from danl.callbacks.mlflow_run import MLflow
from danl.callbacks.stop import StopWhen
from danl.callbacks.tensorboard_events import TensorBoard
from danl.run.callback import STOP, AnyCallback, Callback, Callbacks

__all__ = ["STOP", "AnyCallback", "Callback", "Callbacks", "MLflow", "StopWhen", "TensorBoard"]
