"""What the server makes of the sites' answers: one order of levels, and by name whoever differs, in what."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import danl
from danl.data.records import records_of_frame
from danl.design.agreement import agree
from danl.design.analysis import Analysis
from danl.design.design import Design
from danl.design.formula import Part, coded, read_model
from danl.design.survey import Survey, survey
from danl.errors import InputError
from tests.design.cohorts import FORMULA, cohort, held

pytest.importorskip("formulaic")


def surveyed(formula, min_cell=1, max_levels=None, /, **frames):
    analysis = Analysis(formula) if isinstance(formula, str) else formula
    model = read_model(analysis)
    return analysis, [
        survey(
            records_of_frame(frame, model.names), analysis, model, site=site, min_cell=min_cell, max_levels=max_levels
        )
        for site, frame in frames.items()
    ]


def agreed(formula, min_cell=1, /, **frames):
    return agree(*surveyed(formula, min_cell, **frames))


def words(*levels, times=4):
    return pd.DataFrame({"w": list(levels) * times, "y": np.arange(len(levels) * times, dtype=float)})


def test_levels_are_those_of_all_sites_in_one_order():
    one, two = words("b", "c"), words("a", "b")
    assert agreed("y ~ w", one=one, two=two).design == agreed("y ~ w", two=two, one=one).design
    assert agreed("y ~ w", one=one, two=two).design.levels == {"w": ("a", "b", "c")}
    assert agreed("y ~ C(w)", one=words("10", "9"), two=words("x", "9")).design.levels == {"w": ("9", "10", "x")}
    assert agreed('y ~ C(w, reference="c")', one=one, two=two).design.references == {"w": "c"}


def test_a_level_of_too_few_records_is_counted_and_not_named():
    few = pd.concat([words("a", "b"), pd.DataFrame({"w": ["Agnes M.", "a"], "y": [1.0, 2.0]})])
    _, (told,) = surveyed("y ~ w", 3, north=few)
    column = told.column("w")
    assert (column.levels, column.rare) == (("a", "b"), 1)
    assert "Agnes" not in told.to_json()
    agreement = agreed("y ~ w", 3, north=few, south=words("a", "b"))
    assert agreement.design.levels["w"] == ("a", "b")
    assert any("north has 1 level of too few records" in note for note in agreement.notes)
    shard = agreement.design.shard(records_of_frame(few, agreement.design.needed), "north")
    assert (shard.n_rows, shard.unknown_levels) == (len(few) - 1, 1)


def test_a_rare_level_counts_where_another_site_has_named_it():
    few, many = words("a", "b"), words("a", "b", "c")
    few.loc[0, "w"] = "c"
    design = agreed("y ~ w", 3, north=few, south=many).design
    shard = design.shard(records_of_frame(few, design.needed), "north")
    assert (shard.n_rows, shard.unknown_levels) == (len(few), 0)
    assert shard.X[0].tolist() == [0, 1]


def test_more_levels_than_a_site_allows_are_refused_by_the_site():
    with pytest.raises(InputError, match="has 50 levels, and at most 40 are allowed; is it an identifier"):
        surveyed("y ~ w", 1, 40, north=words(*(f"p{k}" for k in range(50))))


def test_a_level_that_one_site_alone_has_is_noted():
    notes = agreed("y ~ w", north=words("a", "b"), south=words("a", "b", "Never")).notes
    assert len(notes) == 1
    assert notes[0].startswith("w[Never]: south alone has this level; if it is another spelling")


def test_levels_that_one_site_alone_has_are_one_note():
    notes = agreed("y ~ w", north=words("a", "b"), south=words("a", "c", "d")).notes
    assert [note.partition(";")[0] for note in notes] == [
        "w[b]: north alone has this level",
        "w: south alone has the levels 'c' and 'd'",
    ]


def test_an_outcome_of_one_word():
    outcome = Analysis("w ~ y", family="binomial")
    with pytest.raises(InputError, match=r"the outcome 'w' is 'a' at every site; there is nothing to explain"):
        agreed(outcome, north=words("a"), south=words("a"))


def test_types_that_differ():
    numbers = words("a", "b").assign(w=np.arange(8.0))
    with pytest.raises(InputError, match=r"column 'w' holds numbers at south and words at north.*write C\(w\)"):
        agreed("y ~ w", north=words("a", "b"), south=numbers)
    assert agreed("y ~ C(w)", north=words("a", "1"), south=numbers).design.levels["w"][:2] == ("0", "1")
    outcome = Analysis("w ~ y", family="binomial")
    with pytest.raises(InputError, match=r"code it alike at every site$"):
        agreed(outcome, north=words("a", "b"), south=numbers.assign(w=[0.0, 1.0] * 4))


def test_clusters_may_be_called_as_each_site_likes():
    asked = Analysis("y ~ z", cluster="w")
    north = words("a", "b").assign(z=lambda f: f.y**2)
    south = north.assign(w=pd.to_datetime("2026-01-01"))
    agreement = agreed(asked, north=north, south=north.assign(w=[1.0, 2] * 4), west=south)
    assert agreement.notes == ()
    assert surveyed(asked, north=north)[1][0].column("w").levels == ()
    shard = agreement.design.shard(records_of_frame(north, agreement.design.needed), "north")
    assert shard.clusters.tolist() == [0, 1] * 4


def test_a_column_that_is_the_same_everywhere():
    flat = words("a", "b").assign(z=3.0)
    with pytest.raises(InputError, match="column 'z' is the same in all records of all sites; leave it out"):
        agreed("y ~ w + z", north=flat, south=flat)
    other = flat.assign(z=4.0)
    assert "z" in agreed("y ~ w + z", north=flat, south=other).design.names
    with pytest.raises(InputError, match="constant at each of the sites, so that it is one with their effects"):
        agreed(Analysis("y ~ w + z", site_effects=True), north=flat, south=other)
    with pytest.raises(InputError, match="'w' is 'a' at every site; leave it out"):
        agreed("y ~ w", north=words("a"), south=words("a"))


def test_units_that_look_different_are_noted():
    metres = pd.DataFrame({"height": np.linspace(1.5, 1.9, 20), "y": np.arange(20.0)})
    notes = agreed("y ~ height", north=metres, south=metres.assign(height=metres.height * 100)).notes
    assert len(notes) == 1
    assert "height: the numbers of south are about 100 times those of north" in notes[0]
    assert agreed("y ~ height", north=metres, south=metres).notes == ()


@pytest.mark.parametrize("family", ["gaussian", "gamma", "poisson"])
def test_an_outcome_that_is_the_same_everywhere_is_noted(family):
    flat = words("a", "b").assign(y=3.0, days=np.arange(1.0, 9.0))
    told = "log(y): the outcome is the same in all records of all sites: there is nothing to explain"
    for asked, north, noted in (
        (Analysis("log(y) ~ w", family=family), flat, family != "poisson"),
        (Analysis("log(y) ~ w", family=family, offset="days"), flat, False),
        (Analysis("log(y) ~ 0 + days", family=family), flat, False),
        (Analysis("log(y) ~ w", family=family), flat.assign(y=4.0), False),
        (Analysis("log(y) ~ w", family=family), flat.assign(y=[3.0] * 7 + [4]), False),
    ):
        assert [told in note for note in agreed(asked, north=north, south=flat).notes] == [True] * noted


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        ("w + v", {"w": "a", "v": "c"}),
        ("0 + w", {}),
        ("0 + w + v", {"v": "c"}),
        ("w + w:z", {"w": "a"}),
        ("z + z:w", {"w": "a"}),
        ("z:w", {}),
        ("0 + w:v", {}),
        ("w:v", {"w": "a", "v": "c"}),
    ],
)
def test_only_levels_that_others_are_compared_with_are_references(right, expected):
    frame = words("a", "b").assign(v=["c", "c", "d", "d"] * 2, z=np.arange(8.0) ** 2)
    assert agreed(f"y ~ {right}", here=frame).design.references == expected


def test_an_interaction_of_too_many_columns_is_refused_before_it_is_made():
    many = pd.DataFrame({name: [f"{name}{row}" for row in range(300)] for name in "abc"}).assign(y=np.arange(300.0))
    with pytest.raises(InputError, match="makes more than 20000 columns; leave out an interaction"):
        agreed("y ~ a:b:c", here=many)


def test_a_reference_that_is_no_level():
    with pytest.raises(
        InputError, match="reference='nevr' of 'w' is a level at no site; they have 'never' and 'often'"
    ):
        agreed('y ~ C(w, reference="nevr")', north=words("never", "often"))


def test_an_outcome_in_words_has_two_levels():
    asked = Analysis("w ~ y", family="binomial")
    assert agreed(asked, north=words("no", "yes")).design.outcome_levels == ("no", "yes")
    with pytest.raises(InputError, match="'w' has 3 levels at the sites, no, Yes and yes"):
        agreed(asked, north=words("no", "yes"), south=words("Yes", "no"))
    with pytest.raises(InputError, match="left out; w is 0 and 1 at the sites"):
        agreed(replace(asked, event="yes"), north=words("a", "b").assign(w=[0.0, 1.0] * 4))


def test_two_sites_of_one_name_and_a_site_that_tells_of_other_columns():
    asked, (told,) = surveyed("y ~ w", north=words("a", "b"))
    with pytest.raises(InputError, match="two sites are called 'north'"):
        agree(asked, [told, told])
    with pytest.raises(InputError, match="north told of other columns"):
        agree(asked, [replace(told, columns=told.columns[:1])])


def test_effects_need_two_sites():
    with pytest.raises(InputError, match="north is the only site"):
        agreed(Analysis("y ~ w", site_effects=True), north=words("a", "b"))


def test_a_survey_as_json():
    _, (told,) = surveyed("y ~ w", north=words("a", "b"))
    assert Survey.from_json(told.to_json()) == told
    values = json.loads(told.to_json())
    column = values["columns"][0]
    for wrong in (
        values | {"site": 3},
        values | {"records": -1},
        values | {"more": 1},
        values | {"columns": [column | {"kind": "dates"}]},
        values | {"columns": [column | {"levels": ["x" * 300]}]},
        values | {"columns": [column | {"levels": [3]}]},
        values | {"columns": [column | {"missing": 0.5}]},
        values | {"columns": [column | {"constant": "x"}]},
        values | {"columns": 3},
        [],
    ):
        with pytest.raises(InputError, match="do both ends run the same danl"):
            Survey.from_json(json.dumps(wrong))


def test_a_design_as_json_and_what_is_refused_of_it():
    frame = cohort()
    asked = Analysis(FORMULA, family="binomial", offset="log(days)", site_effects=True, cluster="sex")
    design = agreed(asked, north=frame[:100], south=frame[100:]).design
    assert Design.from_json(design.to_json()) == design
    assert design.is_of_its_formula()
    forged = replace(
        design, columns=(*design.columns[:-1], replace(design.columns[-1], parts=(Part("number", "days"),)))
    )
    assert not forged.is_of_its_formula()
    never, other, *rest = design.levels["smoking"]
    forged = replace(design, levels=design.levels | {"smoking": (other, never, *rest)})
    swapped = replace(forged, columns=coded(read_model(asked), forged.levels, forged.sites))
    assert not swapped.is_of_its_formula()
    dead = replace(design, analysis=replace(asked, event="yes"))
    assert dead.is_of_its_formula()
    assert not replace(dead, outcome_levels=("yes", "no")).is_of_its_formula()
    values = design.to_dict()
    for wrong in (
        values | {"outcome": "__import__('os')"},
        values | {"columns": [["x", [["number", "age.__class__", ""]]]]},
        values | {"columns": [["x", [["program", "age", ""]]]]},
        values | {"columns": []},
        values | {"columns": [["x", "y"]]},
        values | {"intercept": 1},
        values | {"outcome_levels": ["a"]},
        values | {"analysis": 3},
        {},
        3,
    ):
        with pytest.raises(InputError):
            Design.from_dict(wrong)
    with pytest.raises(InputError, match="is no JSON"):
        Design.from_json("{")


def test_notes_of_the_sites_are_notes_of_the_run():
    frame = cohort()
    other = frame.assign(smoking=frame.smoking.replace("never", "Never"))
    result = danl.solve(danl.RemoteProblem(held([frame, other]), analysis=Analysis("bmi ~ smoking")))
    assert any(note.startswith("smoking[Never]: site-1 alone") for note in result.notes)
