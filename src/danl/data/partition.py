"""Dividing rows among workers.

How rows are divided decides how hard a federated problem is: even shards are nearly interchangeable, shards
sorted by label are as different as they can be, and real sites lie in between. Every scheme puts each row
into exactly one shard and leaves no worker without a row, so that the objective over the shards is always
the one over all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from danl.checks import check_number, check_share, is_real, is_whole
from danl.data.schema import Names, name_of, names_of
from danl.data.shard import Rows, Shard, check_offset, check_rows, rows_of
from danl.errors import InputError, bad_argument
from danl.spec import SpecValue, parse_spec, unknown_name

_OfRows = tuple[NDArray[np.float64], NDArray[np.float64] | None, NDArray[np.float64] | None]
"""Targets, weights and offset."""
_QUANTILE_BINS = 10  # a target with more distinct values than this is binned to get labels


def partition(
    X: Any,
    y: ArrayLike,
    *,
    workers: int | None = None,
    scheme: str = "iid",
    seed: int | np.random.Generator = 0,
    weights: ArrayLike | None = None,
    sites: ArrayLike | None = None,
    alpha: float | None = None,
    shuffle: float | None = None,
    feature_names: Sequence[str] | None = None,
    offset: ArrayLike | None = None,
) -> list[Shard]:
    """Divide the rows among workers; every row goes to exactly one, and every worker gets a row.

    Parameters
    ----------
    X, y
        The rows: sparse or dense, and their targets.
    workers
        How many shards; with ``scheme="site"`` it may be left out.
    scheme
        ``"iid"``: shuffled, as even as possible.
        ``"contiguous"``: stretches of the rows as they lie, as even as possible; no row is copied.
        ``"sorted"``: by label, as even as possible, the share `shuffle` of the rows dealt at random.
        ``"dirichlet"``: each label's rows in shares drawn from Dirichlet(`alpha`); small means skewed.
        A target with more than ten distinct values is cut into ten quantile bins that act as labels.
        ``"quantity"``: shuffled, with sizes drawn from Dirichlet(`alpha`).
        ``"site"``: one shard for each distinct id in `sites`, in sorted order.
        Options may stand in the text: ``"dirichlet:alpha=0.5"``, ``"sorted:shuffle=0.2"``.
    seed
        An integer or a Generator; the same seed gives the same shards.
    weights
        Weight of each row.
    sites
        Site of each row; only ``scheme="site"`` looks at it.
    alpha
        Concentration for ``"dirichlet"`` (0.5 unless given) and ``"quantity"`` (1.0).
    shuffle
        Share of the rows dealt at random by ``"sorted"`` (0 unless given).
    feature_names
        Names of the columns; those of a data frame unless given.
    offset
        What is added to the margin of each row: the logarithm of an exposure, for example.
    """
    columns, target = names_of(X, feature_names), name_of(y)
    X, targets, row_weights = check_rows(X, y, weights, feature_names=columns)
    row_offset = check_offset(offset, len(targets))
    name, options = parse_spec(scheme, argument="scheme")
    for option, value in (("alpha", alpha), ("shuffle", shuffle)):
        if value is not None and option in options:
            raise bad_argument(option, value, f"given once, not also in scheme={scheme!r}")
        if value is not None:
            options[option] = value
    if name not in _SCHEMES and name != "site":
        raise unknown_name("scheme", name, (*_SCHEMES, "site"))
    if name == "site":
        _check_options(name, options, {})
        groups, names = _by_site(sites, len(targets), workers)
    else:
        divide, defaults = _SCHEMES[name]
        _check_options(name, options, defaults)
        count = _check_workers(workers, len(targets))
        groups = divide(targets, count, _generator(seed), **(defaults | options))
        _fill_empty(groups)
        names = _worker_names(count)
    of_rows = targets, row_weights, row_offset
    return _shards(X, of_rows, [np.sort(rows) for rows in groups], names, columns, target)


def as_they_lie(
    X: Any,
    y: NDArray[np.float64],
    workers: int,
    weights: NDArray[np.float64] | None,
    offset: NDArray[np.float64] | None = None,
) -> list[Shard]:
    """The rows in stretches as even as possible, without a copy; of rows whose entries are known to be finite."""
    X, y, weights = check_rows(X, y, weights, known_finite=True)
    return _stretches(X, (y, weights, offset), _contiguous(y, workers), _worker_names(workers))


def _worker_names(workers: int) -> list[str]:
    return [f"worker-{index}" for index in range(workers)]


def _shards(
    X: Any,
    of_rows: _OfRows,
    groups: list[Rows],
    names: list[str],
    columns: Names | None,
    target: str | None,
) -> list[Shard]:
    """One copy of the rows, sorted by worker; a shard is a stretch of it."""
    order, target = np.concatenate(groups), target if columns else None
    in_order = len(order) == 0 or bool((np.diff(order) == 1).all())
    if not in_order:
        y, weights, offset = of_rows
        of_rows = y[order], None if weights is None else weights[order], None if offset is None else offset[order]
        X = X[order]
    return _stretches(X, of_rows, groups, names, columns, target)


def _stretches(
    X: Any,
    of_rows: _OfRows,
    groups: list[Rows],
    names: list[str],
    columns: Names | None = None,
    target: str | None = None,
) -> list[Shard]:
    """The shards of rows that are sorted by worker; `groups` are where they were before."""
    (y, weights, offset), shards, first = of_rows, list[Shard](), 0
    for rows, name in zip(groups, names, strict=True):
        own = slice(first, first + len(rows))
        first += len(rows)
        if weights is not None and not weights[own].any():
            raise InputError(
                f"weights: all {len(rows)} rows of shard {name!r} have weight 0; every shard needs a row that "
                "counts: drop the rows with weight 0, or use fewer workers or another seed"
            )
        own_weights, own_offset = None if weights is None else weights[own], None if offset is None else offset[own]
        own_X = rows_of(X, own.start, own.stop)
        shards.append(Shard(own_X, y[own], own_weights, rows, name, columns, target, own_offset))
    return shards


# --- the schemes: (y, workers, rng, options) -> one array of row numbers for each worker ---


def _iid(y: NDArray[np.float64], workers: int, rng: np.random.Generator) -> list[Rows]:
    return np.array_split(rng.permutation(len(y)), workers)


def _contiguous(y: NDArray[np.float64], workers: int, rng: np.random.Generator | None = None) -> list[Rows]:
    share, larger = divmod(len(y), workers)  # the sizes of numpy.array_split
    bounds = [number * share + min(number, larger) for number in range(workers + 1)]
    rows = np.arange(len(y))
    return [rows[first:last] for first, last in pairwise(bounds)]


def _sorted(y: NDArray[np.float64], workers: int, rng: np.random.Generator, *, shuffle: float) -> list[Rows]:
    check_share("shuffle", shuffle, "the share of the rows dealt at random")
    order = rng.permutation(len(y))
    dealt, kept = np.split(order, [round(shuffle * len(y))])
    kept = np.sort(kept)
    by_label = np.array_split(kept[np.argsort(y[kept], kind="stable")], workers)
    # The larger pieces come first in one and last in the other, which keeps the sums even.
    at_random = reversed(np.array_split(dealt, workers))
    return [np.concatenate(pieces) for pieces in zip(by_label, at_random, strict=True)]


def _dirichlet(y: NDArray[np.float64], workers: int, rng: np.random.Generator, *, alpha: float) -> list[Rows]:
    labels = _label_bins(y)
    pieces: list[list[Rows]] = [[] for _ in range(workers)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        for piece, part in zip(pieces, _split_by_shares(rows, workers, alpha, rng), strict=True):
            piece.append(part)
    return [np.concatenate(piece) for piece in pieces]


def _quantity(y: NDArray[np.float64], workers: int, rng: np.random.Generator, *, alpha: float) -> list[Rows]:
    return _split_by_shares(rng.permutation(len(y)), workers, alpha, rng)


_SCHEMES: dict[str, tuple[Callable[..., list[Rows]], dict[str, SpecValue]]] = {
    "iid": (_iid, {}),
    "contiguous": (_contiguous, {}),
    "sorted": (_sorted, {"shuffle": 0.0}),
    "dirichlet": (_dirichlet, {"alpha": 0.5}),
    "quantity": (_quantity, {"alpha": 1.0}),
}


def _split_by_shares(rows: Rows, workers: int, alpha: float, rng: np.random.Generator) -> list[Rows]:
    check_number("alpha", alpha, "small means uneven, large means even")
    shares = rng.dirichlet(np.full(workers, float(alpha)))
    if not np.isfinite(shares).all():  # alpha so small that numpy's draw underflows: one takes all
        shares = np.eye(workers)[rng.integers(workers)]
    cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.intp)
    return np.split(rows, cuts)


def _label_bins(y: NDArray[np.float64]) -> NDArray[Any]:
    if len(np.unique(y)) <= _QUANTILE_BINS:
        return y
    inner = np.quantile(y, np.linspace(0, 1, _QUANTILE_BINS + 1)[1:-1])
    return np.searchsorted(inner, y, side="right")


def _fill_empty(groups: list[Rows]) -> None:
    """Give every worker without rows one from the worker that then has the most, in place."""
    sizes = np.array([len(rows) for rows in groups])
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        groups[empty], groups[largest] = groups[largest][-1:], groups[largest][:-1]
        sizes[empty], sizes[largest] = 1, sizes[largest] - 1


def _by_site(sites: ArrayLike | None, n_rows: int, workers: int | None) -> tuple[list[Rows], list[str]]:
    if sites is None:
        raise bad_argument("sites", None, "the site of each row", "pass sites=, or another scheme")
    column = np.asarray(sites)
    if column.shape != (n_rows,):
        raise InputError(f"sites: must have one id for each of the {n_rows} rows, found shape {column.shape}")
    for row, each in enumerate(column.tolist()):
        if each is None or each != each or each == "":
            raise bad_argument(f"sites[{row}]", each, "the id of a site, not missing")
    try:
        ids, inverse = np.unique(column, return_inverse=True)
    except TypeError as error:
        raise InputError(f"sites: ids must all be numbers or all be text ({error})") from error
    if workers is not None and workers != len(ids):
        raise bad_argument("workers", workers, f"{len(ids)}, the number of sites", "or leave it out")
    by_site = np.argsort(inverse, kind="stable")
    groups = np.split(by_site, np.cumsum(np.bincount(inverse))[:-1])
    return groups, [str(each) for each in ids.tolist()]


# --- the border: what comes in ---


def _check_options(scheme: str, options: dict[str, SpecValue], defaults: dict[str, SpecValue]) -> None:
    for option, value in options.items():
        if option not in defaults:
            takes = f"takes {', '.join(defaults)}" if defaults else "takes no options"
            raise InputError(f"{option}={value!r}: is not an option of scheme {scheme!r}, which {takes}")
        if not is_real(value):
            raise bad_argument(option, value, "a number")


def _check_workers(workers: int | None, n_rows: int) -> int:
    if not is_whole(workers, 1) or workers > n_rows:
        next_step = "lower workers or bring more data" if is_whole(workers, 1) else ""
        raise bad_argument("workers", workers, f"a whole number between 1 and {n_rows}, the number of rows", next_step)
    return int(workers)


def _generator(seed: int | np.random.Generator) -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    if not is_whole(seed, 0):
        raise bad_argument("seed", seed, "a whole number, 0 or more, or a numpy Generator")
    return np.random.default_rng(int(seed))
