r"""The problem: shards, a loss, a penalty, and how the workers' objectives are weighted.

With W_i the total weight of worker i's rows (m_i of them, each of weight 1 unless weights are given),

    F_i(w) = (1 / W_i) sum_j s_ij loss(y_ij, a_ij . w + offset_ij)  +  (penalty_i / 2) |w|^2
    f(w)   = sum_i weight_i F_i(w)

    l2     the paper's lambda: penalty_i = l2 / W_i
    alpha  an absolute penalty on the averaged loss: penalty_i = alpha for every worker
    weighting="uniform"  weight_i = 1 / N           (the paper)
    weighting="samples"  weight_i = W_i / sum W      (with alpha: the pooled fit, whatever the split)
    intercept=True       a_ij ends with a one, and the penalty is not on its coefficient
    offset_ij            of the row, 0 unless its shard has them
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

import numpy as np

from danl.checks import check_number
from danl.data.redaction import redacted
from danl.data.reference import ShardReference
from danl.data.schema import Names, in_order, names_of
from danl.data.shard import Shard, ShardInfo, info_of, stacked
from danl.design.analysis import Analysis
from danl.design.design import Agreement, Design
from danl.design.formula import read_model
from danl.errors import InputError, bad_argument
from danl.frozen import cached_property
from danl.objective.batch import Batch
from danl.objective.centring import centred
from danl.objective.layout import Layout
from danl.objective.local_objective import LocalObjective
from danl.objective.loss_trial import try_loss
from danl.objective.losses import Array, Loss, make_loss, outputs_of
from danl.objective.shard_terms import agreed_columns, records_left_out


class BaseProblem:
    """What is known of a problem without its rows: loss, penalty, weighting, and the size of each shard."""

    loss: Loss
    l2: float | None
    alpha: float | None
    weighting: str
    intercept: bool
    centre: Array | None = None
    """What is subtracted from the columns, where the rows are (`danl.objective.centring`); the model is for these."""
    feature_names: Names | None
    """What the features are called, in the order of w; None where they have no names."""
    design: Design | None = None
    """What the sites agreed on, where the rows are those of an analysis."""
    notes: tuple[str, ...] = ()
    """What people should know of the rows."""

    def __init__(
        self, loss: str | Loss, l2: float | None, alpha: float | None, weighting: str, intercept: bool
    ) -> None:
        """Check the terms of the problem; without a penalty, l2 is 1e-4."""
        if l2 is not None and alpha is not None:
            raise InputError(
                f"l2={l2!r} and alpha={alpha!r}: give one of them; l2 is the paper's lambda, alpha absolute"
            )
        for name, value in (("l2", l2), ("alpha", alpha)):
            if value is not None:
                check_number(name, value, least=0)
        if weighting not in ("uniform", "samples"):
            raise bad_argument("weighting", weighting, "'uniform' (the paper) or 'samples' (the pooled fit)")
        self.loss, self.weighting, self.intercept = make_loss(loss), weighting, bool(intercept)
        self.l2, self.alpha = 1e-4 if l2 is None and alpha is None else l2, alpha

    @property
    def shard_info(self) -> tuple[ShardInfo, ...]:
        """What a server knows of the shards."""
        raise NotImplementedError

    @property
    def n_workers(self) -> int:
        """N."""
        return len(self.shard_info)

    @property
    def n_features(self) -> int:
        """The columns of X."""
        return self.shard_info[0].n_features

    @cached_property
    def layout(self) -> Layout:
        """The places of the model's numbers in w."""
        return Layout(self.n_features, outputs_of(self.loss), self.intercept)

    @property
    def n_coefficients(self) -> int:
        """d, the length of w: one for every feature and output, and one for every intercept."""
        return self.layout.n_coefficients

    @cached_property
    def rows(self) -> Array:
        """m_i: rows of each worker."""
        return np.array([info.rows for info in self.shard_info])

    @cached_property
    def records(self) -> Array:
        """The records of each worker that its rows are of, at most m_i."""
        return np.array([info.records for info in self.shard_info])

    @property
    def has_offset(self) -> bool:
        """Whether rows of some worker have an offset."""
        return any(info.offset for info in self.shard_info)

    @cached_property
    def total_weights(self) -> Array:
        """W_i: total row weight of each worker (its number of rows when no weights were given)."""
        return np.array([info.total_weight for info in self.shard_info], dtype=float)

    @cached_property
    def weights(self) -> Array:
        """weight_i: what each worker counts in f; sums to 1."""
        if self.weighting == "uniform":
            return np.full(self.n_workers, 1.0 / self.n_workers)
        return np.asarray(self.total_weights / self.total_weights.sum())

    @cached_property
    def penalties(self) -> Array:
        """penalty_i: the coefficient of |w|^2 / 2 in F_i."""
        return np.array([self.penalty(info) for info in self.shard_info])

    def penalty(self, info: ShardInfo) -> float:
        """The penalty of a worker with such a shard: alpha, or l2 / W_i."""
        if self.alpha is not None:
            return float(self.alpha)
        assert self.l2 is not None
        return float(self.l2) / info.total_weight

    @property
    def strong_convexity(self) -> float:
        """The constant the penalty guarantees: sum_i weight_i penalty_i (the paper's lambda / m).

        An intercept is not penalised: then it guarantees nothing.
        """
        return 0.0 if self.intercept else float(self.weights @ self.penalties)

    def coefficient_name(self, number: int) -> str:
        """What number `number` of w is, for a person."""
        layout, names = self.layout, self.feature_names
        output, column = divmod(number, layout.columns)
        if column == layout.n_features:
            name = "the intercept"
        else:
            name = f"coefficient {column}" if names is None else f"the coefficient of {names[column]!r}"
        return name if layout.n_outputs == 1 else f"{name} of class {output}"

    def local(self, shard: Shard) -> LocalObjective:
        """F_i of a shard: what a worker makes of its own rows, their columns in the order that was agreed on."""
        shard = in_order(shard, self._asked_names())
        try:
            self.loss.check_targets(shard.y)
        except InputError as error:
            raise InputError(f"{shard.name}: {error}", redacted=f"{shard.name}: {redacted(error)}") from error
        self._check_offset(shard)
        return self._local(shard, self.penalty(info_of(shard, self.loss.binary)))

    def _local(self, shard: Shard, penalty: float) -> LocalObjective:
        X = shard.X if self.centre is None else centred(shard.X, self.centre)
        others = shard.offset, shard.clusters, shard.records
        return LocalObjective(X, shard.y, shard.weights, self.loss, penalty, self.intercept, *others)

    def _check_offset(self, shard: Shard) -> None:
        outputs = outputs_of(self.loss)
        if shard.offset is not None and outputs > 1:
            raise InputError(
                f"{shard.name}: an offset is one number a row, and loss {self.loss.name!r} has {outputs} margins a "
                "row, which it would move together: leave it out"
            )

    def centred_by(self, centre: Array | None) -> Self:
        """The same problem with the centre subtracted from the columns."""
        if centre is None:
            return self
        if not self.intercept:
            raise InputError("centre: columns can be centred only where there is an intercept to make up for it")
        made = copy.copy(self)
        for made_of_rows in ("local_objectives", "batch"):
            made.__dict__.pop(made_of_rows, None)
        made.centre = centre
        return made

    def without_rows(self) -> RemoteProblem:
        """The same problem, and neither shards nor what is known of them: what a worker is sent."""
        terms = RemoteProblem(
            loss=self.loss,
            l2=self.l2,
            alpha=self.alpha,
            weighting=self.weighting,
            intercept=self.intercept,
            feature_names=self._asked_names(),
        )
        terms.centre, terms.design = self.centre, self.design
        return terms

    def _asked_names(self) -> Names | None:
        """The order that workers are to bring their columns into; None where the shards are in order already."""
        return None

    def _written(self) -> str:
        penalty = f"alpha={self.alpha}" if self.alpha is not None else f"l2={self.l2}"
        intercept = ", intercept=True" if self.intercept else ""
        return f"loss={self.loss.name!r}, {penalty}, weighting={self.weighting!r}{intercept}"


class Problem(BaseProblem):
    """What is minimised: f(w) = sum_i weight_i F_i(w) over the workers' shards.

    Parameters
    ----------
    shards : sequence of Shard
        One per worker, as `danl.partition` makes them.
    loss : str or Loss
        "logistic", "squared", "poisson", "gamma", "negative-binomial:alpha=0.5", "squared_hinge",
        "multinomial:classes=3", or an object (see `danl.objective.losses.Loss`).
    l2 : float, optional
        The paper's lambda: worker i's penalty is l2 / (2 W_i) |w|^2. Default 1e-4 when alpha is not given.
    alpha : float, optional
        An absolute penalty alpha / 2 |w|^2 on the averaged loss. Give l2 or alpha, not both.
    weighting : "uniform" or "samples"
        Every worker counts 1/N (the paper), or by its share of the rows (the pooled fit).
    intercept : bool
        Fit an intercept, without a penalty. It is the last number of w, or of each class's part of w.

    """

    def __init__(
        self,
        shards: Sequence[Shard],
        *,
        loss: str | Loss = "logistic",
        l2: float | None = None,
        alpha: float | None = None,
        weighting: str = "uniform",
        intercept: bool = False,
    ) -> None:
        super().__init__(loss, l2, alpha, weighting, intercept)
        shards = tuple(shards)
        if not shards:
            raise InputError("shards: must hold at least one shard; make them with danl.partition(X, y, workers=10)")
        self.feature_names = agreed_columns(shards, [shard.name for shard in shards])
        self.shards = tuple(in_order(shard, self.feature_names) for shard in shards)
        self._targets = targets = stacked([shard.y for shard in self.shards])
        self.loss.check_targets(targets)
        try_loss(self.loss, targets)
        for shard in self.shards:
            self._check_offset(shard)
        if self.loss.binary and targets.min() == targets.max():
            raise InputError(
                f"y: all {targets.size} targets are {targets[0]:g}, and loss {self.loss.name!r} needs both classes, "
                "0 and 1; check the labels or use loss='squared'"
            )

    @cached_property
    def shard_info(self) -> tuple[ShardInfo, ...]:
        """What a server knows of the shards."""
        return tuple(info_of(shard, self.loss.binary) for shard in self.shards)

    @cached_property
    def local_objectives(self) -> tuple[LocalObjective, ...]:
        """F_1, ..., F_N."""
        return tuple(self._local(*each) for each in zip(self.shards, self.penalties.tolist(), strict=True))

    @cached_property
    def batch(self) -> Batch:
        """F_1, ..., F_N, evaluated together."""
        return Batch.of(self.local_objectives, self._targets)

    def objective(self, w: Array, weights: Array | None = None) -> float:
        """f(w); with other `weights`, that of the objective some of the workers make up."""
        losses, weights = self.batch.losses(w), self.weights if weights is None else weights
        return float(weights @ np.where(weights > 0, losses, 0.0))

    def value_and_gradient(self, w: Array, weights: Array | None = None) -> tuple[float, Array]:
        """f(w) and its gradient; with other `weights`, those of the objective some of the workers make up."""
        return self.batch.value_and_gradient(w, self.weights if weights is None else weights)

    def hessian(self, w: Array) -> Array:
        """The Hessian of f at w, dense (d, d)."""
        return self.batch.hessian_sum(w, self.weights)

    def __repr__(self) -> str:
        return (
            f"Problem({self.n_workers} workers, {int(self.rows.sum())} rows, {self.n_features} features, "
            f"{self._written()})"
        )


class RemoteProblem(BaseProblem):
    """A problem whose rows stay where they are: the workers read them, the server knows how many they are.

    Parameters
    ----------
    shards : sequence of ShardReference
        Where each worker's rows are. An engine that finds its workers by itself (Flower) needs none.
    loss, l2, alpha, weighting, intercept
        As in `Problem`.
    feature_names : sequence of str, optional
        The columns in the order they are to have in w. Default: that of the first site, where columns have names.
    analysis : Analysis or Design, optional
        A formula and a family, of which the sites agree on a design first; or the design of an earlier run. Loss and
        intercept are then its own, and by default there is no penalty, and every record counts the same.

    """

    def __init__(
        self,
        shards: Sequence[ShardReference] = (),
        *,
        loss: str | Loss | None = None,
        l2: float | None = None,
        alpha: float | None = None,
        weighting: str | None = None,
        intercept: bool | None = None,
        feature_names: Sequence[str] | None = None,
        analysis: Analysis | Design | None = None,
    ) -> None:
        design = analysis if isinstance(analysis, Design) else None
        if analysis is not None and not isinstance(analysis, Analysis | Design):
            raise bad_argument("analysis", analysis, "a danl.Analysis")
        self.analysis: Analysis | None = analysis.analysis if isinstance(analysis, Design) else analysis
        if self.analysis is not None:
            for name, value in (("loss", loss), ("intercept", intercept), ("feature_names", feature_names)):
                if value is not None:
                    raise bad_argument(name, value, "left out", "family and formula of the analysis say it")
            loss, weighting = self.analysis.loss, weighting or "samples"
            alpha = 0.0 if alpha is None and l2 is None else alpha
            intercept = read_model(self.analysis).intercept if design is None else design.intercept
            feature_names = None if design is None else design.names
        super().__init__("logistic" if loss is None else loss, l2, alpha, weighting or "uniform", bool(intercept))
        self.shards, self.design = tuple(shards), design
        self.feature_names = names_of(None, feature_names)
        for shard in self.shards:
            if not isinstance(shard, ShardReference):
                raise bad_argument(
                    "shards", type(shard).__name__, "references", "for shards in memory use danl.Problem"
                )
        self._shard_info: tuple[ShardInfo, ...] | None = None

    @property
    def shard_info(self) -> tuple[ShardInfo, ...]:
        """What the workers reported; known once an engine has connected to them."""
        if self._shard_info is None:
            raise InputError("problem: its workers have not reported their shards yet; danl.solve asks them first")
        return self._shard_info

    def described(self, info: Sequence[ShardInfo]) -> RemoteProblem:
        """The problem with what its workers reported."""
        if not info:
            raise InputError("shards: no worker answered; start the workers first, and check their logs")
        names = agreed_columns(info, [each.site for each in info], self.feature_names)
        if self.loss.binary and len(info) == 1 and info[0].fewest_of_a_class == 0:
            raise InputError(f"y: all targets are equal, and loss {self.loss.name!r} needs both classes")
        known = self.without_rows()
        known.shards, known._shard_info, known.feature_names = self.shards, tuple(info), names
        known.analysis = self.analysis
        known.notes = tuple(dict.fromkeys((*self.notes, *records_left_out(info))))  # once, however often it is asked
        return known

    def agreed_on(self, agreement: Agreement, left_out: Sequence[str] = ()) -> RemoteProblem:
        """The problem with the design of its sites; notes of the sites that take no part."""
        known = self.without_rows()
        known.shards, known.analysis, known.design = self.shards, self.analysis, agreement.design
        known.feature_names = agreement.design.names
        known.notes = (*left_out, *agreement.notes)
        return known

    def _asked_names(self) -> Names | None:
        return self.feature_names

    def __repr__(self) -> str:
        return f"RemoteProblem({len(self._shard_info or self.shards)} workers, {self._written()})"
