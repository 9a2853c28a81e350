"""What a report says of a run: every sentence against rows that were made for it."""

from dataclasses import replace

import numpy as np
import pytest

from danl.report.findings import (
    absences,
    ending,
    findings,
    hessians,
    longest_wait,
    pace,
    progress,
    refusals,
    untrained_regions,
    untrained_spans,
)
from danl.report.payload import run_payload
from danl.report.trend import trend_of
from danl.run.trace import Trace
from danl.wording import counted, human_bytes, listed, percent
from tests.report.made import large_run, row, run_of, sentences, trace_of

NAN = float("nan")


def said(look, run):
    return sentences(look(run))


def test_the_ending_has_the_cost_of_all_exchanges():
    rows = [row(0, "hessian", bytes_up=2_000_000), row(1, grad_norm=3e-11, gap=2e-17, bytes_up=500_000)]
    assert said(ending, run_of(rows, status="converged")) == [
        "Converged after 2 exchanges, at gradient norm 3.0e-11, gap <=1e-15. It cost 2.5 MB up, 20 B down and 1 s."
    ]


def test_simulated_seconds_are_told_where_they_are_known():
    rows = [row(0, simulated_seconds=2.0), row(1, simulated_seconds=NAN), row(2, simulated_seconds=1.5)]
    (text,) = said(ending, run_of(rows, status="max_rounds"))
    assert text.startswith("Used up its rounds without reaching the tolerance: ended after 3 exchanges")
    assert text.endswith("and 1.5 s here; by the machines' profiles 3.5 s.")


@pytest.mark.parametrize(
    ("status", "tone", "words"),
    [
        ("converged", "good", "Converged"),
        ("diverged", "warn", "Diverged"),
        ("quorum_lost", "warn", "Lost its quorum"),
        ("interrupted", "note", "Was interrupted"),
        ("stopped", "note", "Was stopped"),
        ("running", "note", "Is running"),
        ("unheard of", "note", "How it ended is not known"),
    ],
)
def test_every_status_has_its_words(status, tone, words):
    (found,) = ending(run_of([row(0)], status=status))
    assert found.tone == tone
    assert found.text.startswith(words)


def test_an_unknown_ending_says_why_it_is_not_known():
    assert "not known (no config.json): it is after" in said(ending, run_of([row(0)]))[0]
    assert "not known (config.json does not say)" in said(ending, run_of([row(0)], danl="0.1.0"))[0]
    assert "not known (config.json has the status 'odd')" in said(ending, run_of([row(0)], status="odd"))[0]


def test_of_a_run_that_goes_on_it_is_said_how_far_it_is():
    assert said(ending, run_of([row(0), row(1)], status="running")) == [
        "Is running: 2 exchanges so far, at gradient norm 1.0e-01. So far it cost 200 B up, 20 B down and 1 s."
    ]


@pytest.mark.parametrize(
    ("gap", "words"),
    [(-5.6e-17, "<=1e-15"), (0.0, "<=1e-15"), (2e-16, "<=1e-15"), (3e-15, "3.0e-15"), (-1e-6, "-1.0e-06")],
)
def test_a_gap_below_zero_is_rounding_where_it_is_small(gap, words):
    run = run_of([row(0, gap=gap)], status="converged")
    assert f", gap {words}. It cost" in said(ending, run)[0]
    assert run_payload(run)["summary"]["rounding"] == (words == "<=1e-15")


def test_the_share_of_hessians_counts_both_directions():
    rows = [row(0, "hessian", bytes_up=890, bytes_down=10), row(1, bytes_up=60, bytes_down=40)]
    assert said(hessians, run_of(rows)) == ["1 exchange of 2 carried Hessians: 900 B, 90 % of all bytes."]
    assert said(hessians, run_of([row(0)])) == ["No Hessian was exchanged."]


def test_regions_nobody_trained_are_named_with_their_exchanges():
    # Region 1 is left out in the rounds 2, 3, 5 (4 is no round of training), region 0 in one only.
    coverage = [(4, 4), (4, 4), (4, 0), (0, 0), (0, 0), (4, 0), (4, 4)]
    kinds = ["hessian", "gradient", "gradient", "gradient", "loss", "gradient", "gradient"]
    rows = [row(i, kind, coverage=who) for i, (kind, who) in enumerate(zip(kinds, coverage, strict=True))]
    run = run_of(rows)
    assert untrained_spans(run) == [(1, 3, 3), (3, 2, 5)]
    assert said(untrained_regions, run) == ["Region 1 went untrained for 3 rounds, from exchange 2 to 5."]


def test_regions_with_the_same_wait_share_a_sentence():
    rows = [row(0), row(1, coverage=(0, 0)), row(2, coverage=(0, 0)), row(3)]
    assert said(untrained_regions, run_of(rows)) == [
        "Regions 0 and 1 went untrained for 2 rounds each, from exchange 1 to 2."
    ]
    rows = [row(0), row(1, coverage=(0, 4)), row(2, coverage=(0, 0)), row(3, coverage=(4, 0)), row(4)]
    assert said(untrained_regions, run_of(rows)) == [
        "Regions 0 and 1 went untrained for 2 rounds each, at some time from exchange 1 to 3."
    ]


def test_of_many_regions_the_longest_waits_are_named():
    rows = [row(i, coverage=tuple(4 if i > q else 0 for q in range(2, 8))) for i in range(10)]
    texts = said(untrained_regions, run_of(rows))
    assert texts[0] == "Region 5 went untrained for 8 rounds, from exchange 0 to 7."
    assert len(texts) == 4
    assert texts[-1] == "3 more regions went untrained for up to 5 rounds."


def test_regions_trained_in_every_other_round_are_no_news():
    assert list(untrained_regions(run_of([row(i, coverage=(4, 4 * (i % 2))) for i in range(9)]))) == []


def test_the_longest_wait_of_a_pair_is_the_histories_gamma():
    masks = np.ones((8, 3, 2), dtype=bool)
    masks[2:6, 1, 0] = False  # rounds 2, 3, 5; exchange 4 is a loss and no round
    masks[4] = False
    kinds = ["loss" if i == 4 else "gradient" for i in range(8)]
    options = {"max_staleness": 3}
    rows = [row(i, kinds[i], coverage=tuple(masks[i].sum(axis=0).tolist()), **options) for i in range(8)]
    assert said(longest_wait, run_of(rows, trace=trace_of(masks))) == [
        "Worker 1 sent nothing on region 0 for 3 rounds, from exchange 2 to 5: the longest wait of a worker and a "
        "region (gamma = 3)."
    ]


def test_the_longest_wait_agrees_with_the_rows_of_a_long_run():
    run = large_run(200, 7, 5)
    (text,) = said(longest_wait, run)
    assert f"(gamma = {run.history[-1].max_staleness})" in text


def test_who_sets_the_pace_and_what_it_costs():
    seconds = np.full((10, 8), 1.0)
    seconds[:6, 2] = 5.0
    seconds[6:, 5] = 4.0
    run = run_of([row(i) for i in range(10)], trace=trace_of(np.ones((10, 8, 2)), seconds=seconds))
    assert said(pace, run) == [
        "Workers 2 and 5 set the pace: one of them is the slowest in 100 % of the exchanges. If the others had not "
        "waited for them, the run would have taken 10 s instead of 46 s by the profiles."
    ]


def test_equally_slow_workers_are_named_together():
    seconds = np.full((10, 10), 0.1)
    seconds[:, :3] = 2.9 * (1 + 1e-9 * np.arange(3))
    run = run_of([row(i) for i in range(10)], trace=trace_of(np.ones((10, 10, 2)), seconds=seconds))
    assert said(pace, run) == [
        "Workers 0, 1 and 2 set the pace: one of them is the slowest in 100 % of the exchanges. If the others had not "
        "waited for them, the run would have taken 1 s instead of 29 s by the profiles."
    ]
    assert run_payload(run)["workers"]["slowest"] == [10, 10, 10, *([0] * 7)]


@pytest.mark.parametrize("slow", [1.0, 1.05])
def test_of_a_pace_that_hardly_matters_nothing_is_said(slow):
    seconds = np.ones((10, 8))
    seconds[:, 2] = slow
    assert list(pace(run_of([row(i) for i in range(10)], trace=trace_of(np.ones((10, 8, 2)), seconds=seconds)))) == []


def test_nobody_sets_the_pace_where_it_changes():
    seconds = np.ones((8, 8)) + np.eye(8)
    run = run_of([row(i) for i in range(8)], trace=trace_of(np.ones((8, 8, 2)), seconds=seconds))
    assert said(pace, run) == ["No few workers set the pace: the slowest one changes from exchange to exchange."]


def test_without_profiles_there_is_no_pace():
    assert list(pace(run_of([row(0)], trace=trace_of(np.ones((1, 4, 2)))))) == []
    assert list(pace(run_of([row(0)]))) == []


def test_a_worker_that_does_not_answer_is_not_the_slowest():
    seconds = np.array([[1.0, NAN, 2.0, 1.0], [1.0, 9.0, 2.0, 1.0], [1.0, NAN, 2.0, 1.0], [NAN] * 4, [1, 1, 2, 1]])
    asked = np.where(np.isnan(seconds), 2, 1)
    run = run_of([row(i) for i in range(5)], trace=trace_of(np.ones((5, 4, 2)), asked=asked, seconds=seconds))
    (text,) = said(pace, run)
    assert (
        text == "No few workers set the pace: the slowest one changes from exchange to exchange."
    )  # 3 of 4 is too few


def test_absences_name_the_worker_that_missed_most():
    asked = np.ones((4, 3))
    asked[1, 0] = asked[2, 0] = asked[2, 1] = 2
    asked[3, 0] = 0
    rows = [row(0, active=3), row(1, active=2, failed=1), row(2, active=1, failed=2), row(3, active=2)]
    run = run_of(rows, trace=trace_of(np.ones((4, 3, 2)), asked=asked))
    assert said(absences, run) == ["3 of 11 replies did not come, in 2 of 4 exchanges; worker 0 missed most, 2 of 3."]


def resumed(first=5, count=12):
    """A run of which it is not known who did what before an exchange."""
    whole = large_run(count, 8, 3)
    late = Trace()
    late.begin(8, 3)
    for number in range(first, count):
        codes, taken = whole.trace.asked_in(number).copy(), np.where(np.arange(8) == 2, 5.0, 1.0)
        codes[0] = 2
        masks = whole.trace.trained_in(number) & (np.arange(8) != 1)[:, None]
        late.note(number, codes, masks, whole.trace.bytes_up[number], whole.trace.bytes_down[number], taken)
    rows = [replace(one, failed=1, max_staleness=9) for one in whole.history]
    return run_of(rows, trace=late, **whole.config)


def test_what_is_said_of_workers_is_since_it_is_known():
    run = resumed()
    assert said(absences, run)[0].endswith("; since exchange 5 worker 0 missed most, 7 of 7.")
    assert said(longest_wait, run)[0].startswith(
        "Since exchange 5 worker 1 sent nothing on region 0 for 7 rounds, from"
    )
    assert "(gamma = 9 over the whole run)" in said(longest_wait, run)[0]
    (text,) = said(pace, run)
    assert text.startswith("Since exchange 5 worker 2 sets the pace")
    assert "the run since exchange 5 would have taken 7 s instead of 35 s" in text
    assert run_payload(run)["since"] == 5
    assert run_payload(large_run(12, 4, 3))["since"] == 0


def test_absences_without_a_trace_and_none_at_all():
    rows = [row(0), row(1, active=3, failed=1)]
    assert said(absences, run_of(rows)) == ["1 of 8 replies did not come, in 1 of 2 exchanges."]
    assert said(absences, run_of(rows[:1])) == ["Every worker answered every time it was asked (4 replies)."]


def test_refused_steps_and_where():
    rows = [row(i, refused=int(i in (2, 5))) for i in range(7)]
    assert said(refusals, run_of(rows)) == [
        "2 trial steps were refused, because the objective had risen: in exchanges 2 and 5."
    ]
    assert said(refusals, run_of([row(0), row(1, refused=1)])) == [
        "1 trial step was refused, because the objective had risen: in exchange 1."
    ]
    assert list(refusals(run_of([row(0)]))) == []


def test_linear_convergence_has_its_factor():
    rows = [row(i, gap=10.0**-i) for i in range(9)]
    assert said(progress, run_of(rows, status="converged")) == [
        "From exchange 0 to 8 the gap fell linearly: by a factor of 10 an exchange on average."
    ]


def test_a_slow_fall_is_told_in_per_cent():
    rows = [row(i, grad_norm=0.98**i) for i in range(100)]
    assert said(progress, run_of(rows, status="max_rounds")) == [
        "From exchange 0 to 99 the gradient norm fell linearly: by 2 % an exchange on average."
    ]


def test_a_stall_is_dated():
    rows = [row(i, gap=10.0 ** -min(i, 6)) for i in range(31)]
    assert said(progress, run_of(rows, status="max_rounds")) == [
        "From exchange 0 to 6 the gap fell linearly: by a factor of 10 an exchange on average.",
        "Stalled since exchange 6: in the last 24 exchanges the gap did not even halve; it is 1.0e-06 at best.",
    ]


def test_a_gap_that_stopped_being_known_is_not_looked_at():
    gaps = [10.0 ** -min(i, 3) if i < 20 else NAN for i in range(40)]
    rows = [row(i, gap=gaps[i], grad_norm=0.5**i) for i in range(40)]
    assert said(progress, run_of(rows, status="max_rounds")) == [
        "From exchange 0 to 39 the gradient norm fell linearly: by a factor of 2.00 an exchange on average."
    ]


def test_what_falls_at_every_exchange_is_slow_and_has_not_stalled():
    values = [0.144 * 0.5**i for i in range(4)] + [0.018 * 0.995**i for i in range(1, 60)]
    rows = [row(i, grad_norm=value) for i, value in enumerate(values)]
    assert said(progress, run_of(rows, status="max_rounds"))[1:] == [
        "Is slow since exchange 3: in the last 59 exchanges the gradient norm did not even halve; it still falls, by "
        "0.5 % an exchange."
    ]


def test_noise_that_happens_to_have_a_smallest_value_late_has_stalled():
    noise = 1 + 0.3 * np.random.default_rng(1).random(80)
    rows = [row(i, gap=10.0 ** -min(i, 4) * noise[i]) for i in range(80)]
    trend = trend_of(run_of(rows).history)
    assert (trend.stalled_since is not None, trend.slow, trend.rose) == (True, None, False)


def test_a_rise_is_no_stall():
    rows = [row(i, gap=[0.3, 0.051][i] if i < 2 else 0.1 * 1.05**i) for i in range(98)]
    assert said(progress, run_of(rows, status="max_rounds")) == [
        "From exchange 0 to 1 the gap fell quickly: by a factor of 5.88 an exchange on average.",
        "The gap rose: from 5.1e-02 after exchange 1, the smallest, to 1.1e+01 after exchange 97.",
    ]


def test_rounding_is_no_stall():
    rows = [row(i, gap=max(10.0**-i, 0.0) if i < 16 else -1e-17) for i in range(60)]
    (text,) = said(progress, run_of(rows, status="max_rounds"))
    assert text.startswith("From exchange 0 to 15 the gap fell linearly")


def test_of_a_run_that_diverged_it_is_said_where_it_was_best():
    rows = [row(i, grad_norm=[1.0, 0.5, 2.0, 1e4][i]) for i in range(4)]
    assert said(progress, run_of(rows, status="diverged")) == [
        "The gradient norm was smallest after exchange 1, 5.0e-01; at the end it was 1.0e+04."
    ]


def test_notes_of_the_run_are_among_the_findings_and_no_rows_are_no_error():
    assert "workers 2 and 3 left" in sentences(findings(run_of([row(0)], notes=["workers 2 and 3 left"])))
    assert sentences(findings(run_of([]))) == ["No exchange was made: there are no rows."]


def test_words():
    assert [listed([2]), listed([2, 5]), listed([1, 2, 3]), listed(list(range(10)))] == [
        "2", "2 and 5", "1, 2 and 3", "0, 1, 2, 3, 4, 5, 6, 7 and 2 more",
    ]  # fmt: skip
    assert [counted(1, "reply"), counted(2000, "reply"), counted(2, "round")] == [
        "1 reply",
        "2,000 replies",
        "2 rounds",
    ]
    assert [percent(0.0), percent(0.001), percent(0.5), percent(0.999), percent(1.0)] == [
        "0 %", "less than 1 %", "50 %", "more than 99 %", "100 %",
    ]  # fmt: skip
    assert [human_bytes(999), human_bytes(1_234_567), human_bytes(5e15)] == ["999 B", "1.2 MB", "5000.0 TB"]
