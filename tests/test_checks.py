"""Checks of arguments: what passes comes back as Python's own number, what does not is refused with what is allowed."""

import math

import numpy as np
import pytest

from danl.checks import (
    check_choice,
    check_number,
    check_seconds,
    check_share,
    check_whole,
    is_finite,
    is_real,
    is_whole,
)
from danl.errors import InputError


@pytest.mark.parametrize(
    ("checked", "expected"),
    [
        (lambda: check_whole("k", np.int32(3)), 3),
        (lambda: check_whole("k", 0, 0), 0),
        (lambda: check_number("x", np.float32(0.5)), 0.5),
        (lambda: check_number("x", 0, least=0), 0.0),
        (lambda: check_number("x", math.inf, infinite=True), math.inf),
        (lambda: check_seconds("wait", 2), 2.0),
        (lambda: check_share("p", 0), 0.0),
        (lambda: check_share("p", 1), 1.0),
        (lambda: check_share("p", np.float64(0.25), zero=False, one=False), 0.25),
        (lambda: check_choice("word", "a", ("a", "b")), None),
    ],
)
def test_what_passes_comes_back(checked, expected):
    value = checked()
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_whole("k", 0), "k=0: must be a whole number >= 1"),
        (lambda: check_whole("k", 2.0), "k=2.0: must be a whole number >= 1"),
        (lambda: check_whole("k", True), "k=True: must be a whole number >= 1"),
        (lambda: check_whole("k", "3", 2, "try 2"), "k='3': must be a whole number >= 2; try 2"),
        (lambda: check_number("x", 0), "x=0: must be a finite number > 0"),
        (lambda: check_number("x", math.nan), "x=nan: must be a finite number > 0"),
        (lambda: check_number("x", math.inf), "x=inf: must be a finite number > 0"),
        (lambda: check_number("x", -1, least=0), "x=-1: must be a finite number >= 0"),
        (lambda: check_number("x", False, least=0), "x=False: must be a finite number >= 0"),
        (lambda: check_number("x", 1j), "x=1j: must be a finite number > 0"),
        (lambda: check_number("x", math.nan, infinite=True), "x=nan: must be a number > 0, or infinity"),
        (
            lambda: check_number("x", 0.5, "try 1", least=1, infinite=True),
            "x=0.5: must be a number >= 1, or infinity; try 1",
        ),
        (lambda: check_seconds("wait", 0), "wait=0: must be a finite number of seconds > 0"),
        (lambda: check_share("p", 1.5), "p=1.5: must be a number between 0 and 1"),
        (lambda: check_share("p", math.nan), "p=nan: must be a number between 0 and 1"),
        (lambda: check_share("p", 0, zero=False, one=False), "p=0: must be a number between 0 and 1"),
        (lambda: check_share("p", 0, zero=False), "p=0: must be a number above 0 and at most 1"),
        (lambda: check_share("p", 1, one=False), "p=1: must be a number of at least 0 and below 1"),
        (lambda: check_choice("word", "c", ("a", "b"), "try a"), "word='c': must be 'a' or 'b'; try a"),
        (lambda: check_choice("word", 1, ("a", "b", "c")), "word=1: must be 'a', 'b' or 'c'"),
    ],
)
def test_what_does_not_pass_is_refused(check, message):
    with pytest.raises(InputError) as error:
        check()
    assert str(error.value) == message


def test_kinds_of_numbers():
    assert [is_whole(value) for value in (3, np.int8(3), -3, 3.0, True, "3", None)] == [True] * 3 + [False] * 4
    assert [is_whole(value, 0) for value in (0, -1)] == [True, False]
    assert [is_real(value) for value in (3, 0.5, math.nan, np.float32(1), True, 1j, "1")] == [True] * 4 + [False] * 3
    assert [is_finite(value) for value in (3, math.inf, math.nan)] == [True, False, False]
