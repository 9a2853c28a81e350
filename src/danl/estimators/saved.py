"""A fitted estimator in one file: an npz of arrays and a JSON text, made as checkpoints are, without pickled objects.

What is in it: the class, danl's version, the parameters, the fitted attributes, the run's record, and the Hessian if
`summary` was called. Not in it: the rows. A parameter that is an object of its own (a policy, an engine, a method) has
no place in JSON: it is left out with a warning, and a loaded estimator has the default instead.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from danl._version import __version__
from danl.errors import InputError, warn
from danl.run.checkpoint import plain_to_result, result_to_plain
from danl.run.history import History
from danl.statistics.inference import Inference
from danl.storage.arrays import UnreadableError
from danl.storage.atomic import write_bytes
from danl.storage.serialize import from_file, plain, to_file

MAGIC, VERSION = "danl-estimator", 1


def write_estimator(estimator: Any, path: Any) -> None:
    """Write it whole or not at all."""
    parameters, left_out = {}, []
    for name, value in estimator.get_params(deep=False).items():
        try:
            parameters[name] = plain(value)
        except TypeError:
            left_out.append(name)
    if left_out:
        warn(
            f"{', '.join(left_out)}: cannot be written to a file and will be the default when it is loaded; "
            "text such as policy='coverage:psi=3' can be"
        )
    values: dict[str, Any] = {
        "class": type(estimator).__name__,
        "danl": __version__,
        "parameters": parameters,
        **result_to_plain(estimator.result_),
        "all_columns": estimator.history_.to_columns(),
        "coef": np.asarray(estimator.coef_, dtype=np.float64),
        "intercept": np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64)),
        "n_features": int(estimator.n_features_in_),
        "feature_names": plain(getattr(estimator, "feature_names_in_", None)),
        "classes": _classes(estimator),
        "seed": estimator._seed,
        "design": None if estimator._design is None else estimator._design.to_json(),
        "left_out": getattr(estimator, "left_out_", 0),
        "inference": None if estimator._inference is None else asdict(estimator._inference),
    }
    data = to_file(values, magic=MAGIC, version=VERSION)
    try:
        write_bytes(path, data)
    except (OSError, ValueError) as error:  # ValueError: a path that is none
        raise InputError(f"path={str(path)!r}: cannot be written ({_reason(error)})") from None


def read_estimator(cls: Any, path: Any) -> Any:
    """Read it back as an estimator of class `cls`."""
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(
            f"path={str(path)!r}: cannot be read ({_reason(error)}); save a fitted estimator first"
        ) from None
    try:
        values = from_file(data, magic=MAGIC, version=VERSION)
    except UnreadableError as error:
        raise InputError(f"path={str(path)!r}: is not an estimator that danl saved, or was changed: {error}") from None
    if values.get("class") != cls.__name__:
        raise InputError(
            f"path={str(path)!r}: holds a {str(values.get('class'))[:40]}, not a {cls.__name__}; "
            "use the load of that class"
        )
    try:
        return _restored(cls, values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"path={str(path)!r}: written by danl {values.get('danl')}, this is {__version__}, and they differ "
            f"({type(error).__name__}: {error}); fit again"
        ) from None


def _restored(cls: Any, values: dict[str, Any]) -> Any:
    estimator = cls(**values["parameters"])
    estimator.result_, estimator.history_ = plain_to_result(values), History.from_columns(values["all_columns"])
    estimator._set_totals(estimator.history_)
    estimator._seed, estimator._problem = values["seed"], None
    estimator._inference = None if values["inference"] is None else Inference(**values["inference"])
    estimator.n_features_in_ = values["n_features"]
    if values["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(values["feature_names"], dtype=object)
    if values.get("design") is not None:  # files of before have none
        from danl.design.design import Design

        estimator._design, estimator.left_out_ = Design.from_json(values["design"]), values["left_out"]
    estimator.coef_, estimator.intercept_ = values["coef"], values["intercept"]
    if values["classes"] is not None:
        estimator.classes_ = np.array(values["classes"]["labels"], dtype=values["classes"]["dtype"])
    else:
        estimator.intercept_ = float(values["intercept"][0])
    return estimator


def _classes(estimator: Any) -> dict[str, Any] | None:
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return None
    try:
        return {"labels": [plain(label) for label in classes.tolist()], "dtype": classes.dtype.str}
    except TypeError as error:
        raise InputError(
            f"classes_: labels of type {error} cannot be written to a file; fit with labels that are text or numbers"
        ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
