"""Formulas held against a site's rules: complete cases that differ by one, formulas that are not allowed."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")
pytest.importorskip("formulaic")

import danl
from danl.data.reference import ShardReference
from danl.engines.flower.clientapp import client_app
from danl.engines.flower.engine import GridEngine
from danl.engines.flower.opening import Opening
from danl.engines.flower.site import Site
from danl.engines.flower.site_rules import RefusedError, SiteRules
from danl.errors import InputError
from danl.protocol.messages import GradientTask
from danl.protocol.wire import decode, encode
from tests.flower.fake_grid import FakeGrid

FIRST, SECOND = danl.Analysis("y ~ a"), danl.Analysis("y ~ a + b")


@pytest.fixture
def path(tmp_path):
    """Forty records, of which one has no b."""
    values = np.random.default_rng(0).standard_normal((40, 3))
    lines = [",".join(f"{value!r}" for value in row) for row in values.tolist()]
    a, _, y = lines[17].split(",")
    lines[17] = f"{a},,{y}"
    file = tmp_path / "north.csv"
    file.write_text("a,b,y\n" + "\n".join(lines) + "\n")
    return file


def fit(site, analysis):
    engine = GridEngine(FakeGrid(client_app(lambda _: site), [{}]), sites=1, wait=5.0, poll=0.001)
    return danl.solve(danl.RemoteProblem(analysis=analysis), engine=engine, tol=1e-10)


def gradient(site, design):
    problem = danl.RemoteProblem(analysis=danl.Design.from_dict(design))
    d = len(problem.design.names) + problem.design.intercept
    opening = Opening.of(problem, regions=danl.Regions.make(1, d), policy=None, seed=0)
    return decode(site.answer(encode(GradientTask(0, np.zeros(d))), opening.to_json(0)), most_bytes=10**6)


def test_the_complete_cases_of_another_formula(path):
    """Without rules their gradients give the outcome and the features of the record that drops out."""
    open_site = Site("north", ShardReference(path=str(path)), SiteRules.open())
    designs = [fit(open_site, analysis).settings["design"] for analysis in (FIRST, SECOND)]
    whole, rest = (gradient(open_site, design).fragment for design in designs)
    a, y = (float(path.read_text().splitlines()[18].split(",")[column]) for column in (0, 2))
    difference = 40 * whole[[0, 1]] - 39 * rest[[0, 2]]
    assert np.allclose(difference, [-y * a, -y])
    site = Site("south", ShardReference(path=str(path)))
    assert fit(site, FIRST).status == "converged"
    with pytest.raises(InputError, match="site south: changed-data: fewer than min-rows=10 records"):
        fit(site, SECOND)
    assert "changed-data" in gradient(site, designs[1]).detail
    assert fit(site, FIRST).status == "converged"  # what it has answered about before it answers about again


def test_formulas_and_columns_that_are_allowed(path):
    site = Site("north", ShardReference(path=str(path)), SiteRules(formulas=("y~a",)))
    assert fit(site, FIRST).status == "converged"
    with pytest.raises(InputError, match="formulas: this formula is not among the 1 that are allowed"):
        fit(site, SECOND)
    site = Site("north", ShardReference(path=str(path)), SiteRules(columns=("y", "a")))
    with pytest.raises(InputError, match="columns: b is not allowed"):
        fit(site, SECOND)


def test_a_design_that_says_one_formula_and_has_another(path):
    """The server wrote it: the columns are what counts."""
    free = Site("north", ShardReference(path=str(path)), SiteRules.open())
    design = fit(free, SECOND).settings["design"]
    design = json.loads(json.dumps(design))
    design["analysis"]["formula"] = FIRST.formula
    site = Site("north", ShardReference(path=str(path)), SiteRules(formulas=(FIRST.formula,)))
    with pytest.raises(RefusedError, match="formulas: the columns of the design are not those of its formula"):
        site.shard_info("squared", json.dumps(design))
    site = Site("north", ShardReference(path=str(path)), replace(SiteRules(), columns=("y", "a")))
    with pytest.raises(RefusedError, match="columns: b is not allowed"):
        site.shard_info("squared", json.dumps(design))


def test_a_column_that_is_made_to_single_out(path):
    """A level of one record, as numbers: the column is 1 there and 0 elsewhere."""
    lines = path.read_text().splitlines()
    marked = [lines[0] + ",id", *(f"{line},{float(number == 3)}" for number, line in enumerate(lines[1:]))]
    path.write_text("\n".join(marked) + "\n")
    site = Site("north", ShardReference(path=str(path)))
    with pytest.raises(InputError, match="sparse-columns: in column id fewer than 3 records differ from the others"):
        fit(site, danl.Analysis("y ~ a + id"))


ODD = "exp(-1000000*(a-{a!r})**2)"
"""1 for one record, and 0 for all others."""


@pytest.mark.parametrize(
    "formula", ["{odd} ~ a + b", "y ~ a + I(b + {odd})", "y ~ b + I((a / 3)**99)", "y ~ a:a:b + a:b:I(b**3)"]
)
def test_a_column_that_is_made_to_be_of_one_record(path, formula):
    """The difference of two columns of a Hessian is that record's: refused, and so is the design without a survey."""
    a = float(path.read_text().splitlines()[6].split(",")[0])
    analysis = danl.Analysis(formula.format(odd=ODD.format(a=a)))
    site = Site("north", ShardReference(path=str(path)))
    with pytest.raises(InputError, match=r"arithmetic: .* can be made to be of one record"):
        fit(site, analysis)
    design = fit(Site("open", site.reference, SiteRules.open()), analysis).settings["design"]
    refused = gradient(site, design)
    assert refused.kind == "refused"
    assert "arithmetic" in refused.detail
    allowed = Site("allowed", site.reference, replace(SiteRules(), arithmetic=True))
    assert "arithmetic" not in str(getattr(gradient(allowed, design), "detail", ""))


def test_a_made_column_gives_a_record_where_arithmetic_is_free(path):
    values = [float(value) for value in path.read_text().splitlines()[6].split(",")]
    loose = Site("loose", ShardReference(path=str(path)), replace(SiteRules.open()))
    design = fit(loose, danl.Analysis(f"{ODD.format(a=values[0])} ~ a + b")).settings["design"]
    told = gradient(loose, design)
    n = 39
    assert np.allclose(-n * told.fragment[:2], values[:2], rtol=1e-3)  # and next to nothing of the others


@pytest.mark.parametrize(
    "formula", ["log(y2) ~ a", "y ~ log(y2) + sqrt(y2)", "y ~ I(a**2) + a + b", "y ~ a:b + poly(a, 3, raw=True)"]
)
def test_formulas_of_statistics_are_answered(path, formula, tmp_path):
    lines = path.read_text().splitlines()
    file = tmp_path / "more.csv"
    rows = [f"{line},{1 + number % 7}" for number, line in enumerate(lines[1:])]
    file.write_text("\n".join([f"{lines[0]},y2", *rows]) + "\n")
    assert fit(Site("more", ShardReference(path=str(file))), danl.Analysis(formula)).status == "converged"


def test_surveys_count_to_the_budget_of_the_day_even_where_they_fail(path):
    site = Site("north", ShardReference(path=str(path)), replace(SiteRules(), max_exchanges_a_day=3))
    site.survey(danl.Analysis("y ~ a").to_json())
    with pytest.raises(InputError, match="sqrt"):  # which some records have no number for
        site.survey(danl.Analysis("y ~ sqrt(a)").to_json())
    site.survey(danl.Analysis("y ~ b").to_json())
    with pytest.raises(InputError, match="max-exchanges-a-day"):
        site.survey(danl.Analysis("y ~ b").to_json())
