"""Compiled functions of SciPy that every run needs, without the packages around them.

A run needs three functions of LAPACK and `expit`. To import `scipy.linalg` and `scipy.special` for them takes almost as
long as to import NumPy, and nothing else of them is used. The extension modules that have these functions are loaded by
themselves, under their own names: whoever imports the packages later gets the same modules. Where a SciPy has them in
other places, or the packages are there anyway, the public names are used; the functions are the same either way.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ExtensionFileLoader, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import scipy


def extension(package: str, name: str) -> ModuleType | None:
    """An extension module of SciPy without its package; None if there is none, or the package is here already."""
    if package in sys.modules:
        return None
    folder = package.removeprefix("scipy.")
    spec = PathFinder.find_spec(f"{package}.{name}", [str(Path(each, folder)) for each in scipy.__path__])
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        return None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError:  # it needs its package
        return None
    return module


def functions(package: str, name: str, public: str, *names: str) -> tuple[Any, ...]:
    """Functions of the extension module, or else of the public module that has them as well."""
    module: Any = extension(package, name)
    if module is None or not all(hasattr(module, each) for each in names):
        module = importlib.import_module(public)
    return tuple(getattr(module, each) for each in names)


dpotrf, dpotrs, dpptrf = functions("scipy.linalg", "_flapack", "scipy.linalg.lapack", "dpotrf", "dpotrs", "dpptrf")
(expit,) = functions("scipy.special", "_special_ufuncs", "scipy.special", "expit")


def logsumexp(z: Any, **options: Any) -> Any:
    """`scipy.special.logsumexp`, imported when it is used: only a loss with several classes does."""
    from scipy import special

    return special.logsumexp(z, **options)


def softmax(z: Any, **options: Any) -> Any:
    """`scipy.special.softmax`, imported when it is used."""
    from scipy import special

    return special.softmax(z, **options)
