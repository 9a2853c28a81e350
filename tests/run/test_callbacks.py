"""Callbacks: what they see, how they end a run, what becomes of their errors."""

import numpy as np
import pytest

import danl
from danl.callbacks import Callback, Callbacks, StopWhen
from danl.callbacks.logger import LONGEST, metrics_of, texts_of
from danl.engines import Local
from tests.problems import random_problem

RUN = {"method": "gd", "max_rounds": 20, "tol": 0.0}


class Noted(Callback):
    """Notes what it is told."""

    def __init__(self, stop_at=None, fail_in=None):
        self.reported, self.stop_at, self.fail_in = [], stop_at, fail_in

    def _note(self, what):
        self.reported.append(what)
        if what == self.fail_in:
            raise RuntimeError(f"in {what}")

    def begin(self, settings):
        self.settings = settings
        self._note("begin")

    def __call__(self, row):
        self._note(row.exchange)
        return row.exchange == self.stop_at

    def end(self, result):
        self.result = result
        self._note("end")


class Watched(Local):
    closed = 0

    def close(self):
        self.closed += 1
        super().close()


# Stopping.


@pytest.mark.parametrize("word", [True, danl.STOP, np.bool_(True)])
def test_true_ends_a_run_with_what_it_has(word):
    full = danl.solve(random_problem(), **RUN)
    result = danl.solve(random_problem(), **RUN, callback=lambda row: word if row.exchange == 4 else None)
    assert (result.status, len(result.history)) == ("stopped", 5)
    np.testing.assert_array_equal(result.history.column("objective"), full.history.column("objective")[:5])
    assert result.history[-1].objective == pytest.approx(random_problem().objective(result.w), rel=1e-14)
    assert result.summary()["status"] == "stopped"


@pytest.mark.parametrize("word", [None, False, 0, 1, "stop", [1], np.ones(3)])
def test_nothing_else_does(word):
    """What a callback happens to return, a list's length or a row, is no word on the run."""
    assert danl.solve(random_problem(), **RUN, callback=lambda row: word).status == "max_rounds"


def test_a_run_that_is_over_is_not_stopped():
    result = danl.solve(random_problem(), method="newton", callback=lambda row: row.grad_norm < 1e-10)
    assert result.status == "converged"


def test_stop_when():
    problem = random_problem()
    reference = danl.reference_optimum(problem)
    result = danl.solve(
        problem, **RUN | {"max_rounds": 500}, reference=reference, callback=StopWhen(lambda row: row.gap < 1e-3)
    )
    gaps = result.history.column("gap")
    assert result.status == "stopped"
    assert gaps[-1] < 1e-3 <= gaps[:-1].min()
    assert danl.solve(problem, **RUN, callback=StopWhen(lambda row: row.gap < 1e-3)).status == "max_rounds"  # nan
    with pytest.raises(danl.InputError, match=r"condition=0.1: must be a function of a danl.Row"):
        StopWhen(0.1)


def moved_problem():
    """Columns whose means are large, so that the run works on others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) + np.array([0.0, 1e5, -1e6])
    y = (X[:, 0] > rng.normal(size=60)).astype(float)
    return danl.Problem(danl.partition(X, y, workers=4, seed=0), alpha=1e-3, intercept=True)


@pytest.mark.parametrize("problem", [random_problem, moved_problem])
def test_a_parameter_w_is_the_model_the_run_would_return(problem):
    seen = []
    whole = danl.solve(problem(), policy="coverage:psi=2", callback=lambda row, w: seen.append((row.objective, w)))
    assert len(seen) == len(whole.history)
    np.testing.assert_array_equal(seen[-1][1], whole.w)
    for objective, w in seen:  # copies: none of them is another's
        assert problem().objective(w) == pytest.approx(objective, rel=1e-6)
    stopped = danl.solve(problem(), policy="coverage:psi=2", callback=lambda row, *, w: row.exchange == 3)
    assert stopped.status == "stopped"
    np.testing.assert_array_equal(stopped.w, seen[3][1])


def test_the_model_may_be_changed_by_whoever_gets_it():
    def spoil(row, w):
        w[:] = np.nan

    assert (
        danl.solve(random_problem(), **RUN, callback=spoil).w.tobytes()
        == danl.solve(random_problem(), **RUN).w.tobytes()
    )


def test_an_object_that_sees_the_model():
    class Largest(Callback):
        def __call__(self, row, w=None):
            self.largest = np.abs(w).max()

    largest = Largest()
    result = danl.solve(random_problem(), **RUN, callback=[largest, StopWhen(lambda row, w: np.abs(w).max() > 0.1)])
    assert result.status == "stopped"
    assert largest.largest == np.abs(result.w).max() > 0.1


def test_a_stopped_run_is_taken_up_where_it_ended(tmp_path):
    arguments = {"method": "danl-masked", "regions": 3, "policy": "coverage:psi=2", "max_rounds": 15, "tol": 0.0}
    whole = danl.solve(random_problem(), **arguments)
    kept = danl.Checkpoints(tmp_path, every=100)
    first = danl.solve(random_problem(), **arguments, checkpoint=kept, callback=lambda row: row.exchange == 6)
    assert (first.status, len(first.history)) == ("stopped", 7)
    second = danl.solve(random_problem(), **arguments, resume=tmp_path)
    assert (second.status, len(second.history)) == ("max_rounds", 16)
    assert second.w.tobytes() == whole.w.tobytes()


def test_the_start_is_not_shown():
    noted = Noted()
    danl.solve(random_problem(), **RUN, w0="fedavg:rounds=3", callback=noted)
    assert noted.reported == ["begin", *range(21), "end"]


# Several of them, and what they are told.


def test_several_are_all_called_also_when_one_has_said_stop():
    noted, rows = [Noted(), Noted(stop_at=2), Noted()], []
    result = danl.solve(random_problem(), **RUN, callback=[*noted, rows.append])
    assert (result.status, len(rows)) == ("stopped", 3)
    for each in noted:
        assert each.reported == ["begin", 0, 1, 2, "end"]
        assert each.result is result
        assert each.settings == result.settings | {"w0": each.settings["w0"]}
        assert each.settings["method"] == "gd"


def test_any_object_with_some_of_the_methods_will_do():
    class Half:
        rows = 0

        def __call__(self, row):
            self.rows += 1

        def end(self, result):
            self.status = result.status

    half = Half()
    danl.solve(random_problem(), **RUN, callback=(half,))
    assert (half.rows, half.status) == (21, "max_rounds")


@pytest.mark.parametrize("callback", [3, "print", [print, None], Noted, [[print]]])
def test_wrong_callbacks(callback):
    with pytest.raises(
        danl.InputError, match=r"callback=.*: must be a function of a danl.Row, an object of danl.callbacks"
    ):
        danl.solve(random_problem(), **RUN, callback=callback)


def test_an_empty_list_is_none():
    assert not Callbacks([])
    assert danl.solve(random_problem(), **RUN, callback=[]).status == "max_rounds"


# Errors.


@pytest.mark.parametrize(("where", "reported"), [("begin", ["begin", "end"]), (3, ["begin", 0, 1, 2, 3, "end"])])
def test_an_error_of_a_callback_is_the_runs(where, reported):
    engine, broken, other = Watched(), Noted(fail_in=where), Noted()
    with pytest.raises(RuntimeError, match=f"in {where}"):
        danl.solve(random_problem(), **RUN, engine=engine, callback=[other, broken])
    assert engine.closed == 1
    assert broken.reported == reported
    assert other.reported[-1] == "end"
    assert other.result is broken.result is None


def test_an_error_at_the_end_is_raised_after_all_have_ended():
    first, second = Noted(fail_in="end"), Noted()
    with pytest.raises(RuntimeError, match="in end"):
        danl.solve(random_problem(), **RUN, callback=[first, second])
    assert second.reported[-1] == "end"


def test_the_runs_own_error_is_the_one_seen(monkeypatch):
    monkeypatch.setattr(Local, "exchange", lambda *arguments, **options: 1 / 0)
    noted = Noted(fail_in="end")
    with pytest.raises(ZeroDivisionError):
        danl.solve(random_problem(), **RUN, callback=noted)
    assert (noted.reported, noted.result) == (["begin", "end"], None)


def test_ctrl_c_is_an_ending_like_another():
    def interrupt(row):
        if row.exchange == 2:
            raise KeyboardInterrupt

    noted = Noted()
    danl.solve(random_problem(), **RUN, callback=[noted, interrupt])
    assert noted.result.status == "interrupted"


def test_callbacks_change_nothing():
    plain = danl.solve(random_problem(), policy="coverage:psi=2", max_rounds=9)
    watched = danl.solve(random_problem(), policy="coverage:psi=2", max_rounds=9, callback=[Noted(), Noted()])
    assert plain.w.tobytes() == watched.w.tobytes()


# What loggers write.


def test_rows_as_numbers():
    row = danl.solve(random_problem(), regions=3, max_rounds=1).history[0]
    numbers = metrics_of(row)
    assert numbers.keys() == (
        set(danl.Row.__dataclass_fields__) - {"exchange", "kind", "why", "coverage", "gap", "distance"}
        - {"simulated_seconds"}
    ) | {"hessian", "coverage_0", "coverage_1", "coverage_2"}  # fmt: skip
    assert (numbers["hessian"], numbers["coverage_1"], numbers["bytes_up"]) == (1.0, 4.0, float(row.bytes_up))


def test_settings_as_texts():
    result = danl.solve(random_problem(sizes=(3,) * 300, seed=1), method="gd", max_rounds=0)
    texts = texts_of(result.settings)
    assert "w0" not in texts
    assert (texts["method"], texts["method_options.batch_size"], texts["workers"]) == ("gd", "None", "300")
    assert len(texts["rows"]) == LONGEST
    assert texts["rows"].endswith("...")


# A run that goes on.


def test_a_run_that_goes_on_hands_its_rows_over_before_the_first_exchange(tmp_path):
    class Resumed(Noted):
        def resumed(self, earlier):
            self._note(("resumed", [row.exchange for row in earlier]))
            earlier.append(earlier[0])  # a copy: nobody else's rows

    danl.solve(random_problem(), method="gd", max_rounds=3, tol=0.0, checkpoint=tmp_path, callback=Resumed())
    one, other = Resumed(), Resumed()
    result = danl.solve(random_problem(), method="gd", max_rounds=5, tol=0.0, resume=tmp_path, callback=[one, other])
    assert one.reported == other.reported == ["begin", ("resumed", [0, 1, 2, 3]), 4, 5, "end"]
    assert len(result.history) == 6
    fresh = Resumed()
    danl.solve(random_problem(), method="gd", max_rounds=1, tol=0.0, callback=fresh)
    assert fresh.reported == ["begin", 0, 1, "end"]
