"""How long to wait before one looks again for something that will come: a share of the time that has been waited.

Flower has no way to be told of a message; everyone asks, again and again. With a pause that grows with the wait, what
comes soon is seen soon, what takes long costs few questions, and nothing is seen later than by a tenth of its time.

    pause = shortest <= SHARE * (all pauses since the wait began) <= longest
"""

from __future__ import annotations

SHARE = 0.1
"""Of the time waited so far that a pause takes."""


class Pauses:
    """The pauses of one wait; `begin` starts another one."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest, self._longest = min(shortest, longest), longest
        self.begin()

    def begin(self) -> None:
        """Something came: what comes next may come as soon."""
        self._waited = 0.0

    def next(self) -> float:
        """Seconds to wait now."""
        pause = min(max(SHARE * self._waited, self._shortest), self._longest)
        self._waited += pause
        return pause
