"""Attacks by designs and terms that a server writes by hand: which records, which columns, which files.

Each gets a record or a value at a site without rules, or is no question of statistics; by default it is refused.
"""

import json
import time

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")
pytest.importorskip("formulaic")

import danl
from danl.data.reference import ShardReference
from danl.design.agreement import agree
from danl.design.design import Design
from danl.design.survey import Survey
from danl.engines.flower.ledger import Ledger
from danl.engines.flower.opening import Opening
from danl.engines.flower.site import Site
from danl.engines.flower.site_rules import RefusedError, SiteRules
from danl.errors import InputError
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import Failure, GradientTask
from danl.protocol.wire import decode, encode
from tests.flower.test_attacks import OPEN, ask, records, refused, site

N = 60
RNG = np.random.default_rng(5)
AGE, WARD, Y = RNG.normal(60, 12, N).round(3), np.append(np.arange(59) % 19, 30), RNG.integers(0, 9, N)


@pytest.fixture
def path(tmp_path):
    lines = [f"{a!r},{w},{y},{i}" for i, (a, w, y) in enumerate(zip(AGE.tolist(), WARD, Y.tolist(), strict=True))]
    file = tmp_path / "north.csv"
    file.write_text("\n".join(["age,ward,y,id", *lines]) + "\n")
    return file


def at(path, rules, name="north"):
    return Site(name, ShardReference(path=str(path), target="real"), rules)


def agreed(path, formula="y ~ age", **given):
    analysis = danl.Analysis(formula, family="poisson", **given)
    return agree(analysis, [Survey.from_json(at(path, OPEN).survey(analysis.to_json()))]).design.to_dict()


def gradient(site, design):
    problem = RemoteProblem(analysis=Design.from_dict(design))
    d = len(problem.design.names) + problem.design.intercept
    opening = Opening.of(problem, regions=Regions.make(1, d), policy=None, seed=0)
    return decode(site.answer(encode(GradientTask(0, np.zeros(d))), opening.to_json(0)), most_bytes=10**6)


def of_wards(design, wards):
    """The design, of the records of some wards alone."""
    text = json.loads(json.dumps(design))
    text["analysis"]["cluster"], text["levels"] = "ward", {"ward": [str(ward) for ward in wards]}
    return text


def test_levels_that_choose_records(path):
    """Those of wards up to 9, of all from 9, and all of them: two sums less the third are the records of ward 9."""
    wards, design = [*range(19), 30], agreed(path)
    sets = [wards[:-1][:10], [*wards[9:19]], wards[:-1]]
    sums = []
    for chosen in sets:
        kept = np.isin(WARD, chosen)
        told = gradient(at(path, OPEN), of_wards(design, chosen))
        sums.append(kept.sum() * told.fragment)
    ninth = WARD == 9
    assert np.allclose((sums[0] + sums[1] - sums[2])[0], ((1 - Y) * AGE)[ninth].sum())
    for chosen in sets[:2]:
        assert refused(gradient(at(path, SiteRules()), of_wards(design, chosen)), "subsets")
    assert not isinstance(gradient(at(path, SiteRules()), of_wards(design, sets[2])), Failure)


def test_a_level_of_an_identifier(path):
    """Whether there is such a record, and with a further level, whether it has that: a question about one person."""
    design = agreed(path)
    design["columns"].append(["who", [["level", "id", "17"]]])
    assert not isinstance(gradient(at(path, OPEN), design), Failure)
    assert refused(gradient(at(path, SiteRules()), design), "max-levels")
    with pytest.raises(RefusedError, match="max-levels"):
        at(path, SiteRules()).shard_info("poisson", json.dumps(design))


def test_a_design_of_more_columns_than_memory_has_room_for(path):
    design = agreed(path)
    design["columns"] = [[f"c{number}", design["columns"][0][1]] for number in range(20_001)]
    with pytest.raises(InputError, match="design: cannot be read"):
        Design.from_dict(design)


def test_the_sum_of_weights_that_are_nearly_one_records(path):
    lines = path.read_text().splitlines()
    path.write_text(
        "\n".join([f"{lines[0]},pay", *(f"{line},{1e6 if k == 7 else 1}" for k, line in enumerate(lines[1:]))])
    )
    design = agreed(path, weights="pay")
    assert json.loads(at(path, OPEN).shard_info("poisson", json.dumps(design)))["facts"]["total_weight"] == 1e6 + N - 1
    with pytest.raises(RefusedError, match="max-share"):
        at(path, SiteRules()).shard_info("poisson", json.dumps(design))


# --- budgets ---


def counted(name="north"):
    ledger = Ledger.of(name, SiteRules())
    return sum(ledger._read()[1]["days"].values())


def test_refusals_count_to_the_budgets():
    """Whether a column is of few records is an answer; so is what is wrong with a value."""
    X, y = records()
    X[:, 0] = 0.0
    X[7, 0] = 1.0
    strict = site(X, y, SiteRules(max_exchanges=2))
    asked = [ask(strict, GradientTask(0, np.zeros(4))) for _ in range(3)]
    assert [reply.detail.split(": ")[1] for reply in asked] == ["sparse-columns", "sparse-columns", "max-exchanges"]
    assert counted() == 2
    for _ in range(2):
        assert isinstance(ask(site(X, -1 - y, SiteRules()), GradientTask(0, np.zeros(4)), loss="gamma"), Failure)
    assert counted() == 4


# --- terms ---


def test_more_classes_than_levels_are_told():
    """So many classes are a histogram of the outcome's values, and a threshold that the server moves."""
    X, y = records(200)
    y = np.clip(np.round(X[:, 3]) + 30, 0, 98)
    for classes, rules, says in ((99, OPEN, None), (99, SiteRules(), "max-levels"), (3, SiteRules(), "from 0 to 2")):
        terms = RemoteProblem(alpha=0.0, loss=f"multinomial:classes={classes}")
        opening = Opening.of(terms, regions=Regions.make(1, classes), policy=None, seed=0).to_json(0)
        task = encode(GradientTask(0, np.zeros(classes)))
        reply = decode(site(X[:, :1], y, rules).answer(task, opening), most_bytes=10**6)
        assert says is None or says in reply.detail
        assert isinstance(reply, Failure) == (says is not None)
    assert "y[" not in reply.detail


def test_a_policy_that_reads_a_file(tmp_path):
    """Whether there is such a file at the site is not the server's business."""
    X, y = records()
    np.save(tmp_path / "masks.npy", np.ones((1, 1, 1), dtype=bool))
    opening = Opening.of(RemoteProblem(alpha=0.0), regions=Regions.make(1, 4), policy=None, seed=0).to_json(0)
    details = []
    for file in ("masks.npy", "none.npy"):
        text = json.dumps(json.loads(opening) | {"policy": f"schedule:file={tmp_path / file}"})
        reply = decode(site(X, y, OPEN).answer(encode(GradientTask(0, np.zeros(4))), text), most_bytes=10**6)
        details.append(reply.detail.replace(file, ""))
    assert details[0] == details[1]


def test_a_formula_that_takes_for_ever(path):
    """Powers of sums are written out before those that are alike are one."""
    names = " + ".join(f"x{number}" for number in range(60))
    for formula in (f"y ~ ({names})**5", "y ~ ((a + b + c + d)**5)**5"):
        begun = time.perf_counter()
        with pytest.raises(InputError, match="powers of shorter sums"):
            at(path, SiteRules()).survey(danl.Analysis(formula).to_json())
        assert time.perf_counter() - begun < 5
    analysis = danl.Analysis("y ~ (age + ward + id)**2 + (age + ward)**3")
    assert at(path, SiteRules()).survey(analysis.to_json())
