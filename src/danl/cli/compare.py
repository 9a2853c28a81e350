"""`danl compare`: several methods on the same problem, start, seed and masks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

from danl.atomic import write_json
from danl.cli.display import comparison_table, console
from danl.cli.fit import EXIT, run_report
from danl.cli.options import OUTPUT, RUN, Force, Json, Out, ReferenceFlag, RunOptions, option, shares_options
from danl.cli.output import asked, check_out, describe, remove_page, write_run
from danl.errors import InputError, bad_argument
from danl.figures import plot_histories
from danl.gallery import plot_gallery
from danl.result import Result
from danl.trace import Trace

FILES = ("comparison.json", "comparison.png")
GALLERY = "gallery.png"


@shares_options
def compare(
    options: RunOptions,
    methods: Annotated[
        str, option(RUN, "Methods, separated by commas; options as in newton,fedavg:steps=5,learning_rate=0.1.")
    ] = "danl,danl-masked,danl-paper",
    reference: ReferenceFlag = True,
    out: Out = None,
    force: Force = False,
    gallery: Annotated[
        bool, option(OUTPUT, "With --out: draw gallery.png, too, with coverage and bytes by kind.", "--gallery")
    ] = False,
    as_json: Json = False,
) -> int:
    """Compare methods in rounds, bytes and seconds on one problem.

    Example: danl compare a1a --methods danl,newton,gd,fedavg --alpha 1e-3
    """
    screen = console()
    labels = split_methods(methods)
    job = options.job(*labels)
    folders = {label: None if out is None else out / folder_name(label) for label in labels}
    if gallery and out is None:
        raise InputError("--gallery: needs --out, the folder that gallery.png is drawn into; add --out DIR")
    check_out(out, force=force, files=(*FILES, GALLERY) if gallery else FILES)
    for folder in folders.values():
        check_out(folder, force=force)
    measured_against = options.reference(job, screen) if reference else None
    results: dict[str, Result] = {}
    traces = {label: Trace() for label in labels}
    for label in labels:
        kept = None if out is None else traces[label]
        results[label] = options.solve(job, label, screen, reference=measured_against, trace=kept)
        if results[label].status == "interrupted":
            break
    reports: list[dict[str, Any]] = []
    for label, result in results.items():  # after the last run: one that is refused leaves nothing behind
        folder = folders[label]
        if folder is not None:
            config = describe(asked(options, label, job), job, result)
            write_run(folder, result, job.title, config, traces[label], job.data)
            remove_page(folder, screen)
        report = run_report(options, job, result, measured_against, None if folder is None else str(folder))
        reports.append({"label": label} | report)
    if out is not None:
        write_json(out / "comparison.json", {"title": job.title, "runs": reports})
        remove_page(out, screen)
        drawn = {label: result.history for label, result in results.items() if len(result.history)}
        if drawn:
            plot_histories(drawn, out / "comparison.png", title=job.title)
            if gallery:
                plot_gallery(drawn, out / GALLERY, title=job.title)
    if as_json:
        print(json.dumps({"title": job.title, "runs": reports}, allow_nan=False))
    screen.print(job.title, style="bold")
    screen.print(comparison_table(reports))
    if out is not None:
        figures = f"the figures to {out / 'comparison.png'} and {out / GALLERY}"
        figures = figures if gallery else f"the figure to {out / 'comparison.png'}"
        screen.print(f"written to {out}/, {figures}", soft_wrap=True)
    # One method that diverges is a result of the comparison, not a failure of it.
    return EXIT["interrupted"] if reports[-1]["status"] == "interrupted" else 0


def split_methods(text: str) -> list[str]:
    """``a,b:x=1,y=2,c`` or the same with spaces; a part such as ``y=2`` belongs to the method before it."""
    labels: list[str] = []
    for part in re.split(r"[,\s]+", text.strip()):
        if labels and "=" in part and ":" not in part:
            labels[-1] += f",{part}"
        elif part:
            labels.append(part)
    if not labels:
        raise bad_argument("methods", text, "at least one method", "for example --methods danl,newton")
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise InputError(f"methods={text!r}: {twice[0]!r} is there twice; name each once")
    return labels


def folder_name(label: str) -> Path:
    """A method with its options as the name of a folder."""
    return Path(re.sub(r"[^\w.=-]+", "_", label))
