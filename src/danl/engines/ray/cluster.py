"""Reaching a Ray cluster: the one this process is in, one at an address, or a small one started on this machine.

Ray listens on every address of the machine it runs on and, unless tokens are set up, obeys whoever connects:
run it behind a firewall. Nothing here opens it further. Usage statistics are off.
"""

from __future__ import annotations

import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from danl.checks import check_installed
from danl.engines.ray.calls import first_line
from danl.errors import InputError

REACH_SECONDS = 5.0
"""How long an address may take to accept a connection."""
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray prints these on standard output, where results go; the death of a worker is a failure in the result.
    "RAY_DEDUP_LOGS_SKIP_REGEX": "A worker died or was killed|worker processes have been started",
}
QUIET: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}


def require_ray() -> None:
    """Say what to install where Ray is missing; where it is there, set what Ray reads when it is imported."""
    check_installed("engine='ray'", "ray", "ray")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def enter_cluster(address: str | None) -> bool:
    """Be in a cluster; whether it is this call that brought the process there, and `leave_cluster` is due."""
    import ray

    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", here):
            raise InputError(
                f"address={address!r}: this process is in the cluster at {here} already; leave address out to use that"
            )
        return False
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's tips on its own future versions
        if address == "local":
            with _own_path():
                ray.init(address="local", include_dashboard=False, **QUIET)
            return True
        _check_reachable(address)
        try:
            ray.init(address=address, **QUIET)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise _unreachable(address, first_line(error)) from None
    return True


def leave_cluster() -> None:
    """Disconnect; a cluster that was started by this process ends."""
    import ray

    ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself tries for a minute, and may then end the process."""
    if address == "auto":
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 65536):
        raise InputError(f"address={address!r}: must be 'auto', 'local' or 'host:port', such as '10.0.0.1:6379'")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from None


def _unreachable(address: str, reason: str) -> InputError:
    return InputError(
        f"address={address!r}: no Ray cluster answers there ({reason}); start one with 'ray start --head', "
        "or leave address and RAY_ADDRESS out to have one started here"
    )


@contextmanager
def _own_path() -> Iterator[None]:
    """Let the processes Ray starts import what this one can: danl need not be installed, only importable."""
    installed = (sys.prefix, sys.base_prefix)
    folders = [folder for folder in sys.path if os.path.isdir(folder) and not folder.startswith(installed)]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
