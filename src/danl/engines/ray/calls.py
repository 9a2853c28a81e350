"""Calls to the workers' actors: who is asked, who is waited for and for how long, and what becomes of who died.

An actor that died is not an absent worker while Ray restarts it, or a new one takes its place. It is waited for until
it is back, at most `start_timeout` seconds from when its death was noticed, and then asked what it was asked before:

    alive      --its death is seen-->           down: is it back? asked every PAUSE seconds
    down       --it says that it is ready-->    alive: its task again; a task that killed it `tries` times is a miss
    down       --no restarts left-->            a new actor, `replacements` times
               --and no replacements-->         failure "gone": dead for good
    down       --the deadline-->                failure "restarting": no miss, it is expected back
               --`start_timeout` seconds-->     failure "died": a miss, and so is every later exchange until it is back
    alive      --the deadline-->                failure "timeout"; its reply is dropped when it comes

Whoever is down is asked whether it is back, never its task: a call to an actor that is not there fails after a second
or two, and says nothing of what it would do to the actor.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from danl.data.reference import ShardReference
from danl.protocol.messages import Failure

PAUSE = 0.2
"""Seconds between two questions whether an actor is back."""


@dataclass
class WorkerSlot:
    """A worker's slot: the actor that holds it now, and what is known of that actor."""

    index: int
    reference: ShardReference | None
    shard: Any  # the ObjectRef of a shard in memory, or None
    actor: Any
    replacements: int
    opened: int = 0  # the number of the run whose terms the actor knows
    late: Any = None  # the ObjectRef of a reply whose deadline has passed
    since: float | None = None  # when its death was noticed, on the monotonic clock; None: it is alive
    why: str = ""  # what was said of its death
    ready: Any = None  # the ObjectRef of its answer whether it is back
    at_once: bool = True  # whether its actor reads its rows before it is asked; those of a design come later


class Calls:
    """One call to the actor of every slot, repeated where it died; iterate for (slot, what it gave).

    Parameters
    ----------
    slots : sequence of WorkerSlot
        Who is asked.
    ask : callable
        Calls the actor of a slot; gives the ObjectRef of what it will answer.
    renew : callable
        Makes a new actor for a slot.
    deadline : float, optional
        Seconds all of it may take.
    start_timeout : float
        Seconds an actor may take to come back.
    tries : float
        How often an actor may die of its call before that is a miss.
    as_they_come : bool
        Give what one gave as soon as it is there; else wait for all that are alive, which is one call less.

    """

    def __init__(
        self,
        slots: Sequence[WorkerSlot],
        ask: Callable[[WorkerSlot], Any],
        renew: Callable[[WorkerSlot], Any],
        *,
        deadline: float | None,
        start_timeout: float,
        tries: float = math.inf,
        as_they_come: bool = False,
    ) -> None:
        self.dropped = 0  # late replies that have come
        self._call, self._renew = ask, renew
        self._begun, self._deadline, self._start_timeout = time.monotonic(), deadline, start_timeout
        self._ends = math.inf if deadline is None else self._begun + deadline
        self._as_they_come = as_they_come
        self._tries, self._deaths = tries, dict.fromkeys((slot.index for slot in slots), 0)
        self._unknowing: set[int] = set()  # workers that did not know the run, and are sent it once
        self._waiting: dict[Any, WorkerSlot] = {}
        self._resting: dict[int, tuple[float, WorkerSlot]] = {}  # by worker: when it is asked again
        for slot in slots:
            self._ask(slot)

    def __iter__(self) -> Iterator[tuple[WorkerSlot, Any]]:
        """What each slot gave: a value, an exception that is not its death, or a `Failure`."""
        while self._waiting or self._resting:
            ready = self._ready()
            if not ready and time.monotonic() >= self._last():
                break
            for ref, outcome in zip(ready, outcomes(ready), strict=True):
                slot = self._waiting.pop(ref)
                given = self._taken(slot, outcome)
                if given is not None:
                    yield slot, given
        for ref, slot in self._waiting.items():
            if slot.since is None:
                slot.late = ref
            yield slot, self._missing(slot)
        for _, slot in self._resting.values():
            yield slot, self._missing(slot)

    def _ask(self, slot: WorkerSlot) -> None:
        """Its task; whether it is back, if it was down; nothing before a late reply has come: nothing piles up."""
        if slot.late is not None:
            ref = slot.late
        elif slot.since is not None:
            ref = slot.ready = slot.ready or slot.actor.ready.remote()
        else:
            ref = self._call(slot)
        self._waiting[ref] = slot

    def _last(self) -> float:
        """The time at which waiting ends. A worker that was down too long is still waited for while others are."""
        left = [*self._waiting.values(), *(slot for _, slot in self._resting.values())]
        return min(self._ends, max(map(self._limit, left)))

    def _limit(self, slot: WorkerSlot) -> float:
        if slot.since is None:
            return math.inf
        return max(slot.since + self._start_timeout, self._begun + PAUSE)

    def _ready(self) -> list[Any]:
        """The calls that have ended by the time that something else is to be done."""
        import ray

        now, last = time.monotonic(), self._last()
        for at, slot in list(self._resting.values()):
            if at <= now < last:
                del self._resting[slot.index]
                self._ask(slot)
        wakes = min([last, *(at for at, _ in self._resting.values())])
        refs = list(self._waiting)
        if not refs:
            time.sleep(max(0.0, wakes - now))
            return []
        one_by_one = self._as_they_come or bool(self._resting)
        one_by_one = one_by_one or any(each.late or each.since is not None for each in self._waiting.values())
        if math.isinf(wakes) and not one_by_one:
            return refs  # `outcomes` waits for all of them, in one call less
        timeout = None if math.isinf(wakes) else max(0.0, wakes - now)
        return list(ray.wait(refs, num_returns=1 if one_by_one else len(refs), timeout=timeout)[0])

    def _taken(self, slot: WorkerSlot, outcome: Any) -> Any:
        """What the slot gave, once it is there; None where it is asked again."""
        asked = slot.late is None and slot.since is None  # else: a late reply, or whether it is back
        if slot.late is not None:
            self.dropped += not isinstance(outcome, Exception)
        slot.late = slot.ready = None
        if is_death(outcome):
            self._deaths[slot.index] += asked
            if not lost(slot, outcome, self._renew):
                return Failure(slot.index, "gone", f"{slot.why}; no restarts and no replacements are left")
            if self._deaths[slot.index] >= self._tries:
                return Failure(slot.index, "died", f"{slot.why}; it died of this exchange {self._tries:g} times")
            self._resting[slot.index] = (time.monotonic() + PAUSE, slot)
            return None
        slot.since = None
        if asked and (not run_is_unknown(outcome) or slot.index in self._unknowing):
            return outcome
        if asked:  # it was restarted, and nobody noticed
            self._unknowing.add(slot.index)
            slot.opened = 0
        self._ask(slot)
        return None

    def _missing(self, slot: WorkerSlot) -> Failure:
        """Why there is nothing at the end."""
        if slot.since is None:
            return Failure(slot.index, "timeout", f"no reply within {self._deadline or 0:g} s")
        seconds = time.monotonic() - slot.since
        if seconds < self._start_timeout:
            return Failure(slot.index, "restarting", f"{slot.why}; expected back, down for {seconds:.0f} s")
        return Failure(slot.index, "died", f"{slot.why}; not back within {self._start_timeout:g} s")


def late_ones(slots: Iterable[WorkerSlot], renew: Callable[[WorkerSlot], Any]) -> int:
    """How many late replies of these slots have come by now."""
    import ray

    late = {slot.late: slot for slot in slots if slot.late is not None}
    if not late:
        return 0
    ready, _ = ray.wait(list(late), num_returns=len(late), timeout=0)
    given = outcomes(ready)
    for ref, outcome in zip(ready, given, strict=True):
        late[ref].late = None
        if is_death(outcome):
            lost(late[ref], outcome, renew)
    return sum(not isinstance(outcome, Exception) for outcome in given)


def lost(slot: WorkerSlot, error: Exception, renew: Callable[[WorkerSlot], Any]) -> bool:
    """An actor died: whether it comes back. One that is dead for good is replaced, as long as there are replacements.

    It is sent the terms when it is back.
    """
    from ray.exceptions import ActorUnavailableError, RayActorError

    slot.opened, slot.why = 0, f"{type(error).__name__}: {first_line(error)}"
    if isinstance(error, ActorUnavailableError) or not isinstance(error, RayActorError):
        slot.since = time.monotonic() if slot.since is None else slot.since
        return True
    if not slot.replacements:
        return False
    slot.replacements -= 1
    slot.actor, slot.since = renew(slot), time.monotonic()
    return True


def outcomes(refs: Sequence[Any]) -> list[Any]:
    """What these calls gave, or the exceptions they ended with."""
    import ray

    if not refs:
        return []
    try:
        return list(ray.get(list(refs)))
    except Exception as error:  # of one of them: see which
        return [error] if len(refs) == 1 else [outcomes([ref])[0] for ref in refs]


def is_death(outcome: Any) -> bool:
    """Whether a call ended because the actor, its process or its machine did."""
    from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError, WorkerCrashedError

    return isinstance(outcome, RayActorError | NodeDiedError | OutOfMemoryError | WorkerCrashedError)


def run_is_unknown(outcome: Any) -> bool:
    """Whether a restarted actor says that it does not know the run (`danl.engines.ray.actor.UNKNOWN_RUN`)."""
    return isinstance(outcome, bytes) and not outcome


def first_line(error: object) -> str:
    """An error in one line."""
    return str(error).strip().partition("\n")[0][:300]
