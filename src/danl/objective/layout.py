r"""How the model's numbers are laid out: one vector w, whatever the model has of features, outputs and intercepts.

A linear model has a coefficient for every feature and output (one output; a class each for a multinomial loss) and,
if asked for, an intercept for every output. The vector holds the outputs one after the other:

    w = (coefficients of output 0, its intercept, coefficients of output 1, its intercept, ...)

as if X had a last column of ones. Intercepts are not penalised. Everything past the workers' own mathematics sees a
vector of `n_coefficients` numbers cut into regions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danl.errors import bad_argument
from danl.frozen import cached_property
from danl.objective.regions import Regions

Array = NDArray[np.float64]
BY_CLASS = "classes"
"""Regions that follow the outputs: one region a class."""
DEFAULT_REGIONS = 4


@dataclass(frozen=True)
class Layout:
    """The places of a model's numbers in w."""

    n_features: int
    n_outputs: int = 1
    intercept: bool = False

    @cached_property
    def columns(self) -> int:
        """Numbers of one output: its coefficients, and its intercept if there is one."""
        return self.n_features + self.intercept

    @cached_property
    def n_coefficients(self) -> int:
        """d, the length of w."""
        return self.n_outputs * self.columns

    @cached_property
    def penalised(self) -> NDArray[np.bool_]:
        """Which numbers the penalty is on: all but the intercepts."""
        one = np.ones(self.columns, dtype=bool)
        one[self.n_features :] = False
        return np.tile(one, self.n_outputs)

    def split(self, w: Array) -> tuple[Array, Array]:
        """Coefficients (outputs, features) and intercepts (outputs,); zeros where there are none."""
        rows = np.asarray(w, dtype=float).reshape(self.n_outputs, self.columns)
        intercepts = rows[:, -1].copy() if self.intercept else np.zeros(self.n_outputs)
        return rows[:, : self.n_features].copy(), intercepts

    def join(self, coefficients: Array, intercepts: Array | float = 0.0) -> Array:
        """The vector of these coefficients and intercepts."""
        rows = np.empty((self.n_outputs, self.columns))
        rows[:, : self.n_features] = np.reshape(coefficients, (self.n_outputs, self.n_features))
        if self.intercept:
            rows[:, -1] = intercepts
        return rows.ravel()

    def regions(self, spec: Any, feature_names: Sequence[str] | None = None) -> Regions:
        """Regions of w.

        `spec` cuts the features (see `Regions.make`), each region with the coefficients of all outputs, and the
        intercepts go to the last one; "classes" makes one region of every output; Regions of all of w stay as they
        are. None: 4 regions of features, or one per feature if there are fewer.
        """
        if isinstance(spec, Regions) and spec.n_coefficients == self.n_coefficients:
            return spec
        if isinstance(spec, str) and spec == BY_CLASS:
            if self.n_outputs == 1:
                raise bad_argument("regions", spec, "a number, sizes or index groups: this model has one output only")
            numbers = np.repeat(np.arange(self.n_outputs), self.columns)
            return Regions(numbers, tuple(f"class {k}" for k in range(self.n_outputs)))
        cut = min(DEFAULT_REGIONS, self.n_features) if spec is None else spec
        of_features = Regions.make(cut, self.n_features, feature_names)
        if self.n_coefficients == self.n_features:
            return of_features
        one = of_features.of_coefficient
        if self.intercept:
            one = np.append(one, of_features.n_regions - 1)
        return Regions(np.tile(one, self.n_outputs), of_features.labels)
