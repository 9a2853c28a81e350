"""Seconds of an exchange through a real Flower deployment on loopback, and where they go, for each way to start a site.

    python -m benchmarks flower [--before COMMIT] [--exchanges N] [--docs]

A SuperLink and three SuperNodes with TLS off, a CSV file of 20,000 rows and 20 columns at each. All processes
stamp what they do with one clock (`benchmarks/flower_app`); the SuperNodes' logs are read as they grow. An
exchange lasts from the first message to the last reply; its parts are those of the site that replied last, and add up
to it. `--before` is an older version, taken from git and measured in the same way, one after the other; with `--docs`
it is the one before sites had `danl flower node` and kept what they read, unless another is given.

Flower listens on loopback alone here: without --here the script runs itself again in a network namespace.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copy
from typing import Any

import numpy as np

from benchmarks.blocks import BLOCKS, ROOT, made_with, markdown_table
from benchmarks.ray_latency import in_namespace
from danl.federation.flwr_commands import Flwr
from danl.federation.local_federation import CONNECTION, Federation

SITES, ROWS, COLUMNS = 3, 20_000, 20
WAITS = 600.0
APP = """\
[project]
name = "timed"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "danl"

[tool.flwr.app.components]
serverapp = "timed_server:app"
clientapp = "timed_client:app"

[tool.flwr.app.config]
sites = {sites}
rounds = {rounds}
"""
PARTS = {
    "pushed": "messages handed to the SuperLink",
    "noticed": "until the SuperNode looks for messages",
    "launched": "until a process is started for it",
    "flower": "Python and Flower loaded, message fetched",
    "danl": "danl loaded",
    "read": "file read",
    "answered": "answer computed",
    "sending": "until the SuperNode looks for the answer",
    "pulled": "reply sent, and seen by the server",
}
"""The parts of an exchange, in their order."""
OLDER = "7243e69"
"""The newest version without what is measured here."""
BEFORE, OFFICIAL, OURS = "before", "flower-supernode", "danl flower node"


@dataclass(frozen=True)
class Case:
    """One way to run the sites."""

    name: str
    source: Path
    quick: bool
    interval: str
    """FLWR_SUPEREXEC_TASK_POLL_INTERVAL."""


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Logs(threading.Thread):
    """Reads the SuperNodes' logs as they grow: when a message was received, and when its answer was found."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.files = {str(config["name"]): 0 for config in federation.sites}
        self.folder = federation.folder / "logs"
        self.groups = dict.fromkeys(self.files, "")
        self.stamps: list[dict[str, Any]] = []

    def run(self) -> None:
        while not self.over.wait(0.01):
            for name, seen in self.files.items():
                path = self.folder / f"supernode-{name}.log"
                if path.stat().st_size == seen:
                    continue
                with path.open("rb") as file:
                    file.seek(seen)
                    data = file.read()
                whole = data[: data.rfind(b"\n") + 1]
                self.files[name] += len(whole)
                for line in whole.decode(errors="replace").splitlines():
                    self._stamp(name, line)

    def _stamp(self, name: str, line: str) -> None:
        if found := re.search(r"ROUND (\w+)\]", line):
            self.groups[name] = found.group(1)
        for word, kind in (("Receiving:", "received"), ("Sending:", "sending")):
            if word in line:
                self.stamps.append({"group": self.groups[name], "node": name, kind: now()})


def written_sites(folder: Path) -> list[dict[str, Any]]:
    """A CSV file for every site, as a hospital's export is: words of numbers, read anew for every message."""
    rng, weights = np.random.default_rng(0), np.linspace(-1, 1, COLUMNS)
    folder.mkdir(parents=True)
    configs = []
    for number in range(SITES):
        X = rng.normal(size=(ROWS, COLUMNS)).round(6)
        y = (X @ weights + rng.logistic(size=ROWS) > 0).astype(int)
        path = folder / f"site-{number}.csv"
        header = ",".join([*(f"x{column}" for column in range(COLUMNS)), "y"])
        lines = (",".join([*map(str, row), str(target)]) for row, target in zip(X.tolist(), y.tolist(), strict=True))
        path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
        configs.append({"name": f"site-{number}", "data": str(path), "target-column": "y"})
    return configs


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """These variables, for what is started inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def exchanges_of(case: Case, exchanges: int) -> list[dict[str, float]]:
    """The parts of every exchange, in seconds."""
    with tempfile.TemporaryDirectory(prefix="danl-flower-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        app, stamps = folder / "app", folder / "stamps"
        app.mkdir()
        (app / "pyproject.toml").write_text(APP.format(sites=SITES, rounds=exchanges + 1), encoding="utf-8")
        for part in ("timed_client.py", "timed_server.py"):
            copy(ROOT / "benchmarks" / "flower_app" / part, app)
        paths = os.pathsep.join([str(case.source.resolve()), str(ROOT)])
        settings = {"PYTHONPATH": paths, "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": case.interval}
        settings |= {"FLOWER_STAMPS": str(stamps), "XDG_CACHE_HOME": str(folder / "cache")}
        settings |= {"XDG_STATE_HOME": str(folder / "state")}
        with environment(**settings):
            configs = written_sites(folder / "data")
            federation = Federation(folder / "federation", "benchmark", configs, quick=case.quick)
            federation.start()
            logs = Logs(federation)
            logs.start()
            flower = Flwr(CONNECTION, federation.home)
            try:
                run = flower.start(app, WAITS)
                end = time.monotonic() + WAITS
                server = Path(f"{stamps}.server")
                while not server.exists():
                    if time.monotonic() > end or flower.status(run).startswith("finished:failed"):
                        raise SystemExit(f"{case.name}: no result\n{federation.log('superlink')[-4000:]}")
                    time.sleep(1.0)
            finally:
                logs.over.set()
                logs.join()
                federation.stop()
            clients = [json.loads(line) for line in stamps.read_text(encoding="utf-8").splitlines()]
            return parts_of(json.loads(server.read_text(encoding="utf-8")), clients, logs.stamps)


def parts_of(server: list[dict], clients: list[dict], logs: list[dict]) -> list[dict[str, float]]:
    """The parts of each exchange but the first two: at those something is started for the first time."""
    found = []
    for group in sorted({line["group"] for line in server if line["group"].isdigit()}, key=int)[2:]:
        ours = [line for line in server if line["group"] == group]
        begun = min(line["begun"] for line in ours if "begun" in line)
        pushed = max(line["pushed"] for line in ours if "pushed" in line)
        pulled = max(line["pulled"] for line in ours if "pulled" in line)
        last = max((line for line in clients if line["group"] == group), key=lambda line: line["ended"])
        site = {}
        for line in logs:
            if (line["group"], line["node"]) == (group, last["node"]):
                site |= line
        started = max(last["started"], site["received"])  # the kernel counts in hundredths of a second
        pushed = min(pushed, site["received"])  # a node may see a message before all of them are handed over
        found.append(
            {
                "pushed": pushed - begun,
                "noticed": site["received"] - pushed,
                "launched": started - site["received"],
                "flower": max(last["loaded"] - started, 0.0),
                "danl": last["begun"] - max(last["loaded"], started),
                "read": last["read"],
                "answered": last["ended"] - last["begun"] - last["read"],
                "sending": site["sending"] - last["ended"],
                "pulled": pulled - site["sending"],
                "total": pulled - begun,
            }
        )
    return found


def report(rows: Sequence[dict[str, Any]]) -> str:
    """The table: a column for every case, means over its exchanges."""
    header = ["seconds of an exchange", *(row["name"] for row in rows)]

    def cells(part: str) -> list[str]:
        return [f"{statistics.fmean(each[part] for each in row['exchanges']):.2f}" for row in rows]

    lines = [[words, *cells(part)] for part, words in PARTS.items()]
    lines.append(["**all of it**", *(f"**{cell}**" for cell in cells("total"))])
    return markdown_table(header, lines)


def headers() -> list[list[str]]:
    """Of the table in docs/federated.md."""
    names = [f"{BEFORE}, Flower's settings", BEFORE, OFFICIAL, OURS]
    return [["seconds of an exchange", *names]]


def sources_of(version: str, folder: Path) -> Path:
    """The sources of a version, taken from git."""
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", version, "src"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def cases(before: Path | None) -> list[Case]:
    """What is compared."""
    source = ROOT / "src"
    ours = [Case(OFFICIAL, source, False, "0.1"), Case(OURS, source, True, "0.1")]
    if before is None:
        return ours
    return [Case(f"{BEFORE}, Flower's settings", before, False, "1.0"), Case(BEFORE, before, False, "0.1"), *ours]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks flower", description=__doc__.partition("\n")[0])
    parser.add_argument("--exchanges", type=int, default=12, help="exchanges that are timed (default 12)")
    parser.add_argument("--before", metavar="COMMIT", help=f"an older version, measured, too; with --docs {OLDER}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the seconds of every exchange to FILE")
    parser.add_argument("--docs", action="store_true", help="write docs/federated.md")
    parser.add_argument("--here", action="store_true", help="start Flower in the network of this machine")
    argv = sys.argv[1:] if argv is None else argv
    options = parser.parse_args(argv)
    if not options.here:
        return in_namespace("benchmarks.flower", argv)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    before = options.before or (OLDER if options.docs else None)
    rows = []
    with tempfile.TemporaryDirectory(prefix="danl-older-") as folder:
        for case in cases(None if before is None else sources_of(before, Path(folder))):
            rows.append({"name": case.name, "exchanges": exchanges_of(case, options.exchanges)})
            seconds = [each["total"] for each in rows[-1]["exchanges"]]
            print(f"{case.name}: {min(seconds):.2f} to {max(seconds):.2f} s", file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    written = report(rows)
    print(written)
    if options.docs:
        BLOCKS["flower"].write(f"{written}\n\n{made_with()} Before: commit {before}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
