"""The record of a run: one flat row an exchange. Figures, reports and claims read these rows and nothing else.

A row tells what happened in one exchange and where it left the model: `objective`, `gap`, `grad_norm` and `distance`
are those of the model the run would return if it stopped there. What the workers reported is taken; what they did not
is measured outside the algorithm, where the rows are here for that, and costs no bytes and no `seconds`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from danl.checks import check_installed
from danl.errors import InputError
from danl.storage.atomic import written_whole
from danl.storage.serialize import storable

COVERAGE = "coverage_"
FIELD_TRAINING = (
    *("batch-gradient", "corrected-direction", "difference", "hessian-products", "learn", "newton-direction"),
    *("proximal-step", "pruned-steps", "quadratic-steps", "step-constants"),
)
"""Kinds of exchange of the field's methods, each called as its task is (`danl.tasks`): those that workers train in."""
TABLE_KINDS = ("fit-questions", "null-model", "local-fit", "binned-counts", "column-counts", "several")
"""Kinds of exchange that ask what tables are made of (`danl.statistics`)."""
FIELD_KINDS = (*FIELD_TRAINING, "losses", *TABLE_KINDS)
"""All of them that are tasks of `danl.tasks`. They are written down, as a history is read without what makes one."""
KINDS = ("hessian", "gradient", "loss", "local-steps", "smoothness", "moments", "scores", "check", *FIELD_KINDS)
"""Kinds of exchange a run of danl's own methods can have."""
TRAINING = ("hessian", "gradient", "local-steps", *FIELD_TRAINING)
"""Kinds of exchange that are a round of training: coverage and staleness are counted over these."""


@storable
@dataclass(frozen=True)
class Row:
    """One exchange."""

    exchange: int
    """0, 1, 2, ...; the first one is Phase I, or with an intercept that for the means of the columns."""
    kind: str
    """One of KINDS; `check` asks for the workers' word on the tolerance."""
    active: int
    """Workers that answered."""
    failed: int
    """Workers that were asked and did not answer."""
    min_coverage: int
    """psi* so far: the fewest workers on a trained region in any round."""
    max_staleness: int
    """gamma so far: the longest run of rounds a (worker, region) pair went untrained."""
    min_trained: int
    """S* so far: the fewest regions trained in any round."""
    pruning_error: float
    """delta^2 so far: the largest |w - w_i|^2 at which a gradient was evaluated."""
    objective: float
    """f(w); nan where nobody reported or measured it."""
    gap: float
    """f(w) - f(w*); nan without a reference."""
    grad_norm: float
    """|grad f(w)|; nan where nobody sent all of it, as in masked rounds of the default method."""
    step_norm: float
    """|w_new - w_old|."""
    model_norm: float
    """|w|."""
    distance: float
    """|w - w*|; nan without a reference."""
    bytes_up: int
    """Bytes all workers sent in this exchange."""
    bytes_down: int
    """Bytes all workers were sent in this exchange."""
    seconds: float
    """Wall-clock time of this exchange: planning, the workers' work, the server's step."""
    simulated_seconds: float
    """Time of the slowest worker by its profile; nan without profiles."""
    coverage: tuple[int, ...]
    """|C^{t,q}|: workers that trained each region in this exchange."""
    refused: int = 0
    """1 where the losses of this exchange refused the trial step, else 0."""
    decrement: float = math.nan
    """What `tol` is compared with: the Newton decrement over the square root of the objective, by the method's own
    curvature and newest gradient, an estimate where that is; nan where the method has none."""
    senders: int = 0
    """Workers that sent curvature in this exchange, or a piece of it."""
    why: str = ""
    """Why the method asked this, in a few words; empty where it does not say."""


_TYPES = get_type_hints(Row)
_SCALARS = tuple(field.name for field in fields(Row) if field.name != "coverage")
_LATER = ("refused", "decrement", "senders", "why")
"""Columns that older files do not have: read as the default there."""


class History(list[Row]):
    """The rows of a run, in order: a list of them, with their columns and their files."""

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """One column as an array; "coverage" is two-dimensional, (exchanges, regions)."""
        if name not in _TYPES:
            raise InputError(f"column={name!r}: must be one of {', '.join(_TYPES)}")
        return np.array([getattr(row, name) for row in self])

    def to_columns(self) -> dict[str, Any]:
        """The rows by column: a few arrays, however many rows there are."""
        if not self:
            return {}
        return {
            name: [getattr(row, name) for row in self] if kind is str else self.column(name)
            for name, kind in _TYPES.items()
        }

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> History:
        """The history that `to_columns` took apart."""
        lists = (values if _TYPES[name] is str else values.tolist() for name, values in columns.items())
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True))
        return cls(Row(**{**row, "coverage": tuple(row["coverage"])}) for row in rows)

    def total_bytes(self) -> np.ndarray[Any, Any]:
        """Bytes up and down together, summed up to and with each exchange."""
        return np.cumsum(self.column("bytes_up") + self.column("bytes_down"))

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; coverage as one column a region."""
        check_installed("to_frame", "pandas", "pandas")
        import pandas as pd

        return pd.DataFrame(self._flat_rows(), columns=self._header())

    def to_csv(self, path: str | Path) -> None:
        """Write the rows as CSV; floats keep every digit, nan is an empty cell."""
        with written_whole(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self._header())
            for values in self._flat_rows():
                writer.writerow(["" if value != value else value for value in values])  # nan alone differs from itself

    @classmethod
    def read_csv(cls, path: str | Path) -> History:
        """Read what `to_csv` wrote."""
        path = Path(path)
        try:
            with path.open(newline="", encoding="utf-8") as file:
                header, *lines = csv.reader(file)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); give the history.csv of a run") from None
        except (ValueError, csv.Error, UnicodeDecodeError):
            raise InputError(f"{path}: is empty or not text; give the history.csv of a run") from None
        missing = [name for name in _SCALARS if name not in header and name not in _LATER]
        if missing:
            raise InputError(f"{path}: has no column {missing[0]!r}; give the history.csv of a run")
        regions = sorted((name for name in header if name.startswith(COVERAGE)), key=lambda name: (len(name), name))
        return cls(
            _parse(path, number, dict(zip(header, line, strict=False)), regions) for number, line in enumerate(lines, 2)
        )

    def _header(self) -> list[str]:
        regions = len(self[0].coverage) if self else 0
        return [*_SCALARS, *(f"{COVERAGE}{q}" for q in range(regions))]

    def _flat_rows(self) -> list[list[Any]]:
        return [[*(getattr(row, name) for name in _SCALARS), *row.coverage] for row in self]

    def __repr__(self) -> str:
        if not self:
            return "History(no exchange)"
        last = self[-1]
        return f"History({len(self)} exchanges, objective {last.objective:.6g}, gradient norm {last.grad_norm:.3g})"


def _parse(path: Path, number: int, cells: dict[str, str], regions: list[str]) -> Row:
    try:
        there = [name for name in _SCALARS if name in cells or name not in _LATER]
        values = {name: _TYPES[name](cells[name] or ("" if name == "why" else "nan")) for name in there}
        return Row(**values, coverage=tuple(int(cells[name]) for name in regions))
    except (KeyError, ValueError):
        raise InputError(
            f"{path}, line {number}: not a row of a history ({','.join(cells.values())[:80]}); nothing was read"
        ) from None
