"""Who counts as absent, for every method: not who is expected back; and what a run that lost its quorum says."""

import re
from dataclasses import replace

import numpy as np
import pytest

import danl
from danl.engines import Local
from danl.methods import PRESETS
from danl.methods.information import Information
from danl.protocol.messages import Failure
from danl.protocol.wire import decode, encode
from tests.cli.shell import run as run_danl
from tests.problems import random_problem


class Away(Local):
    """Some workers do not answer exchanges `first` to `last`, with a failure of this kind."""

    def __init__(self, kind, workers, first=0, last=10**9):
        super().__init__(batched=False)
        self.kind, self.away, self.first, self.last, self.asked = kind, set(workers), first, last, []

    def exchange(self, exchange, *, deadline=None):
        self.asked.append(exchange.workers.tolist())
        away = self.away & set(self.asked[-1]) if self.first <= exchange.task.exchange <= self.last else set()
        failures = {who: Failure(who, self.kind, f"the roof of {who} fell in") for who in sorted(away)}
        return replace(super().exchange(exchange.without(away)), failures=failures)


@pytest.mark.parametrize("first", [0, 2], ids=["Phase I", "later"])
@pytest.mark.parametrize("method", ["danl:patience=3", "danl:patience=3,curvature=diag", "newton"])
def test_who_is_expected_back_is_not_absent(method, first):
    problem = random_problem()
    engine = Away("restarting", (0, 2, 3), first, first + 30)
    result = danl.solve(problem, method=method, engine=engine, max_rounds=200, tol=1e-10)
    assert (result.status, result.notes) == ("converged", ())
    best = danl.reference_optimum(problem)
    assert np.linalg.norm(result.w - best.w) <= 1e-7 * np.linalg.norm(best.w)
    lost = danl.solve(problem, method=method, engine=Away("died", (0, 2, 3), first, first + 30), max_rounds=200)
    assert lost.status == "quorum_lost"


@pytest.mark.parametrize("method", ["danl-paper", "danl-masked", "newton-zero", "gd", "fedavg"])
def test_a_start_that_nobody_could_answer_yet_is_asked_for_again(method):
    problem = random_problem()
    found = danl.solve(problem, method=method, engine=Away("restarting", range(4), 0, 4), max_rounds=10, tol=0)
    alone = danl.solve(problem, method=method, engine=Local(batched=False), max_rounds=5, tol=0)
    assert (found.status, len(found.history)) == ("max_rounds", 11)
    assert np.array_equal(found.w, alone.w)


def test_the_check_of_a_small_gradient_waits_for_who_is_expected_back():
    problem = random_problem()
    options = {"method": "danl-masked", "policy": "coverage:psi=2", "tol": 1e-6, "max_rounds": 300}
    free = danl.solve(problem, engine=Local(batched=False), **options)
    kinds = free.history.column("kind").tolist()
    assert (free.status, kinds[-1]) == ("converged", "check")
    found = danl.solve(problem, engine=Away("restarting", [1], len(kinds) - 1, len(kinds) + 3), **options)
    assert found.history.column("kind").tolist() == kinds + ["check"] * 5


def test_a_look_at_a_model_does_not_count_them_either():
    problem = random_problem()
    look = Information(patience=3)
    result = danl.solve(problem, method=look, engine=Away("restarting", [1], 0, 20), max_rounds=30)
    assert result.status == "converged"
    result = danl.solve(problem, method=look, engine=Away("died", [1]), max_rounds=30)
    assert (result.status, len(result.history)) == ("quorum_lost", 3)
    assert result.notes == ("quorum lost in exchange 2, without worker 1 (died: the roof of 1 fell in)",)


@pytest.mark.parametrize("kind", ["timeout", "died", "gone", "error", "refused", "invalid"])
@pytest.mark.parametrize("method", [*PRESETS, "danl:curvature=diag"])
def test_a_lost_quorum_says_who_was_lost_and_why(method, kind):
    result = danl.solve(random_problem(), method=method, engine=Away(kind, range(4)), max_rounds=20)
    assert result.status == "quorum_lost"
    everyone = [f"worker {who} ({kind}: the roof of {who} fell in)" for who in range(4)]
    named = ", ".join(everyone[:-1]) + " and " + everyone[-1]
    assert result.notes[-1] == f"quorum lost in exchange {len(result.history) - 1}, without {named}"


@pytest.mark.parametrize("method", ["danl", "danl:curvature=diag"])
def test_it_names_the_lost_and_not_who_missed_the_last_exchange_only(method):
    class Flickering(Away):
        def exchange(self, exchange, *, deadline=None):
            replies = super().exchange(exchange, deadline=deadline)
            if 1 not in replies.workers or exchange.task.exchange % 2 == 0:
                return replies
            return replies.without({1: Failure(1, "timeout", "slow")})

    engine = Flickering("died", (0, 2), 3)
    result = danl.solve(random_problem(), method=method, policy="coverage:psi=1", tol=1e-300, engine=engine)
    assert result.status == "quorum_lost"
    assert result.notes[-1].endswith(
        "without worker 0 (died: the roof of 0 fell in) and worker 2 (died: the roof of 2 fell in)"
    )


def test_a_long_list_is_cut_short():
    problem = random_problem(sizes=(4,) * 60)
    result = danl.solve(problem, method="newton", engine=Local(away=dict.fromkeys(range(60), (0, None))))
    assert "without workers 0, 1, 2," in result.notes[-1]
    assert "and 40 more (timeout: away, as the engine was told)" in result.notes[-1]
    result = danl.solve(problem, method="newton", engine=Away("died", range(60)))
    assert result.notes[-1].endswith("worker 19 (died: the roof of 19 fell in) and 40 more")


def test_a_start_that_lost_its_quorum_says_so():
    result = danl.solve(random_problem(), w0="fedavg:rounds=3", engine=Away("died", range(4)))
    assert result.status == "quorum_lost"
    assert "quorum lost in exchange 0, without worker 0 (died: the roof of 0 fell in)" in result.notes[-1]


def test_dead_for_good_is_not_asked_again_and_needs_no_patience():
    problem = random_problem()
    engine = Away("gone", [2], 3)
    result = danl.solve(problem, policy="coverage:psi=1", engine=engine, max_rounds=200)
    assert result.status == "converged"
    assert [failure.kind for failure in result.failures] == ["gone"]
    assert all(2 not in asked for asked in engine.asked[4:])
    assert result.notes == (
        "worker 2 died for good in exchange 3: the roof of 2 fell in",
        "without worker 2: the objective is that of the 3 workers that are left",
    )
    lost = danl.solve(problem, policy="coverage:psi=1", engine=Away("gone", [2, 3], 3), max_rounds=200)
    assert (lost.status, len(lost.history)) == ("quorum_lost", 4)


def test_dead_for_good_ends_with_the_process_it_died_in(tmp_path):
    """A run that is taken up again has other processes: who was dead is asked again, and is back."""
    problem = random_problem()
    options = {"policy": "coverage:psi=1", "tol": 1e-10}
    first = danl.solve(problem, engine=Away("gone", [2], 3), checkpoint=tmp_path, max_rounds=6, **options)
    assert first.status == "max_rounds"
    result = danl.solve(problem, resume=tmp_path, max_rounds=200, **options)
    assert result.status == "converged"
    best = danl.reference_optimum(problem)
    assert np.linalg.norm(result.w - best.w) <= 1e-7 * np.linalg.norm(best.w)


@pytest.mark.parametrize("kind", ["restarting", "gone"])
def test_the_kinds_travel(kind):
    failure = Failure(3, kind, "why")
    assert decode(encode(failure), most_bytes=1000) == failure


def test_it_is_shown_on_the_command_line(capsys):
    ended = run_danl(capsys, "fit", "a1a", "--method", "newton", "--engine", "local:dropout=0.9")
    assert ended.status == 3
    reported = " ".join(ended.err.split())  # lines are broken where the terminal ends
    assert re.search(r"quorum lost in exchange 0, without workers 0, [\d, ]+ and \d \(timeout: away, as the", reported)
    ended = run_danl(capsys, "fit", "a1a", "--method", "newton", "--engine", "local:dropout=0.9", "--json")
    assert "quorum lost in exchange 0" in ended.json["notes"][-1]
