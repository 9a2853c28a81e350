"""A formula on Flower's sites: a survey, a design, the pooled answer; sites whose files cannot be used are named."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")
pytest.importorskip("formulaic")

import danl
from danl.data.reference import ShardReference
from danl.engines.flower.clientapp import app
from danl.engines.flower.engine import GridEngine
from danl.engines.flower.opening import Opening
from danl.engines.flower.site import Site
from danl.errors import DanlWarning, InputError
from danl.federation.run_config import solve_arguments
from danl.federation.serverapp import run
from tests.design.cohorts import FORMULA, by_name, cohort, fitted, written
from tests.design.test_malformed import FORMULA as OF_FILES
from tests.design.test_malformed import MALFORMED, SECRET
from tests.flower.fake_grid import FakeGrid, error_reply

ANALYSIS = danl.Analysis(FORMULA, family="binomial")


@pytest.fixture
def references(tmp_path):
    folder = tmp_path / "sites"
    folder.mkdir()
    return written(cohort(), folder)


def configs_of(references):
    return [{"name": reference.called(0), "data": reference.path} for reference in references]


def engine_of(configs, sites=None, **network):
    grid = FakeGrid(app, configs, **network)
    return grid, GridEngine(grid, sites=sites or len(configs), wait=280.0, deadline=280.0, poll=0.001)


def kinds(grid):
    return [message.metadata.message_type for message in grid.pushed]


@pytest.mark.parametrize("more", [{}, {"site_effects": True}], ids=str)
def test_the_run_is_the_local_one(more, references):
    analysis = replace(ANALYSIS, **more)
    grid, engine = engine_of(configs_of(references))
    result = danl.solve(danl.RemoteProblem(analysis=analysis), engine=engine, tol=1e-13)
    local = fitted(references, analysis)
    assert result.settings["feature_names"] == local.settings["feature_names"]
    np.testing.assert_allclose(result.w, local.w, rtol=1e-9, atol=1e-12)
    assert result.settings["left_out"] == local.settings["left_out"]
    assert result.notes == local.notes
    assert kinds(grid)[:6] == ["query.survey"] * 3 + ["query.facts"] * 3


def test_the_run_configuration_has_the_keys(references, tmp_path):
    config = {"formula": FORMULA, "family": "binomial", "site-effects": True, "sites": 3, "wait": 280.0}
    out = tmp_path / "result"
    out.mkdir()
    result = run(FakeGrid(app, configs_of(references)), config, out)
    local = fitted(references, replace(ANALYSIS, site_effects=True))
    assert by_name(result) == pytest.approx(by_name(local), rel=1e-5)
    assert json.loads((out / "result.json").read_text())["settings"]["design"]["levels"]["sex"] == ["f", "m"]
    problem = solve_arguments(config)[0]
    assert (problem["analysis"].site_effects, problem["analysis"].family) == (True, "binomial")
    assert "loss" not in problem
    for wrong, expected in (
        ({"family": "poisson"}, "family='poisson': must be given with a formula"),
        ({"formula": "y ~ a", "loss": "squared"}, "loss='squared': must be left out where there is a formula"),
    ):
        with pytest.raises(InputError, match=expected):
            solve_arguments(wrong)


def test_a_site_whose_file_cannot_be_used_is_left_out_or_ends_it_before_it_starts(references, tmp_path):
    broken = tmp_path / "patients.csv"
    broken.write_text("age,smoking,bmi,sex,death\n61,never,20,m,no\nAgnes,never,20,m,no\n")
    configs = [*configs_of(references), {"name": "north", "data": str(broken)}]
    place = r"site north: patients\.csv, line 3, column 'age' \(1\): is not a number"
    _, engine = engine_of(configs)
    with pytest.raises(InputError, match=f"sites=4: found 3; {place}") as caught:
        danl.solve(danl.RemoteProblem(analysis=ANALYSIS), engine=engine)
    assert "Agnes" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
    _, engine = engine_of(configs, sites=2)
    with pytest.warns(DanlWarning, match=place):
        result = danl.solve(danl.RemoteProblem(analysis=ANALYSIS), engine=engine, tol=1e-13)
    np.testing.assert_allclose(result.w, fitted(references, ANALYSIS).w, rtol=1e-9)
    assert "site north: patients.csv" in result.notes[0]
    assert result.settings["sites"] == ["site-0", "site-1", "site-2"]


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_file_reaches_the_server_by_its_place(kind, tmp_path, capfd):
    content, expected = MALFORMED[kind]
    path = tmp_path / "patients.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    _, engine = engine_of([{"name": "north", "data": str(path)}])
    with pytest.raises(InputError, match=rf"site north: patients\.csv,? ?.*{expected}") as caught:
        danl.solve(danl.RemoteProblem(analysis=danl.Analysis(OF_FILES, family="binomial")), engine=engine)
    printed = capfd.readouterr()
    for told in (str(caught.value), printed.out, printed.err):
        assert SECRET not in told
        assert str(tmp_path) not in told


def test_a_level_of_fewer_records_than_a_cell_is_named_by_no_site(tmp_path):
    frame = cohort(missing=0)
    frame.loc[:1, "smoking"] = "a pipe"
    _, engine = engine_of(configs_of(written(frame, tmp_path, sites=2)))
    result = danl.solve(danl.RemoteProblem(analysis=danl.Analysis("bmi ~ smoking")), engine=engine, tol=1e-12)
    assert result.settings["feature_names"] == ["smoking[former]", "smoking[never]"]
    assert sum(result.settings["unknown_levels"]) == 2
    assert any("a level that too few records have" in note for note in result.notes)


def test_a_site_that_is_lost_between_the_survey_and_the_rows(references):
    def spoil(message, replies):
        lost = message.metadata.message_type == "query.facts" and message.metadata.dst_node_id == 1000
        return [error_reply(message, 2)] if lost else replies

    _, engine = engine_of(configs_of(references), sites=2, spoil=spoil)
    with pytest.warns(DanlWarning, match="a node is left out"):
        result = danl.solve(danl.RemoteProblem(analysis=ANALYSIS), engine=engine, tol=1e-13)
    assert result.settings["sites"] == ["site-1", "site-2"]
    _, engine = engine_of(configs_of(references), sites=2, spoil=spoil)
    with pytest.raises(InputError, match="sites=3: found 2"):
        danl.solve(danl.RemoteProblem(analysis=replace(ANALYSIS, site_effects=True)), engine=engine)


def test_a_site_is_told_nothing_it_would_run(references):
    site = Site("north", ShardReference(path=references[0].path))
    with pytest.raises(InputError):
        site.survey(danl.Analysis("bmi ~ age").to_json().replace("age", "age.__class__"))
    design = json.loads(json.dumps(fitted(references, danl.Analysis("bmi ~ age")).settings["design"]))
    design["columns"][0][1][0][1] = "__import__('os').getcwd()"
    with pytest.raises(InputError):
        site.shard_info("squared", json.dumps(design))


def test_an_opening_carries_the_design(references):
    problem = danl.RemoteProblem(analysis=danl.Design.from_dict(fitted(references, ANALYSIS).settings["design"]))
    regions = danl.Regions.make(2, problem.design and len(problem.design.names) + 1)
    opening = Opening.of(problem, regions=regions, policy=None, seed=0)
    assert Opening.from_json(opening.to_json(1)).design_of_rows() == problem.design
