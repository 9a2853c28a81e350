"""The form of a reply: messages held against the tasks they answer, and made into arrays (`danl.protocol.replies`).

What is not of its form (another kind, another shape, another mask, somebody else's name) is a `Failure`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from danl.frozen import replace
from danl.objective.layout import Layout
from danl.objective.regions import Regions
from danl.protocol import messages as msg
from danl.protocol.compressed_hessians import message_fault, message_of
from danl.protocol.hessian_form import piece_of
from danl.protocol.messages import Array, Exchange, Failure, packed_size
from danl.protocol.own_tasks import OwnTask
from danl.protocol.replies import NAMES, Replies

CURVATURES = ("packed_hessian", "numbers", "packed_scores")
"""Fields that become the curvatures of `Replies`."""
GRADIENTS = (msg.GradientTask, msg.HessianTask, msg.CurvatureTask)
"""Tasks whose answers have gradients."""
VALUES = ("w", "smoothness", "squares", "means", "variances", "targets")
"""Fields that become its values."""


@dataclass(frozen=True)
class ReplyForm:
    """The form replies of a run must have: the regions of its model, and where its coefficients are."""

    regions: Regions
    layout: Layout

    def stack(self, exchange: Exchange, answers: Mapping[int, Any], dropped: int = 0) -> Replies:
        """Make arrays of the workers' answers, each a reply or a `Failure`.

        Replies that are not of the right form are failures ("invalid"). One that nobody asked for, or that is for
        another exchange, is dropped: it may be late, and honest.
        """
        tasks, received, failed = exchange.tasks(), dict[int, Any](), dict[int, Failure]()
        for worker in sorted(answers):
            task, reply = tasks.get(worker), answers[worker]
            if isinstance(reply, Failure):
                failed[worker] = reply
                continue
            number = getattr(reply, "exchange", None)
            if task is None or (isinstance(number, int) and number != task.exchange):
                dropped += 1
                if task is not None:
                    failed[worker] = Failure(worker, "timeout", "its reply was for another exchange and was dropped")
                continue
            fault = self.fault(worker, task, reply)
            if fault is None:
                received[worker] = reply
            else:
                failed[worker] = Failure(worker, "invalid", fault)
        return replace(self._stacked(exchange, received), failures=failed, dropped=dropped, from_messages=True)

    def _stacked(self, exchange: Exchange, received: Mapping[int, Any]) -> Replies:
        workers = np.array(list(received), dtype=np.int64)
        replies = list(received.values())
        rows = Replies(workers, np.array([getattr(reply, "loss", np.nan) for reply in replies], dtype=float))
        task = exchange.task
        if not replies:
            return rows
        if isinstance(task, OwnTask):
            if task.gradient_field is not None:
                rows = replace(rows, gradients=np.array([getattr(reply, task.gradient_field) for reply in replies]))
            masks = [getattr(reply, "mask", None) for reply in replies]
            if all(mask is not None for mask in masks):
                rows = replace(rows, masks=np.array(masks, dtype=bool))
            return replace(rows, messages=dict(received))
        if isinstance(task, GRADIENTS):
            choose, own = getattr(task, "choose", False), getattr(task, "mask", None)
            rows = self._gradients(rows, received, exchange.masks is not None or choose or own is not None)
        names = [part.name for reply in replies for part in fields(reply)]
        curvatures = {
            who: getattr(reply, name) for who, reply in received.items() for name in CURVATURES if hasattr(reply, name)
        }
        if isinstance(task, msg.CurvatureTask) and task.compressor is not None:
            sent = {who: message_of(reply) for who, reply in received.items() if isinstance(reply, msg.CurvatureReply)}
            curvatures |= sent
        return replace(
            rows,
            curvatures={who: each for who, each in curvatures.items() if each is not None},  # None: added up on the way
            curvature_senders=np.array(list(curvatures), dtype=np.int64),
            values={name: np.array([getattr(reply, name) for reply in replies]) for name in VALUES if name in names},
        )

    def _gradients(self, rows: Replies, received: Mapping[int, Any], masked: bool) -> Replies:
        """The gradients of those that sent some of it, and the regions of each."""
        sent: dict[int, tuple[msg.Mask | None, Array]] = {}
        for worker, reply in received.items():
            if isinstance(reply, msg.GradientReply):
                sent[worker] = reply.mask, reply.fragment
            elif isinstance(reply, msg.HessianReply | msg.CurvatureReply) and reply.gradient.size:
                sent[worker] = getattr(reply, "mask", None), reply.gradient
        senders = np.array(list(sent), dtype=np.int64)
        gradients = np.zeros((len(sent), self.regions.n_coefficients))
        masks = np.zeros((len(received), self.regions.n_regions), dtype=bool)
        for row, place, (mask, fragment) in zip(
            range(len(sent)), np.searchsorted(rows.workers, senders), sent.values(), strict=True
        ):
            gradients[row, slice(None) if mask is None else self.regions.coordinates(mask)] = fragment
            masks[place] = True if mask is None else mask
        return replace(rows, gradients=gradients, senders=senders, masks=masks if masked else None)

    def fault(self, worker: int, task: msg.Task, reply: object) -> str | None:
        """What is wrong with the form of a reply, in a few words; None where nothing is."""
        if type(reply) is not task.answer:
            return f"answered with {type(reply).__name__} where {task.answer.__name__} was asked for"
        for name, value in (("worker", worker), ("exchange", task.exchange)):
            stated = getattr(reply, name, None)
            if not isinstance(stated, int) or stated != value:
                return f"answered in the name of {name} {str(stated)[:20]!r}"
        try:
            return self._fault(task, reply)
        except (TypeError, ValueError, AttributeError, IndexError) as error:  # a field of a type nobody thought of
            return f"its {type(reply).__name__} cannot be read ({type(error).__name__})"

    def _fault(self, task: msg.Task, reply: Any) -> str | None:
        fault = None
        if isinstance(task, OwnTask):
            fault = task.fault(reply, self.regions.n_coefficients)
        if isinstance(task, msg.GradientTask | msg.CurvatureTask):
            fault = self._mask_fault(task, reply.mask)
        if fault is not None:
            return fault
        constant, loss = getattr(reply, "smoothness", 1.0), getattr(reply, "loss", 0.0)
        if not (isinstance(constant, float | np.floating) and not np.isnan(constant) and constant > 0):
            return f"its smoothness is {constant!r}"
        if not isinstance(loss, float | np.floating):
            return f"its loss is {type(loss).__name__}, not a number"
        if isinstance(task, msg.CurvatureTask) and task.compressor is not None:
            fault = message_fault(task, message_of(reply), self.regions.n_coefficients)
        elif isinstance(reply, msg.CurvatureReply) and (reply.places is not None or reply.codes is not None):
            fault = "its curvature is compressed, and was not to be"
        for name, length in self._lengths(task, reply).items():
            dtype = task.dtype if isinstance(task, msg.CurvatureTask) and name == "numbers" else "float64"
            fault = fault or vector_fault(NAMES.get(name, name), getattr(reply, name), length, dtype)
        return fault

    def _lengths(self, task: msg.Task, reply: Any) -> dict[str, int]:
        """How long each array of a reply must be."""
        d, n_features = self.regions.n_coefficients, self.layout.n_features
        match task:
            case msg.GradientTask():
                return {"fragment": self._trained(reply.mask)}
            case msg.HessianTask():  # None: it was added up, and looked at, on the way
                return {"gradient": d} | ({} if reply.packed_hessian is None else {"packed_hessian": packed_size(d)})
            case msg.CurvatureTask():
                first, last, _ = piece_of(task, self.regions)
                numbers = {"numbers": last - first} if task.compressor is None else {}
                return {"gradient": self._trained(reply.mask)} | numbers
            case msg.ScoresTask():
                return {"packed_scores": packed_size(d)}
            case msg.LocalStepsTask():
                return {"w": d}
            case msg.SmoothnessTask():
                return {"squares": d}
            case msg.MomentsTask():
                return {"means": n_features, "variances": n_features, "targets": self.layout.n_outputs}
        return {}

    def _trained(self, mask: msg.Mask | None) -> int:
        """Coordinates of a mask; None is all of them."""
        return self.regions.n_coefficients if mask is None else int(self.regions.coordinates(mask).size)

    def _mask_fault(self, task: msg.GradientTask | msg.CurvatureTask, mask: object) -> str | None:
        if isinstance(task, msg.GradientTask) and task.choose:
            legal = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (self.regions.n_regions,)
            return None if legal else f"its mask is not {self.regions.n_regions} booleans"
        same = mask is None if task.mask is None else isinstance(mask, np.ndarray) and np.array_equal(mask, task.mask)
        return None if same else "it answered for another mask than the one planned"


def vector_fault(name: str, vector: object, length: int, dtype: str = "float64") -> str | None:
    """What is wrong with the form of an array; None where nothing is."""
    if not isinstance(vector, np.ndarray) or vector.dtype != np.dtype(dtype):
        kind = vector.dtype if isinstance(vector, np.ndarray) else type(vector).__name__
        return f"its {name} is {kind}, not an array of {dtype}"
    return None if vector.shape == (length,) else f"its {name} has shape {vector.shape}, not ({length},)"
