"""docs/reproduction.md: its figures and its verdicts, taken from the folder of `danl reproduce all`.

Without `--rows` the command is run first (about ten minutes on two cores; it goes on where it was stopped).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.blocks import put_between_markers
from danl.reproduce import pages
from danl.reproduce.curves import slug
from danl.reproduce.runs import MILD, PAPER, READINGS, Plan

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "reproduction.md"
KEPT = ROOT / "docs" / "reproduction"
"""Figures, claims.json and environment.json as the document shows them."""
SHOWN = (
    *(f"{figure}-{reading}-{slug(PAPER)}" for figure in ("fig1", "fig2") for reading in READINGS),
    *(f"{figure}-danl-masked-{slug(MILD)}" for figure in ("fig1", "fig2", "fig2-longest")),
    *(f"{figure}-overview-{slug(MILD)}" for figure in ("fig1", "fig2")),
    "penalties",
)


def verdicts_of(folder: Path) -> list[pages.Verdict]:
    entries = json.loads((folder / "claims.json").read_text(encoding="utf-8"))["verdicts"]
    return [pages.verdict_from(entry) for entry in entries]


def section(folder: Path) -> str:
    """What stands between the markers of the document."""
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    machine, versions = environment["machine"], environment["versions"]
    made_with = (
        f"Made with danl {environment['danl']} (code {environment['code_sha256'][:12]}), "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f", on {machine['processor']}, {machine['cores']} cores."
    )
    return "\n\n".join([pages.setting(Plan()), made_with, pages.verdict_table(verdicts_of(folder))])


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks reproduction", description=__doc__)
    parser.add_argument("--rows", type=Path, metavar="DIR", help="the folder of a finished danl reproduce all")
    parser.add_argument("--docs", action="store_true", help="put figures and verdicts into docs/")
    options = parser.parse_args(words)
    folder = options.rows or ROOT / "reproduction"
    if options.rows is None:
        command = [sys.executable, "-m", "danl", "reproduce", "all", "--out", str(folder)]
        if subprocess.run(command, check=False).returncode:
            return 1
    if options.docs:
        KEPT.mkdir(exist_ok=True)
        for name in SHOWN:
            shutil.copyfile(folder / "figures" / f"{name}.png", KEPT / f"{name}.png")
        for name in ("claims.json", "environment.json"):
            shutil.copyfile(folder / name, KEPT / name)
        put_between_markers(DOCUMENT, section(folder), "claims")
        put_between_markers(DOCUMENT, pages.open_points(), "open-points")
    else:
        print(section(folder))
    return 0
