"""The comparison of shown and printed output: it forgives what machines differ in, and nothing else."""

import pytest

from tests.shown import differences

SHOWN = """
status         converged
exchanges      42, 35 of them with Hessians
objective      0.298148468883
gradient norm  3.407e-15
bytes          9.3 MB up, 267.7 kB down
seconds        0.236
{"w_sha256": "bceabc0123456789bceabc0123456789"}
"""


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("bceabc0123456789bceabc0123456789", "00ff00ff00ff00ff00ff00ff00ff00ff"),
        ("seconds        0.236", "seconds        91.5"),
        ("3.407e-15", "0.000e+00"),
        ("0.298148468883", "0.298148468902"),
        ("42, 35", "43, 36"),
        ("267.7 kB", "0.3 MB"),
        ("status         converged\n", "status\nconverged "),
    ],
)
def test_what_machines_differ_in_is_forgiven(written, instead):
    assert written in SHOWN
    assert differences(SHOWN.replace(written, instead), SHOWN) == []


@pytest.mark.parametrize(
    ("written", "instead", "found"),
    [
        ("converged", "diverged", ["shown, not printed: converged", "printed, not shown: diverged"]),
        ("0.298148468883", "0.299148468883", ["shown, and nothing like it printed: 0.298148468883"]),
        ("42, 35", "84, 70", ["shown, and nothing like it printed: 42", "shown, and nothing like it printed: 35"]),
        ("9.3 MB", "9.3 kB", ["shown, and nothing like it printed: 9.3 MB"]),
        ("with Hessians", "Hessians", ["shown, not printed: with"]),
        ('"bceabc0123456789bceabc0123456789"', "null", ["shown, not printed: digest", "printed, not shown: null"]),
    ],
)
def test_what_says_something_else_is_told(written, instead, found):
    assert written in SHOWN
    assert differences(SHOWN.replace(written, instead), SHOWN) == found


def test_an_ellipsis_is_no_digest():
    assert differences("w bceabcd", "w abcdefa") == ["shown, not printed: abcdefa", "printed, not shown: bceabcd"]
