"""Regions: the model cut into Q disjoint sets of coordinates.

A mask says which regions a worker trains, so everything that is counted per region (coverage, staleness,
memory) needs one answer to "which coordinates are region q". A region need not be contiguous: the columns
that one-hot encoding made of one categorical variable, or the features of one sensor, are natural regions
too. That is why a region is an index group here, and contiguous blocks are only the default way of making
them.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from danl.checks import is_whole
from danl.errors import bad_argument
from danl.spec import parse_spec

BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.int64]

_WHOLE = re.compile(r"[+-]?[0-9]+")

RegionsSpec: TypeAlias = "int | str | Sequence[int] | Sequence[Sequence[int]] | NDArray[Any] | Regions"


@dataclass(frozen=True, eq=False)
class Regions:
    """A disjoint cover of ``range(n_coefficients)`` by ``n_regions`` regions, none of them empty.

    Build one with `Regions.make` or `Regions.by_prefix`; they check what this constructor takes for
    granted.

    Parameters
    ----------
    of_coefficient : int array, shape (d,)
        The region of each coordinate; every number of ``range(Q)`` occurs.
    labels : tuple of str, length Q
        What to call the regions in tables and figures.

    Notes
    -----
    The paper writes w = (w^1, ..., w^Q). In these names ``w[regions.indices(q)]`` is w^q, and for a mask
    tau of Q booleans ``w * regions.expand(tau)`` is the paper's w ⊙ tau.
    """

    of_coefficient: IntArray
    labels: tuple[str, ...]

    @classmethod
    def make(cls, spec: RegionsSpec, d: int, feature_names: Sequence[str] | None = None) -> Regions:
        """Cut a model of `d` coordinates as `spec` says.

        Parameters
        ----------
        spec : int, sequence, str or Regions
            A number Q: contiguous regions, of the sizes that ``numpy.array_split`` makes. A sequence of
            numbers: the sizes of contiguous regions. A sequence of index groups: the regions themselves.
            ``"4"`` and ``"30,30,63"``: the same as text. ``"prefix"`` or ``"prefix:separator=."``: one region
            per feature-name prefix. Regions: returned as they are.
        d : int
            The number of coordinates of the model.
        feature_names : sequence of str, length d, optional
            Needed for ``"prefix"`` only.
        """
        if isinstance(spec, Regions):
            if spec.n_coefficients != d:
                raise bad_argument(
                    "regions", spec, f"regions of {d} features", "make them for this model with Regions.make"
                )
            return spec
        if isinstance(spec, str):
            return cls._from_text(spec, d, feature_names)
        if is_whole(spec):
            return cls._equal(int(spec), d)
        items = _as_list(spec)
        if items and all(is_whole(item) for item in items):
            return cls._of_sizes([int(item) for item in items], d)
        return cls._of_groups(items, d)

    @classmethod
    def by_prefix(cls, feature_names: Sequence[str], separator: str = "_") -> Regions:
        """One region per feature-name prefix, in the order in which the prefixes first appear.

        The prefix is what stands before the first `separator`; a name without one is its own prefix. With
        scikit-learn's ``get_feature_names_out`` this keeps the columns of one categorical variable
        together.
        """
        if not separator:
            raise bad_argument("separator", separator, "at least one character", "try '_'")
        if len(feature_names) == 0:
            raise bad_argument("feature_names", [], "at least one name", "pass one name per feature")
        numbers: dict[str, int] = {}
        of_coefficient = [numbers.setdefault(str(name).split(separator, 1)[0], len(numbers)) for name in feature_names]
        return cls(_frozen(of_coefficient), tuple(numbers))

    @cached_property
    def n_coefficients(self) -> int:
        """The number of coordinates, d."""
        return len(self.of_coefficient)

    @cached_property
    def n_regions(self) -> int:
        """The number of regions, Q."""
        return len(self.labels)

    @cached_property
    def sizes(self) -> IntArray:
        """The number of coordinates of each region, shape (Q,)."""
        return _frozen(np.bincount(self.of_coefficient, minlength=self.n_regions))

    @cached_property
    def groups(self) -> tuple[IntArray, ...]:
        """The coordinates of every region, in increasing order."""
        by_region = np.argsort(self.of_coefficient, kind="stable")
        return tuple(_frozen(group) for group in np.split(by_region, np.cumsum(self.sizes)[:-1]))

    @cached_property
    def slices(self) -> tuple[slice, ...] | None:
        """The coordinates of every region as slices; None where not all of them are contiguous."""
        bounds = [(int(group[0]), int(group[-1]) + 1) for group in self.groups]
        contiguous = all(last - first == size for (first, last), size in zip(bounds, self.sizes.tolist(), strict=True))
        return tuple(slice(*each) for each in bounds) if contiguous else None

    def indices(self, q: int) -> IntArray:
        """The coordinates of region `q`, in increasing order."""
        if not 0 <= q < self.n_regions:
            raise bad_argument("q", q, f"between 0 and {self.n_regions - 1}")
        return self.groups[q]

    def expand(self, mask: BoolArray) -> BoolArray:
        """Turn masks over regions, shape (Q,) or (N, Q), into masks over coordinates, (d,) or (N, d)."""
        mask = np.asarray(mask, dtype=bool)
        if mask.ndim not in (1, 2) or mask.shape[-1] != self.n_regions:
            raise bad_argument("mask.shape", mask.shape, f"({self.n_regions},) or (N, {self.n_regions})")
        return mask[..., self.of_coefficient]

    def coordinates(self, mask: BoolArray) -> IntArray:
        """The coordinates a mask of shape (Q,) keeps, in increasing order."""
        if np.ndim(mask) != 1:
            raise bad_argument("mask.shape", np.shape(mask), f"({self.n_regions},)")
        return np.flatnonzero(self.expand(mask))

    def __repr__(self) -> str:
        return f"Regions(sizes={reprlib.repr(self.sizes.tolist())})"

    @classmethod
    def _from_text(cls, text: str, d: int, feature_names: Sequence[str] | None) -> Regions:
        parts = [part.strip() for part in text.split(",")]
        if all(_WHOLE.fullmatch(part) for part in parts):
            numbers = [int(part) for part in parts]
            return cls._equal(numbers[0], d) if len(numbers) == 1 else cls._of_sizes(numbers, d)
        name, options = parse_spec(text, argument="regions") if text.startswith("prefix") else ("", {})
        unknown = [option for option in options if option != "separator"]
        if name != "prefix" or unknown:
            raise bad_argument(
                "regions",
                text,
                "a number, sizes such as 30,30,63, index groups, 'prefix', 'prefix:separator=.' or 'classes'",
            )
        if feature_names is None:
            raise bad_argument(
                "regions",
                text,
                "a number, sizes or index groups, as this data has no feature names",
                "try a number such as 4",
            )
        if len(feature_names) != d:
            raise bad_argument("len(feature_names)", len(feature_names), f"{d}, the number of features")
        return cls.by_prefix(feature_names, str(options.get("separator", "_")))

    @classmethod
    def _equal(cls, n_regions: int, d: int) -> Regions:
        if not 1 <= n_regions <= d:
            raise bad_argument("regions", n_regions, f"between 1 and {d}, the number of features", f"try {min(4, d)}")
        # The sizes numpy.array_split makes: the first d % Q regions have one coordinate more.
        share, larger = divmod(d, n_regions)
        return cls._contiguous([share + 1] * larger + [share] * (n_regions - larger))

    @classmethod
    def _of_sizes(cls, sizes: list[int], d: int) -> Regions:
        for q, size in enumerate(sizes):
            if size < 1:
                raise bad_argument(f"regions[{q}]", size, "a size of at least 1", "leave empty regions out")
        if sum(sizes) != d:
            raise bad_argument(
                "regions", _Short(sizes), f"sizes that sum to {d}, the number of features", f"these sum to {sum(sizes)}"
            )
        return cls._contiguous(sizes)

    @classmethod
    def _contiguous(cls, sizes: list[int]) -> Regions:
        return cls(_frozen(np.repeat(np.arange(len(sizes)), sizes)), _numbered(len(sizes)))

    @classmethod
    def _of_groups(cls, groups: list[Any], d: int) -> Regions:
        if not groups:
            raise bad_argument("regions", _Short(groups), "a number, sizes or index groups", "try a number such as 4")
        of_coefficient = np.full(d, -1, dtype=np.int64)
        for q, group in enumerate(groups):
            for position, coordinate in enumerate(_coordinates_of(group, q)):
                where = f"regions[{q}][{position}]"
                if not 0 <= coordinate < d:
                    raise bad_argument(where, coordinate, f"between 0 and {d - 1}, as there are {d} features")
                if of_coefficient[coordinate] != -1:
                    raise bad_argument(
                        where,
                        coordinate,
                        f"in one region only, and regions[{of_coefficient[coordinate]}] has it already",
                        "remove it from one of them",
                    )
                of_coefficient[coordinate] = q
        missing = np.flatnonzero(of_coefficient == -1)
        if len(missing):
            raise bad_argument(
                "regions",
                _Short([list(group) for group in groups]),
                f"groups that hold every coordinate from 0 to {d - 1}, and none of them holds {missing[0]}",
                f"add {missing[0]} to one of them",
            )
        return cls(_frozen(of_coefficient), _numbered(len(groups)))


class _Short:
    """Shows a long value in an error message by its first few items."""

    def __init__(self, value: object) -> None:
        self._text = reprlib.repr(value)

    def __repr__(self) -> str:
        return self._text


def as_items(rows: NDArray[Any], columns: slice = slice(None)) -> NDArray[np.void]:
    """The part of every row in some columns as one item, (n, d) to (n,): numpy copies an item in one go.

    A view, so what is written to it is in the rows; these must be contiguous.
    """
    first, last, _ = columns.indices(rows.shape[1])
    kind = np.dtype((np.void, (last - first) * rows.itemsize))
    return np.ndarray((len(rows),), kind, rows, first * rows.itemsize, (rows.strides[0],))


def _as_list(spec: object) -> list[Any]:
    if isinstance(spec, Sequence) or (isinstance(spec, np.ndarray) and spec.ndim > 0):
        return list(spec)
    raise bad_argument(
        "regions", _Short(spec), "a number, sizes or index groups, all of whole numbers", "try a number such as 4"
    )


def _coordinates_of(group: object, q: int) -> list[int]:
    items = list(group) if isinstance(group, Sequence | np.ndarray) and np.ndim(group) else None
    if items is None or not all(is_whole(item) for item in items):
        raise bad_argument(
            f"regions[{q}]",
            _Short(group),
            "a list of whole numbers, the coordinates of this region (or a whole number, "
            "its size, and then all of them sizes)",
        )
    if not items:
        raise bad_argument(f"regions[{q}]", items, "at least one coordinate", "leave empty regions out")
    return [int(item) for item in items]


def _numbered(n_regions: int) -> tuple[str, ...]:
    return tuple(str(q) for q in range(n_regions))


def _frozen(values: Any) -> IntArray:
    array = np.array(values, dtype=np.int64)
    array.flags.writeable = False
    return array
