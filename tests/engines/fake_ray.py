"""Ray without processes: actors that live, die and come back on a clock that only waiting moves.

`FakeRay` stands in for `ray.wait`, `ray.get` and `ray.put`, and for the clock of `danl.engines.ray.calls`. An actor
answers as `danl.engines.ray.actor.WorkerActor` does, in this process; `Life` says when it dies, and when it is back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import ActorDiedError, ActorUnavailableError

from danl.engines import Ray
from danl.engines.ray.actor import WorkerActor
from danl.engines.ray.calls import WorkerSlot

CALL = 0.001
"""Seconds a call takes."""
NOTICED = 1.5
"""Seconds until a call to an actor that is not there has failed."""


@dataclass(eq=False)
class Ref:
    """What a call will have given, and when."""

    at: float
    value: Any


@dataclass
class Life:
    """What becomes of a worker: its actors die `kills` times of being asked, and are back after `away` seconds."""

    kills: int = 0
    away: float = 5.0
    takes: float = CALL
    restarts: int = 10**6


class Clock:
    """Seconds that pass only where somebody waits."""

    def __init__(self):
        self.now, self.sleeps = 1000.0, 0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        assert seconds >= 0
        self.now += seconds
        self.sleeps += 1


class Method:
    """A method of an actor: `.remote(...)`, with `.options` for two results."""

    def __init__(self, actor, name, pair=False):
        self.actor, self.name, self.pair = actor, name, pair

    def options(self, num_returns):
        return Method(self.actor, self.name, num_returns == 2)

    def remote(self, *arguments):
        ref = self.actor.called(self.name, arguments)
        if not self.pair:
            return ref
        failed = isinstance(ref.value, Exception)
        return (ref, ref) if failed else (Ref(ref.at, ref.value[0]), Ref(ref.at, ref.value[1]))


@dataclass(eq=False)
class Actor:
    """A worker's actor."""

    world: FakeRay
    index: int
    back: float = -math.inf  # alive from then on
    deaths: int = 0
    actor: WorkerActor = field(init=False)

    def __post_init__(self):
        self.actor = WorkerActor(self.index, None)
        self.busy = -math.inf

    def __getattr__(self, name):
        if name in ("answer", "hessian", "shard_info", "ready"):
            return Method(self, name)
        raise AttributeError(name)

    def called(self, name, arguments):
        world, life = self.world, self.world.lives[self.index]
        world.asked.append((self.index, name))
        now = world.clock.now
        if self.deaths > life.restarts:
            return Ref(now + CALL, ActorDiedError())
        if now < self.back:
            if self.deaths:
                return Ref(now + NOTICED, ActorUnavailableError("it is restarting", None))
            now = self.back  # a new one: calls wait until it has begun
        if name in ("answer", "hessian") and life.kills:
            life.kills -= 1
            self.deaths += 1
            self.back, self.actor = now + life.away, WorkerActor(self.index, None)
            dead = self.deaths > life.restarts
            error = ActorDiedError() if dead else ActorUnavailableError("it died", None)
            return Ref(now + NOTICED, error)
        return Ref(now + (CALL if name == "ready" else life.takes), getattr(self.actor, name)(*arguments))


class FakeRay:
    """The world: a clock, and what becomes of each worker."""

    def __init__(self, monkeypatch, lives):
        import ray

        self.clock, self.lives, self.asked = Clock(), lives, []
        monkeypatch.setattr("danl.engines.ray.calls.time", self.clock)
        monkeypatch.setattr(ray, "wait", self.wait)
        monkeypatch.setattr(ray, "get", self.get)
        monkeypatch.setattr(ray, "put", lambda value: value)

    def wait(self, refs, num_returns, timeout):
        ends = math.inf if timeout is None else self.clock.now + timeout
        enough = sorted(ref.at for ref in refs)[num_returns - 1]
        assert min(ends, enough) < math.inf, "waits for ever"
        self.clock.now = max(self.clock.now, min(ends, enough))
        ready = [ref for ref in refs if ref.at <= self.clock.now][:num_returns]
        return ready, [ref for ref in refs if ref not in ready]

    def get(self, refs):
        self.clock.now = max([self.clock.now, *(ref.at for ref in refs)])
        for ref in refs:
            if isinstance(ref.value, Exception):
                raise ref.value
        return [ref.value for ref in refs]

    def engine(self, **options):
        """An engine whose actors live here."""
        world = self

        class Faked(Ray):
            def _settle_in(self, shards, at_once=True):
                self._shards = shards
                self._slots = [
                    WorkerSlot(index, None, shard, Actor(world, index), self._replacements)
                    for index, shard in enumerate(shards)
                ]
                self._tree = Adding()

            def _new_actor(self, place):
                return Actor(world, place.index, world.clock.now + world.lives[place.index].away)

            def close(self):
                self._slots, self._shards = [], None

        return Faked(**options)


class Adding:
    """Hessians added up here."""

    def add_up(self, leaves, d, weights):
        from danl.protocol.replies import HessianSum

        return HessianSum(sum(weight * leaves[who].hessian.value for who, weight in weights.items()))
