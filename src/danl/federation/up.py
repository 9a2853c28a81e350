"""`danl flower up`: a SuperLink and SuperNodes on loopback, started here and stopped here.

DIR/sites/       a file and a node configuration for each site
DIR/certificates/, DIR/keys/   with TLS: the authority, the server's certificate, the nodes' keys
DIR/flwr/        FLWR_HOME: Flower's own folder, with the connection "danl" in its config.toml
DIR/logs/        what each process says
DIR/state.json   what runs, for `danl fit --engine flower`; there while the federation is up
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danl.data.fetch import cache_dir
from danl.errors import InputError
from danl.federation.certificates import Certificates, make_certificates, make_node_key
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
    """A federation on this machine: what was started, and where it keeps its things."""

    folder: Path
    data: str
    sites: Sequence[Mapping[str, Any]]
    """The node configuration of each site."""
    tls: bool = False
    port: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    certificates: Certificates | None = None

    @property
    def address(self) -> str:
        """Of the SuperLink."""
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
                self._alive(f"supernode-{config['name']}")
            self._await_nodes()
            self._write_state()
        except BaseException:
            self.stop()
            raise

    def _start_superlink(self) -> None:
        self.port = free_port()
        security = ["--insecure"]
        connection: dict[str, Any] = {"address": self.address, "insecure": True}
        if self.tls:
            self.certificates = made = make_certificates(self.folder / "certificates")
            security = ["--ssl-ca-certfile", str(made.authority), "--ssl-certfile", str(made.certificate)]
            security += ["--ssl-keyfile", str(made.key), "--enable-supernode-auth"]
            connection = {"address": self.address, "root-certificates": str(made.authority)}
        self.home.mkdir(parents=True, exist_ok=True)
        _write_toml(self.home / "config.toml", {"superlink": {"default": CONNECTION, CONNECTION: connection}})
        address = ["--host", HOST, "--port", str(self.port)]
        # Without the last option an installer runs at every run.
        self._launch("superlink", "flower-superlink", *address, *security, "--disable-runtime-dependency-installation")
        self._await_port()

    def start_node(self, name: str, config: Mapping[str, Any], *options: str, security: Sequence[str] = ()) -> None:
        """Start the SuperNode of a site; `options` for its key, `security` instead of what the federation has."""
        file = self.folder / "sites" / f"{name}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        _write_toml(file, config)
        trusted = ["--insecure"]
        if self.certificates is not None:
            trusted = ["--root-certificates", str(self.certificates.authority)]
        words = ["--superlink", self.address, "--host", HOST, "--port", str(free_port()), "--node-config", str(file)]
        self._launch(f"supernode-{name}", "flower-supernode", *words, *(security or trusted), *options)

    def register(self, public_key: Path) -> None:
        """Make a node's key known to the SuperLink."""
        words = [executable("flwr"), "supernode", "register", str(public_key), CONNECTION]
        done = subprocess.run(
            words, env=self.environment(), capture_output=True, text=True, timeout=STARTS_WITHIN, check=False
        )
        if done.returncode != 0:
            raise InputError(f"flwr supernode register failed: {(done.stderr or done.stdout).strip()[-500:]}")

    def environment(self) -> dict[str, str]:
        """What Flower's processes are told: their folder, no reports to anybody, short waits, one core each."""
        return flower_environment(self.home)

    def log(self, name: str) -> str:
        """What a process has said so far."""
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def wait(self) -> None:
        """Return when a process has ended by itself, which none should."""
        while all(process.poll() is None for process in self.processes.values()):
            time.sleep(0.5)
        ended = [name for name, process in self.processes.items() if process.poll() is not None]
        raise InputError(f"{ended[0]} has ended; see {self.folder / 'logs'}")

    def stop(self) -> None:
        """Stop what was started here, each with the processes it started, and nothing else."""
        for signal_number, patience in ((signal.SIGTERM, STOPS_WITHIN), (signal.SIGKILL, STOPS_WITHIN)):
            for process in reversed(self.processes.values()):
                _signal_group(process, signal_number)
            end = time.monotonic() + patience
            for process in self.processes.values():
                try:
                    process.wait(max(end - time.monotonic(), 0.1))
                except subprocess.TimeoutExpired:
                    continue
        self.processes.clear()
        (self.folder / STATE).unlink(missing_ok=True)
        pointer = _pointer()
        if pointer.exists() and pointer.read_text(encoding="utf-8").strip() == str(self.folder.resolve()):
            pointer.unlink(missing_ok=True)

    def _launch(self, name: str, program: str, *words: str) -> None:
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [executable(program), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(),
                cwd=self.folder,
                start_new_session=True,  # a group of its own: what it starts ends with it, and Ctrl-C is ours alone
            )

    def _alive(self, name: str) -> None:
        if self.processes[name].poll() is not None:
            raise InputError(f"{name} did not start: {self.log(name).strip()[-800:]}")

    def _await_port(self) -> None:
        end = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < end:
            self._alive("superlink")
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex((HOST, self.port)) == 0:
                    return
            time.sleep(0.2)
        raise InputError(f"the SuperLink did not listen within {STARTS_WITHIN:g} s: {self.log('superlink')[-800:]}")

    def _await_nodes(self) -> None:
        """Until every SuperNode has its id from the SuperLink."""
        end = time.monotonic() + STARTS_WITHIN
        names = [f"supernode-{config['name']}" for config in self.sites]
        while time.monotonic() < end:
            for name in names:
                self._alive(name)
            names = [name for name in names if "SuperNode ID" not in self.log(name)]
            if not names:
                return
            time.sleep(0.2)
        raise InputError(f"{names[0]} found no SuperLink within {STARTS_WITHIN:g} s: {self.log(names[0])[-800:]}")

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
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        return dict(state) | {"folder": str(folder)}
    except (OSError, ValueError):
        raise InputError(f"{folder}: no federation is up there; start one with danl flower up") from None


def flower_environment(home: Path | None) -> dict[str, str]:
    """The environment Flower's commands run in."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), sysconfig.get_path("scripts")])
    environment = os.environ | {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": os.environ.get("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.1"),
        "OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", "1"),
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", "")]),
    }
    if os.environ.get("PYTHONPATH"):  # they run in another folder
        parts = os.environ["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in parts if part)
    return environment if home is None else environment | {"FLWR_HOME": str(home.resolve())}


def executable(name: str) -> str:
    """The path of one of Flower's programs."""
    found = shutil.which(name, path=flower_environment(None)["PATH"])
    if found is None:
        raise InputError(f"{name}: is not installed; pip install 'danl[flower]'")
    return found


def free_port() -> int:
    """A port of loopback nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _write_toml(path: Path, table: Mapping[str, Any]) -> None:
    import tomli_w

    path.write_text(tomli_w.dumps(table), encoding="utf-8")


def _pointer() -> Path:
    """The file that says where the newest federation of this user is."""
    return cache_dir() / "flower-federation"


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Signal a process and what it started; its group has its own id, as it was started as a session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended
        os.killpg(process.pid, number)
