"""Data frames, pandas' or another library's, to a `Table`, as files are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danl.data.files import Table, check_header, choose_columns, is_missing, labels_of
from danl.errors import InputError


def read_frame(frame: Any, target_column: str | None, weight_column: str | None) -> Table:
    """A data frame with the target among its columns: the last, unless it is named."""
    where = Path("load()")
    header = [str(name) for name in frame.columns]
    check_header(where, header)
    columns = choose_columns(where, header, target_column, None, weight_column)

    def column(position: int) -> NDArray[Any]:
        return np.asarray(frame[frame.columns[position]].to_numpy())

    def numbers(position: int) -> NDArray[np.float64]:
        try:
            return column(position).astype(np.float64)
        except (TypeError, ValueError):
            place = f"{where}: column {position + 1} must hold numbers"
            raise InputError(f"{place}; it is called {header[position]!r}", place=place) from None

    y = column(columns.target)
    texts = [] if y.dtype.kind in "biuf" else [str(value).strip() for value in y.tolist()]
    for row, text in enumerate(texts):
        if is_missing(text) or text in ("None", "<NA>", "NaT"):
            place = f"{where}, row {row} (counted from 0), column {columns.target + 1}: the target is missing"
            raise InputError(place, place=place)
    return Table(
        X=np.column_stack([numbers(position) for position in columns.features]),
        y=labels_of(texts) if texts else y.astype(np.float64),
        feature_names=tuple(header[position] for position in columns.features),
        target_name=header[columns.target],
        weights=None if columns.weight is None else numbers(columns.weight),
    )
