"""`python -m benchmarks walk`: what one masked round calls, file by file, and how often that changes the file.

A reader who follows a round opens the files in the order of these calls, so fewer files and fewer changes of file are
less to read. The run is `danl.solve` with its default method on a1a, 10 workers, alpha 1e-2, `coverage:psi=3`.

    round     the first accepted masked round right after an accepted masked round: the one after Hessians does more
    run       the second one of this process: the first one fills what is cached, and finds the number of the round
    loop      the innermost function that is running at both callbacks, that before the round and that after it
    begin     the line of the loop on which the method plans (`plan` of the method)
    end       where the row of the round is kept (`History.append`, which was a function of the package and is that of
              lists now)
    calls     `call` events of sys.setprofile, of functions in files of the package; a generator counts each time it is
              gone on with; comprehensions do not count, as Python 3.12 has no frames for them; nor do functions that
              have no file, such as those that dataclasses make
    changes   of file, from one call to the next; returns are not looked at

`from callback to callback` is the same without begin and end: what the loop does between two rounds is in it, what the
call of the callback takes is not.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

from benchmarks import THREADS

os.environ.update(THREADS)  # before numpy is imported

import danl

PACKAGE = Path(danl.__file__).parent
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")
WORKERS, ALPHA, METHOD, POLICY = 10, 1e-2, "danl:masks=always", "coverage:psi=3"


@dataclass(frozen=True)
class Call:
    """One call, with all that is needed to see from where it came; frames are kept, so that they stay different."""

    frame: FrameType
    code: CodeType
    caller: FrameType | None
    line: int  # of the caller

    @property
    def file(self) -> str | None:
        """The file in the package; None where it is not one of it."""
        path = Path(self.code.co_filename)
        return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None

    @property
    def counts(self) -> bool:
        return self.file is not None and self.code.co_name not in INLINED


@dataclass(frozen=True)
class Walk:
    """The calls of a round that count, each with the number of those it is within."""

    calls: tuple[tuple[int, Call], ...]

    @property
    def files(self) -> Counter[str]:
        """Calls of every file."""
        return Counter(str(call.file) for _, call in self.calls)

    @property
    def changes(self) -> int:
        return sum(before.file != after.file for (_, before), (_, after) in pairwise(self.calls))

    @property
    def figures(self) -> str:
        return f"{len(self.files)} files, {self.changes} changes of file, {len(self.calls)} calls"


class Watch:
    """A callback of `danl.solve` that keeps every call between exchange `number - 1` and exchange `number`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls: list[Call] = []
        self.until = 0  # calls up to where the row is kept
        self.before: list[FrameType] = []
        self.after: list[FrameType] = []

    def __call__(self, row: danl.Row) -> None:
        if row.exchange == self.number:
            sys.setprofile(None)
            self.after = stack()
        elif row.exchange == self.number - 1:
            self.before = stack()
            sys.setprofile(self.note)

    def note(self, frame: FrameType, event: str, function: object) -> None:
        if event == "call":
            caller = frame.f_back
            self.calls.append(Call(frame, frame.f_code, caller, 0 if caller is None else caller.f_lineno))
        of_list = event == "c_call" and isinstance(getattr(function, "__self__", None), danl.History)
        if frame.f_code is APPEND or (of_list and getattr(function, "__name__", "") == "append"):
            self.until = len(self.calls)

    @property
    def loop(self) -> FrameType:
        """The innermost function that was running at both callbacks."""
        return next(frame for frame in self.before if frame in self.after)


GIVEN = Watch.__call__.__code__
APPEND = getattr(danl.History.append, "__code__", None)


def stack() -> list[FrameType]:
    """The functions that wait for the callback, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def walks(watch: Watch) -> tuple[Walk, Walk]:
    """The walk from the plan to the row, and that from callback to callback."""
    loop, callers = watch.loop, {call.frame: call for call in watch.calls}
    within = [depth_and_top(call, callers, loop) for call in watch.calls]
    tops = [top for _, top in within]
    given = next((top for top, call in zip(tops, watch.calls, strict=True) if call.code is GIVEN), None)
    lines = [top.line if top.caller is loop else None for top in tops]
    plan = danl.methods.make_method("danl").plan.__func__.__code__
    first = lines.index(line_of(plan, watch.calls, lines))
    kept = [
        (place, (depth, call))
        for place, ((depth, top), call) in enumerate(zip(within, watch.calls, strict=True))
        if call.counts and top.caller is loop and (given is None or top.frame is not given.frame)
    ]
    return Walk(tuple(each for place, each in kept if first <= place < watch.until)), Walk(
        tuple(each for _, each in kept)
    )


def depth_and_top(call: Call, callers: dict[FrameType, Call], loop: FrameType) -> tuple[int, Call]:
    """How many calls that count it is within, and the outermost of them all, which the loop made."""
    depth = 0
    while call.caller is not loop and call.caller in callers:
        call = callers[call.caller]
        depth += call.counts
    return depth, call


def line_of(code: CodeType, calls: Sequence[Call], lines: Sequence[int | None]) -> int | None:
    """The line of the loop on which a function is called first."""
    for line, call in zip(lines, calls, strict=True):
        if call.code is code:
            return line
    raise LookupError(f"the round did not call {code.co_qualname}, by which the begin of the walk is told")


def the_round(rows: Sequence[danl.Row], workers: int) -> int:
    """The first accepted masked round right after an accepted masked round."""
    masked = [row.kind == "gradient" and not row.refused and max(row.coverage) < workers for row in rows]
    return next(number for number, both in enumerate(pairwise(masked), 1) if all(both))


def watched() -> Watch:
    """A run that is only looked at, then one in which the round is watched."""
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=WORKERS, seed=0), alpha=ALPHA)
    looked_at = danl.solve(problem, method=METHOD, policy=POLICY)
    watch = Watch(the_round(list(looked_at.history), WORKERS))
    danl.solve(problem, method=METHOD, policy=POLICY, callback=watch)
    return watch


def report(watch: Watch) -> str:
    walk, whole = walks(watch)
    folders: Counter[str] = Counter(Path(file).parent.as_posix() for file in walk.files)
    tree = ["  " * depth + f"{call.file}:{call.code.co_qualname}" for depth, call in walk.calls]
    return "\n".join(
        [
            *tree,
            "",
            "calls  file",
            *(
                f"{count:5d}  {file}"
                for file, count in sorted(walk.files.items(), key=lambda each: (-each[1], each[0]))
            ),
            "",
            "files  folder",
            *(f"{count:5d}  {folder}" for folder, count in sorted(folders.items())),
            "",
            f"exchange {watch.number}: {walk.figures}",
            f"from callback to callback: {whole.figures}",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks walk", description=__doc__.splitlines()[0])
    parser.parse_args(arguments)
    print(report(watched()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
