"""An estimator's callback: it sees every exchange, can end the fit, and is no hindrance to scikit-learn."""

import warnings
from importlib.util import find_spec

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

import danl
from danl import DANLClassifier, DANLRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = (X @ [1.0, -1.0, 0.5, 0.0] + RNG.normal(size=120) > 0).astype(int)


@pytest.mark.parametrize("make", [DANLClassifier, DANLRegressor])
def test_it_sees_every_exchange_and_changes_nothing(make):
    rows = []
    model = make(workers=3, callback=rows.append).fit(X, Y)
    assert [row.exchange for row in rows] == list(range(len(model.history_)))
    np.testing.assert_array_equal(model.coef_, make(workers=3).fit(X, Y).coef_)


def test_it_sees_the_model():
    seen = []
    model = DANLClassifier(workers=3, callback=lambda row, w: seen.append(w)).fit(X, Y)
    np.testing.assert_array_equal(seen[-1], [*model.coef_[0], *model.intercept_])
    assert len(seen) == len(model.history_)


def test_several_beside_the_progress(capsys):
    first, second = [], []
    DANLClassifier(workers=3, callback=[first.append, second.append], verbose=2).fit(X, Y)
    assert len(first) == len(second) > 1
    assert capsys.readouterr().err.count("DANLClassifier: exchange") == len(first)


def test_a_fit_that_was_ended_says_so():
    model = DANLClassifier(workers=3, C=np.inf, callback=danl.callbacks.StopWhen(lambda row: row.exchange == 1))
    with pytest.warns(ConvergenceWarning) as warned:
        model.fit(X, Y)
    assert model.result_.status == "stopped"
    (said,) = [str(each.message) for each in warned]
    assert said.startswith("DANLClassifier did not converge: stopped after 2 exchanges")
    assert said.endswith("a callback ended it: fit again without it, with warm_start=True to go on from here")
    model.set_params(callback=None, warm_start=True).fit(X, Y)
    np.testing.assert_allclose(model.coef_, DANLClassifier(workers=3, C=np.inf).fit(X, Y).coef_, rtol=1e-9)


@pytest.mark.parametrize("callback", [3, [print, "print"]])
def test_what_is_none_is_refused_and_leaves_no_fit(callback):
    model = DANLClassifier(workers=3, callback=callback)
    with pytest.raises(danl.InputError, match=r"callback=.*: must be a function of a danl.Row"):
        model.fit(X, Y)
    assert not hasattr(model, "coef_")


@pytest.mark.skipif(find_spec("tensorboardX") is None, reason="tensorboardX is not installed")
def test_copies_of_a_logger_are_loggers_of_their_own(tmp_path):
    logger = danl.callbacks.TensorBoard(tmp_path / "runs")
    model = DANLClassifier(workers=3, callback=logger)
    copied = clone(model)
    assert copied.callback is not logger
    assert copied.callback.logdir == logger.logdir
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = cross_val_score(model, X, Y, cv=3)
    assert (scores > 0.5).all()
    assert list((tmp_path / "runs").glob("events.out.tfevents.*"))


def test_a_saved_estimator_comes_back_without_it(tmp_path):
    rows = []
    fitted = DANLClassifier(workers=3, callback=rows.append).fit(X, Y)
    with pytest.warns(danl.DanlWarning, match="callback: cannot be written to a file"):
        fitted.save(tmp_path / "model.npz")
    again = DANLClassifier.load(tmp_path / "model.npz")
    assert again.callback is None
    np.testing.assert_array_equal(again.coef_, fitted.coef_)
