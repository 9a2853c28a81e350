"""Files of sites, for federations on this machine, real or played: shards that are dealt out, or files as they are.

Floats are written with every digit, so that a site reads the numbers that were dealt to it. Rows of a sparse matrix
become LIBSVM text; dense rows, and rows with weights, which LIBSVM has no place for, become CSV.

The rows are those of whoever deals them out: a site's ledger begins anew with its file, beside it, and columns in which
few rows have an entry are used. The other rules are the defaults, and of files that are there all rules are.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy import sparse

from danl.data.shard import Shard
from danl.data.table import is_number
from danl.errors import InputError


def write_sites(shards: Sequence[Shard], folder: Path, *, binary: bool) -> list[dict[str, Any]]:
    """Write a file for every shard; return the node configuration of each site."""
    for shard in shards:
        if shard.offset is not None:
            raise InputError(
                f"{shard.name}: has an offset, and the file of a site has no place for one; give the sites files with "
                "a column of it, and its name to the analysis"
            )
    folder.mkdir(parents=True, exist_ok=True)
    width = len(str(len(shards) - 1))
    configs = []
    for number, shard in enumerate(shards):
        name = f"site-{number:0{width}d}"
        own = {"name": name, "target": "binary" if binary else "real"} | _write(shard, folder / name)
        configs.append(own | {"sparse-columns": True, "ledger": _new_ledger(folder, name)})
    return configs


def sites_of_files(paths: Mapping[str, Path], folder: Path, *, binary: bool) -> list[dict[str, Any]]:
    """The node configuration of each site whose file is there, by its name."""
    for path in paths.values():
        if not path.is_file():
            raise InputError(
                f"DATA={str(path)!r}: must be a file that is there: each of several is a site, one alone is dealt out"
            )
    target = "binary" if binary else "real"
    return [
        {"name": name, "data": str(path.resolve()), "target": target, "ledger": _new_ledger(folder, name)}
        for name, path in paths.items()
    ]


def _new_ledger(folder: Path, name: str) -> str:
    ledger = folder / f"{name}.ledger"
    shutil.rmtree(ledger, ignore_errors=True)
    return str(ledger.resolve())


def _write(shard: Shard, stem: Path) -> dict[str, Any]:
    if sparse.issparse(shard.X) and shard.weights is None:
        path = stem.with_suffix(".svm")
        path.write_text("".join(_libsvm_lines(shard)), encoding="utf-8")
        return {"data": str(path.resolve()), "n-features": int(shard.X.shape[1])}
    path = stem.with_suffix(".csv")
    X = shard.X.toarray() if sparse.issparse(shard.X) else shard.X
    features = list(shard.feature_names or ())
    if not features or any(map(is_number, features)):  # a site takes numbers in its header line for a row
        features = [f"x{column}" for column in range(X.shape[1])]
    target, weight = _unused("target", features), _unused("weight", features)
    weighted = shard.weights is not None
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*features, *([weight] if weighted else []), target])
        for number, row in enumerate(X.tolist()):
            extra = [float(shard.weights[number])] if shard.weights is not None else []
            writer.writerow([*row, *extra, float(shard.y[number])])
    config = {"data": str(path.resolve()), "target-column": target}
    return config | ({"weight-column": weight} if weighted else {})


def _libsvm_lines(shard: Shard) -> list[str]:
    X = shard.X.tocsr().sorted_indices()
    lines = []
    for number, target in enumerate(shard.y.tolist()):
        entries = slice(X.indptr[number], X.indptr[number + 1])
        pairs = zip(X.indices[entries].tolist(), X.data[entries].tolist(), strict=True)
        lines.append(" ".join([repr(target), *(f"{index + 1}:{value!r}" for index, value in pairs)]) + "\n")
    return lines


def _unused(name: str, names: Sequence[str]) -> str:
    while name in names:
        name += "_"
    return name
