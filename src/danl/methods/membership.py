"""Who is there: the workers that the safeguarded loop's objective is made of, as they leave and come back.

A worker that missed `patience` exchanges in a row counts as gone, and the objective is that of the workers that remain,
until it is back. A worker that the engine expects back has missed nothing. Of many workers somebody misses any number
in a row by chance. With more than MANY of them a worker is waited for until that would be rarer than CHANCE among all,
by how often workers have missed exchanges so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from danl.frozen import at_once, replace
from danl.objective.regions import IntArray
from danl.protocol.messages import PERMANENT, Array, Mask
from danl.protocol.replies import Replies
from danl.storage.serialize import storable

GONE = 2**31
"""More absences in a row than any patience: those of a worker that will not be back."""
MANY = 100
"""With more workers than this somebody is always missing, and absences in a row may be chance."""
CHANCE = 1e-5
"""How rare a row of absences is in any exchange, among all workers, for its worker to count as gone."""
MOST_ABSENT = 0.5
"""More than this share of absences is not taken for chance."""


@storable
@at_once
@dataclass(frozen=True)
class Membership:
    """Who belongs to the objective and who is alive."""

    missed: IntArray  # (N,): exchanges in a row a worker was asked in and did not answer
    alive: Mask  # (N,): who missed fewer than `patience` of them
    members: Mask  # (N,): the workers the objective is made of
    regroup: bool = False  # members left, or others are back: exchange Hessians at the next trial
    quorate: bool = True  # enough are alive to go on
    complete: bool = True  # everyone is a member, and nobody missed anything
    asked: int = 0  # questions to workers so far that are alive, where there are many
    unanswered: int = 0  # of these
    steady: bool = True  # nobody has missed anything so far

    @classmethod
    def everyone(cls, n_workers: int) -> Membership:
        """All workers, before anything was asked."""
        here = np.ones(n_workers, dtype=bool)
        return cls(np.zeros(n_workers, dtype=np.int64), here, here)

    def after(self, replies: Replies, patience: int, quorum: float, *, starting: bool, all_asked: bool) -> Membership:
        """Who is there after an exchange; `members` is the same array unless somebody has left.

        While `starting`, in Phase I, nobody has joined yet; with `all_asked` whoever answers is about to be a member.
        """
        count = len(replies.workers)
        if not starting and np.count_nonzero(self.members) == len(self.members) == count <= MANY:
            nobody, everyone = np.zeros(count, dtype=np.int64), np.ones(count, dtype=bool)
            return replace(self, missed=nobody, alive=everyone, quorate=True, complete=True)
        missed, here = self.missed.copy(), replies.workers
        asked, unanswered, steady = self.asked, self.unanswered, self.steady and not replies.failures
        if len(missed) > MANY:
            absent = int(self.alive[list(replies.absent)].sum()) if replies.failures else 0
            asked, unanswered = asked + absent + len(here), unanswered + absent
            patience = max(patience, by_chance(len(missed), unanswered / max(asked, 1)))
        if replies.failures:
            missed[list(replies.absent)] += 1
            for worker, failure in replies.failures.items():
                if failure.kind in PERMANENT:
                    missed[worker] = GONE
        missed[here] = 0
        alive = missed < patience
        quorate = bool(alive.sum() > quorum * len(alive))
        if starting or not quorate:
            return Membership(missed, alive, self.members, self.regroup, quorate, False, asked, unanswered, steady)
        back = not all_asked and not self.members[here].all()
        left = bool((self.members & ~alive).any())
        members = self.members & alive if left else self.members
        complete = not missed.any() and bool(members.all())
        regroup = self.regroup or back or left
        return Membership(missed, alive, members, regroup, True, complete, asked, unanswered, steady)

    def of(self, members: Mask) -> Membership:
        """With these members, once their Hessians are exchanged."""
        return replace(self, members=members, regroup=False, complete=self.steady)

    def reopened(self) -> Membership:
        """For a run that had ended and goes on: nobody has missed anything yet."""
        everyone = np.ones_like(self.alive)
        return replace(self, missed=np.zeros_like(self.missed), alive=everyone, quorate=True, complete=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """For the result, where not everyone is a member."""
        gone, count = np.flatnonzero(~self.members), int(self.members.sum())
        if not gone.size:
            return ()
        who = "worker" if gone.size == 1 else "workers"
        rest = "the one worker that is" if count == 1 else f"the {count} workers that are"
        return (f"without {who} {', '.join(map(str, gone))}: the objective is that of {rest} left",)


def by_chance(n_workers: int, absent: float) -> int:
    """Absences in a row that are rarer than CHANCE among so many workers, of whom this share misses any exchange."""
    share = min(absent, MOST_ABSENT)
    return math.ceil(math.log(CHANCE / n_workers) / math.log(share)) if share > 0 else 1


def weights_among(members: Mask, weights: Array) -> Array:
    """What some workers count in their own objective, (N,); sums to 1."""
    return weights if members.all() else np.where(members, weights / weights[members].sum(), 0.0)
