"""What several tests need of a run: its iterates, and engines that misbehave."""

from __future__ import annotations

import danl
from danl.engines import Local
from danl.protocol.messages import Failure


def iterates(problem, method, *, w0=None, **arguments):
    """[w0, w1, ...]: the model after every exchange of a run that does not stop by itself."""
    models = []

    def keep(row, w):
        models.append(w)

    result = danl.solve(problem, method=method, w0=w0, tol=0.0, callback=keep, **arguments)
    return [result.w0, *models]


class Reordered(Local):
    """The local engine with the replies in another order."""

    def exchange(self, exchange, *, deadline=None):
        answers = self._one_by_one(exchange, deadline)
        return self._form.stack(exchange, dict(sorted(answers.items(), key=lambda item: (item[0] * 7) % 5)))


class Absent(Local):
    """The local engine with workers that are not there from some exchange on."""

    def __init__(self, workers, since=0):
        super().__init__()
        self.workers, self.since, self.count = set(workers), since, 0

    def exchange(self, exchange, *, deadline=None):
        replies = super().exchange(exchange, deadline=deadline)
        gone = self.workers if self.count >= self.since else set()
        self.count += 1
        return replies.without({i: Failure(i, "died", "left") for i in exchange.workers.tolist() if i in gone})
