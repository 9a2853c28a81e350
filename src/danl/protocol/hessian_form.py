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

A sketch of more than (d - 1) / 2 columns would be more numbers than the whole Hessian: r is cut to that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from danl.objective.regions import IntArray, Regions
from danl.protocol.messages import Array, CurvatureKind, CurvatureTask, packed_size
from danl.protocol.streams import SKETCH, stream

_LOWRANK = re.compile(r"lowrank:([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class HessianForm:
    """A kind, and the columns of the sketch where there is one."""

    kind: CurvatureKind
    rank: int = 0

    @classmethod
    def parse(cls, text: str) -> HessianForm | None:
        """The form of ``"full"``, ``"block"``, ``"diag"`` or ``"lowrank:50"``; None for anything else."""
        match text:
            case "full" | "block" | "diag":
                return cls(text)
        found = _LOWRANK.fullmatch(text)
        return None if found is None else cls("lowrank", int(found[1]))

    @classmethod
    def of(cls, task: CurvatureTask) -> HessianForm:
        """What a task asks for."""
        return cls(task.kind, task.rank)

    def columns(self, d: int) -> int:
        """Columns of the sketch for d coefficients."""
        return max(min(self.rank, (d - 1) // 2), 0)

    def numbers(self, regions: Regions) -> int:
        """How many numbers a worker sends."""
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
