"""Copies of frozen data: as `dataclasses.replace` makes them, whatever the class is like."""

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property

import pytest

from danl.frozen import replace


@dataclass(frozen=True)
class Plain:
    a: int
    b: tuple[int, ...] = (1, 2)
    c: list[int] = field(default_factory=list)

    @cached_property
    def double(self):
        return 2 * self.a


@dataclass(frozen=True)
class Derived(Plain):
    d: str = ""


@dataclass(frozen=True)
class Checked:
    a: int

    def __post_init__(self):
        if self.a < 0:
            raise ValueError("a is negative")


@dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: int = 0


@pytest.mark.parametrize("instance", [Plain(1), Derived(1, d="x"), Checked(1), Slotted(1)], ids=lambda each: type(each))
def test_a_copy_is_that_of_the_standard_library(instance):
    assert replace(instance, a=5) == dataclasses.replace(instance, a=5)
    assert type(replace(instance, a=5)) is type(instance)
    assert replace(instance) == instance
    assert instance.a == 1


def test_what_is_remembered_beside_the_fields_is_not_taken_along():
    one = Plain(1)
    assert one.double == 2
    assert replace(one, a=5).double == 10


def test_a_field_that_is_none_is_an_error():
    with pytest.raises(TypeError, match="e"):
        replace(Plain(1), e=3)


def test_a_class_that_checks_its_fields_goes_on_checking_them():
    with pytest.raises(ValueError, match="negative"):
        replace(Checked(1), a=-1)
