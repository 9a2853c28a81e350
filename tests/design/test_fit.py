"""The whole way: files with words and missing values, a design, and the coefficients of statsmodels on pooled rows."""

import numpy as np
import pandas as pd
import pytest

import danl
from danl.errors import InputError
from tests.design.cohorts import FORMULA, by_name, cohort, fitted, held, written

smf = pytest.importorskip("statsmodels.formula.api")
sm = pytest.importorskip("statsmodels.api")


def pooled(frame):
    whole = frame.dropna()
    return whole.assign(event=(whole.death == "yes").astype(float))


def test_three_files_give_the_pooled_complete_cases(tmp_path):
    frame = cohort()
    result = fitted(written(frame, tmp_path), danl.Analysis(FORMULA, family="binomial"))
    formula = 'event ~ age*sex + C(smoking, Treatment("never")) + np.log(bmi)'
    expected = smf.glm(formula, pooled(frame), family=sm.families.Binomial()).fit(tol=1e-14).params
    found = by_name(result)
    assert result.status == "converged"
    for ours, theirs in {
        "intercept": "Intercept",
        "age": "age",
        "sex[m]": "sex[T.m]",
        "smoking[current]": 'C(smoking, Treatment("never"))[T.current]',
        "smoking[former]": 'C(smoking, Treatment("never"))[T.former]',
        "log(bmi)": "np.log(bmi)",
        "age:sex[m]": "age:sex[T.m]",
    }.items():
        assert found[ours] == pytest.approx(expected[theirs], rel=1e-7, abs=1e-8)
    assert len(found) == len(expected)
    assert sum(result.settings["rows"]) == len(frame.dropna())
    assert sum(result.settings["left_out"]) == len(frame) - len(frame.dropna())
    assert any("a value is missing" in note for note in result.notes)


def test_without_an_intercept_the_first_factor_has_all_its_levels(tmp_path):
    frame = cohort()
    result = fitted(written(frame, tmp_path), danl.Analysis("bmi ~ smoking + age - 1"))
    expected = smf.ols("bmi ~ smoking + age - 1", frame.dropna()).fit().params
    found = by_name(result)
    assert list(found) == ["smoking[current]", "smoking[former]", "smoking[never]", "age"]
    assert np.allclose(result.w, expected.to_numpy(), rtol=1e-7)


def test_effects_of_the_sites(tmp_path):
    frame = cohort().assign(clinic=lambda f: np.resize(["east", "north", "west"], len(f)))
    references = [danl.ShardReference(load=lambda part=part: part, name=name) for name, part in frame.groupby("clinic")]
    result = fitted(references[::-1], danl.Analysis("bmi ~ age + smoking", site_effects=True))
    expected = smf.ols("bmi ~ age + smoking + clinic", frame.dropna()).fit().params
    found = by_name(result)
    assert found["site[north]"] == pytest.approx(expected["clinic[T.north]"], rel=1e-7)
    assert found["site[west]"] == pytest.approx(expected["clinic[T.west]"], rel=1e-7)
    assert found["age"] == pytest.approx(expected["age"], rel=1e-7)
    assert "site[east]" not in found


def test_successes_of_trials(tmp_path):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"dose": rng.normal(size=60), "n": rng.integers(0, 9, 60)})
    frame["k"] = rng.binomial(frame.n, 1 / (1 + np.exp(-frame.dose)))
    result = fitted(
        held([frame[:20], frame[20:30], frame[30:]]), danl.Analysis("k ~ dose", family="binomial", trials="n")
    )
    whole = frame[frame.n > 0]
    expected = sm.GLM(
        np.column_stack([whole.k, whole.n - whole.k]), sm.add_constant(whole.dose), family=sm.families.Binomial()
    ).fit(tol=1e-14)
    assert np.allclose(result.w, [expected.params["dose"], expected.params["const"]], rtol=1e-7)


def test_weights_count_as_repeated_records(tmp_path):
    frame = cohort(missing=0)
    result = fitted(held([frame[:100], frame[100:]]), danl.Analysis("bmi ~ age", weights="days"))
    expected = smf.wls("bmi ~ age", frame, weights=frame.days).fit().params
    assert np.allclose(result.w, [expected["age"], expected["Intercept"]], rtol=1e-8)


def test_columns_instead_of_a_formula(tmp_path):
    frame = cohort()
    references = written(frame, tmp_path)
    listed = fitted(references, danl.Analysis(outcome="death", columns=("age", "smoking"), family="binomial"))
    spelt = fitted(references, danl.Analysis("death ~ age + smoking", family="binomial"))
    assert by_name(listed) == by_name(spelt)


def test_the_event_of_an_outcome_in_words(tmp_path):
    references = written(cohort(), tmp_path)
    later = fitted(references, danl.Analysis("death ~ age", family="binomial"))
    for analysis in (
        danl.Analysis("death[no] ~ age", family="binomial"),
        danl.Analysis("death ~ age", family="binomial", event="no"),
    ):
        assert np.allclose(fitted(references, analysis).w, -later.w, rtol=1e-6)
    with pytest.raises(InputError, match=r"event='perhaps': must be a level of 'death'.*no and yes"):
        fitted(references, danl.Analysis("death ~ age", family="binomial", event="perhaps"))


def test_there_is_no_penalty_and_records_count_the_same_unless_it_is_asked_for(tmp_path):
    references = written(cohort(), tmp_path)
    problem = danl.RemoteProblem(references, analysis=danl.Analysis("bmi ~ age"))
    assert (problem.alpha, problem.weighting, problem.intercept, problem.loss.name) == (0.0, "samples", True, "squared")
    assert danl.RemoteProblem(references, analysis=danl.Analysis("bmi ~ age - 1"), l2=1.0).l2 == 1.0
    for given in ({"loss": "squared"}, {"intercept": True}, {"feature_names": ["age"]}):
        with pytest.raises(InputError, match="family and formula of the analysis say it"):
            danl.RemoteProblem(references, analysis=danl.Analysis("bmi ~ age"), **given)


def test_a_design_is_used_again_without_a_survey(tmp_path):
    references = written(cohort(), tmp_path)
    first = fitted(references, danl.Analysis(FORMULA, family="binomial"))
    design = danl.Design.from_dict(first.settings["design"])
    again = danl.solve(danl.RemoteProblem(references, analysis=design), tol=1e-13)
    assert by_name(again) == by_name(first)


def test_missing_values_may_be_refused_by_their_place(tmp_path):
    path = tmp_path / "north.csv"
    path.write_text("age,bmi,other\n50,20,\n60,,7\n70,30,8\n")
    references = [danl.ShardReference(path=path)]
    with pytest.raises(InputError, match=r"north\.csv, line 3, column 'bmi' \(2\): the value is missing") as caught:
        fitted(references, danl.Analysis("bmi ~ age", missing="error"))
    assert str(tmp_path) not in str(caught.value)
    result = fitted(references, danl.Analysis("bmi ~ age"))
    assert result.settings["rows"] == [2]


def test_columns_outside_the_formula_are_never_read(tmp_path):
    path = tmp_path / "south.csv"
    path.write_bytes(b"age,bmi,remark\n50,20,J\xf8rgensen\n60,25,=1/0\n70,31,\n")
    assert fitted([danl.ShardReference(path=path)], danl.Analysis("bmi ~ age")).settings["rows"] == [3]


def test_the_engine_must_be_able_to_survey():
    class Old:
        name = "old"

        def connect(self, problem):
            raise AssertionError("nobody may be asked for rows before the sites agree")

        def open(self, problem, **terms): ...
        def exchange(self, exchange, *, deadline=None): ...
        def close(self): ...

    with pytest.raises(InputError, match="has no `survey`, which a formula needs"):
        danl.solve(danl.RemoteProblem(held([cohort()]), analysis=danl.Analysis("bmi ~ age")), engine=Old())


@pytest.mark.parametrize(
    ("formula", "family", "theirs"),
    [
        ("visits ~ age + smoking", "poisson", sm.families.Poisson()),
        ("bmi ~ age + smoking", "gamma", sm.families.Gamma(sm.families.links.Log())),
        ("visits ~ age", "negative-binomial:alpha=0.5", sm.families.NegativeBinomial(alpha=0.5)),
    ],
)
@pytest.mark.parametrize("offset", [None, "log(days)"])
def test_families_and_offsets(formula, family, theirs, offset, tmp_path):
    frame = cohort()
    result = fitted(written(frame, tmp_path), danl.Analysis(formula, family=family, offset=offset, cluster="sex"))
    whole = frame.dropna(subset=[name for name in ("bmi", "smoking") if name in formula])
    given = None if offset is None else np.log(whole.days)
    expected = smf.glm(formula, whole, family=theirs, offset=given).fit(tol=1e-14, maxiter=200).params
    found = by_name(result)
    assert found["age"] == pytest.approx(expected["age"], rel=1e-5, abs=1e-8)
    assert found["intercept"] == pytest.approx(expected["Intercept"], rel=1e-5)


def test_what_a_shard_has_of_its_records():
    frame = pd.DataFrame(
        {"y": [1.0, 0, 2], "n": [2.0, 3, 2], "x": [5.0, 6, 7], "t": [1.0, 2, 4], "c": ["b", "a", "b"], "w": [1.0, 1, 3]}
    )
    analysis = danl.Analysis(
        "y ~ x", family="binomial", trials="n", offset="log2(t)", weights="w", cluster="c", missing="error"
    )
    design = danl.Design.from_dict(fitted(held([frame, frame]), analysis).settings["design"])
    shard = design.shard(danl.ShardReference(load=lambda: frame).records(design.needed), "here")
    assert shard.y.tolist() == [1, 0, 0, 1]
    assert shard.weights.tolist() == [1, 1, 3, 6]
    assert shard.rows.tolist() == [0, 0, 1, 2]
    assert shard.offset.tolist() == [0, 0, 1, 2]
    assert shard.clusters.tolist() == [1, 1, 0, 1]
    assert shard.n_records == 3
    assert shard.X.ravel().tolist() == [5, 5, 6, 7]
