"""`danl fit --serve`: the report of the run while it goes on, in a browser on this machine."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from danl.run.history import History, Row
from danl.run.trace import Trace

if TYPE_CHECKING:
    from danl.report.live_page import LivePage, LiveServer


class Served:
    """A run that is shown while it goes on; without `wanted` nothing is shown, and nothing of it is imported."""

    def __init__(
        self, wanted: bool, port: int, trace: Trace, told: Mapping[str, Any], title: str, screen: Console
    ) -> None:
        self._page: LivePage | None = None
        self._server: LiveServer | None = None
        self._screen = screen
        if not wanted:
            return
        from danl.report.live_page import LivePage, LiveServer

        self._page = LivePage(trace, told, title)
        self._server = LiveServer(self._page, port)
        screen.print(f"the run is shown at {self._server.address}", soft_wrap=True)

    def __enter__(self) -> Served:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None and error is not None:  # else the page stays, until `stay` has ended
            self._server.close()

    def resumed(self, earlier: History) -> None:
        """Show the rows of the run that goes on, too."""
        if self._page is not None:
            self._page.resumed(earlier)

    def __call__(self, row: Row) -> None:
        """Show the newest row."""
        if self._page is not None:
            self._page(row)

    def finish(self, config: Mapping[str, Any]) -> None:
        """Show how it ended."""
        if self._page is not None:
            self._page.finish(config)

    def stay(self) -> None:
        """On a terminal keep the page until Ctrl-C; else only until a page that is open has seen the end."""
        if self._page is None or self._server is None:
            return
        try:
            if self._screen.is_terminal:
                self._screen.print(f"the page stays at {self._server.address} until Ctrl-C", soft_wrap=True)
                threading.Event().wait()
            self._page.wait_for_last_look()
        except KeyboardInterrupt:
            self._screen.print("")
        finally:
            self._server.close()
