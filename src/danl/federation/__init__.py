"""Flower federations: the sites are Flower's SuperNodes, the run is a ServerApp, and no row leaves a site.

    danl.engines.flower.clientapp:app    what runs at a site
    danl.federation.serverapp:app        what runs at the server
    GridEngine(grid)                     the engine, for a ServerApp of your own
    FlowerSimulation()                   the same sites played on this machine; danl.solve(..., engine="flower")

This package is `danl.flower`. Its names are imported when they are first used: `danl flower new` needs no Flower.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from danl.checks import check_installed

if TYPE_CHECKING:
    from danl.engines.flower.clientapp import client_app
    from danl.engines.flower.engine import GridEngine
    from danl.engines.flower.simulation import FlowerSimulation
    from danl.engines.flower.site import Site, SiteRules
    from danl.federation.files import read_result, write_result

# Flower and Ray report their use over the network unless these are set when they are imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

# lazy_loader knows only names of modules below a package, and most of these are in danl.engines.
_PLACES = {
    "FlowerSimulation": "danl.engines.flower.simulation",
    "GridEngine": "danl.engines.flower.engine",
    "Site": "danl.engines.flower.site",
    "SiteRules": "danl.engines.flower.site",
    "client_app": "danl.engines.flower.clientapp",
    "read_result": "danl.federation.files",
    "write_result": "danl.federation.files",
}
__all__ = ["FlowerSimulation", "GridEngine", "Site", "SiteRules", "client_app", "read_result", "write_result"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'danl.federation' has no attribute {name!r}")
    if name in ("GridEngine", "client_app"):
        check_installed(f"danl.flower.{name}", "flwr", "flower")
    return getattr(importlib.import_module(_PLACES[name]), name)
