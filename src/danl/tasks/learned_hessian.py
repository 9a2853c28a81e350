r"""A Hessian that is learned: the worker keeps an estimate H_i, and sends what is new about it, compressed.

    S_i = C(Hess F_i(w) - H_i)          H_i <- H_i + alpha S_i          l_i = |Hess F_i(w) - H_i|_F

(FedNL, Algorithm 1, lines 4-6: Safaryan, Islamov, Qian & Richtarik, ICML 2022.) The server adds the same S_i to its
copy of H_i. The slot has H_i and nothing else; who has lost it begins anew with the Hessian at w, or with zero.

In the basis of the worker's own rows (Basis Learn: Qian, Islamov, Safaryan & Richtarik, AISTATS 2022) V_i has r_i
orthonormal columns that span the rows A_i, so that with the penalty taken out

    Hess F_i(w) = V_i G_i V_i^T,  G_i = V_i^T Hess F_i(w) V_i, r_i x r_i          grad F_i(w) = V_i (V_i^T grad F_i(w))

and G_i takes the place of the Hessian, V_i^T grad that of the gradient: nothing is lost, and r_i may be far below d.
V_i is sent once, when the slot begins. It spans what the worker's rows span, which tells more of them than a Hessian.
Where the model has several outputs, V_i is sent once and stands on the diagonal of a matrix once for every output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from danl.objective.kernels import Sandwich
from danl.objective.layout import Layout
from danl.objective.local_objective import LocalObjective, assembled
from danl.protocol.compressors import Compressed, make_compressor
from danl.protocol.messages import Array, Reply, pack, packed_size, unpack
from danl.protocol.own_tasks import StatefulTask, Workplace, vectors_fault
from danl.protocol.streams import COMPRESSION, stream

Begin = Literal["hessian", "zero"]
Basis = Literal["standard", "data"]
UNBOUNDED = -1.0
"""In place of a bound that there is none of."""


@dataclass(frozen=True)
class LearnReply(Reply):
    """What is new about H_i, and gradient and loss at w; the version it begins from.

    Where the slot begins with the Hessian, `numbers` is its upper triangle, whole. `basis` has the columns of V_i, one
    after the other, where a slot in the basis of the data begins, and is empty else. A gradient that was not asked for
    is empty.
    """

    version: int
    gradient: Array
    numbers: Array
    places: NDArray[np.int32]
    codes: NDArray[np.int16]
    basis: Array
    error: float
    """l_i: how far H_i is from the Hessian, before this task or, with `error_after`, after it."""
    lipschitz: float
    """A bound on how fast the Hessian changes: that of the loss times the mean of |a|^3."""
    loss: float

    @property
    def compressed(self) -> Compressed:
        return Compressed(self.numbers, self.places, self.codes)


@dataclass(frozen=True)
class LearnTask(StatefulTask):
    """Send gradient and loss at w, and what is new about the learned Hessian there."""

    name, answer = "learn", LearnReply

    compressor: str
    alpha: float
    begin: Begin = "hessian"
    basis: Basis = "standard"
    rank: int = 0
    """r_i, where the basis is the data's and has been sent."""
    outputs: int = 1
    """Of the model, where the basis is the data's."""
    error_after: bool = False
    with_gradient: bool = True

    @property
    def gradient_field(self) -> str | None:  # type: ignore[override]
        """Not where there is none, or in coordinates of the worker's own."""
        return "gradient" if self.with_gradient and self.basis == "standard" else None

    def work_with(self, place: Workplace, kept: Mapping[str, Array] | None) -> tuple[LearnReply, Mapping[str, Array]]:
        objective, w = place.objective, self.w
        loss, gradient = objective.value_and_gradient(w)
        vectors = np.empty((0, objective.layout.columns))
        with np.errstate(over="ignore", invalid="ignore"):  # at a model that blew up: the loss shows it
            if self.basis == "data":
                vectors = basis_of_rows(objective) if kept is None else kept["basis"].reshape(-1, vectors.shape[1])
                columns = for_outputs(vectors, objective.layout.n_outputs)
                gradient = columns.T @ (gradient - objective.penalties * w)
                hessian = hessian_in_basis(objective, w, vectors)
            else:
                hessian = objective.hessian(w)
        d = len(hessian)
        if kept is None and self.begin == "hessian":
            learned, message, error = hessian, Compressed(pack(hessian)), 0.0
        else:
            learned = np.zeros((d, d)) if kept is None else unpack(kept["hessian"], d)
            compressor = make_compressor(self.compressor)
            error = float(np.linalg.norm(hessian - learned))
            rng = stream(place.seed, COMPRESSION, place.worker, self.exchange)
            message = compressor.compress(hessian - learned, rng)
            learned = learned + self.alpha * compressor.restore(message, d)
            error = float(np.linalg.norm(hessian - learned)) if self.error_after else error
        gradient, basis = gradient if self.with_gradient else np.empty(0), vectors.ravel()
        sent = basis if kept is None else np.empty(0)
        told = (message.numbers, message.places, message.codes, sent, error, third_derivative(objective), loss)
        after = {"hessian": pack(learned), "basis": basis}
        return LearnReply(place.worker, self.exchange, int(self.version), gradient, *told), after

    def fault(self, reply: Any, d: int) -> str | None:
        if reply.version != self.version:
            return "it answered from another version than the one asked for"
        told = reply.error, 0.0 if reply.lipschitz == UNBOUNDED else reply.lipschitz
        if not all(isinstance(value, float) and value >= 0 for value in told):
            return "its error or its bound is no number"
        side, sent, whole = d, 0, self.version == 0 and self.begin == "hessian"
        if self.basis == "data":
            rank, columns = self.rank, d // self.outputs
            if self.version == 0:
                rank, rest = divmod(getattr(reply.basis, "size", 1), columns)
                if rest or not 1 <= rank <= columns:
                    return "its basis is not of vectors as long as the model of an output"
                sent = rank * columns
            side = self.outputs * rank
        fault = vectors_fault(reply, {"gradient": side if self.with_gradient else 0, "basis": sent})
        if whole:
            return fault or vectors_fault(reply, {"numbers": packed_size(side)})
        return fault or make_compressor(self.compressor).fault(reply.compressed, side)

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return rows * (1 + entries_per_row / 2)


def basis_of_rows(objective: LocalObjective) -> Array:
    """Orthonormal vectors that span the rows (a, 1), (r, columns); by the singular values that are not rounding."""
    rows = with_intercept(objective)
    _, values, vectors = np.linalg.svd(rows, full_matrices=False)
    rank = int(np.count_nonzero(values > max(rows.shape) * np.finfo(float).eps * values.max(initial=0.0)))
    return np.ascontiguousarray(vectors[: max(rank, 1)])


def with_intercept(objective: LocalObjective) -> Array:
    """The rows (a, 1), dense."""
    rows = objective.X.toarray() if sparse.issparse(objective.X) else objective.X
    return np.column_stack([rows, np.ones(len(rows))]) if objective.intercept else np.asarray(rows)


def hessian_in_basis(objective: LocalObjective, w: Array, vectors: Array) -> Array:
    """V^T Hess F_i(w) V without the penalty: by rows that are in the basis already, where that is less work."""
    n_rows, outputs, (rank, d) = objective.n_rows, objective.layout.n_outputs, vectors.shape
    if n_rows * rank <= d * (d + rank):
        n = objective.layout.n_features
        rows = np.asarray(objective.X @ vectors[:, :n].T)
        if objective.intercept:
            rows += vectors[:, n]
        return assembled(rows, objective.second_derivatives(w), Layout(rank, outputs), Sandwich(rows))
    columns = for_outputs(vectors, outputs)
    return np.asarray(
        columns.T @ (objective.hessian(w) - np.diag(np.broadcast_to(objective.penalties, w.shape))) @ columns
    )


def for_outputs(vectors: Array, n_outputs: int) -> Array:
    """V: the vectors as columns, once for every output of the model, (d, outputs * r)."""
    return vectors.T if n_outputs == 1 else np.asarray(np.kron(np.eye(n_outputs), vectors.T))


def third_derivative(objective: LocalObjective) -> float:
    """A Lipschitz constant of the Hessian: third_bound * mean |a|^3; UNBOUNDED where the loss has no bound."""
    bound = objective.loss.third_bound
    return float(bound * (objective.row_weights @ objective.row_norms**3)) if np.isfinite(bound) else UNBOUNDED
