"""What a report advises: when, and that the options it names exist."""

import re

import pytest

from danl.methods import make_method
from danl.policies import make_policy
from danl.report.advice import advice, rounds_needed
from danl.report.comparison import comparison
from tests.report.made import config_of, row, run_of, sentences


def falling(count, factor, **config):
    rows = [row(0, "hessian"), *(row(i, grad_norm=0.1 * factor**i) for i in range(1, count))]
    return run_of(rows, **(config_of("max_rounds") | config))


def tried(run):
    return sentences(advice(run))


def test_more_rounds_are_as_many_as_the_rate_needs():
    run = falling(21, 0.5)  # 0.1 / 2^20 so far, 1e-10 after 30 exchanges: 31 with the first, 10 % more, whole tens
    assert rounds_needed(run) == 40
    assert tried(run)[0] == "Try --rounds 40: at the rate so far that reaches the tolerance."


def test_a_stall_gets_no_advice_to_go_on():
    assert rounds_needed(falling(60, 0.9999)) is None


def test_a_rate_that_takes_too_long_gets_none_either():
    rows = [row(i, grad_norm=0.1 * 0.9999**i) for i in range(8)]
    assert rounds_needed(run_of(rows, **config_of("max_rounds"))) is None


@pytest.mark.parametrize("method", ["gd", "fedavg", "fedavg:steps=5", "danl-paper", "danl-masked"])
def test_methods_that_do_not_get_there_are_told_of_danl(method):
    run = falling(60, 0.9999, options={"method": method})
    assert any(text.startswith("Try --method danl:") for text in tried(run))


def test_stale_parts_are_blamed_only_where_there_are_some_and_more_rounds_do_not_help():
    blamed = lambda run: any("stale parts" in text for text in tried(run))  # noqa: E731
    assert blamed(falling(60, 0.9999, options={"method": "danl-paper"}))
    assert not blamed(falling(60, 0.9999, options={"method": "newton-zero"}))
    assert not blamed(falling(21, 0.5, options={"method": "danl-paper"}))  # the rounds were too few


def test_a_slow_fall_is_told_how_many_rounds_it_needs():
    values = [0.144 * 0.5**i for i in range(4)] + [0.018 * 0.995**i for i in range(1, 60)]
    run = run_of([row(i, grad_norm=value) for i, value in enumerate(values)], **config_of("max_rounds"))
    assert rounds_needed(run) > 3000


def batches(size, refused, factor=1.0):
    rows = [row(i, grad_norm=0.1 * factor**i, refused=int(refused and i % 5 == 4)) for i in range(40)]
    settings = config_of("max_rounds")["settings"] | {"method_options": {"batch_size": size}}
    return tried(run_of(rows, **(config_of("max_rounds") | {"settings": settings})))


def test_steps_refused_for_small_batches_are_told_of_larger_ones():
    assert batches(16, refused=True)[0].startswith("Try a larger --batch-size than 16, or leave it out")
    for others in (batches(None, refused=True), batches(16, refused=False), batches(16, refused=True, factor=0.5)):
        assert not any("batch-size" in text for text in others)


def test_divergence():
    rows = [row(0, "hessian"), row(1, grad_norm=1e9)]
    of = lambda **reported: tried(run_of(rows, **(config_of("diverged") | reported)))  # noqa: E731
    assert of(options={"method": "danl-masked"})[0].startswith("Try --method danl: it goes back")
    assert of(notes=["the data is separable and there is no penalty: ..."])[0].startswith("Try --alpha 1e-3: without")
    given = lambda rate: {"settings": {"method_options": {"learning_rate": rate}}}  # noqa: E731
    assert of(options={"method": "gd"}, **given(0.5))[0].startswith(
        "Try a smaller step, as in --method gd:learning_rate=0.05, or leave learning_rate out"
    )
    assert of(options={"method": "gd"}, **given(None))[0].startswith("Try --method danl: it goes back")


def ended(status, **options):
    config = config_of(status)
    return tried(run_of([row(0)], **(config | {"options": config["options"] | options})))


def test_after_an_interruption_it_is_said_how_to_go_on():
    assert ended("interrupted") == ["Try --checkpoint DIR: such a run then goes on with --resume DIR."]
    assert ended("interrupted", checkpoint="my ck") == [
        "Go on with --resume 'my ck': the same command, from the newest checkpoint."
    ]
    assert ended("interrupted", checkpoint=None, resume="ck2")[0].startswith("Go on with --resume ck2:")
    assert ended("interrupted", engine="flower") == []


def test_after_a_lost_quorum_it_is_said_how_to_go_on():
    assert ended("quorum_lost")[0].startswith("Try --checkpoint DIR")
    assert "patience=30" in ended("quorum_lost")[0]
    assert ended("quorum_lost", checkpoint="ck")[0].startswith("Go on with --resume ck when the workers are back")
    assert ended("quorum_lost", engine="flower:x=1")[0].startswith("Try more patience: --method danl:patience=30")
    assert ended("quorum_lost", engine="flower", method="danl:patience=40") == []


def test_regions_left_out_for_long_are_to_be_covered():
    rows = [row(0), *(row(i, coverage=(4, 0)) for i in range(1, 7)), row(7)]
    assert "Try --policy coverage:psi=1: it trains every region in every round; here one went without for 6." in tried(
        run_of(rows, **config_of("converged"))
    )


def test_regions_left_out_because_replies_were_lost_are_not_the_policys_doing():
    lost = [row(0), *(row(i, coverage=(4, 0), failed=int(i == 3)) for i in range(1, 7)), row(7)]
    assert tried(run_of(lost, **config_of("converged"))) == []
    rows = [row(0), *(row(i, coverage=(4, 0)) for i in range(1, 7)), row(7)]
    assert tried(run_of(rows, **config_of("converged"), promised={"min_trained": 2})) == []
    assert len(tried(run_of(rows, **config_of("converged"), promised={"min_trained": 1}))) == 1


def test_large_hessians_may_be_halved_once():
    rows = [row(0, "hessian", bytes_up=10_000), row(1), row(2)]
    assert tried(run_of(rows, **config_of("converged"))) == [
        "Try --method danl:hessian_dtype=float32: Hessians are 98 % of the bytes, and half as large in float32."
    ]
    assert tried(run_of(rows[:2], **config_of("converged"))) == []  # of so few one cannot tell
    assert tried(run_of(rows, **config_of("max_rounds"))) == []
    done = run_of(rows, **config_of("converged", method="danl:hessian_dtype=float32"))
    assert tried(done) == []


def test_long_runs_of_the_default_are_told_of_no_other_name_of_it():
    for coverage in ((4, 4), (4, 3)):
        rows = [row(i, coverage=coverage) for i in range(25)]
        assert not any("--method danl-secant" in each for each in tried(run_of(rows, **config_of("converged"))))


def test_every_method_and_policy_that_is_advised_exists():
    said = []
    for method in ("danl", "danl-secant", "danl-masked", "danl-paper", "newton-zero", "gd", "fedavg", "danl:window=5"):
        for status in ("converged", "max_rounds", "diverged", "quorum_lost", "interrupted"):
            for factor in (0.5, 0.9999):
                rows = [row(0, "hessian", bytes_up=10_000), *(row(i, grad_norm=factor**i) for i in range(1, 12))]
                said += tried(run_of(rows, **config_of(status, method=method)))
                said += tried(run_of([row(i, coverage=(4, 0)) for i in range(30)], **config_of(status, method=method)))
                config = config_of(status, method=method)
                config["settings"]["method_options"] = {"learning_rate": 0.5, "batch_size": 8}
                said += tried(run_of(rows, **config))
    methods = {match.rstrip(",.:") for text in said for match in re.findall(r"--method (\S+)", text)}
    policies = {match.rstrip(",.:") for text in said for match in re.findall(r"--policy (\S+)", text)}
    assert len(methods) >= 6
    for method in methods:
        make_method(method)
    for policy in policies:
        make_policy(policy)


def test_comparison_names_the_least_of_each():
    quick = run_of([row(0, "hessian", bytes_up=5000), row(1)], name="quick", status="converged")
    lean = run_of([row(i, bytes_up=10, bytes_down=0, seconds=0.1) for i in range(4)], name="lean", status="converged")
    lost = run_of([row(0)], name="lost", status="max_rounds")
    assert sentences(comparison([quick, lean, lost])) == [
        "Of the 2 runs that converged quick took the fewest exchanges (2), lean the fewest bytes (40 B), lean the "
        "least time (0.4 s).",
        "Not converged: lost.",
    ]
    assert sentences(comparison([quick, lost])) == ["Of 2 runs only quick converged."]
    assert comparison([quick]) == []


def test_comparison_of_runs_that_did_not_converge():
    one = run_of([row(0, grad_norm=1e-3)], name="one", status="max_rounds")
    two = run_of([row(0, grad_norm=1e-5)], name="two", status="max_rounds")
    assert sentences(comparison([one, two])) == [
        "None of 2 runs converged; two came nearest, with a gradient norm of 1.0e-05."
    ]


def test_comparison_of_different_problems_is_said():
    one = run_of([row(0)], name="one", **config_of("converged"))
    other = config_of("converged")
    two = run_of([row(0)], name="two", **(other | {"data": other["data"] | {"sha256": "cd" * 32}}))
    assert sentences(comparison([one, two]))[0].startswith("The runs are of different data")
    three = run_of([row(0)], name="three", **(other | {"settings": other["settings"] | {"alpha": 0.1}}))
    assert sentences(comparison([one, three]))[0].startswith("The runs have different penalties")


def test_a_tie_is_said_as_one():
    one, two = (
        run_of([row(0, bytes_up=up), row(1)], name=name, status="converged") for name, up in (("a", 5), ("b", 9))
    )
    assert sentences(comparison([one, two])) == [
        "Of the 2 runs that converged a and b took the fewest exchanges (2 each), a the fewest bytes (125 B), a and b "
        "the least time (1 s each)."
    ]


def last(name, status="max_rounds", **reported):
    return run_of([row(0, **reported)], name=name, status=status)


def test_what_got_lost_came_near_to_nothing():
    lost = [last("gone", "diverged", grad_norm=1e-9), last("alone", "quorum_lost", grad_norm=1e-8)]
    assert sentences(comparison([*lost, last("left", grad_norm=1e-3)])) == [
        "None of 3 runs converged; left came nearest, with a gradient norm of 1.0e-03."
    ]
    assert sentences(comparison(lost)) == ["None of 2 runs converged."]


def test_nothing_is_nearest_where_a_gap_is_missing_or_the_problems_differ():
    assert sentences(comparison([last("a", gap=1e-3), last("b", grad_norm=1e-9)])) == ["None of 2 runs converged."]
    assert (
        "b came nearest, with a gap of 1.0e-04." in sentences(comparison([last("a", gap=1e-3), last("b", gap=1e-4)]))[0]
    )
    other = run_of([row(0, gap=1e-4)], name="b", status="max_rounds", settings={"loss": "squared"})
    same = run_of([row(0, gap=1e-3)], name="a", status="max_rounds", settings={"loss": "logistic"})
    assert sentences(comparison([same, other])) == [
        "The runs have different losses: compare their gaps and objectives with care.",
        "None of 2 runs converged.",
    ]


def compared(first, second, data=("iid", "iid")):
    runs = []
    for settings, partition in zip((first, second), data, strict=True):
        config = config_of("converged")
        given = {"settings": config["settings"] | settings, "data": config["data"] | {"partition": partition}}
        runs.append(run_of([row(0)], **(config | given)))
    return [text for text in sentences(comparison(runs)) if "with care" in text]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"weighting": "uniform"}, {"weighting": "samples"}, "weight their workers differently"),
        ({"intercept": True}, {"intercept": False}, "differ in whether they have an intercept"),
        ({"outputs": 1}, {"outputs": 3}, "have different numbers of outputs"),
        ({"l2": 1e-4, "rows": [5, 5]}, {"l2": 1e-4, "rows": [4, 6]}, "have their rows dealt out differently"),
    ],
)
def test_runs_of_different_objectives_are_compared_with_a_warning(first, second, words):
    (text,) = compared(first, second)
    assert text.startswith(f"The runs {words}")
    assert compared(first, first) == []


def test_how_rows_are_dealt_out_matters_where_the_objective_depends_on_it():
    uneven, even = ({"weighting": "uniform", "alpha": 1e-3, "rows": rows} for rows in ([4, 6], [5, 5]))
    pooled = {"weighting": "samples", "alpha": 1e-3, "rows": [4, 6]}
    parts = ("iid", "sorted")
    assert len(compared(uneven, uneven, parts)) == 1
    assert len(compared(uneven, uneven | {"seed": 1})) == 1
    assert compared(even, even, parts) == []  # every row weighs the same, wherever it is
    assert compared(pooled, pooled | {"rows": [5, 5]}, parts) == []
