"""The page's numbers as text: decoded again they are what they were, and what is thinned is said."""

import base64
import json

import numpy as np

from danl.report.encode import MOST_POINTS, chosen_rows, four_in_a_byte, kind_number, masks_of, row_columns, spaced
from danl.report.page import in_script
from danl.report.payload import payload_of, run_payload
from danl.report.recorded import RecordedRun
from danl.run.history import KINDS, History
from danl.run.trace import Trace
from tests.report.made import large_run, row, run_of, trace_of


def decoded(text, kind):
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def test_rows_are_what_they_were():
    run = large_run(50, 6, 5)
    reported = row_columns(run, np.arange(50))
    assert np.array_equal(decoded(reported["gap"], "<f8"), run.history.column("gap"))
    assert np.array_equal(decoded(reported["coverage"], "<i4").reshape(50, 5), run.history.column("coverage"))
    assert np.array_equal(decoded(reported["bytes"], "<f8"), run.history.total_bytes())
    assert decoded(reported["kind"], "<u1")[:3].tolist() == [0, 2, 1]
    assert kind_number("something new") == len(KINDS)
    assert KINDS[kind_number("learn")] == "learn"


def test_why_and_of_how_many_are_there():
    run = run_of([row(0, "hessian", senders=3, why="the start"), row(1, why="it pays"), row(2, why="it pays")])
    reported = row_columns(run, np.array([0, 2]))
    assert decoded(reported["senders"], "<i4").tolist() == [3, 0]
    assert reported["why"]["texts"] == ["the start", "it pays"]
    assert decoded(reported["why"]["which"], "<u2").tolist() == [0, 1]


def test_masks_are_what_they_were():
    run = large_run(30, 7, 5)
    reported, said = masks_of(run)
    assert said == ""
    bits = decoded(reported["trained"], "<u1").reshape(30, -1)
    trained = np.unpackbits(bits, axis=1, count=35).astype(bool).reshape(30, 7, 5)
    assert np.array_equal(trained, run.trace.trained)
    quads = decoded(reported["asked"], "<u1").reshape(30, 2)
    asked = np.stack([(quads[:, worker // 4] >> 2 * (worker % 4)) & 3 for worker in range(7)], axis=1)
    assert np.array_equal(asked, run.trace.asked)


def test_four_in_a_byte():
    assert four_in_a_byte(np.array([1, 2, 0, 3, 1], dtype=np.int8)).tobytes() == bytes([0b11001001, 1])


def test_masks_that_do_not_fit_are_thinned_and_keep_their_staleness():
    run = large_run(40, 8, 4)
    reported, said = masks_of(run, budget=200)  # 66 bytes an exchange with its staleness: 3 of them
    frames = decoded(reported["exchange"], "<i4")
    assert len(frames) == 3
    assert (frames[0], frames[-1]) == (0, 39)
    assert said == "The map of workers and regions has 3 of 40 exchanges, evenly spaced."
    stale, expected = np.zeros((8, 4), dtype=int), []
    for number, kind in enumerate(run.history.column("kind")):
        if kind != "loss":
            stale = np.where(run.trace.trained_in(number), 0, stale + 1)
        expected.append(stale)
    kept = decoded(reported["staleness"], "<u2").reshape(3, 8, 4)
    assert np.array_equal(kept, [expected[number] for number in frames])


def test_masks_that_can_never_fit_are_left_out_with_a_word():
    reported, said = masks_of(large_run(40, 8, 4), budget=50)
    assert reported is None
    assert said.startswith("Who trained what is left out: 32 pairs")


def test_long_runs_keep_the_ends_and_what_is_marked():
    kinds = ["hessian" if i in (0, 7001) else "gradient" for i in range(20_000)]
    run = run_of([row(i, kind, refused=int(i == 9003), failed=int(i == 11_007)) for i, kind in enumerate(kinds)])
    chosen = chosen_rows(run)
    assert len(chosen) <= MOST_POINTS
    assert {0, 7001, 9003, 11_007, 19_999} <= set(chosen.tolist())
    reported = run_payload(run)
    assert reported["notes"][0].startswith(f"Curves have {len(chosen):,} of 20,000 exchanges")
    assert decoded(reported["rows"]["bytes"], "<f8")[-1] == run.history.total_bytes()[-1]  # sums run over all


def test_spaced_has_the_first_and_the_last():
    assert spaced(np.arange(100), 4).tolist() == [0, 33, 66, 99]
    assert spaced(np.arange(3), 4).tolist() == [0, 1, 2]


def test_a_run_without_rows_has_a_payload():
    reported = payload_of([run_of([])])
    assert reported["runs"][0]["summary"]["gap"] is None
    assert len(History()) == 0


def test_numbers_that_are_none_do_not_reach_the_page():
    inf = float("inf")
    rows = [row(0, "hessian"), row(1, objective=inf, gap=inf, grad_norm=inf, seconds=inf, simulated_seconds=inf)]
    trace = trace_of(np.ones((2, 4, 2)), seconds=np.full((2, 4), inf))
    text = in_script(payload_of([run_of(rows, trace=trace, status="diverged")]))
    summary = json.loads(text)["runs"][0]["summary"]
    assert (summary["objective"], summary["seconds"], summary["simulated"]) == (None, None, None)


def test_a_trace_that_begins_later_is_said():
    whole = large_run(12, 4, 3)
    late = Trace()
    late.begin(4, 3)
    for number in range(5, 12):
        up, down = whole.trace.bytes_up[number], whole.trace.bytes_down[number]
        late.note(number, whole.trace.asked_in(number), whole.trace.trained_in(number), up, down)
    reported = run_payload(RecordedRun("resumed", whole.history, late, whole.config))
    assert reported["notes"] == ["Who trained what is known from exchange 5 on; waits are counted from there."]
    assert decoded(reported["masks"]["exchange"], "<i4").tolist() == list(range(5, 12))


def test_workers_have_their_sums():
    run = large_run(60, 6, 3)
    reported = run_payload(run)["workers"]
    assert sum(reported["up"]) == run.history.column("bytes_up").sum()
    assert sum(reported["silent"]) == run.history.column("failed").sum()
    taken = run.trace.simulated_seconds
    as_slow = np.nan_to_num(taken) >= 0.99 * np.nanmax(taken, axis=1, keepdims=True)
    assert reported["slowest"] == as_slow.sum(axis=0).tolist()
    assert np.argmax(reported["slowest"]) in (2, 5)
