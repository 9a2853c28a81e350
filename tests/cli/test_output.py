"""What a command says of its run beside the summary: where a policy's masks were not used, and only there."""

import pytest

from tests.cli.shell import run

LINE = "masks of coverage:psi=3 not used"


def said(capsys, *words):
    """What is said to people, on one line."""
    ended = run(capsys, "fit", "a1a", "--quiet", *words)
    assert "status" in ended.err
    return " ".join(ended.err.split())


def test_masks_that_did_not_pay_are_said_to_be_unused_with_what_would_use_them(capsys):
    text = said(capsys, "--policy", "coverage:psi=3")
    assert LINE in text
    assert "(danl:masks=always uses them)" in text


def test_whole_gradients_of_those_who_answered_are_whole_gradients(capsys):
    assert LINE in said(capsys, "--policy", "coverage:psi=3", "--engine", "local:dropout=0.2")


def test_the_line_is_no_part_of_the_object_on_standard_output(capsys):
    ended = run(capsys, "fit", "a1a", "--quiet", "--json", "--policy", "coverage:psi=3")
    assert ended.json["method"] == "danl"
    assert "not used" not in ended.out


@pytest.mark.parametrize(
    "words",
    [
        ("--policy", "coverage:psi=3", "--method", "danl:masks=always"),
        ("--policy", "coverage:psi=3", "--method", "danl-masked", "--rounds", "5"),
        ("--policy", "coverage:psi=3", "--method", "danl:curvature=once", "--rounds", "5"),
        ("--policy", "coverage:psi=3", "--method", "newton"),
        ("--policy", "coverage:psi=3", "--rounds", "0"),
        ("--policy", "full"),
        (),
    ],
)
def test_nothing_is_said_where_masks_were_used_or_there_were_none(capsys, words):
    assert "not used" not in said(capsys, *words)


def test_masked_rounds_are_not_advised_to_who_asked_for_them(capsys):
    assert "not used" not in said(capsys, "--policy", "random:keep=1", "--method", "danl:masks=always")


def explained(capsys, *words):
    """The lines of --explain: what was asked, and why."""
    ended = run(capsys, "fit", "a1a", "--quiet", "--explain", *words)
    lines = ended.err.splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("times"))
    return [line.split() for line in lines[header + 1 :]]


def test_what_was_asked_for_the_same_reason_is_one_line_with_all_of_its_exchanges(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = explained(capsys, "--workers", "150", "--engine", "local:dropout=0.3", "--alpha", "1e-3")
    missing = [line for line in lines if line[2] == "curvature" and " ".join(line).endswith("what was missing")]
    assert len(missing) == 1
    assert missing[0][3].partition("-")[1] == "-"  # the fewest and the most that sent curvature
    assert lines[0][:3] == ["1", "0", "curvature"]


def test_a_method_that_gives_no_reasons_says_so(capsys):
    ended = run(capsys, "fit", "a1a", "--quiet", "--explain", "--method", "newton")
    assert "this method does not say why it asks what it asks" in " ".join(ended.err.split())
