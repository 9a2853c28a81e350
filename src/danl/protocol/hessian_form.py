r"""What is exchanged of a Hessian: all of it, or a part that is small enough where there are many coefficients.

    full        the upper triangle                                d (d + 1) / 2 numbers
    block       the triangle of one block for every region        sum_q d_q (d_q + 1) / 2
    lowrank:r   the diagonal, and a sketch of the data's part     d + d r
                (H_i - penalty) Omega, with d x r random numbers
                Omega that everyone draws alike from the task
    diag        the diagonal                                      d

All of them are sums over the rows, so what the workers send is added up with their weights, whatever it is, and the
server makes a matrix of the sum (`danl.server.partial_curvature`). A worker sends its part as one flat vector:
blocks by region, each as `pack` lays it out; the diagonal before the sketch, which goes row by row.

A worker may be asked for a piece of that vector, from one place to another (`pieces_of`).

A sketch of more than (d - 1) / 2 columns would be more numbers than the whole Hessian: r is cut to that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from danl.objective.hessian_parts import diagonal_places
from danl.objective.regions import IntArray, Regions
from danl.protocol.compressors import make_compressor
from danl.protocol.messages import Array, CurvatureKind, CurvatureTask, Dtype, Exchange, HessianTask, Mask, packed_size
from danl.protocol.streams import SKETCH, stream

_LOWRANK = re.compile(r"lowrank:([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class HessianForm:
    """A kind, the columns of the sketch where there is one, and what compresses a whole Hessian, if anything does."""

    kind: CurvatureKind
    rank: int = 0
    compressor: str | None = None

    @classmethod
    def parse(cls, text: str) -> HessianForm | None:
        """The form of ``"full"``, ``"block"``, ``"diag"`` or ``"lowrank:50"``; None for anything else."""
        match text:
            case "full" | "block" | "diag":
                return cls(text)
        found = _LOWRANK.fullmatch(text)
        return None if found is None else cls("lowrank", int(found[1]))

    @classmethod
    def of(cls, task: HessianTask | CurvatureTask) -> HessianForm:
        """What a task asks for, in whole or in pieces."""
        return cls("full") if isinstance(task, HessianTask) else cls(task.kind, task.rank, task.compressor)

    @property
    def whole(self) -> bool:
        """Whether all of a Hessian arrives."""
        return self.kind == "full" and self.compressor in (None, "identity")

    def columns(self, d: int) -> int:
        """Columns of the sketch for d coefficients."""
        return max(min(self.rank, (d - 1) // 2), 0)

    def numbers(self, regions: Regions) -> int:
        """How many numbers a worker sends; compressed, how many the server makes of them."""
        d = regions.n_coefficients
        match self.kind:
            case "full":
                return packed_size(d)
            case "block":
                return sum(packed_size(int(size)) for size in regions.sizes)
            case "lowrank":
                return d + d * self.columns(d)
            case "diag":
                return d

    def nbytes(self, regions: Regions, dtype: Dtype) -> int:
        """Bytes of what a worker sends."""
        itemsize = np.dtype(dtype).itemsize
        if self.compressor is None:
            return itemsize * self.numbers(regions)
        return make_compressor(self.compressor).nbytes(regions.n_coefficients, itemsize)

    def held(self, regions: Regions) -> int:
        """Numbers of the matrix the server makes of them."""
        d = regions.n_coefficients
        match self.kind:
            case "full":
                return d * d
            case "block":
                return int(np.square(regions.sizes).sum())
            case _:
                return self.numbers(regions)

    def diagonal_places(self, regions: Regions) -> IntArray:
        """Where the diagonal of the Hessian is among the numbers, (d,)."""
        d = regions.n_coefficients
        if self.kind == "full":
            return diagonal_places(d)
        places = np.arange(d)
        if self.kind == "block":
            start = 0
            for own in regions.groups:
                places[own] = start + diagonal_places(own.size)
                start += packed_size(own.size)
        return places


WHOLE = HessianForm("full")


def piece_of(task: HessianTask | CurvatureTask, regions: Regions) -> tuple[int, int, bool]:
    """The range of the numbers that a task asks for, and whether it is all of them."""
    if isinstance(task, HessianTask):
        return 0, packed_size(regions.n_coefficients), True
    numbers = HessianForm.of(task).numbers(regions)
    last = numbers if task.last is None else task.last
    return task.first, last, (task.first, last) == (0, numbers)


def pieces_of(exchange: Exchange, regions: Regions) -> tuple[IntArray, Mask]:
    """The range of the numbers each worker is asked for, (n, 2), and whose is only a part of what there is, (n,)."""
    task = exchange.task
    assert isinstance(task, HessianTask | CurvatureTask)
    numbers, pieces = HessianForm.of(task).numbers(regions), exchange.pieces
    if pieces is None:
        pieces = np.tile(piece_of(task, regions)[:2], (len(exchange.workers), 1))
    lengths = pieces[:, 1] - pieces[:, 0]
    return pieces, (lengths > 0) & (lengths < numbers)


def fitting_pieces(exchange: Exchange, regions: Regions) -> bool:
    """Whether the pieces of an exchange are ranges of the numbers that its task asks for, one for every worker."""
    task, pieces = exchange.task, np.asarray(exchange.pieces)
    if not isinstance(task, HessianTask | CurvatureTask) or pieces.shape != (len(exchange.workers), 2):
        return False
    (first, last), numbers = pieces.T, HessianForm.of(task).numbers(regions)
    if getattr(task, "compressor", None) is not None and ((first < last) & (last - first < numbers)).any():
        return False  # all at once, or nothing
    whole_numbers = np.issubdtype(pieces.dtype, np.integer)
    return bool(whole_numbers and ((first >= 0) & (first <= last) & (last <= numbers)).all())


def packed_blocks(numbers: Array, regions: Regions) -> Iterator[tuple[Array, IntArray]]:
    """The packed block of every region among the numbers of a block-diagonal Hessian, and the region's coordinates."""
    ends = np.cumsum([packed_size(own.size) for own in regions.groups])[:-1]
    return zip(np.split(numbers, ends), regions.groups, strict=True)


@lru_cache(maxsize=2)
def sketch_matrix(number: int, d: int, columns: int) -> Array:
    """Omega, (d, columns) standard normal numbers: a function of the task's number alone, so that sketches add up."""
    omega: Array = stream(number, SKETCH).standard_normal((d, columns))
    omega.flags.writeable = False
    return omega
