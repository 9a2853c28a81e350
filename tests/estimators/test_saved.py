"""A fitted estimator in a file, in a pickle and in a copy: the same model, without the rows."""

import copy
import pickle
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import danl
from danl import DANLClassifier, DANLRegressor
from tests.estimators.data import linear

LABELS = {
    "text": np.array(["no", "so-so", "yes"]),
    "whole numbers": np.array([3, 7, 2**40]),
    "short numbers": np.array([-1, 0, 1], dtype=np.int8),
    "numbers": np.array([0.0, 1.0, 2.0]),
    "objects": np.array(["a", "b", "c"], dtype=object),
    "truths": np.array([False, True]),
    "two words": np.array(["ill", "well"]),
}


def same_run(one, other):
    names = [name for name in danl.Row.__dataclass_fields__ if name != "coverage"]
    assert len(one) == len(other)
    for name in names:
        np.testing.assert_array_equal(one.column(name), other.column(name))
    np.testing.assert_array_equal(one.column("coverage"), other.column("coverage"))


def same_estimator(loaded, model):
    assert type(loaded) is type(model)
    assert repr(loaded) == repr(model)
    assert loaded.get_params() == model.get_params()
    assert loaded.coef_.tobytes() == model.coef_.tobytes()
    assert loaded.coef_.shape == model.coef_.shape
    assert np.shape(loaded.intercept_) == np.shape(model.intercept_)
    np.testing.assert_array_equal(loaded.intercept_, model.intercept_)
    for name in ("n_iter_", "n_features_in_", "bytes_up_", "bytes_down_"):
        assert getattr(loaded, name) == getattr(model, name)
    same_run(loaded.history_, model.history_)
    same_run(loaded.result_.history, model.result_.history)
    assert (loaded.result_.status, loaded.result_.method) == (model.result_.status, model.result_.method)
    assert loaded.result_.w.tobytes() == model.result_.w.tobytes()
    assert loaded.result_.layout == model.result_.layout
    assert (loaded.result_.notes, loaded.result_.failures) == (model.result_.notes, model.result_.failures)


@pytest.mark.parametrize("labels", LABELS)
def test_a_classifier_comes_back(labels, tmp_path):
    values = LABELS[labels]
    X, y = linear("classes" if len(values) == 3 else "binary")
    model = DANLClassifier(C=0.5, workers=3, policy="coverage:psi=1", regions=[2, 3], random_state=5)
    model.fit(X, values[y])
    model.save(tmp_path / "model.danl")
    loaded = DANLClassifier.load(tmp_path / "model.danl")
    same_estimator(loaded, model)
    assert loaded.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert not hasattr(loaded, "feature_names_in_")


@pytest.mark.parametrize("loss", ["squared", "poisson", "gamma", "negative-binomial:alpha=0.5"])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_regressor_comes_back(loss, intercept, tmp_path):
    X, y = linear({"squared": "real", "gamma": "amount"}.get(loss, "count"))
    model = DANLRegressor(loss, C=np.inf, fit_intercept=intercept, engine="local:dropout=0.1").fit(X, y)
    model.save(str(tmp_path / "model"))
    loaded = DANLRegressor.load(str(tmp_path / "model"))
    same_estimator(loaded, model)
    assert type(loaded.intercept_) is float
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert not hasattr(loaded, "classes_")


def test_feature_names_come_back_and_are_looked_at(tmp_path):
    X, y = linear("binary")
    frame = pd.DataFrame(X, columns=list("abcde"))
    DANLClassifier(regions="prefix").fit(frame, y).save(tmp_path / "model")
    loaded = DANLClassifier.load(tmp_path / "model")
    assert list(loaded.feature_names_in_) == list("abcde")
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[list("edcba")])
    DANLClassifier().fit(X, y).save(tmp_path / "model")
    with pytest.raises(ValueError, match="expecting 5 features"):
        DANLClassifier.load(tmp_path / "model").predict(X[:, :3])


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_a_summary_that_was_made_comes_back(kind, tmp_path):
    X, y = linear(kind)
    model = DANLClassifier().fit(X, y)
    model.summary(covariance="sandwich")
    model.save(tmp_path / "model")
    loaded = DANLClassifier.load(tmp_path / "model")
    same_estimator(loaded, model)
    for covariance in ("observed", "sandwich"):
        assert str(loaded.summary(covariance=covariance)) == str(model.summary(covariance=covariance))
    np.testing.assert_array_equal(loaded.summary().covariance, model.summary().covariance)


def test_a_summary_that_was_not_made_needs_the_rows(tmp_path):
    X, y = linear("binary")
    model = DANLClassifier().fit(X, y)
    model.save(tmp_path / "none")
    model.summary()
    model.save(tmp_path / "observed")
    message = (
        "summary: the {0} covariance needs the rows, and this estimator was loaded or copied without them; "
        "call summary(covariance='{0}') before it is saved"
    )
    with pytest.raises(danl.InputError) as error:
        DANLClassifier.load(tmp_path / "none").summary()
    assert str(error.value) == message.format("observed")
    loaded = DANLClassifier.load(tmp_path / "observed")
    assert np.isfinite(loaded.summary().std_err).all()
    with pytest.raises(danl.InputError) as error:
        loaded.summary(covariance="sandwich")
    assert str(error.value) == message.format("sandwich")


def test_what_came_back_is_saved_fitted_and_copied_again(tmp_path):
    X, y = linear("classes")
    DANLClassifier(warm_start=True).fit(X, y).save(tmp_path / "one")
    loaded = DANLClassifier.load(tmp_path / "one")
    loaded.save(tmp_path / "two")
    same_estimator(DANLClassifier.load(tmp_path / "two"), loaded)
    exchanges = loaded.n_iter_
    assert loaded.fit(X, y).n_iter_ < exchanges
    assert np.isfinite(loaded.summary().std_err).all()


def test_a_fit_that_did_not_get_there_comes_back_as_it_is(tmp_path):
    X, y = linear("binary")
    with pytest.warns(ConvergenceWarning):
        model = DANLClassifier(max_rounds=2).fit(X, y)
    model.save(tmp_path / "model")
    loaded = DANLClassifier.load(tmp_path / "model")
    assert loaded.result_.status == "max_rounds"
    same_estimator(loaded, model)


def test_objects_are_left_out_with_a_warning(tmp_path):
    X, y = linear("binary")
    policy, engine = danl.policies.Coverage(psi=1), danl.engines.Local()
    model = DANLClassifier(C=3.0, policy=policy, engine=engine, method=danl.methods.Newton()).fit(X, y)
    with pytest.warns(danl.DanlWarning) as warned:
        model.save(tmp_path / "model")
    assert [str(each.message) for each in warned] == [
        "engine, method, policy: cannot be written to a file and will be the default when it is loaded; "
        "text such as policy='coverage:psi=3' can be"
    ]
    loaded = DANLClassifier.load(tmp_path / "model")
    assert repr(loaded) == "DANLClassifier(C=3.0)"
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


# What is in the file.


def test_there_is_no_pickle_in_it_and_no_row(tmp_path):
    X, y = linear("binary", 20_000, 5)
    DANLClassifier(workers=3).fit(X, y).save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 60_000 < X.nbytes
    with zipfile.ZipFile(tmp_path / "model") as archive:
        assert {name.rpartition(".")[2] for name in archive.namelist()} == {"npy"}
    with np.load(tmp_path / "model", allow_pickle=False) as file:
        assert all(file[name].dtype.kind in "fiub" for name in file.files)


def test_what_is_there_is_replaced_and_nothing_else_is_left(tmp_path):
    X, y = linear("binary")
    for C in (1.0, 2.0):
        DANLClassifier(C=C).fit(X, y).save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert DANLClassifier.load(tmp_path / "model").C == 2.0


# What is refused.


@pytest.fixture
def saved(tmp_path):
    X, y = linear("binary")
    DANLClassifier(workers=2).fit(X, y).save(tmp_path / "model")
    return tmp_path / "model"


def refused(path, cls=DANLClassifier):
    with pytest.raises(danl.InputError) as error:
        cls.load(path)
    text = str(error.value)
    assert text.startswith(f"path={str(path)!r}: ")
    return text.removeprefix(f"path={str(path)!r}: ")


def test_a_file_of_the_other_class(saved):
    assert refused(saved, DANLRegressor) == ("holds a DANLClassifier, not a DANLRegressor; use the load of that class")


def test_a_file_that_is_not_there_or_not_a_file(tmp_path):
    assert refused(tmp_path / "nothing") == (
        "cannot be read (No such file or directory); save a fitted estimator first"
    )
    assert refused(tmp_path).startswith("cannot be read (Is a directory)")


NOT_OURS = "is not an estimator that danl saved, or was changed: "


def test_files_of_others(tmp_path):
    X, y = linear("binary")
    model = DANLClassifier().fit(X, y)
    (tmp_path / "pickle").write_bytes(pickle.dumps(model))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("coef: 1, 2, 3")
    np.savez(tmp_path / "arrays.npz", coef=model.coef_)
    np.save(tmp_path / "array.npy", model.coef_)
    np.savez(tmp_path / "objects.npz", head=np.array([{"magic": "danl-estimator"}], dtype=object))
    for name in ("pickle", "empty", "text", "arrays.npz", "array.npy", "objects.npz"):
        assert refused(tmp_path / name).startswith(NOT_OURS), name


def test_a_checkpoint_is_no_estimator(tmp_path):
    shards = danl.partition(*linear("binary"), workers=2)
    danl.solve(danl.Problem(shards, alpha=0.1), checkpoint=tmp_path)
    (path, *_) = sorted(tmp_path.glob("checkpoint-*.npz"))
    assert refused(path) == f"{NOT_OURS}no danl-estimator file"


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_off(saved, share):
    data = saved.read_bytes()
    saved.write_bytes(data[: int(share * len(data))])
    assert refused(saved).startswith(NOT_OURS)


def test_a_byte_that_was_changed_is_noticed_or_is_none_of_the_models(saved):
    """Every 97th byte of the file in turn; the archive's own dates and such are no part of the model."""
    data, model = saved.read_bytes(), DANLClassifier.load(saved)
    noticed = 0
    for place in range(0, len(data), 97):
        changed = bytearray(data)
        changed[place] ^= 0x55
        saved.write_bytes(bytes(changed))
        try:
            same_estimator(DANLClassifier.load(saved), model)
        except danl.InputError:
            noticed += 1
    assert noticed > 0.8 * len(range(0, len(data), 97))


def test_numbers_that_were_changed_are_noticed(saved):
    """In an archive that is whole otherwise: the digest is another."""
    with np.load(saved) as file:
        arrays = {name: file[name] for name in file.files}
    name = next(name for name in arrays if name.startswith("a") and arrays[name].dtype == float)
    arrays[name] = arrays[name] + 1e-9
    with saved.open("wb") as file:
        np.savez(file, **arrays)
    assert refused(saved) == f"{NOT_OURS}torn or changed: its digest is another"


def test_a_file_of_another_version_says_so(saved):
    from danl.estimators.saved import MAGIC, VERSION
    from danl.storage.serialize import from_file, to_file

    kind = {"magic": MAGIC, "version": VERSION}
    values = from_file(saved.read_bytes(), **kind)
    for wrong in ({"parameters": {"unheard_of": 1}}, {"coef": None, "inference": {"w": 1}}):
        saved.write_bytes(to_file(values | wrong | {"danl": "9.9"}, **kind))
        assert refused(saved).startswith(f"written by danl 9.9, this is {danl.__version__}, and they differ (TypeError")
    del values["w"]
    saved.write_bytes(to_file(values, **kind))
    assert "KeyError: 'w'" in refused(saved)


def test_places_that_cannot_be_written(tmp_path, saved):
    model = DANLClassifier().fit(*linear("binary"))
    for path, reason in (
        (tmp_path / "no" / "folder" / "model", "No such file or directory"),
        (saved / "model", "Not a directory"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(danl.InputError) as error:
            model.save(path)
        assert str(error.value) == f"path={str(path)!r}: cannot be written ({reason})"
    with pytest.raises(danl.InputError, match=r"path='': cannot be written"):
        model.save("")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_what_is_not_fitted_is_not_saved(tmp_path):
    for model in (DANLClassifier(), DANLRegressor()):
        with pytest.raises(NotFittedError):
            model.save(tmp_path / "model")
        with pytest.raises(NotFittedError):
            model.summary()
    assert list(tmp_path.iterdir()) == []


def test_labels_that_a_file_has_no_place_for(tmp_path):
    X, y = linear("binary")
    days = np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]")
    model = DANLClassifier().fit(X, days[y])
    with pytest.raises(danl.InputError) as error:
        model.save(tmp_path / "model")
    assert str(error.value) == (
        "classes_: labels of type date cannot be written to a file; fit with labels that are text or numbers"
    )
    assert list(tmp_path.iterdir()) == []


# Pickles and copies.


@pytest.mark.parametrize(
    "copied",
    [lambda model: pickle.loads(pickle.dumps(model)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)
def test_a_copy_is_the_model_without_the_rows(copied):
    X, y = linear("binary", 20_000, 5)
    model = DANLClassifier().fit(X, y)
    other = copied(model)
    same_estimator(other, model)
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    assert len(pickle.dumps(model)) < 60_000 < X.nbytes
    with pytest.raises(danl.InputError, match="loaded or copied without them"):
        other.summary()
    assert np.isfinite(model.summary().std_err).all()  # the one that has them still has them
    np.testing.assert_array_equal(copied(model).summary().std_err, model.summary().std_err)
