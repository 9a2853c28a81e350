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
from danl.estimators.inference import Inference
from danl.protocol.messages import Failure
from danl.run.checkpoint import UnreadableError, columns_of, history_of, packed, unpacked
from danl.run.result import Result
from danl.storage.atomic import written_whole

MAGIC = "danl-estimator"


def write_estimator(estimator: Any, path: Any) -> None:
    """Write it whole or not at all."""
    parameters, left_out = {}, []
    for name, value in estimator.get_params(deep=False).items():
        try:
            parameters[name] = _plain(value)
        except TypeError:
            left_out.append(name)
    if left_out:
        warn(
            f"{', '.join(left_out)}: cannot be written to a file and will be the default when it is loaded; "
            "text such as policy='coverage:psi=3' can be"
        )
    result: Result = estimator.result_
    carried: dict[str, Any] = {
        "class": type(estimator).__name__,
        "danl": __version__,
        "parameters": parameters,
        "w": result.w,
        "status": result.status,
        "method": result.method,
        "notes": list(result.notes),
        "failures": [asdict(failure) for failure in result.failures],
        "dropped": result.dropped,
        "centre": result.centre,
        "settings": _plain(result.settings, otherwise=str),
        "columns": columns_of(result.history),
        "all_columns": columns_of(estimator.history_),
        "coef": np.asarray(estimator.coef_, dtype=np.float64),
        "intercept": np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64)),
        "n_features": int(estimator.n_features_in_),
        "feature_names": _names(estimator),
        "classes": _classes(estimator),
        "seed": estimator._seed,
        "inference": None if estimator._inference is None else asdict(estimator._inference),
    }
    data = packed(carried, "", MAGIC)
    try:
        with written_whole(Path(path)) as partial:
            partial.write_bytes(data)
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
        carried = unpacked(data, "", MAGIC)
    except UnreadableError as error:
        raise InputError(f"path={str(path)!r}: is not an estimator that danl saved, or was changed: {error}") from None
    if carried.get("class") != cls.__name__:
        raise InputError(
            f"path={str(path)!r}: holds a {str(carried.get('class'))[:40]}, not a {cls.__name__}; "
            "use the load of that class"
        )
    try:
        return _grown(cls, carried)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"path={str(path)!r}: written by danl {carried.get('danl')}, this is {__version__}, and they differ "
            f"({type(error).__name__}: {error}); fit again"
        ) from None


def _grown(cls: Any, carried: dict[str, Any]) -> Any:
    estimator = cls(**carried["parameters"])
    result = Result(
        w=carried["w"],
        status=carried["status"],
        history=history_of(carried["columns"]),
        method=carried["method"],
        failures=tuple(Failure(**each) for each in carried["failures"]),
        notes=tuple(carried["notes"]),
        dropped=carried["dropped"],
        centre=carried["centre"],
        settings=carried["settings"],
    )
    estimator.result_, estimator.history_ = result, history_of(carried["all_columns"])
    estimator._count(estimator.history_)
    estimator._seed, estimator._problem = carried["seed"], None
    estimator._inference = None if carried["inference"] is None else Inference(**carried["inference"])
    estimator.n_features_in_ = carried["n_features"]
    if carried["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(carried["feature_names"], dtype=object)
    estimator.coef_ = carried["coef"]
    estimator.intercept_ = carried["intercept"]
    if carried["classes"] is not None:
        estimator.classes_ = np.array(carried["classes"]["labels"], dtype=carried["classes"]["dtype"])
    else:
        estimator.intercept_ = float(carried["intercept"][0])
    return estimator


def _names(estimator: Any) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _classes(estimator: Any) -> dict[str, Any] | None:
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return None
    try:
        return {"labels": [_plain(label) for label in classes.tolist()], "dtype": classes.dtype.str}
    except TypeError as error:
        raise InputError(
            f"classes_: labels of type {error} cannot be written to a file; fit with labels that are text or numbers"
        ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _plain(value: Any, otherwise: Any = None) -> Any:
    """A value as JSON has it; TypeError, or `otherwise` of it, for what JSON has no place for."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return _plain(value.tolist(), otherwise)
    if isinstance(value, list | tuple):
        return [_plain(item, otherwise) for item in value]
    if isinstance(value, dict):
        return {_plain(key, otherwise): _plain(item, otherwise) for key, item in value.items()}
    if otherwise is None:
        raise TypeError(type(value).__name__)
    return otherwise(value)
