"""All missing runs, on several processes: a process takes the runs of one problem, so that its optimum is found once.

Every process writes its runs itself, as soon as each is done: whatever happens, at most the runs under way are lost.
Ctrl-C lets these finish and stops. BLAS gets one thread a process, so that two processes do not fight over two cores
and a result does not depend on the number of threads.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from danl.errors import InputError
from danl.reproduce.execute import digest, execute
from danl.reproduce.runs import RunSpec
from danl.reproduce.store import Store

POLL_SECONDS = 0.25
_shared: dict[str, Any] = {}  # in a child: the event that says stop, the counter of rounds done


def missing_runs(store: Store, runs: Iterable[RunSpec]) -> list[RunSpec]:
    """The runs that are not in the store, each once, in the order given."""
    return [run for run in dict.fromkeys(runs) if not store.has(run, digest(run.data))]


def complete(store: Store, runs: list[RunSpec], *, processes: int, progress: Callable[[int], object]) -> bool:
    """Do the runs and keep them; `progress` is called with how many rounds are done. False if somebody pressed Ctrl-C.

    Rounds, because runs differ: what is left takes about as long as its rounds.
    """
    batches = _batches(runs)
    # spawn: a forked child of a process with BLAS threads can hang.
    context = multiprocessing.get_context("spawn")
    stop, done = context.Event(), context.Value("i", 0)
    with ProcessPoolExecutor(
        max_workers=min(processes, max(len(batches), 1)), mp_context=context, initializer=_begin, initargs=(stop, done)
    ) as pool:
        pending: set[Future[None]] = {pool.submit(_do, store.root, batch) for batch in batches}
        try:
            while pending:
                finished, pending = wait(pending, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                progress(done.value)
                for future in finished:
                    future.result()
        except KeyboardInterrupt:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            return False
        except BrokenProcessPool:
            raise InputError(
                "a process of the reproduction was ended from outside (out of memory?); what was done is kept: "
                "run the same command again, with --processes 1 if memory is short"
            ) from None
    return True


def _batches(runs: list[RunSpec]) -> list[list[RunSpec]]:
    """Runs by problem, the largest batches first so that no process is left alone with one at the end."""
    by_problem: dict[tuple[object, ...], list[RunSpec]] = {}
    for run in runs:
        by_problem.setdefault(run.problem, []).append(run)
    return sorted(by_problem.values(), key=lambda batch: -sum(run.rounds for run in batch))


def _begin(stop: Any, done: Any) -> None:
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threadpool_limits(1)
    _shared.update(stop=stop, done=done)


def _do(root: Path, batch: list[RunSpec]) -> None:
    store = Store(root)
    for run in batch:
        if _shared["stop"].is_set():
            return
        history, record = execute(run)
        store.write(run, history, record, digest(run.data))
        with _shared["done"].get_lock():
            _shared["done"].value += run.rounds
