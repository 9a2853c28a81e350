"""Who talks to whom where there is no server: a graph of workers, and the weights with which they average.

Methods over graphs have gossip, x_i <- sum_j mixing_ij x_j over worker i and its neighbours, in place of the server's
mean. The weights are those of Metropolis and Hastings with a self loop,

    mixing_ij = 1 / (1 + max(degrees_i, degrees_j))     for an edge {i, j}; degrees do not count the self loop
    mixing_ii = 1 - sum_{j != i} mixing_ij              at least 1 / (1 + degrees_i), so above 0

The matrix is symmetric, and rows and columns sum to 1. On a connected graph gossip tends to the mean:

    ||mixing^k x - mean(x)|| <= (1 - gap)^k ||x - mean(x)||      gap = 1 - max(|lambda_2|, |lambda_N|)

with its eigenvalues 1 = lambda_1 > lambda_2 >= ... >= lambda_N > -1. A ring of N >= 3 has the gap
(2/3) (1 - cos(2 pi / N)), a complete graph 1. Without the self loop a ring of even N has lambda_N = -1: no mean.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from danl.checks import check_share, check_whole
from danl.errors import InputError, bad_argument
from danl.frozen import cached_property
from danl.objective.regions import BoolArray, IntArray
from danl.protocol.messages import Array
from danl.protocol.streams import GRAPH, stream
from danl.spec import Registry
from danl.storage.serialize import storable

MOST_DRAWS = 1000
"""Random graphs that are drawn; if none of them is connected, p is too small."""
_EDGE = re.compile(r"([0-9]{1,9})(?:\s*,\s*|\s+)([0-9]{1,9})")


@storable
@dataclass(frozen=True, eq=False)
class Graph:
    """A connected undirected graph of workers.

    Parameters
    ----------
    name : str
        What to call it; errors do.
    adjacency : bool array, shape (N, N)
        Where there is an edge: symmetric, without self loops. Zeros and ones are taken, too.
    """

    name: str
    adjacency: BoolArray

    def __post_init__(self) -> None:
        adjacency = _booleans(self.name, self.adjacency)
        if (loops := np.flatnonzero(adjacency.diagonal())).size:
            raise bad_argument("graph", self.name, "without self loops", f"clear that of worker {loops[0]}")
        if (one_way := np.argwhere(adjacency & ~adjacency.T)).size:
            next_step = "add an edge from worker {1} to worker {0}: there is one back".format(*one_way[0])
            raise bad_argument("graph", self.name, "symmetric", next_step)
        if (apart := np.flatnonzero(~_reached(adjacency))).size:
            next_step = f"add edges: no path leads from worker 0 to worker {apart[0]}"
            raise bad_argument("graph", self.name, "connected", next_step)
        object.__setattr__(self, "adjacency", adjacency)
        adjacency.setflags(write=False)

    def __repr__(self) -> str:
        return f"Graph(name={self.name!r}, n_workers={self.n_workers}, n_edges={self.n_edges})"

    @cached_property
    def n_workers(self) -> int:
        """The number of workers, N."""
        return len(self.adjacency)

    @cached_property
    def degrees(self) -> IntArray:
        """The number of neighbours of each worker, itself not counted, shape (N,)."""
        degrees: IntArray = self.adjacency.sum(axis=1, dtype=np.int64)
        degrees.setflags(write=False)
        return degrees

    @cached_property
    def n_edges(self) -> int:
        """The number of edges; in one gossip a message goes each way along every edge."""
        return int(self.degrees.sum()) // 2

    @cached_property
    def mixing(self) -> Array:
        """The weights of gossip, symmetric and doubly stochastic, shape (N, N)."""
        mixing: Array = self.adjacency / (1.0 + np.maximum.outer(self.degrees, self.degrees))
        np.fill_diagonal(mixing, 1.0 - mixing.sum(axis=1))
        mixing.setflags(write=False)
        return mixing

    @cached_property
    def gap(self) -> float:
        """The spectral gap, 1 - max(|lambda_2|, |lambda_N|); 1 for a worker alone, who has the mean."""
        others = np.linalg.eigvalsh(self.mixing)[:-1]
        return 1.0 - float(np.abs(others).max(initial=0.0))


def make_graph(graph: str | Graph | ArrayLike, n_workers: int, seed: int = 0) -> Graph:
    """Make the graph of `n_workers` workers.

    Parameters
    ----------
    graph : str, Graph or array
        Text: ``"ring"``; ``"grid"``, as square as it can be; ``"complete"``; ``"erdos"`` or ``"erdos:p=0.4"``, where
        every edge is there with probability p, by default min(1, 2 log(N) / N), drawn until the graph is connected;
        ``"file:path=edges.txt"``, a line an edge: two workers, counted from 0, with a blank or a comma between them;
        ``#`` starts a comment, and an edge may be there twice. A graph is returned as it is. An array is its adjacency.
    n_workers : int
        The number of workers, N.
    seed : int
        What a random graph is drawn from; the same seed gives the same graph.
    """
    n_workers, seed = check_whole("n_workers", n_workers), check_whole("seed", seed, 0)
    if isinstance(graph, str):
        graph = Graph(graph.strip(), _REGISTRY.make(graph, n_workers=n_workers, seed=seed))
    made = graph if isinstance(graph, Graph) else Graph("custom", _booleans("custom", graph))
    if made.n_workers != n_workers:
        next_step = f"it has {made.n_workers}, give another or set the number of workers"
        raise bad_argument("graph", made.name, f"a graph of {n_workers} workers", next_step)
    return made


def _ring(n_workers: int) -> BoolArray:
    first = np.arange(n_workers if n_workers > 1 else 0)  # nobody is a neighbour of itself
    return _linked(n_workers, first, (first + 1) % n_workers)


def _grid(n_workers: int) -> BoolArray:
    rows = max(divisor for divisor in range(1, math.isqrt(n_workers) + 1) if n_workers % divisor == 0)
    if rows == 1 and n_workers > 3:
        next_step = f"{n_workers} is a prime number: take 'ring' or 'complete', or another number of workers"
        raise bad_argument("graph", "grid", "of a number of workers that is rows times columns", next_step)
    place = np.arange(n_workers).reshape(rows, -1)
    return _linked(n_workers, place[:, :-1], place[:, 1:]) | _linked(n_workers, place[:-1], place[1:])


def _complete(n_workers: int) -> BoolArray:
    return ~np.eye(n_workers, dtype=bool)


def _erdos(n_workers: int, seed: int, p: float | None = None) -> BoolArray:
    p = min(1.0, 2 * math.log(n_workers) / n_workers) if p is None else check_share("graph option p", p, zero=False)
    rng = stream(seed, GRAPH)
    first, second = np.triu_indices(n_workers, 1)
    for _ in range(MOST_DRAWS):
        drawn = rng.random(len(first)) < p
        adjacency = _linked(n_workers, first[drawn], second[drawn])
        if _reached(adjacency).all():
            return adjacency
    allowed = f"large enough for a connected graph of {n_workers} workers"
    raise bad_argument("graph option p", p, allowed, f"none of {MOST_DRAWS} was, raise p or leave it out")


def _file(n_workers: int, path: Any) -> BoolArray:
    if not isinstance(path, str):
        raise bad_argument("graph option path", path, "a path, not a number", "write ./ in front of the file's name")
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:  # not there; not UTF-8
        raise InputError(f"graph option path={path!r}: cannot be read ({error}); give a text file of edges") from None
    said = ((number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1))
    edges = [_edge(f"graph option path={path!r}, line {number}", text, n_workers) for number, text in said if text]
    first, second = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    return _linked(n_workers, first, second)


def _edge(where: str, text: str, n_workers: int) -> tuple[int, int]:
    where = f"{where}: {reprlib.repr(text)}"
    if not (found := _EDGE.fullmatch(text)):
        weighted = len(text.replace(",", " ").split()) > 2
        next_step = "leave out the third column, as edges have no weights here" if weighted else "try '0 1'"
        raise InputError(f"{where} must be two worker numbers with a blank or a comma between them; {next_step}")
    first, second = int(found[1]), int(found[2])
    if first == second or max(first, second) >= n_workers:
        raise InputError(f"{where} must be two different numbers from 0 to {n_workers - 1}; change or remove the line")
    return first, second


def _linked(n_workers: int, first: IntArray, second: IntArray) -> BoolArray:
    adjacency = np.zeros((n_workers, n_workers), dtype=bool)
    adjacency[first, second] = adjacency[second, first] = True
    return adjacency


def _reached(adjacency: BoolArray) -> BoolArray:
    """Which workers a path leads to from worker 0."""
    reached = np.zeros(len(adjacency), dtype=bool)
    newest = np.arange(len(adjacency)) == 0
    while newest.any():
        reached |= newest
        newest = adjacency[newest].any(axis=0) & ~reached
    return reached


def _booleans(name: str, given: Any) -> BoolArray:
    """A copy of an adjacency, as booleans."""
    try:
        array = np.asarray(given)
    except ValueError:  # rows of several lengths
        array = np.zeros(0)
    square = array.ndim == 2 and len(array) == array.shape[1] > 0
    if not square or array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
        allowed = "a square array of booleans, or of 0 and 1, with a row for each of at least one worker"
        raise bad_argument("graph", name, allowed, "say where there are edges: their weights are made here")
    return array.astype(bool)


_BY_NAME: dict[str, Callable[..., BoolArray] | str]
_BY_NAME = {"ring": _ring, "grid": _grid, "complete": _complete, "erdos": _erdos, "file": _file}
_REGISTRY = Registry("graph", "danl.graphs", _BY_NAME, examples={"file": "file:path=edges.txt"})
