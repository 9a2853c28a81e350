"""Frozen data that is made and changed in one go is what the standard library makes."""

import dataclasses
import inspect
import pickle
from dataclasses import dataclass, field

import pytest

from danl.frozen import at_once, cached_property, replace
from danl.protocol.replies import Replies


@dataclass(frozen=True)
class Plain:
    first: int
    second: list = field(default_factory=list)
    third: str = "c"
    _: dataclasses.KW_ONLY
    fourth: float = 4.0
    fifth: dict = field(default_factory=dict)

    @cached_property
    def twice(self):
        """Two of the first."""
        return 2 * self.first


@at_once
@dataclass(frozen=True)
class Quick(Plain):
    sixth: int = 6


@dataclass(frozen=True)
class Slow(Plain):
    sixth: int = 6


@at_once
@dataclass(frozen=True)
class Checked:
    number: int

    def __post_init__(self):
        if self.number < 0:
            raise ValueError("negative")


@dataclass(frozen=True, slots=True)
class Slotted:
    first: int
    second: int = 0


def test_the_constructor_takes_what_it_took():
    theirs, ours = inspect.signature(Slow), inspect.signature(Quick)
    assert list(theirs.parameters.values()) == list(ours.parameters.values())
    for given, named in [((1,), {}), ((1, [2], "d", 7), {"fourth": 0.5}), ((), {"first": 1, "fifth": {3: 4}})]:
        assert dataclasses.asdict(Quick(*given, **named)) == dataclasses.asdict(Slow(*given, **named))
    for given, named in [((), {}), ((1, 2, 3, 4, 5), {}), ((1,), {"seventh": 1})]:
        with pytest.raises(TypeError):
            Quick(*given, **named)


def test_every_object_has_defaults_of_its_own():
    assert Quick(1).second is not Quick(1).second
    assert Quick(1) == Quick(1) != Quick(2)
    assert pickle.loads(pickle.dumps(Quick(1, [2]))) == Quick(1, [2])


def test_it_is_frozen_and_checked_as_before():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Quick(1).first = 2
    assert Checked(1).number == 1
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


@pytest.mark.parametrize("kind", [Quick, Slow])
def test_a_copy_takes_the_fields_along_and_what_is_remembered_not(kind):
    before = kind(1, [2])
    assert before.twice == 2
    after = replace(before, first=5)
    assert after == kind(5, [2])
    assert "twice" not in vars(after)
    assert (after.twice, before.first) == (10, 1)
    assert replace(before) == before
    with pytest.raises(TypeError, match="seventh"):
        replace(before, seventh=1)


def test_a_copy_of_a_class_with_slots_is_that_of_the_standard_library():
    assert replace(Slotted(1), first=5) == Slotted(5)
    assert replace(Slotted(1, 2)) == Slotted(1, 2)


def test_a_copy_of_what_is_checked_is_checked():
    assert replace(Checked(1), number=2).number == 2
    assert replace(Checked(1)) == Checked(1)
    with pytest.raises(ValueError, match="negative"):
        replace(Checked(1), number=-1)


def test_a_copy_of_replies_has_the_defaults_that_were_filled_in():
    replies = replace(Replies(), dropped=3)
    assert replies.dropped == 3
    assert replies.senders is replies.workers


def test_the_property_of_a_class_is_itself():
    assert Plain.twice.__doc__ == "Two of the first."
