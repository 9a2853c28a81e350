"""Regions: every way of making them gives a disjoint cover, and every slip is answered."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danl.errors import InputError
from danl.objective.regions import Regions, as_items


@st.composite
def covers(draw):
    """Index groups that cover range(d), in any order, and d."""
    d = draw(st.integers(1, 20))
    shuffled = draw(st.permutations(range(d)))
    cuts = draw(st.sets(st.integers(1, d - 1)) if d > 1 else st.just(set()))
    edges = [0, *sorted(cuts), d]
    return [shuffled[start:end] for start, end in pairwise(edges)], d


@settings(deadline=None)
@given(covers())
def test_groups_are_kept(cover):
    groups, d = cover
    regions = Regions.make(groups, d)
    assert (regions.n_coefficients, regions.n_regions) == (d, len(groups))
    assert regions.sizes.tolist() == [len(group) for group in groups]
    assert regions.labels == tuple(str(q) for q in range(len(groups)))
    for q, group in enumerate(groups):
        assert regions.indices(q).tolist() == sorted(group)
        assert all(regions.of_coefficient[j] == q for j in group)


@settings(deadline=None)
@given(covers(), st.data())
def test_masks_are_expanded(cover, data):
    groups, d = cover
    regions = Regions.make([np.array(group) for group in groups], d)
    masks = np.array(
        data.draw(st.lists(st.lists(st.booleans(), min_size=len(groups), max_size=len(groups)), min_size=1))
    )
    expected = [[any(masks[i, q] and j in group for q, group in enumerate(groups)) for j in range(d)]
                for i in range(len(masks))]  # fmt: skip
    assert regions.expand(masks).tolist() == expected
    assert regions.expand(masks).dtype == np.bool_
    assert regions.expand(masks[0]).tolist() == expected[0]
    assert regions.coordinates(masks[0]).tolist() == [j for j in range(d) if expected[0][j]]


@settings(deadline=None)
@given(st.integers(1, 40), st.data())
def test_a_number_cuts_as_array_split(d, data):
    count = data.draw(st.integers(1, d))
    for spec in (count, np.int32(count), str(count)):
        regions = Regions.make(spec, d)
        expected = np.array_split(np.arange(d), count)
        assert [regions.indices(q).tolist() for q in range(count)] == [part.tolist() for part in expected]


@pytest.mark.parametrize("sizes", [[2, 1, 3], (2, 1, 3), np.array([2, 1, 3])])
def test_sizes_are_contiguous(sizes):
    assert Regions.make(sizes, 6).of_coefficient.tolist() == [0, 0, 1, 2, 2, 2]


def test_a_matrix_is_groups():
    regions = Regions.make(np.array([[0, 3], [2, 1]]), 4)
    assert regions.of_coefficient.tolist() == [0, 1, 1, 0]
    assert Regions.make([range(2), [2]], 3).of_coefficient.tolist() == [0, 0, 1]


NAMES = ["work_private", "sex_f", "age", "work_public_state", "sex_m"]


def test_prefixes_in_order_of_appearance():
    for regions in (Regions.by_prefix(NAMES), Regions.make("prefix", 5, NAMES)):
        assert regions.labels == ("work", "sex", "age")
        assert regions.of_coefficient.tolist() == [0, 1, 2, 0, 1]
    dotted = Regions.make("prefix:separator=.", 3, ["a.b_c", "a.x", "b_c"])
    assert dotted.labels == ("a", "b_c")
    assert Regions.by_prefix(["a->x", "b->y", "a->z"], "->").of_coefficient.tolist() == [0, 1, 0]


def test_regions_are_passed_through_and_travel():
    regions = Regions.make([[1, 2], [0]], 3)
    assert Regions.make(regions, 3) is regions
    travelled = pickle.loads(pickle.dumps(regions))
    assert travelled.of_coefficient.tolist() == regions.of_coefficient.tolist()
    assert repr(regions) == "Regions(sizes=[2, 1])"


def test_regions_cannot_be_changed():
    regions = Regions.make(2, 4)
    for array in (regions.of_coefficient, regions.sizes, regions.indices(1)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (0, "regions=0: must be between 1 and 6, the number of features; try 4"),
        (7, "regions=7: must be between 1 and 6, the number of features; try 4"),
        ([2, 3], "regions=[2, 3]: must be sizes that sum to 6, the number of features; these sum to 5"),
        (
            [1] * 50,
            "regions=[1, 1, 1, 1, 1, 1, ...]: must be sizes that sum to 6, the number of features; these sum to 50",
        ),
        ([6, 0], "regions[1]=0: must be a size of at least 1; leave empty regions out"),
        (
            [[0, 1, 2], [3, 4, 2, 5]],
            "regions[1][2]=2: must be in one region only, and regions[0] has it already; remove it from one of them",
        ),
        (
            [[0, 1, 1], [2, 3, 4, 5]],
            "regions[0][2]=1: must be in one region only, and regions[0] has it already; remove it from one of them",
        ),
        (
            [[0, 1], [3, 5]],
            "regions=[[0, 1], [3, 5]]: must be groups that hold every coordinate from 0 to 5, "
            "and none of them holds 2; add 2 to one of them",
        ),
        (
            [[0, 1, 2], [3, 4, 5, 6]],
            "regions[1][3]=6: must be between 0 and 5, as there are 6 features",
        ),
        ([[-1, 0]], "regions[0][0]=-1: must be between 0 and 5, as there are 6 features"),
        (
            [[0, 1, 2, 3, 4, 5], []],
            "regions[1]=[]: must be at least one coordinate; leave empty regions out",
        ),
        ([], "regions=[]: must be a number, sizes or index groups; try a number such as 4"),
        (
            2.5,
            "regions=2.5: must be a number, sizes or index groups, all of whole numbers; try a number such as 4",
        ),
        (
            True,
            "regions=True: must be a number, sizes or index groups, all of whole numbers; try a number such as 4",
        ),
        (
            [2.0, 4.0],
            "regions[0]=2.0: must be a list of whole numbers, the coordinates of this region "
            "(or a whole number, its size, and then all of them sizes)",
        ),
        (
            ["ab", "cd"],
            "regions[0]='ab': must be a list of whole numbers, the coordinates of this region "
            "(or a whole number, its size, and then all of them sizes)",
        ),
        (
            Regions.make(2, 4),
            "regions=Regions(sizes=[2, 2]): must be regions of 6 features; make them for this model with Regions.make",
        ),
        (
            "prefix",
            "regions='prefix': must be a number, sizes or index groups, as this data has no feature names; "
            "try a number such as 4",
        ),
        (
            "suffix",
            "regions='suffix': must be a number, sizes such as 30,30,63, index groups, 'prefix', 'prefix:separator=.' "
            "or 'classes'",
        ),
        (
            "prefix:sep=.",
            "regions='prefix:sep=.': must be a number, sizes such as 30,30,63, index groups, 'prefix', "
            "'prefix:separator=.' or 'classes'",
        ),
    ],
)
def test_errors(spec, message):
    with pytest.raises(InputError) as caught:
        Regions.make(spec, 6)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Regions.make("prefix", 6, NAMES),
            "len(feature_names)=5: must be 6, the number of features",
        ),
        (
            lambda: Regions.by_prefix(NAMES, ""),
            "separator='': must be at least one character; try '_'",
        ),
        (
            lambda: Regions.by_prefix([]),
            "feature_names=[]: must be at least one name; pass one name per feature",
        ),
        (lambda: Regions.make(2, 4).indices(2), "q=2: must be between 0 and 1"),
        (lambda: Regions.make(2, 4).indices(-1), "q=-1: must be between 0 and 1"),
        (
            lambda: Regions.make(2, 4).expand(np.ones(3, dtype=bool)),
            "mask.shape=(3,): must be (2,) or (N, 2)",
        ),
        (
            lambda: Regions.make(2, 4).coordinates(np.ones((3, 2), dtype=bool)),
            "mask.shape=(3, 2): must be (2,)",
        ),
    ],
)
def test_errors_of_the_other_calls(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message


@settings(deadline=None)
@given(covers())
def test_slices_are_the_coordinates_of_regions_that_are_contiguous(cover):
    groups, d = cover
    regions = Regions.make(groups, d)
    contiguous = all(max(group) - min(group) + 1 == len(group) for group in groups)
    assert (regions.slices is not None) == contiguous
    for q, own in enumerate(regions.slices or ()):
        np.testing.assert_array_equal(np.arange(d)[own], regions.indices(q))


def test_parts_of_rows_as_items_are_views():
    rows = np.arange(12.0).reshape(3, 4)
    as_items(rows, slice(1, 3))[[2, 0]] = as_items(-rows, slice(1, 3))[[2, 0]]
    np.testing.assert_array_equal(rows, [[0, -1, -2, 3], [4, 5, 6, 7], [8, -9, -10, 11]])
