"""Start-up and reading: whole processes against a bare `import numpy`, LIBSVM text against scikit-learn's reader."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import THREADS
from benchmarks.measure import Contestant, Rows, amount, milliseconds, prose, race, table, times
from danl.data.fetch import locate
from danl.data.files import read_libsvm
from danl.data.registry import lookup

TITLE = "Start-up and reading"
BARE, FIT = 'python -c "pass"', "danl fit a1a"
UNPINNED = f"{FIT}  # threads not pinned"
COMMANDS = {
    'python -c "import numpy"': ["-c", "import numpy"],
    BARE: ["-c", "pass"],
    "danl --version": ["-m", "danl", "--version"],
    'python -c "import danl"': ["-c", "import danl"],
    "danl fit --help": ["-m", "danl", "fit", "--help"],
    "python -c \"import danl; danl.load_dataset('a1a')\"": ["-c", "import danl; danl.load_dataset('a1a')"],
    FIT: ["-m", "danl", "fit", "a1a"],
    UNPINNED: ["-m", "danl", "fit", "a1a"],
}
IMPORTED = """
import sys
before = {*sys.modules}
import danl
found = {name.partition(".")[0] for name in {*sys.modules} - before} - sys.stdlib_module_names - {"danl"}
print(*sorted(found))
"""
DATA = ("a1a", "a9a", "phishing", "w8a")
REPEATS = 15
GOAL = 2.0
CPU_GOAL = 0.5
"""Seconds of a whole fit of a small data set beyond those of a bare interpreter."""


def measure(*, quick: bool = False, data: Sequence[str] = DATA) -> Rows:
    repeats = 2 if quick else REPEATS
    cpu: dict[str, list[float]] = {label: [] for label in COMMANDS}
    timings = race([_process(label, words, cpu[label]) for label, words in COMMANDS.items()], repeats)
    rows: Rows = [
        {"kind": "process", "what": label, "seconds": timing.best, "cpu": min(cpu[label]), "repeats": repeats}
        for label, timing in timings.items()
    ]
    rows.append({"kind": "imports", "what": "import danl", "packages": _output(IMPORTED).split()})
    for name in data:
        path = locate(lookup(name), progress=False)
        rows.append({"kind": "reading", "what": name, "repeats": repeats, **reading(path, repeats)})
    return rows


def _process(label: str, words: Sequence[str], cpu: list[float]) -> Contestant:
    """A process, and its CPU time: its own and that of processes it waits for, whatever else the machine does."""

    pinned = () if label == UNPINNED else THREADS
    environment = {name: value for name, value in os.environ.items() if name in pinned or name not in THREADS}

    def start(_: Any) -> None:
        before = _of_children()
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([sys.executable, *words], check=True, env=environment, **silent)
        cpu.append(_of_children() - before)

    return Contestant(label, start)


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _output(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def reading(path: Path, repeats: int) -> dict[str, Any]:
    """danl from the file to a CSR matrix with its checks of form; scikit-learn from bytes that were read before."""
    from sklearn.datasets import load_svmlight_file

    text = path.read_bytes()
    timings = race(
        [
            Contestant("danl", lambda _: read_libsvm(path)),
            Contestant("scikit-learn", lambda _: load_svmlight_file(io.BytesIO(text), zero_based=False)),
        ],
        repeats,
    )
    return {"bytes": len(text), "danl": timings["danl"].best, "scikit_learn": timings["scikit-learn"].best}


READING = """
Reading LIBSVM text: `danl` from the file to a checked CSR matrix, scikit-learn's `load_svmlight_file` from bytes in
memory, both after their imports:
"""


def markdown(rows: Rows) -> str:
    processes = [row for row in rows if row["kind"] == "process"]
    base = processes[0]["seconds"]
    beyond = cpu_beyond(rows)
    return "\n\n".join(
        [
            f"Whole processes, from start to end; the best of {processes[0]['repeats']}, in turn:",
            table(
                ["command", "time", "over the first", *(["CPU beyond the interpreter"] if beyond else [])],
                [
                    [
                        f"`{row['what']}`",
                        milliseconds(row["seconds"]),
                        times(row["seconds"] / base),
                        *([milliseconds(beyond[row["what"]])] if beyond else []),
                    ]
                    for row in processes
                ],
            ),
            prose(READING),
            table(
                ["data", "size", "danl", "scikit-learn", "ratio"],
                [
                    [
                        row["what"],
                        amount(row["bytes"]),
                        milliseconds(row["danl"]),
                        milliseconds(row["scikit_learn"]),
                        times(row["danl"] / row["scikit_learn"]),
                    ]
                    for row in rows
                    if row["kind"] == "reading"
                ],
            ),
        ]
    )


def cpu_beyond(rows: Rows) -> dict[str, float]:
    """CPU seconds of every process beyond those of a bare interpreter; none for rows without them."""
    cpu = {row["what"]: row["cpu"] for row in rows if row["kind"] == "process" and "cpu" in row}
    return {what: seconds - cpu[BARE] for what, seconds in cpu.items()}


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    processes = {row["what"]: row["seconds"] for row in rows if row["kind"] == "process"}
    ratio = processes["danl --version"] / processes['python -c "import numpy"']
    found = [("`danl --version` over a bare `import numpy`", times(ratio), f"{GOAL:g} x", ratio <= GOAL)]
    beyond = cpu_beyond(rows)
    if beyond:
        what = f"`{FIT}`, CPU seconds beyond the interpreter"
        most = max(beyond[FIT], beyond[UNPINNED])
        found.append((what, f"{most:.2f} s", f"{CPU_GOAL:g} s", most <= CPU_GOAL))
    for row in rows:
        if row["kind"] == "imports":
            packages = ", ".join(row["packages"]) or "none"
            found.append(
                ("third-party packages of `import danl`", packages, "numpy", set(row["packages"]) <= {"numpy"})
            )
        if row["kind"] == "reading" and row["what"] == "a9a":
            ratio = row["danl"] / row["scikit_learn"]
            found.append(("reading a9a over scikit-learn's reader", times(ratio), "1 x", ratio <= 1))
    return found


def plots(rows: Rows, folder: Path) -> list[tuple[Path, str]]:
    return []
