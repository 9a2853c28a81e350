"""Workers as Ray actors, on this machine or a cluster: each reads its rows where it runs, and keeps them.

An exchange is one call to every actor. Tasks and replies are bytes of `danl.protocol.wire`; a model up to INLINE bytes
travels inside the call, a larger one is put into Ray's object store once and passed by reference. Hessians stay where
they are made and are added up in a tree (`danl.engines.ray.tree`), unless parts or pieces of some are asked for. A task
of somebody else's, which an actor may not know by name, travels as an object, as a policy does, and so does its reply.

    a worker raises          failure "error"; `InputError` is raised here, as with the local engine
    its actor dies           Ray restarts it `restarts` times, then it is replaced `replacements` times; it is waited
                             for (`calls.py`) and a failure if it is not back: "restarting", "died" or "gone"
    no reply by the deadline failure "timeout"; the reply is dropped and counted when it comes, and only then is that
                             worker asked again: nothing piles up at a slow one
    bytes that are no reply  failure "invalid"

A restarted actor knows its rows and not the run; the engine sends it (`RunTerms`). What it kept between tasks is lost:
a task that counts on it is a failure "forgot". Ray is imported when an engine opens, never before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from danl.checks import check_seconds, check_whole
from danl.data.redaction import unreadable
from danl.data.reference import ShardReference
from danl.data.shard import ShardInfo
from danl.design.references import cannot_take_part, refuse
from danl.design.survey import Surveyed
from danl.engines.ray.calls import Calls, WorkerSlot, first_line, late_ones
from danl.engines.ray.cluster import enter_cluster, leave_cluster, require_ray
from danl.errors import InputError, bad_argument
from danl.frozen import replace
from danl.objective.problem import BaseProblem, Problem, RemoteProblem
from danl.objective.regions import Regions
from danl.policies.base import WorkerPolicy
from danl.protocol.messages import CurvatureTask, Exchange, Failure, HessianTask, ModelTask, Reply, Task
from danl.protocol.replies import Replies, ReplyRules, has_blown_up
from danl.protocol.reply_form import ReplyForm
from danl.protocol.wire import WireError, decode, encode, most_bytes

if TYPE_CHECKING:
    from danl.engines.ray.tree import Tree

INLINE = 65_536
"""Bytes of a model that travels inside the call: half the latency of one put into the object store, if it is small."""
TRIES = 2
"""How often a worker is asked in one exchange if it dies of it: it may have been chance once."""


class Ray:
    """Every worker an actor of a Ray cluster.

    Parameters
    ----------
    address : str, optional
        "auto", "host:port", or "local" for a new one on this machine. Default: the cluster this process is in, if it
        is in one; else RAY_ADDRESS if it is set; else a new one on this machine, which ends with the run.
    deadline : float, optional
        Seconds an exchange may take; who has not answered then is left out of it. Default: until everyone has answered
        or is given up.
    restarts : int
        How often Ray restarts an actor that died.
    replacements : int
        How often a new actor takes the place of one that is dead for good.
    fan_in : int
        Hessians, or sums of them, that one actor adds up, and holds, at a time. A level of the tree costs about 4 ms;
        with thousands of coefficients take fewer.
    start_timeout : float
        Seconds the workers may take to start and read their rows, at the beginning and when they were restarted: so
        long is one that died waited for.

    """

    name = "ray"

    def __init__(
        self,
        *,
        address: str | None = None,
        deadline: float | None = None,
        restarts: int = 1,
        replacements: int = 2,
        fan_in: int = 16,
        start_timeout: float = 300.0,
    ) -> None:
        if deadline is not None:
            deadline = check_seconds("deadline", deadline, "leave it out to wait for everyone")
        for name, value, least in (("restarts", restarts, 0), ("replacements", replacements, 0), ("fan_in", fan_in, 2)):
            check_whole(name, value, least)
        check_seconds("start_timeout", start_timeout)
        if address is not None and (not isinstance(address, str) or not address):
            raise bad_argument("address", address, "'auto', 'local' or 'host:port'", "leave it out to start Ray here")
        require_ray()
        self._address, self._deadline = address, deadline
        self._restarts, self._replacements, self._fan_in = restarts, replacements, fan_in
        self._start_timeout = float(start_timeout)
        self._entered = False  # whether it is on us to leave the cluster
        self._shards: tuple[Any, ...] | None = None  # whose actors there are
        self._slots: list[WorkerSlot] = []
        self._tree: Tree | None = None
        self._number = 0  # of the run
        self._terms: Any = None  # the ObjectRef of its RunTerms

    def __repr__(self) -> str:
        options = {"address": self._address, "deadline": self._deadline, "restarts": self._restarts}
        return f"Ray({', '.join(f'{name}={value!r}' for name, value in options.items() if value is not None)})"

    # Opening and closing

    def survey(self, problem: RemoteProblem) -> Surveyed:
        """Have an actor for every reference look at its columns; all whose files cannot be used are named."""
        self._settle_in(_some(problem.shards), at_once=False)
        told = self._muster(lambda slot: slot.actor.survey.remote(problem.analysis))
        refuse([cannot_take_part(problem.shards[i], i, each) for i, each in enumerate(told) if isinstance(each, str)])
        return Surveyed(tuple(told))

    def connect(self, problem: RemoteProblem) -> Sequence[ShardInfo]:
        """Have an actor for every reference read its rows; what cannot be read is an `InputError` that names it."""
        if problem.design is None or self._shards is not problem.shards:
            self._settle_in(_some(problem.shards), at_once=problem.design is None)
        return self._shard_info(problem)

    def open(self, problem: BaseProblem, *, regions: Regions, policy: WorkerPolicy | None, seed: int) -> None:
        """Have an actor for every shard, unless they are there, and keep for them what this run adds to their rows."""
        assert isinstance(problem, Problem | RemoteProblem)
        if self._shards is not problem.shards:
            self._settle_in(problem.shards, at_once=problem.design is None)
            self._shard_info(problem)
        import ray

        from danl.engines.ray.actor import RunTerms

        try:
            self._terms = ray.put(RunTerms(problem.without_rows(), regions, policy, seed))
        except TypeError as error:
            raise InputError(
                f"policy={policy!r}, loss={problem.loss!r}: cannot be sent to the workers "
                f"({first_line(error)}); use what pickle can write"
            ) from None
        self._number += 1
        self._rules = ReplyRules.of(problem, regions)
        self._form = ReplyForm(regions, problem.layout)
        self._d, self._longest = problem.n_coefficients, most_bytes(problem.n_coefficients, regions.n_regions)

    def close(self) -> None:
        """End the actors of this engine, and Ray if this engine started it."""
        if self._slots:
            import ray

            for slot in self._slots if ray.is_initialized() else []:
                ray.kill(slot.actor, no_restart=True)
            if self._tree is not None and ray.is_initialized():
                self._tree.close()
        self._slots, self._shards, self._terms, self._tree = [], None, None, None
        if self._entered:
            self._entered = False
            leave_cluster()

    def _settle_in(self, shards: tuple[Any, ...], at_once: bool) -> None:
        """An actor for every shard; one in memory is put into the object store, from where a restarted one has it."""
        self.close()
        self._entered = enter_cluster(self._address)
        import ray

        from danl.engines.ray.tree import Tree

        for index, shard in enumerate(shards):
            reference = shard if isinstance(shard, ShardReference) else None
            put = None if reference is not None else ray.put(shard)
            slot = WorkerSlot(index, reference, put, None, self._replacements, at_once=at_once)
            slot.actor = self._new_actor(slot)
            self._slots.append(slot)
        self._tree = Tree(len(shards), self._fan_in)
        self._shards = shards

    def _new_actor(self, slot: WorkerSlot) -> Any:
        import ray

        from danl.engines.ray.actor import WorkerActor

        made = ray.remote(WorkerActor).options(num_cpus=0, max_restarts=self._restarts, max_task_retries=0)
        return made.remote(slot.index, slot.reference, **({} if slot.at_once else {"at_once": False}))

    def _shard_info(self, problem: Problem | RemoteProblem) -> list[ShardInfo]:
        """Wait until every worker has read its rows."""
        asked = problem.loss.binary, problem.design
        return self._muster(lambda slot: slot.actor.shard_info.remote(asked[0], slot.shard, asked[1]))

    def _muster(self, ask: Callable[[WorkerSlot], Any]) -> list[Any]:
        """What every worker says to a question about its rows; one that cannot read them ends it."""
        infos: dict[int, Any] = {}
        late: list[str] = []
        calls = Calls(
            self._slots,
            ask,
            self._new_actor,
            deadline=self._start_timeout,
            start_timeout=self._start_timeout,
            as_they_come=True,  # one that cannot read ends it at once
        )
        for slot, given in calls:
            if isinstance(given, Failure) and given.kind in ("error", "gone"):
                raise InputError(unreadable(slot.index, given.detail))
            if isinstance(given, Failure):
                late.append(f"{slot.index} ({given.detail})")
            elif isinstance(given, Exception):
                raise InputError(unreadable(slot.index, _described(given)))
            else:
                infos[slot.index] = given
        if late:
            raise InputError(
                f"start_timeout={self._start_timeout:g}: workers {', '.join(late[:5])} were not ready by "
                "then; give them longer, or look at the cluster with 'ray status'"
            )
        return [infos[index] for index in range(len(self._slots))]

    # An exchange

    def exchange(self, exchange: Exchange, *, deadline: float | None = None) -> Replies:
        """Call every worker's actor and wait until all have answered or are given up, or the deadline has passed."""
        outbox, tasks = _Outbox(), exchange.tasks()
        hessians: dict[int, Any] = {}
        in_tree = not any(isinstance(task, CurvatureTask) for task in tasks.values())

        def ask(slot: WorkerSlot) -> Any:
            task = tasks[slot.index]
            terms = shard = None
            if slot.opened != self._number:
                terms, shard, slot.opened = self._terms, slot.shard, self._number
            data, w = outbox.packed(task)
            if in_tree and isinstance(task, HessianTask):
                call = slot.actor.hessian.options(num_returns=2)
                reply, hessians[slot.index] = call.remote(self._number, terms, shard, data, w)
                return reply
            return slot.actor.answer.remote(self._number, terms, shard, data, w)

        dropped = late_ones((slot for slot in self._slots if slot.index not in tasks), self._new_actor)
        calls = Calls(
            [self._slots[worker] for worker in tasks],
            ask,
            self._new_actor,
            deadline=self._deadline if deadline is None else deadline,
            start_timeout=self._start_timeout,
            tries=TRIES,
        )
        answers = {
            slot.index: given if isinstance(given, Failure) else self._read(slot, given) for slot, given in calls
        }
        replies = self._form.stack(exchange, answers, dropped + calls.dropped)
        return self._with_tree(exchange, replies, hessians) if hessians else replies

    def _read(self, slot: WorkerSlot, outcome: Any) -> Reply | Failure:
        """The reply in these bytes, or what an error means."""
        from ray.exceptions import RayTaskError

        if isinstance(outcome, RayTaskError):
            if isinstance(outcome.cause, InputError):
                raise outcome.cause from None
            return Failure(slot.index, "error", _described(outcome) if slot.reference else first_line(outcome.cause))
        if isinstance(outcome, Exception):  # of Ray's, on the way: the actor is there
            slot.opened = 0
            return Failure(slot.index, "died", f"{type(outcome).__name__}: {first_line(outcome)}")
        if isinstance(outcome, Reply):  # to a task that went as an object
            return outcome
        try:
            message = decode(outcome, most_bytes=self._longest)
        except WireError as error:
            return Failure(slot.index, "invalid", f"its reply cannot be read: {error}")
        if isinstance(message, Failure) and message.kind in ("error", "forgot"):  # of itself it can know no other
            return replace(message, worker=slot.index)
        if isinstance(message, Task | Failure):
            return Failure(slot.index, "invalid", f"answered with {type(message).__name__}, which is no reply")
        return message

    def _with_tree(self, exchange: Exchange, replies: Replies, hessians: dict[int, Any]) -> Replies:
        """Leave the Hessians where they are; `add_up` adds those of the workers the server admits."""
        from danl.engines.ray.tree import Leaf

        assert self._tree is not None
        leaves, blown_up = {}, has_blown_up(exchange.task, exchange.own)
        losses = dict(zip(replies.workers.tolist(), replies.losses.tolist(), strict=True))
        for who in replies.curvature_senders.tolist():
            excused, penalties = self._rules.excused(losses[who], blown_up), self._rules.penalties_of(who)
            leaves[who] = Leaf(who, penalties, excused, blown_up, hessians[who])
        return replace(replies, add_up=partial(self._tree.add_up, leaves, self._d))


class _Outbox:
    """The tasks of an exchange as what is passed to the actors; what workers share is packed once."""

    def __init__(self) -> None:
        self._packed: dict[int, tuple[bytes | Task, Any]] = {}  # by the id of the task, which the caller keeps alive
        self._models: dict[int, Any] = {}

    def packed(self, task: Task) -> tuple[bytes | Task, Any]:
        """The task as bytes, or as an object if it is not danl's; the ObjectRef of its model if that goes beside it."""
        if id(task) not in self._packed:
            self._packed[id(task)] = self._pack(task)
        return self._packed[id(task)]

    def _pack(self, task: Task) -> tuple[bytes | Task, Any]:
        if type(task).__module__.partition(".")[0] != __name__.partition(".")[0]:
            return task, None
        if not isinstance(task, ModelTask) or task.w.nbytes <= INLINE:
            return encode(task), None
        import ray

        if id(task.w) not in self._models:
            self._models[id(task.w)] = ray.put(task.w)
        return encode(replace(task, w=np.zeros(0))), self._models[id(task.w)]


def _some(shards: tuple[Any, ...]) -> tuple[Any, ...]:
    if not shards:
        raise InputError("shards: must hold at least one ShardReference: the Ray engine does not find shards itself")
    return shards


def _described(error: Exception) -> str:
    """An error that its actor did not report: Ray's own in its words, any other by its type, for it may show a row."""
    from ray.exceptions import RayTaskError

    if isinstance(error, RayTaskError):
        return type(error.cause).__name__
    return f"{type(error).__name__}: {first_line(error)}"
