"""Flower's SuperNode with short pauses: `python -m danl.federation.supernode` with the options of `flower-supernode`.

Flower's own waits 3 s after every look for a message that found none, and half a second between two looks for the
ClientApp's answer; no option changes that, and it is half of what an exchange takes. The programs are the same and so
is all they do but for these pauses: those of `start_client_internal`, the loop of Flower's SuperNode.

    no message    from 0.05 s, a tenth of the time since the last message, to Flower's 3 s
    no answer     from 0.02 s, a tenth of the time since the message came, to Flower's 0.5 s

It ends when the process ends that started it (`danl.federation.node`).
Flower's versions are pinned (pyproject.toml). Where its loop has no `time` any more, it runs as it is.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from danl.engines.flower.pauses import Pauses

NO_MESSAGE = 1.0
"""A pause of Flower's that is longer than this is one between two looks for messages."""


class Clock:
    """Stands for the module `time` in the SuperNode's loop: its pauses end sooner, all else is `time`'s."""

    def __init__(self) -> None:
        self._looks, self._answers = Pauses(0.05, 3.0), Pauses(0.02, 0.5)
        self._answering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Wait, at most as long as Flower would."""
        answering = seconds < NO_MESSAGE
        if answering and not self._answering:
            self._answers.begin()
        elif self._answering and not answering:
            self._looks.begin()
        self._answering = answering
        time.sleep(min(seconds, (self._answers if answering else self._looks).next()))


def main() -> None:
    """Run the SuperNode; what is on the command line is Flower's."""
    import flwr.supernode.start_client_internal as loop
    from flwr.supercore.app_utils import start_parent_process_monitor
    from flwr.supernode.cli import flower_supernode

    if getattr(loop, "time", None) is time:
        loop.time = Clock()
    start_parent_process_monitor(os.getppid())
    sys.argv[0] = "flower-supernode"
    flower_supernode()


if __name__ == "__main__":
    main()
