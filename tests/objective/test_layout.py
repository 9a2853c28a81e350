"""Where a model's numbers are in w."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import danl
from danl.objective.layout import Layout
from danl.objective.regions import Regions

layouts = st.builds(Layout, st.integers(1, 6), st.integers(1, 4), st.booleans())


@given(layouts)
def test_split_and_join_are_each_others_way_back(layout):
    w = np.arange(1.0, layout.n_coefficients + 1)
    coefficients, intercepts = layout.split(w)
    assert coefficients.shape == (layout.n_outputs, layout.n_features)
    assert intercepts.shape == (layout.n_outputs,)
    np.testing.assert_array_equal(layout.join(coefficients, intercepts), w)
    if not layout.intercept:
        np.testing.assert_array_equal(intercepts, 0.0)


@given(layouts)
def test_w_is_laid_out_as_if_x_had_a_last_column_of_ones(layout):
    rng = np.random.default_rng(0)
    coefficients, intercepts = rng.normal(size=(layout.n_outputs, layout.n_features)), rng.normal(size=layout.n_outputs)
    X = rng.normal(size=(5, layout.n_features))
    A = np.column_stack([X, np.ones(5)]) if layout.intercept else X
    w = layout.join(coefficients, intercepts)
    margins = X @ coefficients.T + (intercepts if layout.intercept else 0.0)
    np.testing.assert_allclose(A @ w.reshape(layout.n_outputs, layout.columns).T, margins, atol=1e-14)


def test_the_places_by_hand():
    layout = Layout(2, 3, intercept=True)
    assert (layout.columns, layout.n_coefficients) == (3, 9)
    w = layout.join([[1, 2], [3, 4], [5, 6]], [-1, -2, -3])
    np.testing.assert_array_equal(w, [1, 2, -1, 3, 4, -2, 5, 6, -3])
    np.testing.assert_array_equal(layout.penalised, [True, True, False] * 3)
    np.testing.assert_array_equal(layout.join([[1, 2], [3, 4], [5, 6]], 7.0)[2::3], 7.0)
    np.testing.assert_array_equal(layout.join(np.arange(6.0))[2::3], 0.0)


def test_split_gives_numbers_of_its_own():
    layout = Layout(2, 2, intercept=True)
    w = np.arange(6.0)
    coefficients, intercepts = layout.split(w)
    coefficients[:], intercepts[:] = -1.0, -1.0
    np.testing.assert_array_equal(w, np.arange(6.0))


@given(layouts)
def test_all_but_the_intercepts_are_penalised(layout):
    coefficients, intercepts = layout.split(layout.penalised.astype(float))
    assert coefficients.all()
    assert not intercepts.any()
    assert layout.penalised.shape == (layout.n_coefficients,)


# Regions.


def test_a_region_has_the_coefficients_of_all_outputs_and_the_last_the_intercepts():
    layout = Layout(3, 2, intercept=True)
    regions = layout.regions([1, 2])
    np.testing.assert_array_equal(regions.of_coefficient, [0, 1, 1, 1] * 2)
    assert list(regions.indices(0)) == [0, 4]
    assert list(regions.indices(1)) == [1, 2, 3, 5, 6, 7]
    groups = layout.regions([[1], [0, 2]])
    np.testing.assert_array_equal(groups.of_coefficient, [1, 0, 1, 1] * 2)


def test_without_intercept_and_with_one_output_regions_are_those_of_the_features():
    for spec in (1, 3, [2, 5], [[0, 2, 4, 6], [1, 3, 5]], "3"):
        ours, theirs = Layout(7).regions(spec), Regions.make(spec, 7)
        np.testing.assert_array_equal(ours.of_coefficient, theirs.of_coefficient)
        assert ours.labels == theirs.labels


def test_a_region_of_every_class():
    regions = Layout(3, 2, intercept=True).regions("classes")
    np.testing.assert_array_equal(regions.of_coefficient, [0] * 4 + [1] * 4)
    assert regions.labels == ("class 0", "class 1")
    with pytest.raises(danl.InputError) as error:
        Layout(3, intercept=True).regions("classes")
    assert str(error.value) == (
        "regions='classes': must be a number, sizes or index groups: this model has one output only"
    )


@pytest.mark.parametrize(("features", "expected"), [(1, 1), (3, 3), (4, 4), (50, 4)])
def test_the_default_is_four_regions_or_one_a_feature(features, expected):
    for outputs in (1, 3):
        for intercept in (False, True):
            layout = Layout(features, outputs, intercept)
            regions = layout.regions(None)
            assert regions.n_regions == expected
            assert regions.n_coefficients == layout.n_coefficients
            assert regions.sizes.sum() == layout.n_coefficients


def test_regions_by_prefix_keep_their_names():
    layout = Layout(3, 2, intercept=True)
    regions = layout.regions("prefix", ["ward_a", "ward_b", "age"])
    assert regions.labels == ("ward", "age")
    np.testing.assert_array_equal(regions.of_coefficient, [0, 0, 1, 1] * 2)


def test_regions_of_all_of_w_stay_as_they_are_and_those_of_the_features_are_carried_over():
    layout = Layout(3, 2, intercept=True)
    whole = Regions.make([5, 3], 8)
    assert layout.regions(whole) is whole
    of_features = Regions.make(3, 3)
    np.testing.assert_array_equal(layout.regions(of_features).of_coefficient, [0, 1, 2, 2] * 2)
    with pytest.raises(danl.InputError, match="must be regions of 3 features"):
        layout.regions(Regions.make(2, 5))


@given(layouts, st.integers(1, 6))
def test_every_number_is_in_one_region_and_every_output_is_cut_alike(layout, count):
    count = min(count, layout.n_features)
    regions = layout.regions(count)
    assert regions.n_regions == count
    assert sorted(np.concatenate([regions.indices(q) for q in range(count)])) == list(range(layout.n_coefficients))
    rows = regions.of_coefficient.reshape(layout.n_outputs, layout.columns)
    assert (rows == rows[0]).all()


def test_a_problem_a_local_objective_and_a_result_have_the_same_layout():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), np.arange(30) % 3.0
    problem = danl.Problem(danl.partition(X, y, workers=2), loss="multinomial:classes=3", alpha=0.1, intercept=True)
    result = danl.solve(problem, max_rounds=1)
    assert problem.layout == problem.local_objectives[0].layout == result.layout == Layout(4, 3, True)
    assert problem.n_coefficients == len(result.w) == 15
    assert problem.n_features == 4
