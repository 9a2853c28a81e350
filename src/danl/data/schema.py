"""What the sites of a run agree on before their rows are one table: the names of the columns, and their order.

Every site reports what its columns are called. The order is that of the first site, and every other site brings its own
columns into it (`in_order`). A site whose columns are not the same ones is refused by name. Rows without names (LIBSVM,
arrays) keep their places, and then no site may have names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from danl.errors import InputError
from danl.wording import listed

if TYPE_CHECKING:
    from danl.data.shard import Shard

Names = tuple[str, ...]
LISTED = 5
"""Columns, and sites, that a refusal lists."""


def names_of(X: Any, given: Sequence[str] | None = None) -> Names | None:
    """The names of a matrix's columns: as given, or those of a data frame; None where it has none."""
    if given is None:
        columns = list(getattr(X, "columns", ()))
        if not columns or not all(isinstance(name, str) for name in columns):
            return None
        given = columns
    names = tuple(map(str, given))
    _refuse_doubled(names)
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) == 2 and len(names) != shape[1]:
        raise InputError(f"feature_names: must be one for each of the {shape[1]} columns of X, found {len(names)}")
    return names


def name_of(y: Any) -> str | None:
    """The name of a target that is a column of a data frame."""
    name = getattr(y, "name", None)
    return name if isinstance(name, str) else None


def agreed(
    columns: Sequence[tuple[Names | None, str | None]], labels: Sequence[str], wanted: Names | None = None
) -> Names | None:
    """The names of the features in the order all sites use; None where no site has names.

    Parameters
    ----------
    columns
        Of each site: the names of its features, and that of its target; None where it has none.
    labels
        What the sites are called (`labelled`).
    wanted
        The features in the order they are asked for; default: those of the first site.
    """
    first = columns[0][0] if wanted is None else wanted
    if all(names is first or names == first for names, _ in columns) and len({target for _, target in columns}) == 1:
        return first
    without = [label for label, (names, _) in zip(labels, columns, strict=True) if names is None]
    if 0 < len(without) < len(labels) or (without and wanted):
        with_names = [label for label, (names, _) in zip(labels, columns, strict=True) if names is not None]
        raise InputError(
            f"shards: the columns of {listed(without, LISTED)} have no names, and those of "
            f"{listed(with_names or ['feature_names'], LISTED)} do; give all of them names (CSV and Parquet "
            "files with a header line, data frames) or none (LIBSVM, arrays), so that they can be matched"
        )
    _same_target(columns, labels)
    if first is None:
        return None
    expected = labels[0] if wanted is None else "feature_names"
    refused = [
        f"{label} {fault}"
        for label, (names, _) in zip(labels, columns, strict=True)
        if (fault := _difference(names or (), first))
    ]
    if refused:
        more = f"; and {len(refused) - LISTED} more sites" if len(refused) > LISTED else ""
        raise InputError(
            f"shards: columns are matched by name, and these are not those of {expected}: "
            f"{'; '.join(refused[:LISTED])}{more}; give every site the same columns under the same names, in any order"
        )
    return first


def in_order(shard: Shard, names: Names | None) -> Shard:
    """The shard with its columns in the order that was agreed on."""
    if names is None or shard.feature_names is names or shard.feature_names == names:
        return shard
    own = shard.feature_names
    fault = "has columns without names" if own is None else _difference(own, names)
    if own is None or fault:
        raise InputError(f"{shard.name}: {fault}; its columns are not those that were agreed on when the run began")
    place = {name: position for position, name in enumerate(own)}
    order = [place[name] for name in names]
    X = shard.X[:, order].sorted_indices() if sparse.issparse(shard.X) else np.take(shard.X, order, axis=1)
    return replace(shard, X=X, feature_names=names)


def _same_target(columns: Sequence[tuple[Names | None, str | None]], labels: Sequence[str]) -> None:
    targets: dict[str, str] = {}
    for label, (_, target) in zip(labels, columns, strict=True):
        if target is not None:
            targets.setdefault(target, label)
    if len(targets) > 1:
        found = "; ".join(f"{target!r} at {label}" for target, label in list(targets.items())[:LISTED])
        raise InputError(
            f"shards: the target must be the same column at every site, and is {found}; name it with target_column "
            "(without that it is the last column), and call it the same everywhere"
        )


def _difference(names: Names, expected: Names) -> str:
    """What a site lacks and has too many; empty where it has the same columns in any order."""
    have, wanted = set(names), set(expected)
    differ = {"lacks": [n for n in expected if n not in have], "has": [n for n in names if n not in wanted]}
    return " and ".join(f"{what} {listed(map(repr, some), LISTED)}" for what, some in differ.items() if some)


def labelled(sites: Sequence[str]) -> list[str]:
    """What errors call the sites: the number of each worker, and its name where it has one."""
    return [f"worker {number}" + (f" ({site})" if site else "") for number, site in enumerate(sites)]


def _refuse_doubled(names: Names) -> None:
    seen: dict[str, int] = {}
    for position, name in enumerate(names):
        if name in seen:
            where = f"feature_names: columns {seen[name]} and {position} (counted from 0)"
            raise InputError(
                f"{where} are both called {name!r}; names must differ",
                redacted=f"{where} have the same name; names must differ",
            )
        seen[name] = position
