"""The batch of a few of many workers, or of some rows of each: mini-batches of all workers at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from danl.objective.batch import MANY_NUMBERS, Batch, IntArray
from danl.objective.losses import Array

FEW = 4
"""At most one in four of the workers are few."""


def few_of_many(count: int, n_workers: int, numbers: int) -> bool:
    """Whether it pays to touch what belongs to `count` of the workers alone, of so many numbers that all have."""
    return FEW * count <= n_workers and numbers >= MANY_NUMBERS


def part(batch: Batch, workers: IntArray) -> Batch | None:
    """The batch of a few of many workers; None where it is as good to go through all of them."""
    if not len(workers) or not few_of_many(len(workers), batch.n_workers, batch.numbers):
        return None
    return of_workers(batch, workers)


def of_workers(batch: Batch, workers: IntArray) -> Batch:
    """The batch of some of the workers, in this order."""
    counts = np.diff(batch.bounds)[workers]
    bounds = np.concatenate([[0], np.cumsum(counts)])
    rows = np.repeat(batch.bounds[workers] - bounds[:-1], counts) + np.arange(bounds[-1])
    own_weights = None if batch.own_weights is None else batch.own_weights[rows]
    return _made(batch, rows, own_weights, bounds, workers)


def sampled(batch: Batch, workers: IntArray, drawn: Sequence[IntArray | None]) -> Batch:
    """The batch of these workers on some rows of each: on average over draws each is its F_i, weights or not.

    None is all rows of a worker.
    """
    shards = np.diff(batch.bounds)[workers].tolist()
    rows = [np.arange(n) if own is None else own for n, own in zip(shards, drawn, strict=True)]
    counts = np.array([len(own) for own in rows])
    chosen, own_weights = np.concatenate(rows) + np.repeat(batch.bounds[workers], counts), None
    if batch.own_weights is not None:
        own_weights = batch.own_weights[chosen] * np.repeat(np.diff(batch.bounds)[workers] / counts, counts)
    return _made(batch, chosen, own_weights, np.concatenate([[0], np.cumsum(counts)]), workers)


def _made(batch: Batch, rows: IntArray, own_weights: Array | None, bounds: IntArray, workers: IntArray) -> Batch:
    parts = batch.X[rows], batch.y[rows], own_weights, bounds, batch.penalties[workers], batch.loss, batch.layout
    made = Batch(*parts, None if batch.offset is None else batch.offset[rows])
    made.use_threads(batch.wanted_threads)
    return made
