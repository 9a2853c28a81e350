"""Who belongs to the objective: absences are counted, the gone leave, the returned are taken in with Hessians."""

import numpy as np

from danl.methods.membership import Membership, weights_among
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
