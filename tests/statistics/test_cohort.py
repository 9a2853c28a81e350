"""The table of the cohort, against pandas."""

import json

import numpy as np
import pandas as pd
import pytest

import danl
from danl import InputError
from tests.statistics.hospitals import frames, pooled

pytest.importorskip("formulaic")

COLUMNS = ["age", "smoking", "dose", "death"]


@pytest.fixture(scope="module")
def table():
    return danl.cohort(columns=COLUMNS, sites=frames())


def complete(site):
    frame = pd.concat(frames().values()) if site == "all sites" else frames()[site]
    return frame.dropna(subset=COLUMNS)


def line(table, column, site, level=None):
    return next(each for each in table.lines if (each.column, each.level, each.site) == (column, level, site))


@pytest.mark.parametrize("site", ["north", "south", "west", "all sites"])
def test_moments_counts_and_quartiles(table, site):
    frame = complete(site)
    assert table.records[site] == len(frame)
    for column in ("age", "dose"):
        found = line(table, column, site)
        assert found.mean == pytest.approx(frame[column].mean(), rel=1e-9)
        assert found.std == pytest.approx(frame[column].std(), rel=1e-9)
        expected = frame[column].quantile([0.25, 0.5, 0.75])
        np.testing.assert_allclose(found.quartiles, expected, atol=0.15 * frame[column].std())
    for level, count in frame.smoking.value_counts().items():
        assert line(table, "smoking", site, level).count == count
    ones = line(table, "death", site)
    assert ones.count == pytest.approx(frame.death.sum())
    assert np.isnan(ones.quartiles).all()


def test_missing_values_are_of_all_records(table):
    for site, frame in frames().items():
        assert line(table, "age", site).missing == frame.age.isna().sum()
        assert table.left_out[site] == len(frame) - len(complete(site))


def test_a_formula_in_place_of_columns():
    found = danl.cohort("death ~ age + smoking", sites=frames(), family="binomial")
    assert {each.column for each in found.lines} == {"age", "smoking", "death"}
    words = {name: frame.assign(death=frame.death.map({0: "no", 1: "yes"})) for name, frame in frames().items()}
    found = danl.cohort("death ~ age", sites=words, family="binomial")
    frame = words["north"].dropna(subset=["age"])
    assert line(found, "death", "north", "yes").count == (frame.death == "yes").sum()


def test_without_an_intercept_every_level_has_one_line():
    with_it, without = (danl.cohort(f"pressure ~ {right}", sites=frames()) for right in ("smoking", "0 + smoking"))
    assert without.to_frame().index.is_unique
    assert str(without) == str(with_it)


def test_text_frame_csv_and_json(table, tmp_path):
    text = str(table)
    assert "smoking=former" in text
    assert "median (quartiles)" in text
    assert table.to_frame().loc[("age", np.nan, "north"), "mean"].item() == line(table, "age", "north").mean
    told = json.loads(table.to_json(tmp_path / "t.json"))
    assert told["sites"] == ["north", "south", "west", "all sites"]
    assert len(told["lines"]) == len(table.lines)
    assert len(table.to_csv(tmp_path / "t.csv").splitlines()) == len(table.lines) + 1


def test_wrong_arguments():
    with pytest.raises(InputError, match="one of the two"):
        danl.cohort(sites=frames())
    for wrong in ("ab", 3):
        with pytest.raises(InputError, match=f"columns={wrong!r}: must be at least two columns"):
            danl.cohort(columns=wrong, sites=frames())
    with pytest.raises(InputError, match="at least two columns"):
        danl.cohort(columns=["age"], sites=frames())


def test_quartiles_that_the_bins_cannot_tell_are_not_told():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"y": rng.normal(size=300), "skewed": np.exp(4 * rng.normal(size=300)), "x": rng.normal(size=300)}
    )
    lines = {line.column: line for line in danl.cohort("y ~ skewed + x", frame).lines if line.site == "all"}
    assert np.isnan(lines["skewed"].quartiles).all()
    assert np.allclose(lines["x"].quartiles, np.quantile(frame.x, [0.25, 0.5, 0.75]), atol=0.1)
    assert "bins too coarse" in str(danl.cohort("y ~ skewed", frame))


def test_small_numbers_are_no_zeros_and_ones():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"y": rng.normal(size=90), "mol": 1e-10 * rng.gamma(9, size=90), "x": rng.integers(0, 2, 90)})
    lines = {line.column: line for line in danl.cohort("y ~ mol + x", frame).lines if line.site == "all"}
    assert np.isnan(lines["mol"].count)
    assert lines["x"].count == frame.x.sum()


@pytest.mark.parametrize("given", [{"weights": "x"}, {"trials": "x", "family": "binomial"}])
def test_a_cohort_has_no_weights(given):
    frame = pd.DataFrame({"y": [0, 1] * 20, "z": np.arange(40.0), "x": [1, 2] * 20})
    with pytest.raises(danl.InputError, match="a table of the cohort counts records"):
        danl.cohort(danl.Analysis("y ~ z", **given), frame)


def test_columns_are_in_the_order_they_were_asked_for():
    asked = ["dose", "smoking", "age", "death"]
    assert list(dict.fromkeys(line.column for line in danl.cohort(columns=asked, sites=frames()).lines)) == asked


def test_the_columns_of_many_sites_stand_below_one_another():
    frame = pooled()
    sites = {f"hospital {number}": frame.iloc[30 * number : 30 * (number + 1)] for number in range(7)}
    table = danl.cohort("death ~ age + smoking", sites=sites, family="binomial")
    parts = [part.splitlines() for part in str(table).split("\n\n")]
    assert len(parts) > 1
    assert max(len(line) for part in parts for line in part) <= 160
    heads = [name for part in parts for name in part[0].split("  ") if name.strip()]
    assert [name.strip() for name in heads] == [*sites, "all sites"]
    names = [[line.removeprefix("  ").partition("  ")[0] for line in part] for part in parts]
    assert names == [names[0]] * len(parts)
