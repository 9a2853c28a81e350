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
