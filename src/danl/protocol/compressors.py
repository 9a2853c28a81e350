"""Compressors: symmetric matrices in fewer numbers, for methods that learn the Hessian from compressed differences.

A worker sends C(M) in place of the d x d matrix M, and both ends add the same C(M) to what they have learned.
n = d (d + 1) / 2 is the size of the upper triangle, laid out as `danl.protocol.messages.pack` does it.

    identity    the triangle                                     delta = 1            n numbers
    topk:K      its K entries of largest absolute value          delta = K / d^2      K
    rankr:R     the R eigenpairs of largest absolute eigenvalue  delta = R / d        R d
    randk:K     K entries drawn with equal chances, times n / K  omega = n / K - 1    K
    natural     each entry rounded to a power of two at random   omega = 1 / 8        n, of 9 bits

    contractive   ||C(M) - M||_F^2 <= (1 - delta) ||M||_F^2               alpha = 1
    unbiased      E C(M) = M,  E ||C(M) - M||_F^2 <= omega ||M||_F^2      alpha = 1 / (omega + 1)

alpha is the rate of learning: H_i + alpha C(M) is the next H_i. Both classes and their rates: Safaryan, Islamov, Qian
and Richtarik, "FedNL: Making Newton-Type Methods Applicable to Federated Learning", ICML 2022, section 3, on
compressing matrices. natural: Horvath et al., "Natural Compression for Distributed Deep Learning", MSML 2022.

Numbers and bits are counted as in the code of FedNL's authors: 32 bits a number, positions and signs for nothing. What
a message weighs here, with positions and in float64, is counted in `danl.protocol.message_bytes`.

The matrix of a message is made of sums and products of single entries, so that it has the same bits on every machine. A
matrix that is not finite makes a message that `fault` objects to; of randk, if such an entry is drawn.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from danl.errors import bad_argument
from danl.protocol.messages import Array, pack, packed_size, unpack
from danl.protocol.own_tasks import vectors_fault
from danl.spec import unknown_name

FLOAT_BITS, NATURAL_BITS = 32, 9
"""Bits of a number as the authors count them: a float32, and its sign and exponent."""
OFFSET, LARGEST = 1075, 2098
"""Codes of natural: 0 is 0, and +-c is +-2^(c - OFFSET), from 2^-1074 (the least float64) to 2^1023, for LARGEST."""
LANCZOS = 20
"""Eigenpairs of a matrix at least so many times as large are found by Lanczos' method: a tenth of the time."""
RESIDUAL = 1e-9
"""How far Lanczos' pairs may be off, as a share of the eigenvalue; the next difference has what is left."""
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, eq=False)
class Compressed:
    """What travels of a compressed matrix; arrays that a compressor has no use for are empty."""

    numbers: Array = field(default_factory=lambda: np.empty(0))
    places: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    """Where the numbers belong in the packed upper triangle, in increasing order."""
    codes: NDArray[np.int16] = field(default_factory=lambda: np.empty(0, dtype=np.int16))
    """Signs of eigenvalues (rankr), or signs and exponents of powers of two (natural)."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.numbers.nbytes + self.places.nbytes + self.codes.nbytes


class Compressor(Protocol):
    """What a compressor does. Its fields are the numbers of its name."""

    @property
    def name(self) -> str:
        """Text that makes it again (`make_compressor`)."""
        numbers = [str(value) for value in vars(self).values() if value is not None]
        return ":".join([type(self).__name__.lower(), *numbers])

    def compress(self, matrix: Array, rng: np.random.Generator) -> Compressed:
        """The message of a symmetric (d, d) matrix; only its upper triangle is looked at."""

    def restore(self, compressed: Compressed, d: int) -> Array:
        """The symmetric (d, d) matrix of a message in which `fault` finds nothing."""

    def fault(self, compressed: Compressed, d: int) -> str | None:
        """What is wrong with the form of a message, whoever it came from; None where nothing is."""

    def floats(self, d: int) -> int:
        """Numbers in a message, as the authors count them."""
        return packed_size(d)

    def bits(self, d: int) -> int:
        """Bits of a message, as the authors count them."""
        return FLOAT_BITS * self.floats(d)

    def nbytes(self, d: int, itemsize: int = 8) -> int:
        """Bytes of a message here: those of its arrays, with numbers of this size."""
        return itemsize * self.floats(d)

    def lossless(self, d: int) -> bool:
        """Whether a message says all of a (d, d) matrix, up to rounding."""
        return False

    def rate(self, d: int) -> float:
        """The rate alpha at which the Hessian is learned."""
        return 1.0


@dataclass(frozen=True)
class Identity(Compressor):
    """The whole triangle."""

    def compress(self, matrix: Array, rng: np.random.Generator) -> Compressed:
        return Compressed(pack(matrix))

    def restore(self, compressed: Compressed, d: int) -> Array:
        return unpack(compressed.numbers, d)

    def fault(self, compressed: Compressed, d: int) -> str | None:
        return _form_fault(compressed, numbers=packed_size(d))

    def lossless(self, d: int) -> bool:
        return True


@dataclass(frozen=True)
class _Entries(Compressor):
    """Some entries of the triangle, and 0 elsewhere: K of them, or with None d, and all of them at most."""

    entries: int | None = None

    def restore(self, compressed: Compressed, d: int) -> Array:
        packed = np.zeros(packed_size(d))
        packed[compressed.places] = compressed.numbers
        return unpack(packed, d)

    def fault(self, compressed: Compressed, d: int) -> str | None:
        fault = _form_fault(compressed, numbers=self.floats(d), places=self.floats(d))
        if fault is not None:
            return fault
        places = compressed.places
        right = places[0] >= 0 and places[-1] < packed_size(d) and (places[1:] > places[:-1]).all()
        return None if right else "its places are not increasing, or not in the triangle"

    def floats(self, d: int) -> int:
        return min(d if self.entries is None else self.entries, packed_size(d))

    def nbytes(self, d: int, itemsize: int = 8) -> int:
        return (itemsize + 4) * self.floats(d)

    def lossless(self, d: int) -> bool:
        return self.floats(d) == packed_size(d)


@dataclass(frozen=True)
class TopK(_Entries):
    """The entries of largest absolute value; of those that are equal, the first ones."""

    def compress(self, matrix: Array, rng: np.random.Generator) -> Compressed:
        packed, kept = pack(matrix), self.floats(len(matrix))
        sizes = np.abs(packed)
        sizes[np.isnan(sizes)] = np.inf  # not to be left out in silence
        least = np.partition(sizes, -kept)[-kept]
        chosen = sizes > least
        chosen[np.flatnonzero(sizes == least)[: kept - np.count_nonzero(chosen)]] = True
        places = np.flatnonzero(chosen).astype(np.int32)
        return Compressed(packed[places], places)


@dataclass(frozen=True)
class RandK(_Entries):
    """Entries drawn without replacement, scaled so that the mean over all draws is the matrix.

    Their places travel, though whoever has the generator could draw them again: a message says by itself what it is.
    """

    def compress(self, matrix: Array, rng: np.random.Generator) -> Compressed:
        packed, kept = pack(matrix), self.floats(len(matrix))
        places = np.sort(rng.choice(packed.size, kept, replace=False, shuffle=False)).astype(np.int32)
        return Compressed(packed[places] * (packed.size / kept), places)

    def rate(self, d: int) -> float:
        return self.floats(d) / packed_size(d)


@dataclass(frozen=True)
class RankR(Compressor):
    """The eigenpairs of largest absolute eigenvalue, d at most: sqrt(|eigenvalue|) times the vector, and signs."""

    rank: int = 1

    def compress(self, matrix: Array, rng: np.random.Generator) -> Compressed:
        values, vectors = leading_eigenpairs(matrix, self.rank)
        largest = np.argsort(-np.abs(values), kind="stable")[: self.rank]
        scaled = np.sqrt(np.abs(values[largest])) * vectors[:, largest]
        return Compressed(scaled.T.ravel(), codes=np.where(values[largest] < 0, -1, 1).astype(np.int16))

    def restore(self, compressed: Compressed, d: int) -> Array:
        matrix = np.zeros((d, d))
        for sign, vector in zip(compressed.codes.tolist(), compressed.numbers.reshape(-1, d), strict=True):
            matrix += sign * np.outer(vector, vector)  # no matrix product: its last bits depend on the machine
        return matrix

    def fault(self, compressed: Compressed, d: int) -> str | None:
        fault = _form_fault(compressed, numbers=self.floats(d), codes=min(self.rank, d))
        if fault is None and not (np.abs(compressed.codes) == 1).all():
            return "its codes are not signs"
        with np.errstate(over="ignore"):  # no entry of the matrix is larger than the sum of all squares
            return fault or (None if np.isfinite(np.square(compressed.numbers).sum()) else "its matrix is not finite")

    def floats(self, d: int) -> int:
        return min(self.rank, d) * d

    def nbytes(self, d: int, itemsize: int = 8) -> int:
        return (itemsize * d + 2) * min(self.rank, d)

    def lossless(self, d: int) -> bool:
        return self.rank >= d


def leading_eigenpairs(matrix: Array, count: int) -> tuple[Array, Array]:
    """Eigenvalues and vectors with those of largest absolute value among them: of a few, Lanczos' are enough."""
    d = len(matrix)
    if not np.isfinite(matrix).all():  # nobody knows what LAPACK does with what is not
        return np.full(d, np.nan), matrix
    if LANCZOS * count <= d and matrix.any():
        from scipy.sparse.linalg import ArpackError, eigsh

        with suppress(ArpackError):
            found: tuple[Array, Array] = eigsh(matrix, k=count, which="LM", v0=np.ones(d), tol=RESIDUAL)
            return found
    return np.linalg.eigh(matrix, UPLO="U")


@dataclass(frozen=True)
class Natural(Compressor):
    """An entry +-t 2^e, 1 <= t < 2, becomes +-2^(e + 1) with probability t - 1, and +-2^e else; 0 stays.

    Above 2^1023, where the next power of two is infinite, it becomes 2^1023 always.
    """

    def compress(self, matrix: Array, rng: np.random.Generator) -> Compressed:
        packed = pack(matrix)
        finite = np.isfinite(packed)
        halves, exponents = np.frexp(np.where(finite, packed, 0.0))  # halves = +-t / 2, exponents = e + 1; or both 0
        up = rng.random(packed.size) < 2.0 * np.abs(halves) - 1.0
        sizes = np.minimum(exponents - 1 + up + OFFSET, LARGEST)
        return Compressed(codes=np.where(finite, np.sign(halves) * sizes, LARGEST + 1).astype(np.int16))

    def restore(self, compressed: Compressed, d: int) -> Array:
        codes = compressed.codes.astype(np.int32)
        with np.errstate(over="ignore"):  # LARGEST + 1, of a matrix that is not finite
            return unpack(np.ldexp(np.sign(codes).astype(np.float64), np.abs(codes) - OFFSET), d)

    def fault(self, compressed: Compressed, d: int) -> str | None:
        fault = _form_fault(compressed, codes=packed_size(d))
        if fault is None and ((compressed.codes < -LARGEST) | (compressed.codes > LARGEST)).any():
            return "its codes are not those of finite numbers"
        return fault

    def bits(self, d: int) -> int:
        return NATURAL_BITS * self.floats(d)

    def nbytes(self, d: int, itemsize: int = 8) -> int:
        return 2 * packed_size(d)

    def rate(self, d: int) -> float:
        return 8 / 9


_KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in (Identity, TopK, RankR, RandK, Natural)}


def make_compressor(spec: str, argument: str = "compressor") -> Compressor:
    """The compressor of ``"identity"``, ``"topk:123"``, ``"rankr:1"``, ``"randk:50"`` or ``"natural"``.

    Without a number topk and randk keep d entries, rankr one eigenpair. More than there are is all of them.
    """
    name, colon, number = str(spec).partition(":")
    if name not in _KINDS:
        raise unknown_name(argument, spec, _KINDS, "a number goes behind a colon, as in 'rankr:1'")
    kind = _KINDS[name]
    if colon and not fields(kind):
        raise bad_argument(argument, spec, repr(name), "it takes no number")
    if colon and not _NUMBER.fullmatch(number):
        raise bad_argument(argument, spec, f"{name!r}, or '{name}:' and a whole number >= 1", f"try '{name}:10'")
    made: Compressor = kind(int(number)) if colon else kind()
    return made


def _form_fault(compressed: Compressed, *, numbers: int = 0, places: int = 0, codes: int = 0) -> str | None:
    """Whether the arrays have these lengths and their dtypes, and the numbers are finite."""
    fault = vectors_fault(compressed, {"numbers": numbers}) or vectors_fault(compressed, {"places": places}, np.int32)
    fault = fault or vectors_fault(compressed, {"codes": codes}, np.int16)
    return fault or (None if np.isfinite(compressed.numbers).all() else "its numbers are not finite")
