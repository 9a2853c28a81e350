"""Threads of this process: how many may work at once, and blocks of work that they share.

The products with blocks of rows let other threads run while they compute. Results come in the order of the blocks, so
that what is added up of them is the same up to rounding, however many threads there are.

How many may work (`allowed`): as many as was asked for by an engine's option or by DANL_NUM_THREADS. Else what all of
these leave: the processors this process may run on, OMP_NUM_THREADS and the like, which joblib and Ray set for their
workers, and the limits that `threadpoolctl` has put on BLAS. Threads do not multiply: work that calls BLAS or OpenMP is
shared only while these are held to one thread each, and the helpers are the same for all callers of a process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import count
from threading import Lock
from typing import Any, TypeVar

from danl.checks import check_whole

Item = TypeVar("Item")
Made = TypeVar("Made")

OWN_VARIABLE = "DANL_NUM_THREADS"
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
MOST = 8
"""Threads that are used unless more are asked for: more of them wait for the memory they share."""
HELPERS = 64
"""The most threads of a process, all callers together; they are started when they are needed."""


def allowed(wanted: int | None = None) -> int:
    """How many threads may work at once; `wanted` is what an engine was told."""
    if wanted is not None:
        return wanted
    own = _of_variable(OWN_VARIABLE)
    if own is not None:
        return own
    set_by_others = [limit for limit in map(_of_variable, VARIABLES) if limit is not None]
    limit = min(MOST, _processors(), *set_by_others)
    return limit if limit == 1 or "threadpoolctl" not in sys.modules else min(limit, _BLAS.threads())


def openmp_threads() -> int:
    """How many threads OpenMP would use: the processors there are, unless it was told."""
    told = _of_variable("OMP_NUM_THREADS")
    return _processors() if told is None else told


def check_threads(threads: int | None) -> int | None:
    """The number of threads as an option: None is what the process may use."""
    return None if threads is None else check_whole("threads", threads, next_step="leave it out for what is there")


def shared(
    function: Callable[[Item], Made], items: Sequence[Item], threads: int, *, blas: bool = False, openmp: bool = False
) -> list[Made]:
    """What a function makes of every item, in their order; the calling thread works, too.

    Where the function calls BLAS, or a library with OpenMP threads, these are held to one thread each meanwhile; where
    BLAS cannot be, nothing is shared. OpenMP is so also where nothing is shared: its threads wait for each other, and
    on a machine where others work that takes longer than a small product, a hundred times longer at worst.
    """
    threads = min(threads, len(items))
    if threads < 2 or (blas and not _BLAS.libraries()):
        with _openmp_held(openmp and openmp_threads() > 1):
            return [function(item) for item in items]
    results: list[Any] = [None] * len(items)
    turns = count()

    def work() -> None:
        with _openmp_held(openmp):
            while (turn := next(turns)) < len(items):
                results[turn] = function(items[turn])

    with blas_held(blas):
        helpers = [_pool().submit(work) for _ in range(threads - 1)]
        try:
            work()
        finally:
            begun = [helper for helper in helpers if not helper.cancel()]  # the others have nothing left to do
            wait(begun)
    for helper in begun:
        helper.result()
    return results


def blas_held(wanted: bool = True) -> AbstractContextManager[None]:
    """Let BLAS have one thread meanwhile: those that wait for small products keep others from their work."""
    return _BLAS.held() if wanted else nullcontext()


class _Blas:
    """BLAS libraries of this process, and how many threads they may use."""

    def __init__(self) -> None:
        self._lock, self._holding, self._before = Lock(), 0, list[int]()

    @staticmethod
    @cache
    def libraries() -> tuple[Any, ...]:
        from threadpoolctl import ThreadpoolController  # some milliseconds: where there is work for more than these

        found = ThreadpoolController().lib_controllers
        return tuple(each for each in found if each.user_api == "blas")

    def threads(self) -> int:
        """The threads that BLAS was given, by whoever did."""
        with self._lock:
            now = self._before if self._holding else [each.num_threads for each in self.libraries()]
        return min((each for each in now if each), default=MOST)

    @contextmanager
    def held(self) -> Iterator[None]:
        """One thread of BLAS for each of those that call it; the last to leave gives back what was there."""
        with self._lock:
            if not self._holding:
                self._before = [each.num_threads for each in self.libraries()]
                for each in self.libraries():
                    each.set_num_threads(1)
            self._holding += 1
        try:
            yield
        finally:
            with self._lock:
                self._holding -= 1
                if not self._holding:
                    for each, before in zip(self.libraries(), self._before, strict=True):
                        each.set_num_threads(before)


_BLAS = _Blas()


@cache
def _openmp_libraries() -> tuple[Any, ...]:
    """Those that are there when they are first asked for: after the import of what uses them."""
    from threadpoolctl import ThreadpoolController

    return tuple(each for each in ThreadpoolController().lib_controllers if each.user_api == "openmp")


@contextmanager
def _openmp_held(wanted: bool) -> Iterator[None]:
    """One OpenMP thread for the present thread, which is all that can be said of it."""
    libraries = _openmp_libraries() if wanted else ()
    before = [each.num_threads for each in libraries]
    for each in libraries:
        each.set_num_threads(1)
    try:
        yield
    finally:
        for each, count_before in zip(libraries, before, strict=True):
            each.set_num_threads(count_before)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(HELPERS, thread_name_prefix="danl")


def _forget() -> None:
    """In a child of a fork there are no helpers, and nobody holds a lock."""
    global _BLAS
    _pool.cache_clear()
    _BLAS = _Blas()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _of_variable(name: str) -> int | None:
    """The number in an environment variable, which may be the first of a list; None where there is none."""
    first = os.environ.get(name, "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def _processors() -> int:
    """Those this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
