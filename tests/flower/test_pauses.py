"""Pauses that grow with the wait, in the engine and in the loop of Flower's SuperNode."""

import itertools
import time

import pytest

from danl.engines.flower.pauses import SHARE, Pauses
from danl.federation.supernode import Clock


def test_nothing_is_seen_later_than_by_a_share_of_its_time():
    pauses, waited = Pauses(0.02, 3.0), 0.0
    for _ in range(200):
        pause = pauses.next()
        assert 0.02 <= pause <= max(0.02, SHARE * waited + 1e-12)
        assert pause <= 3.0
        waited += pause
    assert pauses.next() == 3.0


def test_few_looks_for_what_takes_long():
    pauses = Pauses(0.02, 3.0)
    assert (
        sum(1 for _ in itertools.takewhile(lambda total: total < 60, itertools.accumulate(iter(pauses.next, None))))
        < 80
    )


def test_what_came_begins_another_wait():
    pauses = Pauses(0.02, 3.0)
    first = [pauses.next() for _ in range(30)]
    pauses.begin()
    assert [pauses.next() for _ in range(30)] == first


def test_a_longest_pause_below_the_shortest_is_kept():
    assert Pauses(0.02, 0.001).next() == 0.001


@pytest.fixture
def slept(monkeypatch):
    found = []
    monkeypatch.setattr("danl.federation.supernode.time.sleep", found.append)
    return found


def test_the_supernodes_pauses_are_never_longer_than_flowers(slept):
    clock = Clock()
    for seconds in (3, 3, 0.5, 0.5, 3, 0.5, 3) * 50:
        clock.sleep(seconds)
        assert 0 < slept[-1] <= seconds


def test_a_message_makes_the_next_ones_be_looked_for_sooner(slept):
    clock = Clock()
    for _ in range(200):
        clock.sleep(3)
    assert slept[0] == 0.05
    assert slept[-1] == 3
    clock.sleep(0.5)  # the answer to a message is waited for
    clock.sleep(3)
    assert slept[-2:] == [0.02, 0.05]
    clock.sleep(0.5)
    assert slept[-1] == 0.02


def test_all_else_of_the_clock_is_times(slept):
    assert Clock().monotonic is time.monotonic
