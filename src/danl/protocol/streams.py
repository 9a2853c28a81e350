"""Random streams that are a function of the seed and of what they are for.

Every draw of a run comes from a generator made anew from (seed, purpose, key): the mini-batch of worker i in
exchange k, the masks of round t. Nothing has to be stored to resume or replay a run, and a worker that
restarts has lost nothing.
"""

from __future__ import annotations

import numpy as np

GRADIENT_BATCH, HESSIAN_BATCH, LOCAL_STEPS, PLANNED_MASKS, WORKER_MASK, SKETCH, SENDERS = range(7)
GRAPH, COMPRESSION, PARTICIPANTS, COINS, DELAYS = range(7, 12)


def stream(seed: int, purpose: int, *key: int) -> np.random.Generator:
    """The generator for one purpose and key (worker, exchange, round) of the run with this seed."""
    if max((seed, *key)) < 2**32:
        # What SeedSequence(seed, spawn_key=(purpose, *key)) makes of them, without its way through Python.
        words = np.array((seed, 0, 0, 0, purpose, *key), dtype=np.uint32)
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, *key)))
