"""`danl fit --serve`: the report of the run while it goes on, in a browser on this machine."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console

from danl.run.trace import Trace


class Served:
    """Shows a run while it goes on, and its end: `page` is a callback of the run."""

    def __init__(self, port: int, trace: Trace, config: Mapping[str, Any], title: str, screen: Console) -> None:
        from danl.report.live_page import LivePage, LiveServer  # here: only --serve needs it

        self.page = LivePage(trace, config, title)
        self._server = LiveServer(self.page, port)
        self._screen = screen
        screen.print(f"the run is shown at {self._server.address}", soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # else the page stays, until `stay` has ended
            self._server.close()

    def stay(self) -> None:
        """On a terminal keep the page until Ctrl-C; else only until a page that is open has seen the end."""
        try:
            if self._screen.is_terminal:
                self._screen.print(f"the page stays at {self._server.address} until Ctrl-C", soft_wrap=True)
                threading.Event().wait()
            self.page.wait_for_last_look()
        except KeyboardInterrupt:
            self._screen.print("")
        finally:
            self._server.close()
