"""What is wrong is said, and a fit that fails leaves an estimator as it was; what a fit tells while it runs."""

import pickle
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import danl
from danl import DANLClassifier, DANLRegressor
from tests.estimators.data import linear

X, Y = linear("binary")

WRONG = [
    ({"C": 0}, "C=0: must be a number > 0, or infinity; C=numpy.inf or alpha=0 is no penalty"),
    ({"C": -1}, "C=-1: must be a number > 0, or infinity; C=numpy.inf or alpha=0 is no penalty"),
    ({"C": float("nan")}, "C=nan: must be a number > 0, or infinity; C=numpy.inf or alpha=0 is no penalty"),
    ({"C": "1"}, "C='1': must be a number > 0, or infinity; C=numpy.inf or alpha=0 is no penalty"),
    ({"C": True}, "C=True: must be a number > 0, or infinity; C=numpy.inf or alpha=0 is no penalty"),
    ({"C": None}, "C=None: must be a number > 0, or infinity; C=numpy.inf or alpha=0 is no penalty"),
    ({"alpha": -1}, "alpha=-1: must be a finite number >= 0; None uses C"),
    ({"alpha": -0.5}, "alpha=-0.5: must be a finite number >= 0; None uses C"),
    ({"alpha": np.inf}, "alpha=inf: must be a finite number >= 0; None uses C"),
    ({"alpha": np.nan}, "alpha=nan: must be a finite number >= 0; None uses C"),
    ({"workers": 0}, "workers=0: must be a whole number >= 1"),
    ({"workers": 2.5}, "workers=2.5: must be a whole number >= 1"),
    ({"workers": 3.0}, "workers=3.0: must be a whole number >= 1"),
    ({"workers": np.inf}, "workers=inf: must be a whole number >= 1"),
    ({"workers": "3"}, "workers='3': must be a whole number >= 1"),
    ({"workers": True}, "workers=True: must be a whole number >= 1"),
    (
        {"policy": "nobody"},
        "policy='nobody': must be one of full, coverage, subset, random, magnitude, schedule, resource-aware",
    ),
    (
        {"policy": "coverage:psi=11"},
        "psi=11: must be between 1 and 10, the number of workers; lower psi or use more workers",
    ),
    ({"engine": "spark"}, "engine='spark': must be one of local, ray, flower"),
    ({"regions": 99}, "regions=99: must be between 1 and 5, the number of features; try 4"),
    (
        {"regions": "classes"},
        "regions='classes': must be a number, sizes or index groups: this model has one output only",
    ),
    (
        {"regions": "prefix"},
        "regions='prefix': must be a number, sizes or index groups, as this data has no feature names; "
        "try a number such as 4",
    ),
    ({"tol": -1.0}, "tol=-1.0: must be a finite number >= 0"),
    ({"max_rounds": -1}, "max_rounds=-1: must be a whole number >= 0"),
    ({"max_rounds": 1.5}, "max_rounds=1.5: must be a whole number >= 0"),
]


@pytest.mark.parametrize("cls", [DANLClassifier, DANLRegressor])
@pytest.mark.parametrize(("parameters", "message"), WRONG, ids=lambda value: str(value)[:30])
def test_a_wrong_parameter(cls, parameters, message):
    with pytest.raises(danl.InputError) as error:
        cls(**parameters).fit(X, Y)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": [1, 2]}, "groups: must name the site of each of the 200 rows, found shape (2,)"),
        ({"groups": np.zeros((200, 2))}, "groups: must name the site of each of the 200 rows, found shape (200, 2)"),
        ({"groups": np.where(Y, np.nan, 1.0)}, None),
        ({"groups": np.where(Y, None, "a")}, None),
    ],
)
def test_wrong_groups(arguments, message):
    with pytest.raises(danl.InputError) as error:
        DANLClassifier().fit(X, Y, **arguments)
    first = int(np.flatnonzero(Y)[0])
    if message is None:
        value = "nan" if arguments["groups"].dtype == float else "None"
        message = f"groups[{first}]={value}: must be the id of a site, not missing"
    assert str(error.value) == message


def test_groups_of_numbers_and_text():
    with pytest.raises(danl.InputError, match="groups: ids must all be numbers or all be text"):
        DANLClassifier().fit(X, Y, groups=np.where(Y, np.array("a", dtype=object), 1))


def test_wrong_weights():
    for weights, message in ((-np.ones(200), "Negative values"), (np.ones(3), "expected"), (np.zeros(200), "zero")):
        with pytest.raises(ValueError, match=message):
            DANLClassifier().fit(X, Y, sample_weight=weights)


def test_wrong_targets():
    with pytest.raises(ValueError, match="one class only: 0"):
        DANLClassifier().fit(X, np.zeros(200, dtype=int))
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        DANLClassifier().fit(X, X[:, 0])
    with pytest.raises(danl.InputError, match=r"loss 'poisson' needs targets >= 0, and \d+ of 200 are negative"):
        DANLRegressor("poisson").fit(X, -Y)
    with pytest.raises(danl.InputError, match="y: is 0 for every row, and loss 'poisson' has no optimum then"):
        DANLRegressor("poisson").fit(X, np.zeros(200))
    with pytest.raises(danl.InputError, match=r"loss 'gamma' needs targets > 0, and \d+ of 200 are not"):
        DANLRegressor("gamma").fit(X, Y)
    with pytest.raises(danl.InputError, match=r"loss 'negative-binomial' needs counts, and \d+ of 200 are none"):
        DANLRegressor("negative-binomial:alpha=1").fit(X, X[:, 0])


@pytest.mark.parametrize("loss", ["absolute", "logistic", "multinomial:classes=2", None, 3])
def test_wrong_losses(loss):
    with pytest.raises(danl.InputError) as error:
        DANLRegressor(loss).fit(X, Y)
    assert str(error.value).startswith(f"loss={str(loss)!r}: must be one of ")
    assert str(error.value).removeprefix(f"loss={str(loss)!r}: must be one of ") in (
        f"{names}; a loss of your own is for danl.Problem and danl.solve"
        for names in map(", ".join, permutations(("squared", "poisson", "gamma", "negative-binomial")))
    )
    with pytest.raises(danl.InputError, match="alpha=-1: must be a finite number > 0"):
        DANLRegressor("negative-binomial:alpha=-1").fit(X, Y)


def test_wrong_class_weights():
    with pytest.raises(ValueError, match="class_weight"):
        DANLClassifier(class_weight="even").fit(X, Y)
    with pytest.raises(ValueError, match=r"The classes, \[0, 1\], are not in class_weight"):
        DANLClassifier(class_weight={5: 1.0}).fit(X, Y)


@pytest.mark.parametrize("level", [0, 1, 2, -0.5, "95", None, float("nan"), True])
def test_wrong_levels(level):
    model = DANLClassifier().fit(X, Y)
    exchanges = model.n_iter_
    with pytest.raises(danl.InputError) as error:
        model.summary(level=level)
    assert str(error.value) == f"level={level!r}: must be a number between 0 and 1; for example 0.95"
    assert model.n_iter_ == exchanges


def test_wrong_covariances():
    with pytest.raises(danl.InputError, match="covariance='HC3': must be 'observed' or 'sandwich'"):
        DANLClassifier().fit(X, Y).summary(covariance="HC3")


# A fit that fails.

BROKEN = [
    ({"C": 0}, {}),
    ({"alpha": -1}, {}),
    ({"workers": 0}, {}),
    ({"policy": "nobody"}, {}),
    ({"method": "nothing"}, {}),
    ({"engine": "nowhere"}, {}),
    ({"regions": 99}, {}),
    ({"tol": -1}, {}),
    ({}, {"groups": [1, 2]}),
    ({}, {"groups": [None] * 50}),
    ({}, {"sample_weight": np.zeros(50)}),
    ({}, {"sample_weight": -np.ones(50)}),
]


@pytest.mark.parametrize(("parameters", "arguments"), BROKEN)
@pytest.mark.parametrize("kind", ["binary", "real"])
def test_a_fit_that_fails_leaves_what_was_fitted(kind, parameters, arguments):
    """On other data: other columns, other classes, no names."""
    frame, y = pd.DataFrame(X, columns=list("abcde")), linear(kind)[1]
    model = (DANLClassifier() if kind == "binary" else DANLRegressor()).fit(frame, y)
    model.summary()
    before = pickle.dumps({name: vars(model)[name] for name in fitted_names(model)})
    answer, problem = model.predict(frame), model._problem
    model.set_params(**parameters)
    others = np.arange(50) % 3 if kind == "binary" else np.arange(50.0)
    with pytest.raises(ValueError, match=r"\w"):
        model.fit(X[:50, :2], others, **arguments)
    assert pickle.dumps({name: vars(model)[name] for name in fitted_names(model)}) == before
    assert model._problem is problem
    np.testing.assert_array_equal(model.predict(frame), answer)
    model.set_params(**{name: vars(type(model)())[name] for name in parameters})
    assert model.summary().names[1:] == tuple("abcde")


def fitted_names(model):
    return sorted(set(vars(model)) - set(model.get_params()) - {"_problem"})


def test_a_fit_that_fails_in_its_middle_leaves_what_was_fitted():
    def nobody_then_too_few(w, worker, round, rng):
        return [True] if round == 2 else [True, True]

    model = DANLClassifier(regions=2).fit(X, Y)
    coefficients = model.coef_.copy()
    model.set_params(policy=nobody_then_too_few, method="danl:masks=always")
    with pytest.raises(danl.InputError, match="one boolean per region"):
        model.fit(*linear("classes"))
    assert len(model.classes_) == 2
    np.testing.assert_array_equal(model.coef_, coefficients)


def test_a_first_fit_that_fails_leaves_nothing():
    model = DANLClassifier(policy="nobody")
    with pytest.raises(danl.InputError, match="policy='nobody'"):
        model.fit(X, Y)
    assert set(vars(model)) == set(model.get_params())


# What a fit tells.


@pytest.mark.parametrize(
    ("model", "kind"),
    [(DANLClassifier(max_rounds=1), "binary"), (DANLRegressor("poisson", max_rounds=1), "count")],
    ids=["classifier", "regressor"],
)
def test_a_fit_that_did_not_get_there_says_what_to_do(model, kind):
    with pytest.warns(ConvergenceWarning) as warned:
        model.fit(*linear(kind))
    (each,) = warned
    assert each.filename == __file__
    text = str(each.message)
    left = model.history_[-1].decrement
    assert text == (
        f"{type(model).__name__} did not converge: max_rounds after 3 exchanges, decrement {left:.1e} "
        "(tol 1e-10); give it more rounds (max_rounds), scale the features, or add a penalty (a smaller C)"
    )
    assert model.n_iter_ == 3
    assert np.isfinite(model.coef_).all()


def test_a_fit_that_blew_up_says_what_to_do():
    with pytest.warns(
        ConvergenceWarning, match="diverged .*scale the features, add a penalty .*, or use method='danl'"
    ):
        model = DANLRegressor(method="gd:learning_rate=1e3").fit(*linear("real"))
    assert np.isfinite(model.coef_).all()


def test_workers_that_are_gone_are_told_of():
    engine = danl.engines.Local(away=dict.fromkeys(range(10), (2, None)))
    with (
        pytest.warns(ConvergenceWarning, match="quorum_lost .*too many workers did not answer: see result_.failures"),
        pytest.warns(danl.DanlWarning, match="quorum lost in exchange 11, without workers 0, 1, .* and 9 .timeout"),
    ):
        model = DANLClassifier(engine=engine).fit(X, Y)
    assert len(model.result_.failures) > 10


def test_verbose_2_is_a_line_an_exchange(capsys):
    model = DANLClassifier(verbose=2, workers=3).fit(X, Y)
    reported = capsys.readouterr()
    lines = reported.err.splitlines()
    assert reported.out == ""
    assert len(lines) == model.n_iter_
    for line, row in zip(lines, model.history_, strict=True):
        assert line == (
            f"DANLClassifier: exchange {row.exchange} ({row.kind}), objective {row.objective:.10g}, "
            f"|grad| {row.grad_norm:.1e}, 3 workers"
        )
    DANLRegressor(workers=3).fit(X, Y)
    assert capsys.readouterr() == ("", "")
