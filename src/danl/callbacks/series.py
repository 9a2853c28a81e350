"""What loggers write of a run: its settings as short texts, and each row as named numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from danl.run.history import Row

LONGEST = 500
"""Characters of a setting's text; what is longer is cut."""
LEFT_OUT = ("w0",)
"""Settings that are as long as the model."""
_NUMBERS = tuple(field.name for field in fields(Row) if field.name not in ("exchange", "kind", "coverage"))


def texts_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings, the method's options one by one; long lists are cut."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if name in LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": each for key, each in value.items()}
        else:
            flat[name] = value
    return {name: _cut(str(value)) for name, value in flat.items()}


def numbers_of(row: Row) -> dict[str, float]:
    """The columns of a row that are finite numbers; `hessian` is 1 for a Hessian exchange, coverage one a region."""
    values = {name: float(getattr(row, name)) for name in _NUMBERS}
    values["hessian"] = float(row.kind == "hessian")
    values |= {f"coverage_{region}": float(count) for region, count in enumerate(row.coverage)}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
