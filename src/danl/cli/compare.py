"""`danl compare`: several methods on the same problem, start, seed and masks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from danl.checks import check_installed, is_installed
from danl.cli.display import comparison_table, console
from danl.cli.fit import EXIT, NOT_WRITTEN
from danl.cli.imports import quick_imports
from danl.cli.options import OUTPUT, RUN, Force, Json, Out, ReferenceFlag, RunOptions, option, shares_options
from danl.errors import InputError, bad_argument

if TYPE_CHECKING:
    from danl.run.result import Result

FILES = ("comparison.json", "comparison.png")
GALLERY = "gallery.png"


@shares_options
def compare(
    options: RunOptions,
    methods: Annotated[
        str,
        option(
            RUN,
            "Methods, separated by commas; options as in newton,fedavg:steps=5,learning_rate=0.1. field: those the "
            "paper compares itself with, beside danl.",
        ),
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
    with quick_imports():  # here: --help should not wait for them
        from danl.cli import output
        from danl.run.trace import Trace

    screen = console()
    labels = with_field(split_methods(methods))
    if gallery and out is None:
        raise InputError("--gallery: needs --out, the folder that gallery.png is drawn into; add --out DIR")
    if gallery:
        check_installed("--gallery", "matplotlib", "plots")
    folders = {label: None if out is None else out / folder_name(label) for label in labels}
    results: dict[str, Result] = {}
    reports: list[dict[str, Any]] = []
    missing: list[str] = []
    with ExitStack() as held:  # before anything is read or computed
        held.enter_context(output.out_folder(out, force=force, files=(*FILES, GALLERY) if gallery else FILES))
        for folder in folders.values():
            held.enter_context(output.out_folder(folder, force=force))
        job = options.job(*labels)
        optimum = job.reference(screen) if reference else None
        for label in labels:
            trace = None if out is None else Trace()
            results[label] = job.solve(label, screen, reference=optimum, trace=trace)
            if results[label].status == "interrupted":
                break
        for label, result in results.items():  # after the last run: one that is refused leaves nothing behind
            folder = folders[label]
            config = {} if folder is None else output.described(output.requested(options, label, job), job, result)
            unwritten = output.write_run(folder, result, job.title, config, screen, job.data)
            missing.extend(unwritten)
            kept_in = None if unwritten else folder
            reports.append({"label": label} | output.run_report(options, job.data_summary, result, kept_in, optimum))
        if out is not None:
            missing.extend(output.written(out, comparison_files(job.title, results, reports, gallery=gallery)))
            output.remove_page(out, screen)
    if as_json:
        print(json.dumps({"title": job.title, "runs": reports}, allow_nan=False))
    screen.print(job.title, style="bold")
    screen.print(comparison_table(reports))
    if out is not None:
        figures = f"the figures to {out / 'comparison.png'} and {out / GALLERY}"
        figures = figures if gallery else f"the figure to {out / 'comparison.png'}"
        if not output.say_written(out, missing, screen, f", {figures}"):
            return NOT_WRITTEN
    # One method that diverges is a result of the comparison, not a failure of it.
    return EXIT["interrupted"] if reports[-1]["status"] == "interrupted" else 0


def comparison_files(
    title: str, results: Mapping[str, Result], reports: Sequence[Mapping[str, Any]], *, gallery: bool
) -> dict[str, Callable[[Path], object]]:
    """What is written of all methods together: the name of each file, and how it is made."""
    from danl.plots.figures import plot_histories
    from danl.plots.gallery import plot_gallery
    from danl.storage.atomic import write_json

    drawn = {label: result.history for label, result in results.items() if len(result.history)}
    files: dict[str, Callable[[Path], object]] = {
        "comparison.json": lambda path: write_json(path, {"title": title, "runs": list(reports)})
    }
    if drawn and is_installed("matplotlib"):
        files["comparison.png"] = lambda path: plot_histories(drawn, path, title=title)
    if drawn and gallery:
        files[GALLERY] = lambda path: plot_gallery(drawn, path, title=title)
    return files


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


def with_field(labels: Sequence[str]) -> list[str]:
    """The methods, with `field` as what it stands for."""
    if "field" not in labels:
        return list(labels)
    from danl.methods import FIELD

    beside = ("danl", "newton", "newton-zero", "gd", "fedavg", *FIELD)
    return list(dict.fromkeys(each for label in labels for each in (beside if label == "field" else (label,))))


def folder_name(label: str) -> Path:
    """A method with its options as the name of a folder."""
    return Path(re.sub(r"[^\w.=-]+", "_", label))
