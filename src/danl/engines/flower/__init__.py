"""Workers as sites of a Flower federation; `danl.flower` to users.

    clientapp:app         what runs at a site
    GridEngine(grid)      the engine, for a ServerApp of your own; danl.federation.serverapp:app is ours
    FlowerSimulation()    the same sites played on this machine; danl.solve(..., engine="flower")

Names are imported when they are first used: most need Flower.
"""

import os

from danl._lazy import LazyNames
from danl.checks import check_installed

# Flower and Ray report their use over the network unless these are set when they are imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

_stub = LazyNames(__name__, __file__)
__all__ = _stub.names


def __getattr__(name: str) -> object:
    if name in ("GridEngine", "client_app"):
        check_installed(f"danl.flower.{name}", "flwr", "flower")
    return _stub.attribute(name)


def __dir__() -> list[str]:
    return __all__
