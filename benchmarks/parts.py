"""One part of docs/benchmarks.md by itself: measured, written as rows, and shown as Markdown made of these rows alone.

A part is a module with TITLE, `measure(quick=...)` that returns rows, and `markdown`, `goals` and `plots` that read
these.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import environment


def part(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name}")


def measured(name: str, *, quick: bool) -> dict[str, Any]:
    """The rows of a part with where they come from; every library has one thread."""
    from threadpoolctl import threadpool_limits

    from benchmarks.convergence import available

    module, options = part(name), {}
    if hasattr(module, "DATA"):
        options["data"] = available(module.DATA)
        missing = [each for each in module.DATA if each not in options["data"]]
        if missing:
            print(f"not here: {', '.join(missing)}; DANL_DATA_DIR names the folder with the files", file=sys.stderr)
    begun = time.perf_counter()
    with threadpool_limits(1):
        rows = module.measure(quick=quick, **options)
        where = environment()
    return {"quick": quick, "seconds": round(time.perf_counter() - begun, 1), "environment": where, "rows": rows}


def main(name: str, words: list[str]) -> int:
    module = part(name)
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=module.__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats: to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--from-json", type=Path, metavar="FILE", help="measure nothing; read what --json wrote")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw the figures into DIR")
    options = parser.parse_args(words)
    if options.from_json:
        found = json.loads(options.from_json.read_text(encoding="utf-8"))
    else:
        found = measured(name, quick=options.quick)
    if options.json:
        write_json(options.json, found)
    if options.plots:
        for path, _ in module.plots(found["rows"], options.plots):
            print(f"drawn: {path}", file=sys.stderr)
    print(module.markdown(found["rows"]))
    return 0


def write_json(path: Path, found: dict[str, Any]) -> None:
    path.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
