"""AUC, calibration and classification from binned counts, against those of the records."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import danl
from danl import InputError
from danl.statistics.diagnostics import auc_of, calibration_of, filled
from tests.statistics.hospitals import frames, pooled

pytest.importorskip("formulaic")


@pytest.fixture(scope="module")
def fit():
    return danl.glm("death ~ age + dose", sites=frames(), family="binomial", diagnostics=True)


def test_near_those_of_the_records(fit):
    data = danl_rows()
    predicted = fit.predict(data)
    found = fit.diagnostics
    assert found.auc == pytest.approx(roc_auc_score(data.death, predicted), abs=0.02)
    positive = predicted >= 0.5
    counts = [found.true_positive, found.false_positive, found.true_negative, found.false_negative]
    exact = [(positive & (data.death == 1)).sum(), (positive & (data.death == 0)).sum()]
    exact += [(~positive & (data.death == 0)).sum(), (~positive & (data.death == 1)).sum()]
    np.testing.assert_allclose(counts, exact, atol=max(2.0, found.hidden * len(data)))
    assert sum(counts) == pytest.approx(len(data))
    assert sum(group.records for group in found.calibration) == pytest.approx(len(data))
    mean = sum(group.records * group.predicted for group in found.calibration) / len(data)
    assert mean == pytest.approx(predicted.mean(), abs=0.02)
    observed = sum(group.records * group.observed for group in found.calibration)
    assert observed == pytest.approx(data.death.sum(), abs=1e-6)


def danl_rows():
    """The records that are complete in the columns of the model."""
    import pandas as pd

    return pd.concat(frames().values(), ignore_index=True).dropna(subset=["age", "dose", "death"])


def test_auc_of_counts():
    assert auc_of(np.array([0.0, 2.0]), np.array([3.0, 0.0])) == 1.0
    assert auc_of(np.array([2.0, 0.0]), np.array([0.0, 3.0])) == 0.0
    assert auc_of(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 0.5
    assert np.isnan(auc_of(np.array([1.0]), np.array([0.0])))
    rng = np.random.default_rng(0)
    bins, y = rng.integers(0, 7, 300), rng.integers(0, 2, 300)
    events, others = np.bincount(bins, y, 7), np.bincount(bins, 1 - y, 7)
    assert auc_of(events, others) == pytest.approx(roc_auc_score(y, bins))


def test_hidden_counts_get_what_is_left_of_the_total():
    counts, spread = filled(np.array([[4.0, -1.0, -1.0], [1.0, 2.0, 3.0]]), np.array([7.0, 6.0]))
    assert counts.tolist() == [[4.0, 1.5, 1.5], [1.0, 2.0, 3.0]]
    assert spread == 3.0


def test_calibration_groups_have_about_as_many_records():
    groups = calibration_of(np.full(40, 1.0), np.full(40, 4.0), np.full(40, 1.0))
    assert [group.records for group in groups] == [20.0] * 10
    assert {group.observed for group in groups} == {0.2}


def test_only_binomial_models_have_them():
    with pytest.raises(InputError, match=r"diagnostics=True: must be left out; it is for family='binomial'"):
        danl.glm("pressure ~ age", data=pooled(), diagnostics=True)
