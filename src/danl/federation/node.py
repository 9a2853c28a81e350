"""`danl flower node`: a site's SuperNode, and a process that has everything loaded when a message comes.

Flower starts a new Python for every message, which loads Flower and danl anew: one to two seconds, whatever is asked.
Its SuperNode can leave that to another program (`--isolation process`). Here it is this one: it loads both once, asks
the SuperNode for tasks, and forks for each. A task still has a process of its own that ends with it, and nothing of
one gets into another.

    SuperNode (`danl.federation.supernode`)  --task-->  this process  --fork-->  ClientApp, as Flower runs it

The options are those of `flower-supernode`, with other defaults: a free port, so that a second node of one host does
not find the first one's taken, and only this host can reach it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import danl.engines.flower  # noqa: F401  # before Flower is imported: it sets what Flower reads then
from danl.checks import check_installed
from danl.engines.flower.pauses import Pauses
from danl.errors import InputError
from danl.federation.flwr_commands import flower_environment
from danl.federation.local_federation import HOST, free_port

LOADED = (
    "danl.engines.flower.clientapp",
    "danl.data.table",
    "danl.worker.worker",
    "encodings.cp437",  # names in an archive
    "encodings.utf_8_sig",
    "filelock",
    "platformdirs",
    "scipy.linalg",
    "flwr.cli.install",
    "flwr.supernode.runtime.run_clientapp",
)
"""What an answer needs, loaded before there is a message."""
OF_A_FORMULA = ("pandas", "formulaic.parser")
"""What a formula needs beside, where it is installed: longer to load than all the rest."""
STOPS_WITHIN = 10.0
"""Seconds the SuperNode may take to end."""


def run_node(options: Sequence[str]) -> int:
    """Run a SuperNode with these options of Flower's until it ends; its exit status."""
    check_installed("danl flower node", "flwr", "flower")
    words = with_defaults(options)
    forks = hasattr(os, "fork")
    isolation = ("--isolation", "process") if forks else ()
    command = [sys.executable, "-m", "danl.federation.supernode", *words, *isolation]
    # A group of its own: signals of a terminal or a stop reach it once, through this process. The second one would keep
    # Flower's SuperNode from telling the SuperLink that it goes, and for a minute the node would seem to be there.
    supernode = subprocess.Popen(command, env=flower_environment(None), process_group=0 if forks else None)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if forks:
            load()
            _answer_tasks(supernode, words)
        return supernode.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        supernode.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            supernode.wait(STOPS_WITHIN)
        supernode.kill()


def load() -> None:
    """Load what answers need; what is not installed is not needed here."""
    for module in LOADED:
        importlib.import_module(module)
    for module in OF_A_FORMULA:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def with_defaults(options: Sequence[str]) -> list[str]:
    """The options with host and port; `--isolation` is ours."""
    words = [word for option in options for word in option.split("=", 1)] if options else []
    if "--isolation" in words:
        raise InputError("--isolation: is set by danl flower node; leave it out, or start flower-supernode")
    given = list(options)
    given += [] if "--host" in words else ["--host", HOST]
    return given + ([] if "--port" in words else ["--port", str(free_port())])


def value_of(option: str, words: Sequence[str]) -> str | None:
    """What stands after an option, or after its `=`; None where it is not there."""
    found = None
    for number, word in enumerate(words):
        if word == option and number + 1 < len(words):
            found = words[number + 1]
        elif word.startswith(f"{option}="):
            found = word.partition("=")[2]
    return found


def _answer_tasks(supernode: subprocess.Popen[bytes], words: Sequence[str]) -> None:
    """Ask the SuperNode for tasks and fork for each, as Flower's SuperExec starts a program for each."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supercore.runtime import RuntimeHttpClient

    host, port, authority = (value_of(option, words) for option in ("--host", "--port", "--ssl-ca-certfile"))
    host = HOST if host in ("0.0.0.0", "::") else host
    access: dict[str, Any] = {
        "address": f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}",
        "insecure": authority is None,
        "certificates": None if authority is None else Path(authority).expanduser().read_bytes(),
        "installs": "--allow-runtime-dependency-installation" in words,
    }
    client = RuntimeHttpClient.from_server_address(
        server_address=access["address"],
        insecure=access["insecure"],
        root_certificates=access["certificates"],
        interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec")],
        retry_invoker=make_simple_http_retry_invoker(),
    )
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    pauses = Pauses(0.02, 0.5)
    running: set[int] = set()
    while supernode.poll() is None:
        running -= {each for each in running if os.waitpid(each, os.WNOHANG)[0]}
        try:
            answer = client.AcquireTask(request)
        except Exception:  # the SuperNode is not up yet, or is going down
            time.sleep(0.2)
            continue
        if answer.HasField("task") and answer.token:
            pauses.begin()
            process = os.fork()
            if process == 0:
                _answer_one(answer.token, access)
            running.add(process)
        time.sleep(pauses.next())
    client.close()


def _answer_one(token: str, access: dict[str, Any]) -> NoReturn:
    """Be the ClientApp's process: what `flwr-clientapp` does, with what is loaded; it ends here."""
    status = 1
    try:
        from flwr.supernode.runtime.run_clientapp import run_clientapp

        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        run_clientapp(
            runtime_api_address=access["address"],
            token=token,
            insecure=access["insecure"],
            certificates=access["certificates"],
            parent_pid=os.getppid(),
            runtime_dependency_install=access["installs"],
        )
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
