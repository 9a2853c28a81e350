"""What is said of a method of one's own that returns something wrong: which method, what, where, what it must be."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import danl
from danl.methods import Exchange, GradientTask, HessianTask, Info, mean_gradient
from tests.problems import random_problem


@dataclass(frozen=True)
class State:
    w: Any
    status: Any = None


@dataclass(frozen=True)
class Plain:
    """Gradient descent with a slip: `wrong` makes something else of what one of its functions returns."""

    function: str = ""
    wrong: Any = None
    name = "plain"

    def _made(self, function, right, exchange):
        return self.wrong(right) if self.function == function and exchange != 1 else right

    def begin(self, setup):
        return self._made("begin", State(setup.w0), 0)

    def plan(self, state, setup, turn):
        exchange = setup.ask_everyone("gradient", GradientTask(turn.exchange, state.w))
        return self._made("plan", exchange, turn.exchange + 1)

    def absorb(self, state, replies, setup):
        step = 0.1 * mean_gradient(replies, setup.weights)
        return self._made("absorb", (State(state.w - step), Info()), 0)


def with_task(asked, **changes):
    return replace(asked, task=replace(asked.task, **changes))


SLIPS = [
    ("begin", lambda right: None, "begin made a state whose w is a NoneType of shape () in exchange 0; must"),
    ("plan", lambda right: None, "plan returned None in exchange 1; must be an Exchange of a task, such as setup.ask"),
    ("plan", lambda right: right.task, "plan returned GradientTask(exchange=1, w=array(["),
    ("plan", lambda right: replace(right, task=None), "plan returned Exchange(kind='gradient', task=None, "),
    (
        "plan",
        lambda right: with_task(right, exchange=8),
        "plan made a task of exchange 8 in exchange 1; must be one of turn.exchange, 1",
    ),
    (
        "plan",
        lambda right: Exchange("hessian", HessianTask(1, right.task.w), np.arange(4), pieces=np.array([[0, 29]] * 4)),
        "plan made pieces that are none in exchange 1; must be for every worker a range [first, last) of the numbers",
    ),
    (
        "plan",
        lambda right: replace(right, pieces=np.zeros((4, 2), dtype=int)),
        "plan made pieces that are none in exchange 1; must be for every worker a range [first, last) of the numbers",
    ),
    (
        "plan",
        lambda right: Exchange("gradient", right.task, np.arange(0)),
        "plan asked nobody in exchange 1; must be an Exchange with workers, or the status says that the run is over",
    ),
    ("absorb", lambda right: None, "absorb returned None in exchange 0; must be (state, Info)"),
    ("absorb", lambda right: right[0].w, "absorb returned array(["),
    ("absorb", lambda right: (right[0], 3.0), "absorb returned (State(w=array(["),
    (
        "absorb",
        lambda right: (State(right[0].w[:3]), Info()),
        "absorb made a state whose w is a ndarray of shape (3,) in exchange 0; must be an array (7,)",
    ),
    ("absorb", lambda right: (State([0.0] * 7), Info()), "absorb made a state whose w is a list of shape (7,)"),
    (
        "absorb",
        lambda right: (State(right[0].w, "done"), Info()),
        "absorb made a state whose status is 'done' in exchange 0; must be None or one of converged, max_rounds, ",
    ),
]


@pytest.mark.parametrize(("function", "wrong", "message"), SLIPS)
def test_a_slip_is_named(function, wrong, message):
    with pytest.raises(danl.InputError) as caught:
        danl.solve(random_problem(), method=Plain(function, wrong))
    assert str(caught.value).startswith(f"method 'plain': {message}")
    assert str(caught.value).endswith(" (docs/extending.md)")
    assert "\n" not in str(caught.value)


def test_without_a_slip_it_runs():
    assert danl.solve(random_problem(), method=Plain(), max_rounds=5).status == "max_rounds"
