"""Start-up and reading: `danl --version` against a bare `import numpy`, LIBSVM text against scikit-learn's reader."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Contestant, Rows, amount, milliseconds, prose, race, table, times
from danl.data.fetch import locate
from danl.data.files import read_libsvm
from danl.data.registry import lookup

TITLE = "Start-up and reading"
COMMANDS = {
    'python -c "import numpy"': ["-c", "import numpy"],
    "danl --version": ["-m", "danl", "--version"],
    'python -c "import danl"': ["-c", "import danl"],
    "danl fit --help": ["-m", "danl", "fit", "--help"],
    "python -c \"import danl; danl.load_dataset('a1a')\"": ["-c", "import danl; danl.load_dataset('a1a')"],
}
DATA = ("a1a", "a9a", "phishing", "w8a")
REPEATS = 15
GOAL = 2.0


def measure(*, quick: bool = False, data: Sequence[str] = DATA) -> Rows:
    repeats = 2 if quick else REPEATS
    timings = race([_process(label, words) for label, words in COMMANDS.items()], repeats)
    rows: Rows = [
        {"kind": "process", "what": label, "seconds": timing.best, "repeats": repeats}
        for label, timing in timings.items()
    ]
    for name in data:
        path = locate(lookup(name), progress=False)
        rows.append({"kind": "reading", "what": name, "repeats": repeats, **reading(path, repeats)})
    return rows


def _process(label: str, words: Sequence[str]) -> Contestant:
    def start(_: Any) -> None:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))

    return Contestant(label, start)


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
    return "\n\n".join(
        [
            f"Whole processes, from start to end; the best of {processes[0]['repeats']}, in turn:",
            table(
                ["command", "time", "over the first"],
                [[f"`{row['what']}`", milliseconds(row["seconds"]), times(row["seconds"] / base)] for row in processes],
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


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    processes = {row["what"]: row["seconds"] for row in rows if row["kind"] == "process"}
    ratio = processes["danl --version"] / processes['python -c "import numpy"']
    found = [("`danl --version` over a bare `import numpy`", times(ratio), f"{GOAL:g} x", ratio <= GOAL)]
    for row in rows:
        if row["kind"] == "reading" and row["what"] == "a9a":
            ratio = row["danl"] / row["scikit_learn"]
            found.append(("reading a9a over scikit-learn's reader", times(ratio), "1 x", ratio <= 1))
    return found


def plots(rows: Rows, folder: Path) -> list[tuple[Path, str]]:
    return []
