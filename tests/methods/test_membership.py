"""Who belongs to the objective: absences are counted, the gone leave, the returned are taken in with Hessians."""

import numpy as np
import pytest

from danl.methods.membership import CHANCE, MOST_ABSENT, Membership, by_chance, weights_among
from danl.protocol.messages import Failure
from danl.protocol.replies import Replies


def replies(here, **failures):
    failed = {int(name[1:]): Failure(int(name[1:]), kind) for name, kind in failures.items()}
    return Replies(np.array(here), np.zeros(len(here)), failures=failed)


def after(membership, came, *, starting=False, all_asked=False, patience=2, quorum=0.5):
    return membership.after(came, patience, quorum, starting=starting, all_asked=all_asked)


def test_a_member_leaves_after_patience_and_what_remains_is_reweighted():
    everyone = Membership.everyone(4)
    once = after(everyone, replies([0, 1, 2], w3="timeout"))
    assert once.missed.tolist() == [0, 0, 0, 1]
    assert once.members is everyone.members
    assert not once.regroup
    gone = after(once, replies([0, 1, 2], w3="timeout"))
    assert gone.members.tolist() == gone.alive.tolist() == [True, True, True, False]
    assert gone.regroup
    assert gone.quorate
    np.testing.assert_allclose(weights_among(gone.members, np.array([0.1, 0.2, 0.3, 0.4])), [1 / 6, 1 / 3, 1 / 2, 0])
    assert gone.notes == ("without worker 3: the objective is that of the 3 workers that are left",)
    assert everyone.notes == ()


def test_one_that_answered_in_time_has_missed_nothing():
    once = after(Membership.everyone(2), replies([0], w1="died"))
    assert not once.complete
    again = after(once, replies([0, 1]))
    assert again.missed.tolist() == [0, 0]
    assert again.complete


def test_one_expected_back_misses_nothing_and_one_gone_for_good_is_gone_at_once():
    waiting = after(Membership.everyone(3), replies([0, 1], w2="restarting"))
    assert waiting.missed.tolist() == [0, 0, 0]
    gone = after(Membership.everyone(3), replies([0, 1], w2="gone"))
    assert gone.members.tolist() == [True, True, False]


def test_one_that_is_back_is_taken_in_by_the_next_hessian_exchange():
    fewer = Membership.everyone(3).of(np.array([True, True, False]))
    back = after(fewer, replies([0, 1, 2]))
    assert back.regroup
    assert back.members.tolist() == [True, True, False]
    assert not after(fewer, replies([0, 1, 2]), all_asked=True).regroup  # it is being taken in
    assert not back.of(np.ones(3, dtype=bool)).regroup


def test_a_quorum_is_more_than_its_share():
    lost = after(Membership.everyone(4), replies([0, 1], w2="gone", w3="gone"))
    assert not lost.quorate
    assert lost.members.all()  # the objective is still the one that was solved
    assert after(Membership.everyone(4), replies([0, 1, 2], w3="gone")).quorate
    assert lost.reopened().quorate
    assert lost.reopened().alive.all()


def test_in_phase_one_nobody_has_joined_yet():
    begun = after(Membership.everyone(3), replies([0, 1], w2="gone"), starting=True)
    assert begun.members.all()
    assert not begun.regroup
    assert begun.alive.tolist() == [True, True, False]


# Many workers.


def some_missed(missing):
    """Replies of everyone but these, (N,)."""
    failures = {int(worker): Failure(int(worker), "timeout") for worker in np.flatnonzero(missing)}
    here = np.flatnonzero(~missing)
    return Replies(here, np.zeros(len(here)), failures=failures)


def play(n_workers, dropout, exchanges, *, seed=0, gone=None, patience=10):
    """Memberships after every exchange, with absences by chance and of one that is `gone` from the start."""
    rng, membership = np.random.default_rng(seed), Membership.everyone(n_workers)
    for _ in range(exchanges):
        missing = rng.random(n_workers) < dropout
        if gone is not None:
            missing[gone] = True
        membership = after(membership, some_missed(missing), patience=patience)
        yield membership


@pytest.mark.parametrize(("n_workers", "absent"), [(101, 0.01), (2_000, 0.3), (2_000, 0.05), (10**6, 0.5)])
def test_a_row_of_absences_by_chance_is_the_shortest_one_rarer_than_a_thousandth_among_all(n_workers, absent):
    row = by_chance(n_workers, absent)
    assert n_workers * absent**row <= CHANCE * (1 + 1e-9)
    assert n_workers * absent ** (row - 1) > CHANCE


def test_where_nobody_was_absent_one_absence_is_no_chance():
    assert by_chance(2_000, 0.0) == 1


@pytest.mark.parametrize("absent", [0.6, 0.99, 1.0])
def test_more_absences_than_half_are_not_taken_for_chance(absent):
    assert by_chance(2_000, absent) == by_chance(2_000, MOST_ABSENT)


@pytest.mark.parametrize("seed", range(3))
def test_of_two_thousand_that_miss_exchanges_nobody_is_gone_by_chance(seed):
    longest = 0
    for membership in play(2_000, 0.3, 100, seed=seed):
        assert membership.members.all()
        assert membership.alive.all()
        longest = max(longest, int(membership.missed.max()))
    assert longest >= 7  # rows of absences there were


def test_one_of_two_thousand_that_is_really_gone_counts_as_gone():
    memberships = list(play(2_000, 0.3, 20, gone=7))
    assert np.flatnonzero(~memberships[-1].members).tolist() == [7]
    assert memberships[-1].regroup
    assert memberships[9].members.all()  # ten absences in a row may be chance


def test_how_often_workers_miss_exchanges_is_counted_without_those_that_are_gone():
    """Else half of the workers leaving would make everyone else be waited for longer."""
    n_workers, membership = 2_000, Membership.everyone(2_000)
    away = np.arange(n_workers) < 900
    for _ in range(40):
        membership = after(membership, some_missed(away))
    assert not membership.alive[away].any()
    counted = membership.asked, membership.unanswered
    membership = after(membership, some_missed(away))
    assert membership.asked - counted[0] == 1_100
    assert membership.unanswered == counted[1]


@pytest.mark.parametrize("n_workers", [1, 2, 100])
@pytest.mark.parametrize("patience", [1, 3, 10])
def test_up_to_a_hundred_workers_patience_is_exact(n_workers, patience):
    """However often the others miss exchanges."""
    rng, membership = np.random.default_rng(0), Membership.everyone(n_workers)
    gone = n_workers - 1
    for count in range(1, patience + 1):
        missing = (rng.random(n_workers) < 0.4) & (membership.missed < patience - 1)
        missing[gone] = True
        membership = membership.after(some_missed(missing), patience, 1e-9, starting=False, all_asked=False)
        assert membership.alive[gone] == (count < patience)
    assert (membership.asked, membership.unanswered) == (0, 0)


def test_more_than_a_hundred_that_miss_nothing_wait_as_long_as_patience_says():
    for patience in (5, 10):
        states = list(play(101, 0.0, patience, gone=5, patience=patience))
        assert [bool(state.alive[5]) for state in states] == [True] * (patience - 1) + [False]


def test_once_somebody_has_missed_an_exchange_everyone_is_asked_for_certain():
    """Whoever answers in the next one: complete says how it is, steady how it has been."""
    everyone = Membership.everyone(3)
    here = Replies(np.arange(3), np.zeros(3), np.zeros((3, 1)))
    assert everyone.after(here, 3, 0.5, starting=False, all_asked=True).of(np.ones(3, dtype=bool)).complete
    missing = Replies(np.arange(2), np.zeros(2), np.zeros((2, 1)), failures={2: Failure(2, "timeout", "")})
    one_missed = everyone.after(missing, 3, 0.5, starting=False, all_asked=True)
    back = one_missed.after(here, 3, 0.5, starting=False, all_asked=True)
    assert not one_missed.complete
    assert back.complete
    assert not back.steady
    assert not back.of(np.ones(3, dtype=bool)).complete
