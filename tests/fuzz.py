"""Random and mutated replies, checkpoint files and rows, as many as asked for: `python -m tests.fuzz --count 100000`.

For each: no crash but the error that is meant for it, no change of the state it was held against, and no growth of
memory. The suite runs a few thousand of them; the closing check of a release runs 100,000 of each.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

import danl
from danl.objective.problem import Problem
from danl.objective.regions import Regions
from danl.protocol.messages import CurvatureTask, GradientTask, HessianTask, LossTask
from danl.protocol.replies import ReplyRules
from danl.protocol.wire import WireError, decode, encode, most_bytes
from danl.run.checkpoint import rows_from_lines, rows_to_line
from danl.storage.appended import Appended
from danl.storage.arrays import UnreadableError
from danl.storage.serialize import from_file, to_file
from danl.worker.worker import Worker
from tests.problems import random_shards
from tests.protocol.validated import validated

D, Q = 7, 3


def setting():
    """Replies of an honest worker, the tasks they answer, and the rules they are held against."""
    problem = Problem(random_shards(), alpha=0.1)
    regions = Regions.make(Q, D)
    worker = Worker(0, problem.local_objectives[0], regions, None, 0)
    w = np.linspace(-1, 1, D)
    tasks = [HessianTask(5, w), GradientTask(5, w, np.array([True, False, True])), LossTask(5, w)]
    tasks += [CurvatureTask(5, w, kind, rank=2, sketch=7) for kind in ("block", "lowrank", "diag")]
    tasks += [CurvatureTask(5, w, "lowrank", rank=2, sketch=7, dtype="float32")]
    tasks += [CurvatureTask(5, w, "full", compressor=name) for name in ("identity", "rankr:2", "topk:9", "natural")]
    tasks += [CurvatureTask(5, w, "full", mask=np.array([True, False, True]), first=3, last=20)]
    rules = ReplyRules(regions, problem.penalties, problem.layout.penalised, overflows=False)
    return rules, [(task, encode(worker.answer(task))) for task in tasks], problem.weights


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes changed, cut, doubled, put in, or made up."""
    kind = rng.integers(6)
    if kind == 0:
        return rng.bytes(int(rng.integers(0, 300)))
    changed = bytearray(data)
    if kind == 1:
        return bytes(changed[: int(rng.integers(0, len(changed)))])
    if kind == 2:
        place = int(rng.integers(0, len(changed)))
        return bytes(changed[:place] + rng.bytes(int(rng.integers(1, 20))) + changed[place:])
    if kind == 3:
        place, length = int(rng.integers(0, len(changed))), int(rng.integers(1, 64))
        return bytes(changed[:place] + changed[place : place + length] * 2 + changed[place + length :])
    for _ in range(int(rng.integers(1, 9))):
        changed[int(rng.integers(0, len(changed)))] = int(rng.integers(0, 256))
    return bytes(changed)


def altered(data: bytes, rng: np.random.Generator) -> bytes:
    """A message that is one, and says something else: other numbers, lengths, names, exchanges."""
    reply = decode(data, most_bytes=most_bytes(D, Q))
    name = str(rng.choice(list(vars(reply))))
    value = getattr(reply, name)
    wild = float(rng.choice([np.nan, np.inf, -np.inf, 1e308, -1.0, 0.0]))
    if isinstance(value, np.ndarray) and value.dtype == bool:
        value = rng.random(int(rng.integers(0, 6))) < 0.5
    elif value is None or (isinstance(value, np.ndarray) and value.dtype.kind == "i"):
        value = rng.integers(-3, 30, size=3 if value is None else len(value))
    elif isinstance(value, np.ndarray):
        value = value[: int(rng.integers(0, max(len(value), 1)))] if rng.random() < 0.3 else value.copy()
        if len(value):
            with np.errstate(over="ignore"):  # 1e308 in a float32
                value[int(rng.integers(len(value)))] = wild
    else:
        value = int(rng.integers(-2, 9)) if isinstance(value, int) else wild
    return encode(replace(reply, **{name: value}))


def fuzz_replies(count: int, seed: int = 0) -> dict[str, int]:
    """Mutated replies through the wire and the validation."""
    rng, counts = (
        np.random.default_rng(seed),
        {"refused by the wire": 0, "refused by the rules": 0, "dropped": 0, "passed": 0},
    )
    rules, known, weights = setting()
    before = rules.penalties.tobytes()
    for _ in range(count):
        task, data = known[int(rng.integers(len(known)))]
        try:
            data = altered(data, rng) if rng.random() < 0.5 else mutated(data, rng)
            reply = decode(data, most_bytes=most_bytes(D, Q))
        except WireError:
            counts["refused by the wire"] += 1
            continue
        replies = validated(rules, task, {0: reply}, weights)
        for part in (replies.losses, replies.gradients, replies.curvature_sum):
            assert part is None or not len(replies.workers) or np.isfinite(part).all()
        counts["dropped"] += replies.dropped
        counts["refused by the rules"] += sum(failure.kind == "invalid" for failure in replies.failures.values())
        counts["passed"] += len(replies.workers)
    assert rules.penalties.tobytes() == before
    assert sum(counts.values()) == count
    return counts


def fuzz_checkpoints(count: int, seed: int = 0) -> dict[str, int]:
    """Mutated checkpoint files."""
    rng, counts = np.random.default_rng(seed), {"refused": 0, "whole": 0}
    state = {"w": np.arange(20.0), "n": 3, "t": (1.5, None, "word"), "m": {2: np.eye(3)}}
    kind = {"magic": "danl-checkpoint", "version": 3, "fingerprint": "mark"}
    good = to_file(state, **kind)
    expected = repr(from_file(good, **kind))
    for _ in range(count):
        try:
            got = from_file(mutated(good, rng), **kind)
        except UnreadableError:
            counts["refused"] += 1
            continue
        assert repr(got) == expected  # a byte of the archive that says nothing, a date for example
        counts["whole"] += 1
    return counts


def fuzz_rows(count: int, seed: int = 0) -> dict[str, int]:
    """Mutated files of rows: what stood at the mark comes back, or it is said to be torn; lines alone never crash."""
    rng, counts = np.random.default_rng(seed), {"refused": 0, "whole": 0}
    with tempfile.TemporaryDirectory() as folder:
        log = Appended(Path(folder) / "rows")
        result = danl.solve(Problem(random_shards(), alpha=0.1), engine="local:dropout=0.3", max_rounds=1)
        log.append(rows_to_line(list(result.history), result.failures))
        good, mark = log.path.read_bytes(), log.mark
        log.append(rows_to_line([], result.failures))
        whole = log.path.read_bytes()
        for _ in range(count):
            data = mutated(whole, rng)
            with suppress(UnreadableError):
                rows_from_lines(data)
            log.path.write_bytes(data)
            try:
                got = Appended.reopen(log.path, mark)[1]
            except UnreadableError:
                counts["refused"] += 1
                continue
            assert got == good
            counts["whole"] += 1
    return counts


def grown(work, count: int) -> int:
    """Bytes of Python memory that are there after `count` more than there were after the first tenth."""
    work(count // 10, 1)
    tracemalloc.start()
    try:
        work(count // 10, 2)
        first = tracemalloc.get_traced_memory()[0]
        work(count // 5, 3)
        return tracemalloc.get_traced_memory()[0] - first
    finally:
        tracemalloc.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    count = parser.parse_args().count
    print(f"danl {danl.__version__}")
    for name, work in (("replies", fuzz_replies), ("checkpoints", fuzz_checkpoints), ("rows", fuzz_rows)):
        begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        counts = work(count)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"{count} {name}: {counts}; peak memory +{peak} kB; {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
