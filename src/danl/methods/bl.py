r"""Basis Learn: FedNL where each worker's Hessian is learned in a basis of its own, that of its rows.

Qian, Islamov, Safaryan & Richtarik, "Basis matters: better communication-efficient second order methods for federated
learning", AISTATS 2022: BL1, and BL2 with partial participation (`pp`). BL3 is not here.

V_i has r_i orthonormal columns that span worker i's rows, and L_i is r_i x r_i: H_i = V_i L_i V_i^T + penalty_i I. In
lines 1 to 4 F_i is without its penalty.

    BL1
     1  parameters: a compressor C, the rate alpha, the chance p of a gradient; L_i^0 = V_i^T Hess F_i(x^0) V_i
        each worker i, at x^k
     2    if the coin falls (chance p, the same coin for all; always at first)   sends V_i^T grad F_i(x^k)
     3    sends S_i = C(V_i^T Hess F_i(x^k) V_i - L_i),   L_i <- L_i + alpha S_i
        server
     4    if the coin fell   anchor <- x^k,   slope <- sum_i weight_i (V_i V_i^T grad F_i(x^k) + penalty_i x^k)
     5    x^(k+1) = anchor - [H]_mu^-1 slope                     with H = sum_i weight_i H_i before S_i is added
     6    L_i <- L_i + alpha S_i

    BL2   x <- (H + l I)^-1 sum_i weight_i ((H_i + l_i I) x_i - grad F_i(x_i)); then tau workers answer about x; they
          take l_i = |Hess F_i(x) - H_i|_F after they have learned, and x_i = x if the coin falls

After the published method as we know it; the numbers of the lines are ours, and the text was not held against the
printed paper. There line 5 is x^k - [H]_mu^-1 g with g = [H]_mu (x^k - anchor) + slope: the same point.

- V_i comes from the singular vectors of the rows, and is sent once, with L_i^0: r d + r (r + 1) / 2 + r numbers, then K
  entries and r a round in place of d (d + 1) / 2 and d. Nothing is lost where the loss is of a . x, and little is won
  where r is near d. V_i tells the server what the rows span.
- The penalty is in no coefficient: penalty_i I is not of the span. The server adds it, but for numbers that have none.
- alpha: as FedNL, by the side of each worker's own matrix; 1 for contractive compressors.
- The model goes to the workers as it is: Q = identity, eta = 1 of the paper's compression in both directions.
- Open in the paper: who is absent. Those who answer are averaged; H has everyone who has ever begun, with the weights
  renormalised. Who has lost L_i begins anew: in BL1 in an exchange more, in BL2 when it is drawn the next time. BL1
  ends where nobody answers; BL2 draws others.
- Differs from the paper: the server keeps each V_i and L_i, and H is made of them. In BL2 the coin is one for all that
  take part, not one for each; and the server makes g_i of what it keeps, where a worker would send a difference of it.
- With several outputs V_i is used for each of them.
- With basis="standard" it is `fednl` (projection; with pp its Algorithm 2); with C = identity or rankr both have
  the same iterates in either basis. Top-K in the standard basis diverges from 0 on a1a and phishing; in that of the
  rows it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from danl.checks import check_choice, check_share, check_whole
from danl.errors import bad_argument
from danl.frozen import replace
from danl.methods.base import HoldsHessian, Info, Setup, Status, Turn, too_few
from danl.methods.proven_end import proven_decrement
from danl.methods.shared_options import check_options
from danl.objective.regions import IntArray
from danl.protocol.compressors import make_compressor
from danl.protocol.messages import Array, Exchange, Mask, pack, unpack
from danl.protocol.replies import Replies
from danl.protocol.streams import COINS, PARTICIPANTS, stream
from danl.server.aggregation import mean_loss, shares
from danl.server.curvature import project
from danl.storage.serialize import storable
from danl.tasks.learned_hessian import Basis, LearnReply, LearnTask, for_outputs


@storable
@dataclass(frozen=True)
class Coefficients:
    """What the server knows of each worker's Hessian: the basis and the coefficients in it, none before it begins."""

    versions: IntArray  # 0: it has not begun, or has lost what it learned
    bases: tuple[Array, ...]  # V_i^T of one output, (r_i, columns); empty: the standard basis
    packed: tuple[Array, ...]  # L_i
    errors: Array  # l_i

    @classmethod
    def nothing(cls, n: int) -> Coefficients:
        none = tuple(np.empty((0, 0)) for _ in range(n))
        return cls(np.zeros(n, dtype=np.int64), none, tuple(np.empty(0) for _ in range(n)), np.zeros(n))

    @property
    def begun(self) -> Mask:
        """Of whom something is known."""
        return np.array([own.size > 0 for own in self.packed])

    def side(self, worker: int) -> int:
        """How many rows L_i has."""
        return int(np.sqrt(2 * self.packed[worker].size))

    def with_begun(self, messages: Mapping[int, LearnReply], columns: int) -> Coefficients:
        """With V_i and L_i^0 of those who begin, and the errors that came."""
        bases, packed, errors = list(self.bases), list(self.packed), self.errors.copy()
        for worker, reply in messages.items():
            errors[worker] = reply.error
            if reply.version == 0:
                bases[worker], packed[worker] = reply.basis.reshape(-1, columns), reply.numbers
        return replace(self, bases=tuple(bases), packed=tuple(packed), errors=errors)

    def with_news(self, messages: Mapping[int, LearnReply], compressor: str, alphas: Array) -> Coefficients:
        """Line 6: with what the workers have added to theirs; each is one version further."""
        packed, versions, made = list(self.packed), self.versions.copy(), make_compressor(compressor)
        for worker, reply in messages.items():
            versions[worker] = reply.version + 1
            if reply.version > 0:
                new = pack(made.restore(reply.compressed, self.side(worker)))
                packed[worker] = packed[worker] + alphas[worker] * new
        return replace(self, packed=tuple(packed), versions=versions)

    def without(self, workers: list[int]) -> Coefficients:
        """With these to begin anew; what is known of them stays."""
        return replace(self, versions=np.where(np.isin(np.arange(len(self.versions)), workers), 0, self.versions))

    def hessian(self, worker: int, setup: Setup) -> Array:
        """H_i."""
        own, vectors = unpack(self.packed[worker], self.side(worker)), self.bases[worker]
        if not vectors.size:
            return own
        columns = for_outputs(vectors, setup.n_outputs)
        return np.asarray(columns @ own @ columns.T + np.diag(penalties(worker, setup)))

    def gradient(self, worker: int, sent: Array, w: Array, setup: Setup) -> Array:
        """The gradient of F_i at w, of what the worker has sent."""
        vectors = self.bases[worker]
        return for_outputs(vectors, setup.n_outputs) @ sent + penalties(worker, setup) * w if vectors.size else sent


def penalties(worker: int, setup: Setup) -> Array:
    """The penalty of a worker on every number of w."""
    return np.where(setup.free, 0.0, setup.penalties[worker])


@storable
@dataclass(frozen=True)
class BasisLearnState:
    """The model, what is learned, and the models that gradients are known of."""

    w: Array
    known: Coefficients
    points: Array  # BL1: the anchor, (1, d); BL2: x_i of every worker, (N, d)
    gradients: Array  # there: BL1 of all together
    has_gradient: Mask  # for each of these rows
    status: Status | None = None


@dataclass(frozen=True)
class BasisLearn(HoldsHessian):
    """Newton learning in the basis of each worker's rows.

    Parameters
    ----------
    compressor : str
        Of differences of coefficients: "topk" (the default: as many entries as a worker's matrix has rows), "topk:K",
        "rankr:R", "randk:K", "natural", "identity".
    alpha : float, optional
        The rate at which coefficients are learned. Default: 1, or 1 / (omega + 1) of an unbiased compressor.
    basis : str
        "data": that of the worker's rows; "standard": that of the model's numbers.
    p : float
        The chance that gradients are sent in a round. Default: 1.
    pp : int, optional
        BL2: how many workers take part in a round. Default: BL1, all of them.
    mu : float, optional
        Floor of the projection. Default: the strong convexity the penalty guarantees.

    """

    name = "bl"

    compressor: str = "topk"
    alpha: float | None = None
    basis: Basis = "data"
    p: float = 1.0
    pp: int | None = None
    mu: float | None = None

    def __post_init__(self) -> None:
        check_options(self)
        make_compressor(self.compressor)
        check_choice("basis", self.basis, ("data", "standard"))
        check_share("p", self.p, zero=False)
        if self.alpha is not None:
            check_share("alpha", self.alpha)
        if self.pp is not None:
            check_whole("pp", self.pp)

    @property
    def slot(self) -> str:
        """What workers keep their bases and coefficients under."""
        return f"bl {self.compressor} {self.basis}"

    def begin(self, setup: Setup) -> BasisLearnState:
        n, d = setup.n_workers, setup.n_coefficients
        if self.pp is not None and self.pp > n:
            raise bad_argument("pp", self.pp, f"at most {n}, the number of workers")
        rows = np.zeros((1 if self.pp is None else n, d))
        return BasisLearnState(setup.w0, Coefficients.nothing(n), rows, rows, np.zeros(len(rows), dtype=bool))

    def plan(self, state: BasisLearnState, setup: Setup, turn: Turn) -> Exchange:
        known, workers = state.known, np.arange(setup.n_workers)
        if self.pp is not None and known.begun.any():
            rng = stream(setup.seed, PARTICIPANTS, turn.exchange)
            workers = np.sort(rng.choice(setup.n_workers, size=self.pp, replace=False))
        coin = bool(stream(setup.seed, COINS, turn.exchange).random() < self.p)
        asked = coin or not state.has_gradient[workers if self.pp is not None else [0]].all()  # line 2
        task = LearnTask(
            turn.exchange,
            state.w,
            self.slot,
            0,
            self.compressor,
            1.0,
            basis=self.basis,
            outputs=setup.n_outputs,
            error_after=self.pp is not None,
            with_gradient=asked,
        )
        ranks = np.array([len(vectors) for vectors in known.bases])
        own = {"version": known.versions, "rank": ranks, "alpha": self.rates(known)}
        return Exchange("learn", task, workers, own={name: each[workers] for name, each in own.items()})

    def rates(self, known: Coefficients) -> Array:
        """Alpha of every worker: by the side of its matrix."""
        if self.alpha is not None:
            return np.full(len(known.packed), float(self.alpha))
        made = make_compressor(self.compressor)
        return np.array([made.rate(max(known.side(worker), 1)) for worker in range(len(known.packed))])

    def absorb(self, state: BasisLearnState, replies: Replies, setup: Setup) -> tuple[BasisLearnState, Info]:
        forgot = [worker for worker, failure in replies.failures.items() if failure.kind == "forgot"]
        if not replies.messages and not forgot:
            some = self.pp is not None and state.known.begun.any() and self.pp < setup.n_workers
            return (state, Info()) if some else too_few(state, replies)
        before = state.known.with_begun(replies.messages, setup.n_coefficients // setup.n_outputs)
        after = before.with_news(replies.messages, self.compressor, self.rates(before)).without(forgot)
        state = replace(state, known=after)
        if not replies.messages:  # the same again, with those that begin anew
            return state, Info()
        sent = {
            worker: before.gradient(worker, reply.gradient, state.w, setup)
            for worker, reply in replies.messages.items()
            if reply.gradient.size
        }
        mean = np.zeros(0)
        if sent:
            mean = np.asarray(shares(setup.weights, replies.workers) @ np.array(list(sent.values())))
            state = self._with_gradients(state, sent, mean)
        if len(sent) == setup.n_workers:
            loss = mean_loss(replies, setup.weights)
            info = Info(proven_decrement(mean, loss, setup))
            if info.decrement <= setup.tol:
                here = replace(info, objective=loss, exact_norm=float(np.linalg.norm(mean)))
                return replace(state, status="converged"), here
        w = self._stepped(state, before, setup) if self.pp is None else self._solved(state, setup)
        return replace(state, status="diverged") if w is None else replace(state, w=w), Info()

    def _with_gradients(self, state: BasisLearnState, sent: Mapping[int, Array], mean: Array) -> BasisLearnState:
        """Line 4, or of BL2 the same for each that took part."""
        points, gradients, has = state.points.copy(), state.gradients.copy(), state.has_gradient.copy()
        rows = {0: mean} if self.pp is None else sent
        for row, gradient in rows.items():
            points[row], gradients[row], has[row] = state.w, gradient, True
        return replace(state, points=points, gradients=gradients, has_gradient=has)

    def _stepped(self, state: BasisLearnState, known: Coefficients, setup: Setup) -> Array | None:
        """Line 5; None where what is learned is not finite."""
        workers = np.flatnonzero(known.begun)
        hessian = np.zeros((setup.n_coefficients, setup.n_coefficients))
        for share, worker in zip(shares(setup.weights, workers), workers.tolist(), strict=True):
            hessian += share * known.hessian(worker, setup)
        return self._from(state.points[0], hessian, state.gradients[0], setup)

    def _solved(self, state: BasisLearnState, setup: Setup) -> Array | None:
        """BL2: from the newest linear model of each worker's gradient; about the model asked about, not to lose digits.

        sum_i weight_i ((H_i + l_i I) (x_i - w) - grad F_i(x_i)) is 0 at the w that is looked for.
        """
        known, d = state.known, setup.n_coefficients
        workers = np.flatnonzero(known.begun & state.has_gradient)
        hessian, slope = np.zeros((d, d)), np.zeros(d)
        for share, worker in zip(shares(setup.weights, workers), workers.tolist(), strict=True):
            own = known.hessian(worker, setup) + known.errors[worker] * np.eye(d)
            hessian += share * own
            slope += share * (state.gradients[worker] + own @ (state.w - state.points[worker]))
        return self._from(state.w, hessian, slope, setup)

    def _from(self, point: Array, hessian: Array, slope: Array, setup: Setup) -> Array | None:
        if not (np.isfinite(hessian).all() and np.isfinite(slope).all()):
            return None
        return point - project(hessian, setup.floor(self.mu)).solve(slope)
