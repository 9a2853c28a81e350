r"""FedNL: workers learn their Hessians, and send compressed differences of what they have learned and what is.

Safaryan, Islamov, Qian & Richtarik, "FedNL: Making Newton-type methods applicable to federated learning", ICML 2022.
Algorithm 1 with its extensions: partial participation (2, `pp`), a line search (3, `ls`), cubic steps (4, `cr`).

     1  parameters: a compressor C, the rate alpha, H_i^0, H^0 = sum_i weight_i H_i^0
        each worker i
     4    gradient g_i and Hessian A_i at x^k
     5    sends g_i, S_i = C(A_i - H_i), l_i = |A_i - H_i|_F
     6    H_i <- H_i + alpha S_i
        server
     8    g = sum_i weight_i g_i,   S = sum_i weight_i S_i,   l = sum_i weight_i l_i
    11    step="projection"   x <- x - [H]_mu^-1 g                    with H before S is added
    12    step="shift"        x <- x - (H + l I)^-1 g
    10    H <- H + alpha S

    pp    x <- (H + l I)^-1 sum_i weight_i ((H_i + l_i I) x_i - g_i), x_i the last model that worker i saw; then tau
          workers answer about x, and take l_i after they have learned
    ls    x <- x + gamma^s p with p as in 11, the first s with  f <= f(x) + c gamma^s g . p
    cr    x <- x + argmin_p  g . p + p . (H + l I) p / 2 + (M / 6) |p|^3

The lines are numbered as in the box as we know it; the numbers were not held against the printed paper.

- alpha: 1 for contractive compressors (topk, rankr, identity), 1 / (omega + 1) for unbiased ones (randk, natural): as
  rules 2 and 3 of the authors' code; its rule 1 is 1 - sqrt(1 - delta), with delta = 2 K / (d (d + 1)) of topk.
- l_i is a Frobenius norm; the authors' Python code shifts by the spectral one, and takes 10 to 35 % fewer rounds by it.
- H_i^0 is the Hessian at x^0, sent whole in the first exchange, or zero; with zero, `projection` begins with a gradient
  step of length 1 / mu, and diverges as a rule.
- Open in the paper: who is absent. It counts with its newest gradient, and H keeps what is known of everyone.
- Differs from the paper: the server keeps each H_i, not only their mean, so that a worker that has lost its own can be
  begun anew.
- `cr` needs a bound M on how fast the Hessian changes; the workers tell one of their rows (`lipschitz` sets another).
- With alpha = 0 it is `newton-zero`; with C = identity and alpha = 1 Newton's method with Hessians one step old.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from danl.checks import check_flag, check_number, check_share, check_whole
from danl.errors import InputError, bad_argument
from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.proven_end import proven_decrement
from danl.methods.shared_options import check_options
from danl.objective.regions import IntArray, Regions
from danl.protocol.compressors import Compressed, make_compressor
from danl.protocol.messages import Array, Exchange, LossTask, Mask, pack, packed_size, unpack
from danl.protocol.replies import Replies
from danl.protocol.streams import PARTICIPANTS, stream
from danl.server.aggregation import mean_gradient, mean_loss
from danl.server.curvature import project
from danl.storage.serialize import storable
from danl.tasks.learned_hessian import UNBOUNDED, Begin, LearnReply, LearnTask

SUFFICIENT, SHORTER, MOST_TRIALS = 0.5, 0.5, 60
"""c and gamma of the line search, as in the authors' code, and how often a step is made shorter at most."""


@storable
@dataclass(frozen=True)
class Learned:
    """What the server knows of the learned Hessians: one entry of every worker, and their weighted mean."""

    versions: IntArray  # 0: it has not begun, or has lost what it learned
    hessians: tuple[Array, ...]  # packed
    mean: Array  # packed: H
    errors: Array  # l_i
    lipschitz: Array
    begun: Mask  # who has told of itself, be it that it has lost it since
    told: Array  # the newest gradient of each, (N, d); of pp (H_i + l_i I) x_i - g_i with x_i where it was asked about

    @classmethod
    def nothing(cls, n: int, d: int) -> Learned:
        none = np.zeros(packed_size(d))
        begun, told = np.zeros(n, dtype=bool), np.zeros((n, d))
        return cls(np.zeros(n, dtype=np.int64), (none,) * n, none, np.zeros(n), np.zeros(n), begun, told)

    def with_begun(self, messages: Mapping[int, LearnReply], initial: Begin, weights: Array) -> Learned:
        """With H_i^0 of those who begin, and the errors that came."""
        hessians, mean, errors, lipschitz = list(self.hessians), self.mean, self.errors.copy(), self.lipschitz.copy()
        told = self.begun.copy()
        told[list(messages)] = True
        for worker, reply in messages.items():
            errors[worker], lipschitz[worker] = reply.error, reply.lipschitz
            if reply.version == 0:
                begun = reply.numbers if initial == "hessian" else np.zeros_like(mean)
                mean = mean + weights[worker] * (begun - hessians[worker])
                hessians[worker] = begun
        return replace(self, hessians=tuple(hessians), mean=mean, errors=errors, lipschitz=lipschitz, begun=told)

    def with_news(
        self, messages: Mapping[int, LearnReply], restore: Callable[[Compressed], Array], initial: Begin, weights: Array
    ) -> Learned:
        """Line 10: with what the workers have added to theirs; each is one version further."""
        hessians, mean, versions = list(self.hessians), self.mean.copy(), self.versions.copy()
        for worker, reply in messages.items():
            versions[worker] = reply.version + 1
            if reply.version > 0 or initial == "zero":
                added = pack(restore(reply.compressed))
                hessians[worker] = hessians[worker] + added
                mean += weights[worker] * added
        return replace(self, hessians=tuple(hessians), mean=mean, versions=versions)

    def with_gradients(self, replies: Replies) -> Learned:
        """With the gradients that came."""
        told = self.told.copy()
        told[replies.senders] = replies.gradients
        return replace(self, told=told)

    def gradient(self, replies: Replies, weights: Array) -> Array:
        """Line 8: g; who is absent counts with what it told last, who has told nothing does not count."""
        if len(replies.senders) == len(weights):
            return mean_gradient(replies, weights)
        return np.asarray(self.shares(weights) @ self.told)

    def shares(self, weights: Array) -> Array:
        """The weights of those who have told of themselves, which sum to 1."""
        counted = np.where(self.begun, weights, 0.0)
        return np.asarray(counted / counted.sum())

    def without(self, workers: list[int]) -> Learned:
        """With these begun anew."""
        return replace(self, versions=np.where(np.isin(np.arange(len(self.versions)), workers), 0, self.versions))


@storable
@dataclass(frozen=True)
class FedNLState:
    """The model, what is learned, and while a step is tried, where it leads."""

    w: Array
    learned: Learned
    status: Status | None = None
    loss: float = np.inf
    direction: Array | None = None  # of a line search
    slope: float = 0.0
    length: float = 1.0


@dataclass(frozen=True)
class FedNL:
    """Federated Newton learning.

    Parameters
    ----------
    compressor : str
        Of Hessian differences: "rankr:1" (the default), "topk:K", "randk:K", "natural", "identity".
    alpha : float, optional
        The rate at which Hessians are learned. Default: 1, or 1 / (omega + 1) of an unbiased compressor.
    step : str
        "projection" of the learned Hessian to eigenvalues of at least mu, or "shift" by the error of what is learned,
        as pp and cr do in any case.
    initial : str
        What is learned at the start: the "hessian" there, sent whole, or "zero".
    pp : int, optional
        How many workers take part in a round. Default: all of them.
    ls, cr : bool
        With a line search; with cubic regularisation.
    mu : float, optional
        Floor of the projection. Default: the strong convexity the penalty guarantees.
    lipschitz : float, optional
        M of the cubic term. Default: the mean of the bounds that workers tell.

    """

    name = "fednl"

    compressor: str = "rankr:1"
    alpha: float | None = None
    step: Literal["projection", "shift"] = "projection"
    initial: Begin = "hessian"
    pp: int | None = None
    ls: bool = False
    cr: bool = False
    mu: float | None = None
    lipschitz: float | None = None

    def __post_init__(self) -> None:
        check_options(self)
        make_compressor(self.compressor)
        if self.step not in ("projection", "shift"):
            raise bad_argument("step", self.step, "'projection' or 'shift'")
        if self.initial not in ("hessian", "zero"):
            raise bad_argument("initial", self.initial, "'hessian' or 'zero'")
        if self.alpha is not None:
            check_share("alpha", self.alpha)
        check_flag("ls", self.ls)
        check_flag("cr", self.cr)
        if self.lipschitz is not None:
            check_number("lipschitz", self.lipschitz)
            if not self.cr:
                raise bad_argument("lipschitz", self.lipschitz, "left out without cubic steps", "or add cr=true")
        if self.pp is not None:
            check_whole("pp", self.pp)
        if sum([self.pp is not None, self.ls, self.cr]) > 1:
            raise InputError(
                "pp, ls, cr: partial participation, line search and cubic steps are three methods; use one"
            )

    @property
    def slot(self) -> str:
        """What workers keep their learned Hessians under."""
        return f"fednl {self.compressor} {self.initial}"

    def curvature_numbers(self, regions: Regions) -> int:
        """Numbers of the curvature that the server holds, beside those of the workers."""
        return regions.n_coefficients**2

    def begin(self, setup: Setup) -> FedNLState:
        if self.pp is not None and self.pp > setup.n_workers:
            raise bad_argument("pp", self.pp, f"at most {setup.n_workers}, the number of workers")
        return FedNLState(setup.w0, Learned.nothing(setup.n_workers, setup.n_coefficients))

    def plan(self, state: FedNLState, setup: Setup, turn: Turn) -> Exchange:
        if state.direction is not None:  # ls: the loss at the trial model
            return setup.ask_everyone("loss", LossTask(turn.exchange, state.w + state.length * state.direction))
        versions, d = state.learned.versions, setup.n_coefficients
        workers = np.arange(setup.n_workers)
        if self.pp is not None and state.learned.begun.any():
            rng = stream(setup.seed, PARTICIPANTS, turn.exchange)
            workers = np.sort(rng.choice(setup.n_workers, size=self.pp, replace=False))
        alpha = self.rate(d)
        task = LearnTask(
            turn.exchange,
            state.w,
            self.slot,
            0,
            self.compressor,
            alpha,
            self.initial,
            error_after=self.pp is not None,
        )
        return Exchange("learn", task, workers, own={"version": versions[workers]})

    def rate(self, d: int) -> float:
        """Alpha."""
        return make_compressor(self.compressor).rate(d) if self.alpha is None else float(self.alpha)

    def absorb(self, state: FedNLState, replies: Replies, setup: Setup) -> tuple[FedNLState, Info]:
        if state.direction is not None:
            return self._tried(state, replies, setup)
        forgot = [worker for worker, failure in replies.failures.items() if failure.kind == "forgot"]
        if not replies.messages and not forgot:
            others = self.pp is not None and len(replies.failures) < setup.n_workers
            return (state, Info()) if others else too_few(state, replies)
        d, compressor = setup.n_coefficients, make_compressor(self.compressor)
        alpha = self.rate(d)
        begun = state.learned.with_begun(replies.messages, self.initial, setup.weights)  # H^k: before S is added
        after = begun.with_news(
            replies.messages, lambda sent: alpha * compressor.restore(sent, d), self.initial, setup.weights
        )
        after = after.without(forgot)
        if not replies.messages:  # the same again, with those that begin anew
            return replace(state, learned=after), Info()
        if self.pp is not None:
            return self._with_participants(state, after, replies, setup)
        after = after.with_gradients(replies)
        gradient, loss = after.gradient(replies, setup.weights), mean_loss(replies, setup.weights)
        decrement = proven_decrement(gradient, loss, setup) if not replies.failures else np.nan
        state = replace(state, learned=after, loss=loss)
        here = Info(decrement, objective=loss, exact_norm=float(np.linalg.norm(gradient)))
        if decrement <= setup.tol:
            return replace(state, status="converged"), here
        direction = self._direction(begun, gradient, setup)
        if direction is None:
            return replace(state, status="diverged"), Info()
        if self.ls and not replies.failures:
            return replace(state, direction=direction, slope=float(gradient @ direction), length=1.0), here
        return replace(state, w=state.w + direction), Info()

    def _direction(self, learned: Learned, gradient: Array, setup: Setup) -> Array | None:
        """Line 11 or 12, or the cubic step; None where what is learned is not finite."""
        d, shares = setup.n_coefficients, learned.shares(setup.weights)
        share = float(setup.weights[learned.begun].sum())
        hessian, shift = unpack(learned.mean, d) / share, float(shares @ learned.errors)
        if not (np.isfinite(hessian).all() and np.isfinite(gradient).all()):
            return None
        if self.cr:
            if self.lipschitz is None and (learned.lipschitz[learned.begun] == UNBOUNDED).any():
                raise InputError(
                    "cr=true: the Hessian of this loss has no bound on how fast it changes; give one, for example "
                    "--method fednl:cr=true,lipschitz=1"
                )
            bound = float(shares @ learned.lipschitz) if self.lipschitz is None else self.lipschitz
            return cubic_step(hessian + shift * np.eye(d), gradient, bound)
        if self.step == "shift":
            return -project(hessian + shift * np.eye(d), setup.floor(self.mu)).solve(gradient)
        return -project(hessian, setup.floor(self.mu)).solve(gradient)

    def _with_participants(
        self, state: FedNLState, learned: Learned, replies: Replies, setup: Setup
    ) -> tuple[FedNLState, Info]:
        """Algorithm 2: from the newest linear model that each worker has told of itself."""
        workers, weights, d = replies.workers, setup.weights, setup.n_coefficients
        assert replies.gradients is not None
        told = learned.told.copy()
        for worker, gradient in zip(workers.tolist(), replies.gradients, strict=True):
            told[worker] = unpack(learned.hessians[worker], d) @ state.w + learned.errors[worker] * state.w - gradient
        learned = replace(learned, told=told)
        info = Info()
        if len(workers) == setup.n_workers:  # everyone has seen this model
            loss, mean = mean_loss(replies, weights), mean_gradient(replies, weights)
            info = Info(proven_decrement(mean, loss, setup))
            if info.decrement <= setup.tol:
                here = replace(info, objective=loss, exact_norm=float(np.linalg.norm(mean)))
                return replace(state, learned=learned, status="converged"), here
        shares, share = learned.shares(weights), float(weights[learned.begun].sum())
        hessian = unpack(learned.mean, d) / share + float(shares @ learned.errors) * np.eye(d)
        if not (np.isfinite(hessian).all() and np.isfinite(told).all()):
            return replace(state, learned=learned, status="diverged"), info
        return replace(state, w=project(hessian, setup.floor(self.mu)).solve(shares @ told), learned=learned), Info()

    def _tried(self, state: FedNLState, replies: Replies, setup: Setup) -> tuple[FedNLState, Info]:
        """Algorithm 3's search: on with the step if it is low enough, else a shorter one."""
        if replies.failures:
            return too_few(state, replies, everyone=True)
        assert state.direction is not None
        loss, promised = mean_loss(replies, setup.weights), SUFFICIENT * state.length * state.slope
        if loss <= state.loss + promised:
            w = state.w + state.length * state.direction
            return replace(state, w=w, loss=loss, direction=None), Info(objective=loss)
        if state.length < SHORTER**MOST_TRIALS:  # rounding hides what is left
            return replace(state, status="max_rounds"), Info(trial_rejected=True)
        return replace(state, length=SHORTER * state.length), Info(trial_rejected=True)


def cubic_step(hessian: Array, gradient: Array, bound: float) -> Array:
    """argmin_p  gradient . p + p . hessian p / 2 + (bound / 6) |p|^3.

    p = -(hessian + (bound r / 2) I)^-1 gradient with r = |p|: a root of one equation, found by halving.
    """
    values, vectors = np.linalg.eigh(hessian)
    turned, least = vectors.T @ gradient, max(0.0, -float(values[0]))

    def length(r: float) -> float:
        return float(np.linalg.norm(turned / np.maximum(values + bound * r / 2, np.finfo(float).tiny)))

    if bound <= 0:  # Newton's step, and none where the curvature is rounding
        known = values > len(values) * np.finfo(float).eps * np.abs(values).max(initial=0.0)
        return np.asarray(-vectors @ np.divide(turned, values, out=np.zeros_like(turned), where=known))
    low = 2 * least / bound
    high = max(low, 1e-300) + math.sqrt(2 * float(np.linalg.norm(gradient)) / bound) + 1e-300
    while length(high) > high:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if length(middle) > middle else (low, middle)
    return np.asarray(-vectors @ (turned / np.maximum(values + bound * high / 2, np.finfo(float).tiny)))
