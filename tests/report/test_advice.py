"""What a report advises: when, and that the options it names exist."""

import re

import pytest

from danl.methods import make_method
from danl.policies import make_policy
from danl.report.advice import advice, rounds_needed
from danl.report.comparison import comparison
from danl.report.findings import sentences
from tests.report.made import config_of, row, run_of


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


@pytest.mark.parametrize("method", ["gd", "fedavg", "fedavg:steps=5", "danl-paper", "newton-zero"])
def test_methods_that_do_not_get_there_are_told_of_danl(method):
    run = falling(60, 0.9999, options={"method": method})
    assert any(text.startswith("Try --method danl:") for text in tried(run))


def test_divergence():
    rows = [row(0, "hessian"), row(1, grad_norm=1e9)]
    of = lambda **told: tried(run_of(rows, **(config_of("diverged") | told)))  # noqa: E731
    assert of(options={"method": "danl-masked"})[0].startswith("Try --method danl: it goes back")
    assert of(notes=["the data is separable and there is no penalty: ..."])[0].startswith("Try --alpha 1e-3: without")
    assert of(options={"method": "gd"})[0].startswith("Try a smaller step, as in --method gd:learning_rate=0.01")


def test_checkpoints_after_an_interruption_and_a_lost_quorum():
    assert "--resume DIR" in tried(run_of([row(0)], **config_of("interrupted")))[0]
    assert "patience=30" in tried(run_of([row(0)], **config_of("quorum_lost")))[0]


def test_regions_left_out_for_long_are_to_be_covered():
    rows = [row(0), *(row(i, coverage=(4, 0)) for i in range(1, 7)), row(7)]
    assert "Try --policy coverage:psi=1: it trains every region in every round; here one went without for 6." in tried(
        run_of(rows, **config_of("converged"))
    )


def test_large_hessians_may_be_halved_once():
    rows = [row(0, "hessian", bytes_up=10_000), row(1)]
    assert tried(run_of(rows, **config_of("converged"))) == [
        "Try --method danl:hessian_dtype=float32: Hessians are 99 % of the bytes, and half as large in float32."
    ]
    done = run_of(rows, **config_of("converged", method="danl:hessian_dtype=float32"))
    assert tried(done) == []


def test_long_runs_with_full_masks_are_told_of_the_secant_method():
    rows = [row(i) for i in range(25)]
    assert tried(run_of(rows, **config_of("converged")))[0].startswith("Try --method danl-secant:")
    masked = [row(i, coverage=(4, 3)) for i in range(25)]
    assert tried(run_of(masked, **config_of("converged"))) == []


def test_every_method_and_policy_that_is_advised_exists():
    said = []
    for method in ("danl", "danl-secant", "danl-masked", "danl-paper", "newton-zero", "gd", "fedavg", "danl:window=5"):
        for status in ("converged", "max_rounds", "diverged", "quorum_lost", "interrupted"):
            for factor in (0.5, 0.9999):
                rows = [row(0, "hessian", bytes_up=10_000), *(row(i, grad_norm=factor**i) for i in range(1, 12))]
                said += tried(run_of(rows, **config_of(status, method=method)))
                said += tried(run_of([row(i, coverage=(4, 0)) for i in range(30)], **config_of(status, method=method)))
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
