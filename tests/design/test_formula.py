"""Formulas: what may stand in one, what is refused and how, and the columns that formulaic itself would make."""

import numpy as np
import pandas as pd
import pytest

from danl.data.records import read_records, records_of_frame
from danl.design.agreement import agree
from danl.design.analysis import Analysis
from danl.design.expression import parse
from danl.design.formula import read_model
from danl.design.survey import survey
from danl.errors import InputError
from tests.design.cohorts import cohort

formulaic = pytest.importorskip("formulaic")


def design_and_matrix(formula, frame, **more):
    analysis = Analysis(formula, **more)
    model = read_model(analysis)
    records = records_of_frame(frame, model.names)
    design = agree(analysis, [survey(records, analysis, model, site="here")]).design
    return design, design.shard(records, "here")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("age + smoking", None),
        ("age * smoking * sex", None),
        ("age:smoking", None),
        ("smoking:sex", None),
        ("sex + smoking:sex + age:sex - 1", None),
        ("0 + smoking + sex + age", None),
        ("(age + bmi + sex)**2 - age:bmi", None),
        ("age / sex", None),
        ("age + age:smoking", None),
        ("log(bmi) + I(age**2) + exp(-age / 100)", None),
        ("poly(age, 3, raw=True) + sex", "age + I(age**2) + I(age**3) + sex"),
        ('C(smoking, reference="never")', 'C(smoking, contr.treatment("never"))'),
        ('C(smoking, contr.treatment("never")) : age', None),
        ('C(smoking, Treatment("never"))', 'C(smoking, contr.treatment("never"))'),
        ("C(days) + age", None),
        ("`body mass` + log(`body mass`)", "bmi + log(bmi)"),
        ("sqrt(abs(age - 50)) + log1p(days) + log2(days) + log10(bmi)", None),
    ],
)
def test_the_columns_are_those_of_formulaic_on_the_pooled_complete_cases(ours, theirs):
    frame = cohort(n=120)
    frame["body mass"] = frame["bmi"]
    design, shard = design_and_matrix(f"visits ~ {ours}", frame)
    context = {"abs": np.abs, "sqrt": np.sqrt, "log1p": np.log1p, "log2": np.log2}
    whole = frame.dropna(subset=list(design.needed))
    expected = formulaic.model_matrix(theirs or ours, whole, context=context)
    if design.intercept:
        assert expected.columns[0] == "Intercept"
        expected = expected.iloc[:, 1:]
    order = np.argsort([_plain(name) for name in expected.columns], kind="stable")
    own = np.argsort([_plain(name) for name in design.names], kind="stable")
    assert len(set(design.names)) == len(design.names)
    np.testing.assert_allclose(shard.X[:, own], expected.to_numpy(dtype=float)[:, order], rtol=1e-12)


def _plain(name):
    """A name of either library as the same text: parts in order, without what each library adds."""
    import re

    name = re.sub(r"C\((\w+)[^)]*\)+(?=\[|:|$)", r"\1", name).replace("[T.", "[").replace("body mass", "bmi")
    name = re.sub(r"poly\(age, 3, raw=True\)\[1\]", "age", name)
    name = re.sub(r"poly\(age, 3, raw=True\)\[(\d)\]", r"I(age ** \1)", name)
    return ":".join(sorted(name.replace("`", "").split(":")))


@pytest.mark.parametrize("name", ["crea_\u00b5mol", "x\u00b2", "\ufb01eld", "\u00aa", "\u017fex"])
@pytest.mark.parametrize("written", ["{}", "`{}`", "I({} * 2)", "log(`{}`)", "C({})"])
def test_a_name_that_python_reads_as_another_one_is_the_column_as_it_stands(name, written):
    frame = cohort(n=60, missing=0)
    frame[name] = frame.days
    right = written.format(name)
    design, shard = design_and_matrix(f"visits ~ age + {right}", frame, offset=name)
    assert set(design.needed) == {"visits", "age", name}
    expected = design_and_matrix(f"visits ~ age + {written.format('days')}", frame)[1]
    np.testing.assert_array_equal(shard.X, expected.X)


def test_names_and_levels_are_the_same_however_an_accent_is_written(tmp_path):
    apart, joined = "gro\u0308\u00dfe", "gr\u00f6\u00dfe"
    frame = pd.DataFrame({apart: [1.0, 2.0, 4.0, 5.0], "g": ["e\u0301", "\u00e9", "a", "a"], "y": [1.0, 0.0, 2.0, 5.0]})
    frame.to_csv(tmp_path / "cells.csv", index=False)
    model = read_model(Analysis(f"y ~ {apart} + g"))
    assert model.names == ("y", joined, "g")
    for records in (records_of_frame(frame, model.names), read_records(tmp_path / "cells.csv", model.names)):
        assert records.columns[joined].numbers.tolist() == [1.0, 2.0, 4.0, 5.0]
        assert records.columns["g"].labels.tolist() == ["\u00e9", "\u00e9", "a", "a"]
    assert read_model(Analysis("y ~ C(g, reference='e\u0301')")).factors[0].reference == "\u00e9"


@pytest.mark.parametrize(
    ("term", "instead"), [("factor(sex)", r"write C\(x\)"), ("offset(days)", r"beside the formula, as offset='log")]
)
def test_what_other_programs_write_is_answered_with_what_it_is_here(term, instead):
    with pytest.raises(InputError, match=instead):
        read_model(Analysis(f"visits ~ age + {term}"))


def test_a_name_in_backticks_is_a_column_whatever_it_looks_like():
    frame = cohort(n=60, missing=0)
    frame["1"], frame["a.b"], frame["class"], frame["0"] = frame.age, frame.bmi, frame.smoking, frame.days * 1.0
    right = "`1` + log(`a.b`) + `class`:`1` + `0` + I(`column_0_` * `a.b`)"
    design, shard = design_and_matrix(f"visits ~ {right}", frame.assign(column_0_=2.0))
    assert design.intercept
    assert design.names[:3] == ("1", "log(`a.b`)", "0")
    expected = [frame.age, np.log(frame.bmi), frame.days, 2 * frame.bmi]
    np.testing.assert_allclose(shard.X[:, :4], np.column_stack(expected))
    assert design.names[4:] == ("class[former]:1", "class[never]:1")
    assert read_model(Analysis("y ~ `a` + a + log(`a`) + log(a)")).names == ("y", "a")
    assert not read_model(Analysis("y ~ `1` - 1")).intercept


ATTACKS = [
    '__import__("os").system("true")',
    'I(__import__("os").system("true"))',
    "log(age.__class__)",
    "I((lambda: age)())",
    "I([age for age in (1,)])",
    "I(age if age else 0)",
    "exec('1')",
    "eval('age')",
    "open('/etc/passwd')",
    "I(age, **{})",
    "I(*age)",
    "log(age, 2)",
    "log(log)(age)",
    "age[0]",
    "I(age[0])",
    "I(age := 3)",
    "I(f'{age}')",
    "I('age' * 9)",
    "I(b'age')",
    "I(1j * age)",
    "I(age < 3)",
    "I(age and bmi)",
    "I(~age)",
    "I(age // 2)",
    "I(age @ bmi)",
    "np.log(age)",
    "{age + 1}",
    "{__import__('os')}",
    "age.real",
    "C(age.real)",
    "C(age, contr.sum)",
    "C(age, reference=open('x'))",
    "C(age, levels=['a'])",
    "C(C(age))",
    "poly(age, 10**9, raw=True)",
    "poly(age, 2)",
    "scale(age)",
    "center(age)",
    "bs(age, df=4)",
    "standardize(age)",
    "lag(age)",
    "hashed(age)",
    "I(" + "(" * 400 + "age" + ")" * 400 + ")",
    "I(" + "-" * 300 + "age)",
    "(a + b + c + d)**30",
    "*".join("abcdefghijklmnopqrstuvwxyz"),
    "age | bmi",
    "age ~ bmi",
    ".",
    "'age'",
    "2 * age",
    "1",
    "age +",
    "I(True * age)",
    "I(5)",
    "y",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_whatever_is_not_allowed_is_refused_before_anything_is_worked_out(text):
    with pytest.raises(InputError) as caught:
        read_model(Analysis(f"y ~ {text}"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["age.__class__", "__import__('os')", "(lambda: 1)()", "a if b else c", "log(a)(b)", ""]
)
def test_an_expression_from_the_server_is_held_to_the_same(text):
    with pytest.raises(InputError):
        parse(text)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("y ~ scale(age)", "scale depends on the rows of all sites; divide by a number that all sites know"),
        ("y ~ bs(age, df=4)", "bs depends on the rows of all sites; use powers"),
        ("y ~ center(age)", "columns are centred inside"),
        ("y ~ poly(age, 2)", r"write poly\(x, 2, raw=True\)"),
        ("y ~ np.log(age)", "write log, without np"),
        ("y ~ age + y", "without the outcome"),
        ("y ~ smoking + C(smoking)", "one way of writing 'smoking'"),
        ("y[yes] ~ age", r"without \[...\] at the outcome"),
        ("age + bmi", "an outcome, a ~"),
        ("y ~ 1", "at least one column"),
        ("y ~ C(age, contr.sum)", "compared with a reference level"),
    ],
)
def test_what_is_refused_says_what_to_do(formula, expected):
    with pytest.raises(InputError, match=expected):
        read_model(Analysis(formula))


def test_only_the_columns_of_the_formula_are_needed():
    analysis = Analysis(
        "log(cost) ~ age*C(ward) + I(`body mass`**2)",
        offset="log(days)",
        weights="w",
        cluster="family",
        family="poisson",
    )
    model = read_model(analysis)
    assert model.names == ("cost", "age", "ward", "body mass", "days", "w", "family")
    assert read_model(Analysis("y ~ age", cluster="site")).names == ("y", "age")


def test_a_transformed_outcome():
    frame = cohort()
    _, shard = design_and_matrix("log(bmi) ~ age", frame)
    np.testing.assert_allclose(shard.y, np.log(frame.bmi.dropna()))


def test_numbers_are_the_same_level_however_they_are_written():
    frame = pd.DataFrame({"grade": ["1", "2.0", "+1", "10", "2", "007"], "y": np.arange(6.0)})
    design, shard = design_and_matrix("y ~ C(grade)", frame)
    assert design.levels["grade"] == ("1", "2", "007", "10")
    assert shard.X[:, 0].tolist() == [0, 1, 0, 0, 1, 0]
    numbers, _ = design_and_matrix("y ~ C(grade, reference=2)", frame.assign(grade=[1, 2, 1, 10, 2, 7]))
    assert numbers.levels["grade"] == ("2", "1", "7", "10")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"formula": None}, "give a formula"),
        ({"formula": "y ~ a", "columns": ("a",), "outcome": "y"}, "give a formula"),
        ({"columns": ("a",)}, "give a formula"),
        ({"columns": ("y", "a"), "outcome": "y"}, "different columns"),
        ({"columns": "ab", "outcome": "y"}, "names of columns"),
        ({"formula": "y ~ a", "family": "tweedie"}, "one of gaussian"),
        ({"formula": "y ~ a", "family": "gamma:alpha=2"}, "only negative-binomial has an option"),
        ({"formula": "y ~ a", "trials": "n"}, "it is for family='binomial'"),
        ({"formula": "y ~ a", "missing": "drop"}, "'complete' or 'error'"),
        ({"formula": "y ~ a", "site_effects": 1}, "True or False"),
        ({"formula": "y ~ a" + " " * 9_000}, "at most 5000 characters"),
    ],
)
def test_an_analysis_is_checked(given, expected):
    with pytest.raises(InputError, match=expected):
        Analysis(**given)


def test_an_analysis_as_json():
    for analysis in (
        Analysis("y ~ a", family="negative-binomial:alpha=0.5", offset="log(t)", weights="w", cluster="site"),
        Analysis(outcome="y", columns=("a", "b"), family="binomial", trials="n", missing="error", site_effects=True),
    ):
        assert Analysis.from_json(analysis.to_json()) == analysis
    for text in ("{", "[]", "null", '{"formula": 3}', '{"formulae": "y ~ a"}', '{"columns": 3, "outcome": "y"}', 3):
        with pytest.raises(InputError):
            Analysis.from_json(text)
