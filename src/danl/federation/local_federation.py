"""`danl flower up`: a SuperLink and SuperNodes on loopback, started here and stopped here.

DIR/sites/       a file and a node configuration for each site
DIR/certificates/, DIR/keys/   with TLS: the authority, the server's certificate, the nodes' keys
DIR/flwr/        FLWR_HOME: Flower's own folder, with the connection "danl" in its config.toml
DIR/logs/        the output of each process
DIR/state.json   what runs, for `danl fit --engine flower`; there while the federation is up
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from danl.data.fetch import cache_dir
from danl.errors import InputError
from danl.federation.certificates import Certificates, make_certificates, make_node_key
from danl.federation.flwr_commands import executable, flower_environment, last_words
from danl.storage.atomic import write_json

HOST = "127.0.0.1"
CONNECTION = "danl"
"""The name of the connection in Flower's config.toml."""
STARTS_WITHIN = 300.0
"""Seconds Flower's processes may take to find each other; one that ends is noticed at once."""
STOPS_WITHIN = 15.0
STATE = "state.json"


@dataclass
class Federation:
    """A federation on this machine: its processes, and the folder of its files."""

    folder: Path
    data: str
    sites: Sequence[Mapping[str, Any]]
    """The node configuration of each site."""
    tls: bool = False
    quick: bool = True
    """Nodes are those of `danl flower node`; False: Flower's own."""
    port: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    certificates: Certificates | None = None

    @property
    def address(self) -> str:
        """The SuperLink's."""
        return f"{HOST}:{self.port}"

    @property
    def home(self) -> Path:
        """FLWR_HOME."""
        return self.folder / "flwr"

    def start(self) -> None:
        """Start the SuperLink, then a SuperNode for every site; stop all if one does not come up."""
        executable("flower-superlink")
        try:
            self._start_superlink()
            for config in self.sites:
                keys: tuple[str, ...] = ()
                if self.tls:
                    private, public = make_node_key(self.folder / "keys" / str(config["name"]))
                    self.register(public)
                    keys = ("--auth-supernode-private-key", str(private))
                self.start_node(str(config["name"]), config, *keys)
            for name in list(self.processes)[1:]:
                self._await(name, partial(self._is_connected, name), "found no SuperLink")
            self._write_state()
        except BaseException:
            self.stop()
            raise

    def _start_superlink(self) -> None:
        self.port = free_port()
        security, trust = ["--insecure"], dict[str, Any](insecure=True)
        if self.tls:
            self.certificates = made = make_certificates(self.folder / "certificates")
            security = ["--ssl-ca-certfile", str(made.authority), "--ssl-certfile", str(made.certificate)]
            security += ["--ssl-keyfile", str(made.key), "--enable-supernode-auth"]
            trust = {"root-certificates": str(made.authority)}
        connection = {"address": self.address} | trust
        _write_toml(self.home / "config.toml", {"superlink": {"default": CONNECTION, CONNECTION: connection}})
        address = ["--host", HOST, "--port", str(self.port)]
        # Without the last option an installer runs at every run.
        program = executable("flower-superlink")
        self._launch("superlink", program, *address, *security, "--disable-runtime-dependency-installation")
        self._await("superlink", self._listens, "did not listen")

    def start_node(self, name: str, config: Mapping[str, Any], *options: str, security: Sequence[str] = ()) -> None:
        """Start the SuperNode of a site; `options` for its key, `security` instead of what the federation has."""
        file = self.folder / "sites" / f"{name}.toml"
        _write_toml(file, config)
        trusted = ["--insecure"]
        if self.certificates is not None:
            trusted = ["--root-certificates", str(self.certificates.authority)]
        words = ["--superlink", self.address, "--host", HOST, "--port", str(free_port()), "--node-config", str(file)]
        program = [sys.executable, "-m", "danl", "flower", "node"] if self.quick else [executable("flower-supernode")]
        self._launch(f"supernode-{name}", *program, *words, *(security or trusted), *options)

    def register(self, public_key: Path) -> None:
        """Make a node's key known to the SuperLink."""
        words = [executable("flwr"), "supernode", "register", str(public_key), CONNECTION]
        done = subprocess.run(
            words, env=flower_environment(self.home), capture_output=True, text=True, timeout=STARTS_WITHIN, check=False
        )
        if done.returncode != 0:
            raise InputError(f"flwr supernode register failed: {last_words(done)}")

    def log(self, name: str) -> str:
        """The output of a process so far."""
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def wait(self) -> None:
        """Wait for a process to end by itself, which none should, and raise."""
        while all(process.poll() is None for process in self.processes.values()):
            time.sleep(0.5)
        ended = [name for name, process in self.processes.items() if process.poll() is not None]
        raise InputError(f"{ended[0]} has ended; see {self.folder / 'logs'}")

    def stop(self) -> None:
        """Stop the processes started here, each with its children, and nothing else."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            for process in reversed(self.processes.values()):
                with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended
                    os.killpg(process.pid, signal_number)  # it leads a group of its own: see _launch
            end = time.monotonic() + STOPS_WITHIN
            for process in self.processes.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(end - time.monotonic(), 0.1))
        self.processes.clear()
        (self.folder / STATE).unlink(missing_ok=True)
        pointer = _pointer()
        if pointer.exists() and pointer.read_text(encoding="utf-8").strip() == str(self.folder.resolve()):
            pointer.unlink(missing_ok=True)

    def _launch(self, name: str, *command: str) -> None:
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=flower_environment(self.home),
                cwd=self.folder,
                start_new_session=True,  # a group of its own: its children end with it, and Ctrl-C is ours alone
            )

    def _await(self, name: str, ready: Callable[[], bool], failure: str) -> None:
        """Wait until a process is ready; raise with its output where it takes too long, or where any process ends."""
        end = time.monotonic() + STARTS_WITHIN
        while True:
            for each, process in self.processes.items():
                if process.poll() is not None:
                    raise InputError(f"{each} did not start: {self.log(each).strip()[-800:]}")
            if ready():
                return
            if time.monotonic() > end:
                raise InputError(f"{name} {failure} within {STARTS_WITHIN:g} s: {self.log(name).strip()[-800:]}")
            time.sleep(0.2)

    def _is_connected(self, name: str) -> bool:
        return "SuperNode ID" in self.log(name)  # it has one from the SuperLink

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex((HOST, self.port)) == 0

    def _write_state(self) -> None:
        state = {
            "address": self.address,
            "connection": CONNECTION,
            "home": str(self.home.resolve()),
            "data": self.data,
            "sites": [config["name"] for config in self.sites],
            "tls": self.tls,
            "pid": os.getpid(),
        }
        write_json(self.folder / STATE, state)
        pointer = _pointer()
        pointer.parent.mkdir(parents=True, exist_ok=True)
        pointer.write_text(f"{self.folder.resolve()}\n", encoding="utf-8")


def running(folder: Path | None = None) -> dict[str, Any]:
    """The state of the federation in a folder, or of the one that was started last."""
    if folder is None:
        pointer = _pointer()
        if not pointer.exists():
            raise InputError("engine='flower': no federation is up; start one with danl flower up --sites 3 DATA")
        folder = Path(pointer.read_text(encoding="utf-8").strip())
    try:
        return dict(json.loads((folder / STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise InputError(f"{folder}: no federation is up there; start one with danl flower up") from None


def free_port() -> int:
    """A port of loopback nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _write_toml(path: Path, table: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomli_w.dumps(table), encoding="utf-8")


def _pointer() -> Path:
    """The file that says where the newest federation of this user is."""
    return cache_dir() / "flower-federation"
