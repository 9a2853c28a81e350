"""model.json: written, read back, refused where it was changed, and its predictions."""

import json

import numpy as np
import pytest

import danl
from danl import InputError, Model
from danl.statistics.model_file import predictions_csv
from tests.statistics.hospitals import FAMILIES, frames, matrix, pooled, their_family

sm = pytest.importorskip("statsmodels.api")
pytest.importorskip("formulaic")

RIGHT = "age + dose + C(smoking, reference='never')"


def with_analysis(values, **changed):
    design = values["design"]
    return values | {"design": design | {"analysis": design["analysis"] | changed}}


def with_columns(values, first):
    design = values["design"]
    return values | {"design": design | {"columns": first + design["columns"][1:]}}


def with_levels(values, levels):
    return values | {"design": values["design"] | {"levels": {"smoking": levels}}}


def with_words(values):
    changed = with_analysis(values, family="gaussian") | {"family": "gaussian", "link": "identity"}
    return changed | {"design": changed["design"] | {"outcome_levels": ["no", "yes"]}}


@pytest.fixture(scope="module")
def fit():
    return danl.glm(f"death ~ {RIGHT}", sites=frames(), family="binomial")


@pytest.mark.parametrize("family", FAMILIES)
def test_predictions_are_statsmodels(family, tmp_path):
    data, outcome = pooled(), FAMILIES[family]
    fit = danl.glm(f"{outcome} ~ {RIGHT}", sites=frames(), family=family, offset="log(days)")
    theirs = sm.GLM(data[outcome], matrix(), family=their_family(family), offset=np.log(data.days))
    expected = theirs.fit(tol=1e-14, maxiter=300)
    np.testing.assert_allclose(fit.predict(data), expected.fittedvalues, rtol=1e-6)
    fit.save(tmp_path)
    data.to_csv(tmp_path / "new.csv", index=False)
    for model in (Model.read(tmp_path), Model.read(tmp_path / "model.json")):
        np.testing.assert_allclose(model.predict(tmp_path / "new.csv"), fit.predict(data), rtol=1e-12)
        margins = model.predict(data, link=True)
        np.testing.assert_allclose(margins, matrix() @ fit.coef + np.log(data.days), rtol=1e-9, atol=1e-12)


def test_the_file_has_names_levels_references_and_no_row(fit, tmp_path):
    fit.save(tmp_path)
    values = json.loads((tmp_path / "model.json").read_text())
    assert values["coefficients"] == pytest.approx(dict(zip(fit.names[1:], fit.coef[1:], strict=True)))
    assert values["intercept"] == fit.coef[0]
    assert values["references"] == {"smoking": "never"}
    assert values["design"]["levels"] == {"smoking": ["never", "current", "former"]}
    np.testing.assert_array_equal(values["covariance"], fit.covariance)
    assert (values["family"], values["link"], values["sites"]) == ("binomial", "logit", ["north", "south", "west"])
    assert len(json.dumps(values)) < 3_000


def test_columns_in_another_order_and_others_besides(fit):
    data = pooled()
    shuffled = data[sorted(data.columns, reverse=True)].assign(more="x")
    np.testing.assert_array_equal(fit.predict(shuffled), fit.predict(data))


def test_a_missing_value_has_no_prediction(fit):
    data = frames()["north"]
    found = fit.predict(data)
    np.testing.assert_array_equal(np.isnan(found), data[["age", "dose", "smoking"]].isna().any(axis=1))
    lines = predictions_csv(found).splitlines()
    assert lines[0] == "predicted"
    assert len(lines) == len(data) + 1
    assert lines[1 + 4] == '""'


def test_a_new_level_and_a_missing_column_are_named(fit, tmp_path):
    data = pooled()
    data.loc[3, "smoking"] = "vaping"
    data.to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(InputError, match=r"new\.csv, line 5, column 'smoking'.*has a level that the model does not"):
        fit.predict(tmp_path / "new.csv")
    with pytest.raises(InputError, match="there is no column 'dose'"):
        fit.predict(pooled().drop(columns="dose"))
    words = pooled().astype({"age": object})
    words.loc[2, "age"] = "old"
    with pytest.raises(InputError, match=r"column 'age'.*is not a number"):
        fit.predict(words)


@pytest.mark.parametrize(
    "data", [{"age": [50.0], "dose": [1.0], "smoking": ["never"]}, [1.0], None, 3, np.ones((2, 3))]
)
def test_what_is_no_frame_is_refused(fit, data):
    with pytest.raises(InputError, match=rf"data='{type(data).__name__}': must be a data frame with named columns"):
        fit.predict(data)


def test_a_site_is_refused_where_none_has_an_effect(fit):
    with pytest.raises(InputError, match="site='north': must be left out; the model has no effects of sites"):
        fit.predict(pooled(), site="north")


def test_effects_of_sites_need_a_site():
    fit = danl.glm("death ~ age", sites=frames(), family="binomial", site_effects=True)
    data = pooled()
    expected = fit.coef[0] + fit.coef[1] * data.age + fit.params["site[west]"]
    np.testing.assert_allclose(fit.predict(data, site="west"), 1 / (1 + np.exp(-expected)), rtol=1e-12)
    with pytest.raises(InputError, match="site=None: must be one of north, south and west"):
        fit.predict(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values | {"format": "other"}, "its format is another"),
        (lambda values: values | {"version": 99}, "its version is 99"),
        (lambda values: values | {"coefficients": {"age": 1.0}}, "its coefficients are not those of its design"),
        (lambda values: values | {"intercept": "0"}, "a coefficient is no number"),
        (lambda values: values | {"covariance": [[1.0]]}, "its covariance has another size"),
        (lambda values: values | {"design": {}}, "design: cannot be read"),
        (lambda values: values | {"sites": 3}, "records or sites are not told"),
        (
            lambda values: values | {"family": "poisson"},
            "its family is 'poisson' with link 'logit', and its design has",
        ),
        (lambda values: values | {"link": "log"}, "its family is 'binomial' with link 'log'"),
        (
            lambda values: with_analysis(values, formula="death ~ age + dose"),
            "its columns are not those of its formula",
        ),
        (lambda values: with_columns(values, [["age", [["number", "age*2", ""]]]]), "its columns are not those of its"),
        (lambda values: with_words(values), "its family is 'gaussian'; that must be 'binomial'"),
        (lambda values: with_levels(values, ["never"]), "design: cannot be read"),
        (lambda values: with_levels(values, ["never"] * 3), "design: cannot be read"),
        (
            lambda values: (
                with_analysis(values, family="negative-binomial:alpha=-1")
                | {"family": "negative-binomial:alpha=-1", "link": "log"}
            ),
            "alpha=-1",
        ),
        (lambda values: [], "its format is another"),
    ],
)
def test_a_file_that_was_changed_is_refused(fit, tmp_path, change, message):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(change(Model.of(fit).to_dict())))
    with pytest.raises(InputError, match=message):
        Model.read(path)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Model.read(tmp_path / "nothing.json")
    (tmp_path / "model.json").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(InputError, match="is no model of danl"):
        Model.read(tmp_path)
