"""Tasks the server sends and replies the workers give: plain frozen records of arrays and numbers.

What they weigh is counted in `danl.protocol.message_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from danl.errors import bad_argument
from danl.frozen import at_once, replace
from danl.objective.regions import IntArray
from danl.protocol.packing import pack as pack
from danl.protocol.packing import packed_size as packed_size
from danl.protocol.packing import unpack as unpack
from danl.storage.serialize import storable

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Mask = NDArray[np.bool_]
CurvatureKind = Literal["full", "block", "lowrank", "diag"]
Dtype = Literal["float64", "float32"]
Submodel = Literal["pruned", "full"]
FailureKind = Literal["timeout", "died", "restarting", "gone", "refused", "invalid", "forgot", "error"]
"""Why there is no reply.

    timeout      none by the deadline
    died         the worker is dead, or was not back in time
    restarting   it is down, and expected back
    gone         it is dead for good
    refused      its site does not answer such a task
    invalid      its reply broke a rule
    forgot       it has not kept what the task counts on (`danl.protocol.own_tasks`)
    error        it raised an exception
"""
PERMANENT = ("refused", "invalid", "gone")
"""Failures after which a worker is not asked again in this run: it will not answer, or its answers are no good."""


# Replies: from one worker to the server.


@dataclass(frozen=True)
class Reply:
    """A worker's answer to the task of an exchange."""

    trains: ClassVar[bool] = True
    """Of one to a task that brings its own work: whether it is something to learn from, and not only losses."""

    worker: int
    exchange: int


@dataclass(frozen=True)
class HessianReply(Reply):
    """Gradient and loss at w, and the upper triangle of the Hessian, row by row (see `pack`).

    `packed_hessian` is None where an engine adds the Hessians up on their way (`danl.protocol.replies.Replies.add_up`).
    """

    gradient: Array
    packed_hessian: Array | None
    loss: float


@dataclass(frozen=True)
class CurvatureReply(Reply):
    """Loss at w, the gradient on the coordinates of the mask (None: on all of them), and what was asked of the Hessian.

    `numbers` are those of the piece, of the part of the Hessian that was asked for. Where a compressor was, they are
    those of its message, with its places and codes (`danl.protocol.compressors.Compressed`).
    """

    gradient: Array
    numbers: Array | Array32
    loss: float
    mask: Mask | None = None
    places: NDArray[np.int32] | None = None
    codes: NDArray[np.int16] | None = None


@dataclass(frozen=True)
class GradientReply(Reply):
    """The gradient's entries on the coordinates of the mask, in increasing order; mask None: on all of them."""

    mask: Mask | None
    fragment: Array
    loss: float


@dataclass(frozen=True)
class LossReply(Reply):
    """The loss at the task's model."""

    loss: float


@dataclass(frozen=True)
class ModelReply(Reply):
    """The model the local steps ended at, and the loss where they started."""

    w: Array
    loss: float


@dataclass(frozen=True)
class ScoresReply(Reply):
    """sum_j r_ij^2 g_ij g_ij^T over the worker's rows: its upper triangle (see `pack`)."""

    packed_scores: Array


@dataclass(frozen=True)
class SmoothnessReply(Reply):
    """The Lipschitz constant of the local gradient, and the mean square of every column, laid out like w."""

    smoothness: float
    squares: Array


@dataclass(frozen=True)
class MomentsReply(Reply):
    """Over the worker's rows: mean and variance of every column, mean of the target or the share of each class."""

    means: Array
    variances: Array
    targets: Array


# Tasks: from the server to one worker.


@dataclass(frozen=True)
class Task:
    """What one worker is asked in an exchange."""

    name: ClassVar[str]  # what sites call it
    answer: ClassVar[type[Reply]]

    exchange: int


@dataclass(frozen=True)
class ModelTask(Task):
    """What is asked about a model."""

    w: Array


@at_once
@dataclass(frozen=True)
class HessianTask(ModelTask):
    """Send gradient, Hessian and loss at w (Algorithm 1, lines 2-4).

    With `hessian_batch` the Hessian is of so many of the rows, drawn with equal chances, or with `leverage` by what
    they add to it (`danl.objective.row_samples`).
    """

    name, answer = "hessian", HessianReply

    batch_size: int | None = None
    hessian_batch: int | None = None
    leverage: bool = False


@at_once
@dataclass(frozen=True)
class CurvatureTask(ModelTask):
    """Send gradient and loss at w, and a part of the Hessian (`danl.protocol.hessian_form`), as float64 or float32.

    `sketch` is the number that the random matrix of a sketch is drawn from, the same for all workers. With a `mask` the
    gradient is sent on its regions alone, which may be none. Of the numbers of the part those from `first` up to and
    without `last` are sent; None is the end. With a `compressor` what is sent of a whole Hessian is its message of the
    data's part (`danl.protocol.compressed_hessians`), all at once.
    """

    name, answer = "curvature", CurvatureReply

    kind: CurvatureKind
    rank: int = 0
    sketch: int = 0
    batch_size: int | None = None
    hessian_batch: int | None = None
    dtype: Dtype = "float64"
    mask: Mask | None = None
    first: int = 0
    last: int | None = None
    leverage: bool = False
    compressor: str | None = None


@at_once
@dataclass(frozen=True)
class GradientTask(ModelTask):
    """Send the gradient on the regions of a mask (Algorithm 1, lines 11-14).

    `mask` holds the regions the server planned; None means all of them, or, with `choose`, that the worker asks its
    own policy M(w, i) for round `round`. With submodel="pruned" the gradient is evaluated at w * mask, else at w. The
    loss that comes back is that of the rows the gradient was computed on, or, with `whole_loss`, of the whole shard.
    """

    name, answer = "gradient", GradientReply

    mask: Mask | None = None
    choose: bool = False
    round: int = 0
    submodel: Submodel = "full"
    batch_size: int | None = None
    whole_loss: bool = False


@dataclass(frozen=True)
class LossTask(ModelTask):
    """Send the loss at w."""

    name, answer = "loss", LossReply


@dataclass(frozen=True)
class LocalStepsTask(ModelTask):
    """Take gradient steps from w on the own shard and send the model reached (FedAvg)."""

    name, answer = "local-steps", ModelReply

    steps: int
    learning_rate: float
    batch_size: int | None = None


@dataclass(frozen=True)
class ScoresTask(ModelTask):
    """Send the sum of the outer products of the rows' gradients at w: for sandwich standard errors."""

    name, answer = "scores", ScoresReply


@dataclass(frozen=True)
class SmoothnessTask(Task):
    """Send the Lipschitz constant of the local gradient, and the mean squares of the columns.

    What a first-order method needs for its step, and to tell how far it is whatever the columns' units are.
    """

    name, answer = "smoothness", SmoothnessReply


@dataclass(frozen=True)
class MomentsTask(Task):
    """Send means and variances of the columns, and the mean of the target, for the intercept (`objective.centring`)."""

    name, answer = "moments", MomentsReply


TASKS: tuple[type[Task], ...] = (*ModelTask.__subclasses__(), SmoothnessTask, MomentsTask)


@storable
@dataclass(frozen=True)
class Failure:
    """A worker that did not answer: which, how, and what is known about it."""

    worker: int
    kind: FailureKind
    detail: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(FailureKind):
            raise bad_argument("kind", self.kind, f"one of {', '.join(get_args(FailureKind))}")


@at_once
@dataclass(frozen=True, eq=False)
class Exchange:
    """One question to some workers, each with its own mask and its own piece of the curvature where there are such.

    Parameters
    ----------
    kind : str
        What the record calls it.
    task : Task
        What is asked.
    workers : int array, (n,)
        Who is asked; in increasing order.
    masks : bool array, (n, Q), optional
        The regions of the gradient each of them is asked for; the task is then a `GradientTask`, a `HessianTask` or a
        `CurvatureTask`.
    idle : Task, optional
        What a worker with an empty mask is asked instead of a `GradientTask`; without it none of them may be empty.
    pieces : int array, (n, 2), optional
        The range [first, last) of the numbers of the curvature that each of them is asked for: those of the packed
        upper triangle, or of what else the task asks of the Hessian (`danl.protocol.hessian_form`). An empty range: no
        curvature, only the gradient, or without a region only the loss. Default: what the task asks for.
    own : mapping of field to array, (n, ...), optional
        What a field of the task is for each of them: models of their own, for example.
    edges : int array, (n,), optional
        Where workers talk to each other and not to a server: to how many each of them sends `vectors` arrays as long as
        the model, and from how many it gets them.
    kept : bool array, (n,), optional
        Who has answered about this model already, and so has the margins of its rows. It changes no answer, only the
        seconds one takes (`danl.protocol.costs`). Default: nobody.

    """

    kind: str
    task: Task
    workers: IntArray
    masks: Mask | None = None
    idle: Task | None = None
    pieces: IntArray | None = None
    kept: Mask | None = None
    own: Mapping[str, NDArray[Any]] | None = None
    edges: IntArray | None = None
    vectors: int = 1

    def tasks(self) -> dict[int, Task]:
        """The task of every worker by itself, for engines that carry one message to each."""
        task, masks = self.task, self.masks
        if self.own is not None:
            each = zip(self.workers.tolist(), *self.own.values(), strict=True)
            return {worker: replace(task, **dict(zip(self.own, values, strict=True))) for worker, *values in each}
        if masks is None and self.pieces is None:
            return dict.fromkeys(self.workers.tolist(), task)
        if isinstance(task, HessianTask | CurvatureTask):
            return self._curvature_tasks(task)
        assert isinstance(task, GradientTask)
        assert masks is not None
        return {
            worker: replace(task, mask=mask) if self.idle is None or mask.any() else self.idle
            for worker, mask in zip(self.workers.tolist(), masks, strict=True)
        }

    def _curvature_tasks(self, task: HessianTask | CurvatureTask) -> dict[int, Task]:
        """The same where curvature is asked for: workers that are asked the same have one task."""
        n = len(self.workers)
        own = task.mask if isinstance(task, CurvatureTask) else None
        masks = [own] * n if self.masks is None else list(self.masks)
        pieces = [None] * n if self.pieces is None else [(a, b) if a < b else (0, 0) for a, b in self.pieces.tolist()]
        made: dict[tuple[bytes | None, tuple[int, int] | None], Task] = {}
        tasks = {}
        for worker, mask, piece in zip(self.workers.tolist(), masks, pieces, strict=True):
            key = None if mask is None else mask.tobytes(), piece
            if key not in made:
                made[key] = _part(task, mask, piece)
            tasks[worker] = made[key]
        return tasks

    def without(self, workers: Iterable[int]) -> Exchange:
        """The same question to fewer workers."""
        left_out = np.fromiter(workers, dtype=np.int64)
        if not left_out.size:
            return self
        here = ~np.isin(self.workers, left_out)
        masks = None if self.masks is None else self.masks[here]
        pieces = None if self.pieces is None else self.pieces[here]
        kept = None if self.kept is None else self.kept[here]
        own = None if self.own is None else {name: values[here] for name, values in self.own.items()}
        edges = None if self.edges is None else self.edges[here]
        workers = self.workers[here]
        return replace(self, workers=workers, masks=masks, pieces=pieces, kept=kept, own=own, edges=edges)


def _part(task: HessianTask | CurvatureTask, mask: Mask | None, piece: tuple[int, int] | None) -> Task:
    """The gradient on the regions of a mask and a piece of the curvature; None: all of it."""
    number, w = task.exchange, task.w
    if piece is not None and piece[0] == piece[1]:
        if mask is not None and not mask.any():
            return LossTask(number, w)
        return GradientTask(number, w, mask, batch_size=task.batch_size)
    if mask is not None and mask.all():
        mask = None
    if isinstance(task, HessianTask):
        if mask is None and piece in (None, (0, packed_size(w.size))):
            return task
        batches = (task.batch_size, task.hessian_batch)
        task = CurvatureTask(number, w, "full", 0, 0, *batches, leverage=task.leverage)
    return replace(task, mask=mask) if piece is None else replace(task, mask=mask, first=piece[0], last=piece[1])
