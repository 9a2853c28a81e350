"""Optional limits on what one worker's plausible replies can do (`danl.protocol.replies` calls them)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from danl.checks import check_number
from danl.frozen import replace
from danl.objective.regions import Regions
from danl.protocol.messages import Failure

if TYPE_CHECKING:
    from danl.protocol.replies import Replies


@dataclass(frozen=True)
class Guards:
    """Optional limits on what one worker's plausible replies can do.

    Parameters
    ----------
    clip : float, optional
        A gradient whose root mean square is above `clip` times the median of the others' is scaled down to that.
        At least 1. Honest workers with skewed data differ, too: 3 to 10 is usual.
    drop_infinite : bool
        Quarantine a worker whose loss is infinite where most workers' is not, with losses that can overflow.

    """

    clip: float | None = None
    drop_infinite: bool = False

    def __post_init__(self) -> None:
        if self.clip is not None:
            check_number("clip", self.clip, "leave it out to clip nothing", least=1, infinite=True)


NO_GUARDS = Guards()


def without_lone_infinities(replies: Replies) -> Replies:
    """Leave out who has an infinite loss, where most have not."""
    infinite = replies.workers[np.isinf(replies.losses)].tolist()
    if 2 * len(infinite) >= len(replies.workers):
        return replies
    fault = "its loss is infinite and most others' is not"
    return replies.without({worker: Failure(worker, "invalid", fault) for worker in infinite})


def clipped(replies: Replies, clip: float, regions: Regions) -> Replies:
    """Scale down gradients far above the median; workers that sent none are left out of it."""
    if replies.gradients is None:
        return replies
    counted = np.ones(replies.gradients.shape, dtype=bool)
    if replies.masks is not None:
        counted = replies.masks[np.searchsorted(replies.workers, replies.senders)][:, regions.of_coefficient]
    numbers = counted.sum(axis=1)
    squares = np.square(np.where(counted, replies.gradients, 0.0)).sum(axis=1)
    sizes = np.sqrt(squares / np.maximum(numbers, 1))
    if np.count_nonzero(numbers) < 3:
        return replies  # of two, nobody can say which is the odd one
    limit = clip * float(np.median(sizes[numbers > 0]))
    shares = np.where(sizes > limit, limit / np.where(sizes > 0, sizes, 1.0), 1.0)
    return replace(replies, gradients=shares[:, None] * replies.gradients)
