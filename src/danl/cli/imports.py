"""Imports that a command waits for, without what only makes it wait longer.

`danl fit` imports NumPy and the sparse matrices of SciPy, whose layer for other libraries' arrays takes every name that
NumPy has. That would load f2py, which wraps Fortran, and the helpers of tests: as long as all the rest of the sparse
matrices. Here these two are loaded when something of them is used.

OpenBLAS starts a thread for every core, once for NumPy and once for SciPy, which have their own each; an idle one is
busy with waiting for some 40 ms before it goes to sleep: with many cores that is most of a short run. Here it waits
for a fraction of a millisecond, which is enough between two products. The number of threads stays what it is, and all
results with it.

What is imported stays, and a search through it for garbage finds nothing: the collector waits meanwhile, and leaves it
alone from then on, at the end of the process, too.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder

ON_DEMAND = ("numpy.f2py", "numpy.testing")
WAIT = {"OPENBLAS_THREAD_TIMEOUT": "20"}
"""Idle threads are awake for so many cycles, as a power of 2; its own default is 26."""


class _OnDemand:
    """Finds these modules as the search of folders does; they are loaded when a name of theirs is first used."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name in ON_DEMAND else None
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import within it what a command needs, and nothing else: no garbage is collected meanwhile."""
    if "numpy" not in sys.modules:  # after that it is not read again
        os.environ.update({name: value for name, value in WAIT.items() if name not in os.environ})
    before, collecting = len(sys.modules), gc.isenabled()
    gc.disable()
    sys.meta_path.insert(0, _OnDemand)
    try:
        yield
    finally:
        sys.meta_path.remove(_OnDemand)
        if len(sys.modules) > before:
            gc.freeze()
        if collecting:
            gc.enable()
