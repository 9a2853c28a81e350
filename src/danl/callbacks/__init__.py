"""Callbacks of `danl.solve`: stop a run early, and log it to MLflow or TensorBoard (docs/callbacks.md)."""

from __future__ import annotations

from danl.callbacks.base import STOP, AnyCallback, Callback, Callbacks

__all__ = ["STOP", "AnyCallback", "Callback", "Callbacks"]
