"""`danl.glm` over three sites: statsmodels' numbers on the pooled complete records."""

import warnings

import numpy as np
import pandas as pd
import pytest

import danl
from danl import InputError
from danl.statistics.glm import references_of
from tests.statistics.hospitals import FAMILIES, frames, matrix, pooled, their_family

sm = pytest.importorskip("statsmodels.api")
pytest.importorskip("formulaic")

RIGHT = "age + dose + C(smoking, reference='never')"


def ours(outcome, family, **options):
    return danl.glm(f"{outcome} ~ {RIGHT}", sites=frames(), family=family, **options)


def theirs(y, X, family, fit=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sm.GLM(y, X, family=their_family(family), **options).fit(tol=1e-14, maxiter=300, **(fit or {}))


def close(one, other, rtol=1e-6):
    np.testing.assert_allclose(one, other, rtol=rtol)


def same_fit(fit, expected):
    close(fit.coef, expected.params)
    close(fit.std_err, expected.bse)
    numbers = fit.numbers
    close(numbers.deviance, expected.deviance)
    close(numbers.null_deviance, expected.null_deviance)
    close(numbers.log_likelihood, expected.llf)
    close(numbers.aic, expected.aic)
    close(numbers.pearson_chi2, expected.pearson_chi2)
    close(numbers.dispersion, expected.scale)
    assert numbers.df_resid == expected.df_resid
    assert numbers.df_null == numbers.df_resid + numbers.rank - 1


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("site_effects", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_with_site_effects_offsets_and_weights(family, site_effects, offset, weighted):
    outcome, data = FAMILIES[family], pooled()
    options = {"offset": "log(days)"} if offset else {}
    options |= {"weights": "copies"} if weighted else {}
    other = {"offset": np.log(data.days)} if offset else {}
    other |= {"freq_weights": data.copies} if weighted else {}
    fit = ours(outcome, family, site_effects=site_effects, **options)
    same_fit(fit, theirs(data[outcome], matrix(site_effects=site_effects), family, **other))
    assert fit.converged
    assert fit.names[:5] == ("(intercept)", "age", "dose", "smoking[current]", "smoking[former]")
    assert fit.names[5:] == (("site[south]", "site[west]") if site_effects else ())


def test_successes_of_trials():
    data = pooled()
    y = np.column_stack([data.cured, data.trials - data.cured])
    for offset in (None, "dose"):
        fit = ours("cured", "binomial", trials="trials", offset=offset)
        same_fit(fit, theirs(y, matrix(), "binomial", offset=None if offset is None else data.dose))
        assert fit.numbers.records == len(data)


@pytest.mark.parametrize("kind", ["HC0", "HC1"])
@pytest.mark.parametrize("family", FAMILIES)
def test_robust_standard_errors(family, kind):
    data, n = pooled(), len(pooled())
    expected = theirs(data[FAMILIES[family]], matrix(), family, fit={"cov_type": "HC0"})
    factor = n / (n - 5) if kind == "HC1" else 1.0  # statsmodels' GLM has no correction; its OLS has this one
    close(ours(FAMILIES[family], family, covariance=kind).std_err, expected.bse * np.sqrt(factor))
    if family == "gaussian":
        close(ours("pressure", family, covariance=kind).std_err, sm.OLS(data.pressure, matrix()).fit(cov_type=kind).bse)


def test_robust_standard_errors_of_weighted_records_and_of_trials():
    data = pooled()
    expected = theirs(data.falls, matrix(), "poisson", fit={"cov_type": "HC0"}, freq_weights=data.copies)
    close(ours("falls", "poisson", covariance="HC0", weights="copies").std_err, expected.bse)
    often = {name: frame.loc[frame.index.repeat(frame.copies)] for name, frame in frames().items()}
    for beside in ({"covariance": "HC1"}, {"cluster": "ward"}, {"cluster": "site"}):
        weighted = ours("falls", "poisson", weights="copies", **beside)
        repeated = danl.glm(f"falls ~ {RIGHT}", sites=often, family="poisson", **beside)
        close(weighted.std_err, repeated.std_err, rtol=1e-9)
    y = np.column_stack([data.cured, data.trials - data.cured])
    close(
        ours("cured", "binomial", covariance="HC0", trials="trials").std_err,
        theirs(y, matrix(), "binomial", fit={"cov_type": "HC0"}).bse,
    )
    with pytest.raises(InputError, match=r"covariance='HC0': must be 'model' where records have both"):
        ours("cured", "binomial", covariance="HC0", trials="trials", weights="copies")


def test_clustered_errors_are_not_those_of_records_as_well():
    with pytest.raises(InputError, match=r"covariance='HC1': must be left out with cluster='ward'; clustered"):
        ours("death", "binomial", covariance="HC1", cluster="ward")


@pytest.mark.filterwarnings("ignore::danl.DanlWarning")
def test_a_reference_level_without_events_is_separable_and_not_aliased():
    data = pooled().reset_index(drop=True)
    data["group"] = np.where((data.index % 9 == 0) & (data.death == 0), "a", "b")
    fit = danl.glm("death ~ age + group", data=data, family="binomial")
    assert (fit.converged, fit.result.status) == (False, "diverged")
    said = str(fit.summary())
    assert "SEPARABLE" in said
    assert "ALIASED" not in said


@pytest.mark.parametrize("cluster", ["site", "country"])
def test_one_cluster_has_no_errors_of_clusters_and_loses_nothing(cluster):
    one = pooled().assign(country="here")
    with pytest.warns(danl.DanlWarning, match="ERRORS OF THE MODEL in place of cluster.*: all records are in one"):
        fit = danl.glm(f"falls ~ {RIGHT}", data=one, family="poisson", cluster=cluster)
    close(fit.std_err, danl.glm(f"falls ~ {RIGHT}", data=one, family="poisson").std_err)
    assert (fit.covariance_kind, fit.n_clusters) == ("model", 0)
    assert "in place of cluster" in str(fit.summary())


def test_records_without_trials_are_left_out_and_counted():
    sites = frames()
    for frame in sites.values():
        frame.loc[frame.index[:7], ["cured", "trials"]] = 0
    fit = danl.glm(f"cured ~ {RIGHT}", sites=sites, family="binomial", trials="trials")
    for site, frame in zip(fit.sites, sites.values(), strict=True):
        own = frame.dropna(subset=["age", "dose", "smoking", "cured", "trials"])
        assert site.records == (own.trials > 0).sum()
        assert site.records + site.left_out == len(frame)


def test_that_there_is_no_likelihood_is_said():
    both, trials = (ours("cured", "binomial", trials="trials", **more) for more in ({"weights": "copies"}, {}))
    assert np.isnan([both.numbers.log_likelihood, both.numbers.aic]).all()
    assert "no log-likelihood and no AIC: records have both trials and weights" in str(both.summary())
    assert "no log-likelihood" not in str(trials.summary())


@pytest.mark.parametrize("beside", [{"covariance": "HC1"}, {"cluster": "site"}])
def test_as_many_coefficients_as_records_have_no_corrected_errors(beside):
    few = {name: frame.dropna().iloc[:2] for name, frame in list(frames().items())[:2]}
    fit = danl.glm("pressure ~ age + dose + days", sites=few, **beside)
    assert np.isnan(fit.std_err).all()


@pytest.mark.parametrize("correction", [True, False])
@pytest.mark.parametrize("cluster", ["ward", "site"])
@pytest.mark.parametrize("family", FAMILIES)
def test_clustered_standard_errors(family, cluster, correction):
    data = pooled()
    groups = data.site if cluster == "site" else data.site + data.ward  # a ward is within a site
    kwds = {"groups": np.unique(groups, return_inverse=True)[1], "use_correction": correction}
    fit = {"cov_type": "cluster", "cov_kwds": kwds}
    expected = theirs(data[FAMILIES[family]], matrix(), family, fit=fit)
    found = ours(FAMILIES[family], family, cluster=cluster, small_sample=correction)
    close(found.std_err, expected.bse)
    assert found.n_clusters == groups.nunique()


def test_a_gaussian_table_is_by_t_and_the_others_by_z():
    data = pooled()
    table = ours("pressure", "gaussian").summary().table
    expected = sm.OLS(data.pressure, matrix()).fit()
    close(table.z, expected.tvalues)
    close(table.p_value, expected.pvalues)
    close(np.column_stack([table.ci_low, table.ci_high]), expected.conf_int())
    assert table.df == expected.df_resid
    table = ours("death", "binomial").summary(level=0.9).table
    expected = theirs(data.death, matrix(), "binomial")
    close(table.p_value, expected.pvalues)
    close(np.column_stack([table.ci_low, table.ci_high]), expected.conf_int(0.1))
    close(table.columns()["odds_ratio_high"], np.exp(np.asarray(expected.conf_int(0.1))[:, 1]))


def test_without_an_intercept():
    data = pooled()
    fit = danl.glm("falls ~ 0 + age + dose", data=data, site="site", family="poisson")
    same_fit(fit, theirs(data.falls, matrix()[:, 1:3], "poisson"))


@pytest.mark.parametrize("formula", ["pressure ~ 0 + age", "pressure ~ 0 + smoking"])
def test_outcomes_far_from_zero_keep_the_digits_of_their_deviances(formula):
    moved = {name: frame.assign(pressure=frame.pressure + 1e8) for name, frame in frames().items()}
    fit = danl.glm(formula, sites=moved)
    y = pd.concat(moved.values()).dropna(subset=["pressure", *fit.design.explaining]).pressure.to_numpy()
    close(fit.numbers.null_deviance, np.square(y - y.mean()).sum(), rtol=1e-9)
    if "smoking" in formula:  # of the other the best model is far from all outcomes
        close(fit.numbers.deviance, danl.glm(formula, sites=frames()).numbers.deviance, rtol=1e-6)


def test_the_split_makes_no_difference():
    data = pooled()
    expected = theirs(data.death, matrix(), "binomial")
    for options in ({"data": data}, {"data": data, "site": "ward"}, {"data": data.sample(frac=1, random_state=0)}):
        fit = danl.glm(f"death ~ {RIGHT}", family="binomial", **options)
        same_fit(fit, expected)


def test_files_and_references(tmp_path):
    paths = {}
    for name, frame in frames().items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        paths[name] = tmp_path / f"{name}.csv"
    expected = ours("death", "binomial")
    references = [danl.ShardReference(path=str(path), name=name) for name, path in paths.items()]
    for sites in (paths, references, list(paths.values())):
        fit = danl.glm(f"death ~ {RIGHT}", sites=sites, family="binomial")
        close(fit.coef, expected.coef, rtol=1e-9)
        assert [site.name for site in fit.sites] == ["north", "south", "west"]


def test_what_each_site_has():
    fit = ours("death", "binomial")
    for site in fit.sites:
        frame = frames()[site.name]
        complete = frame.dropna()
        assert (site.records, site.left_out) == (len(complete), len(frame) - len(complete))
        assert site.events == complete.death.sum()
    close(sum(site.deviance for site in fit.sites), fit.numbers.deviance, rtol=1e-12)
    assert fit.numbers.events == pooled().death.sum()


def test_one_exchange_after_the_fit_tells_it_all():
    fit = ours("death", "binomial")
    assert fit.exchanges == len(fit.result.history) + 1
    fit = ours("cost", "gamma", cluster="ward")
    assert fit.exchanges == len(fit.result.history) + 1


def test_a_site_that_is_away_for_the_questions_is_named():
    last = len(ours("death", "binomial").result.history)
    engine = danl.engines.Local(away={1: (0, None)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ours("death", "binomial", engine=engine)
    assert [site.name for site in fit.sites] == ["north", "west"]
    assert "south" in fit.absent[0]
    assert last > 1


def test_a_penalty_is_said():
    fit = ours("death", "binomial", alpha=0.1)
    assert any("PENALISED" in note for note in fit.notes)
    assert "PENALISED" in str(fit.summary())


def test_separation_is_said():
    data = pooled().assign(death=lambda frame: (frame.age > 60).astype(int))
    with pytest.warns(danl.DanlWarning, match="separable"):
        fit = danl.glm("death ~ age", data=data, family="binomial")
    assert any("SEPARABLE" in note for note in fit.notes)


def test_a_fit_that_did_not_end_is_said():
    with pytest.warns(danl.DanlWarning, match="NOT CONVERGED"):
        fit = ours("death", "binomial", max_rounds=1)
    assert any("NOT CONVERGED" in note for note in fit.notes)
    assert not fit.converged


def test_a_collinear_column_has_no_standard_error():
    data = pooled().assign(twice=lambda frame: 2 * frame.age)
    with pytest.warns(danl.DanlWarning, match="says nothing about"):
        fit = danl.glm("pressure ~ age + twice + dose", data=data)
    assert np.isnan(fit.std_err).tolist() == [False, True, True, False]
    assert fit.numbers.rank == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": 3, "sites": {}}, "data and sites: give one of them"),
        ({"sites": {}, "site": "ward"}, "site='ward': must be left out"),
        ({"sites": {"a": 3}}, "sites='int': must be a file or a data frame"),
        ({"data": "x.csv", "site": "ward"}, "site='ward': must be left out for a file"),
        ({"data": pooled(), "site": "nowhere"}, "site='nowhere': must be a column of data"),
        ({"data": pooled(), "covariance": "HC9"}, "covariance='HC9'"),
        ({"sites": 3}, "sites='int': must be a mapping of names to files or data frames"),
        ({"sites": pooled()}, "sites='DataFrame': must be a mapping.*a single frame is data="),
        ({"data": {"age": [50.0]}}, r"data='dict': must be a file or a data frame; pandas\.DataFrame"),
        ({"data": 3, "site": "ward"}, "data='int': must be a file or a data frame"),
        ({"data": pooled(), "alpha": "a"}, "alpha='a': must be a finite number >= 0"),
        ({"data": pooled(), "alpha": None}, "alpha=None: must be a finite number >= 0"),
        ({"data": pooled(), "alpha": True}, "alpha=True: must be a finite number >= 0"),
        ({"data": pooled(), "columns": 3}, "columns=3: must be names of columns"),
        *(
            ({"data": pooled(), name: "no"}, f"{name}='no': must be True or False")
            for name in ("small_sample", "meta", "diagnostics", "standardise")
        ),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(InputError, match=message):
        danl.glm("death ~ age", family="binomial", **options)


@pytest.mark.parametrize(
    ("right", "beside", "zero"),
    [
        ("falls", {"family": "poisson", "weights": "copies"}, ["copies"]),
        ("cured", {"family": "binomial", "trials": "trials"}, ["cured", "trials"]),
        ("cured", {"family": "binomial", "trials": "trials", "weights": "copies"}, ["copies"]),
    ],
)
def test_a_site_whose_records_do_not_count_is_named_before_the_fit(right, beside, zero):
    sites = frames() | {"west": frames()["west"].assign(**dict.fromkeys(zero, 0))}
    analysis = danl.Analysis(f"{right} ~ age", **beside)
    told = rf"site west: west, column '{zero[-1]}' \(\d+\): (times 'trials' )?is 0 in all .*or fit without this site"
    with pytest.raises(InputError, match=told):
        danl.glm(analysis, sites=sites)
    whole = danl.RemoteProblem(references_of(None, frames()), analysis=analysis)
    design = danl.Design.from_dict(danl.solve(whole, max_rounds=1).settings["design"])
    with pytest.raises(InputError, match=told.removeprefix("site west: ")):
        danl.solve(danl.RemoteProblem(references_of(None, sites), analysis=design))


@pytest.mark.parametrize("value", [1e200, 1e80])
@pytest.mark.parametrize("options", [{}, {"weights": "copies"}, {"offset": "copies"}])
def test_a_number_too_large_to_add_up_is_named_by_its_place(value, options):
    sites = {name: frame.copy() for name, frame in frames().items()}
    column = options["weights" if "weights" in options else "offset"] if options else "pressure"
    sites["south"][column] = sites["south"][column].astype(float)
    sites["south"].loc[3, column] = value
    with pytest.raises(InputError, match=rf"site south: south, row 3 .*'{column}' .*is above 1e\+75 in size; mend"):
        danl.glm("pressure ~ age", sites=sites, **options)


def small(**columns):
    rng = np.random.default_rng(5)
    made = pd.DataFrame({"x": rng.normal(size=60), "z": rng.normal(size=60), "site": ["a", "b", "c"] * 20})
    return made.assign(y=made.x + rng.normal(size=60), **{name: make(made) for name, make in columns.items()})


@pytest.mark.parametrize("beside", [{"family": "binomial"}, {"offset": "z"}, {"missing": "error"}, {"cluster": "site"}])
def test_what_an_analysis_has_is_not_given_beside_it(beside):
    with pytest.raises(danl.InputError, match=f"{next(iter(beside))}=.*the Analysis has it already"):
        danl.glm(danl.Analysis("y ~ x"), small(), site="site", **beside)


def test_the_event_of_an_outcome_in_words_is_said():
    frame = small(ill=lambda made: np.where(made.x + made.z > 0.2, "Yes", "no"))
    frame.loc[::7, "ill"] = "no"
    assert "event: ill=Yes (the other outcome is no)" in str(danl.glm("ill ~ x", frame, family="binomial").summary())


def test_coefficients_that_the_records_do_not_tell_apart_are_named():
    with pytest.warns(danl.DanlWarning, match="collinear"):
        fit = danl.glm("y ~ x + xx + z", small(xx=lambda made: 2 * made.x + 1))
    (note,) = [note for note in fit.notes if note.startswith("ALIASED")]
    assert "x and xx" in note
    assert " z" not in note.partition("tell")[2].partition("apart")[0]


def test_a_gamma_fit_without_residuals():
    fit = danl.glm("q ~ x", small(q=lambda made: np.full(60, 2.0)), family="gamma")
    assert fit.numbers.log_likelihood == np.inf
    assert np.allclose(fit.coef, [np.log(2), 0], atol=1e-9)


def test_a_prediction_that_is_no_number_is_refused():
    fit = danl.glm("y ~ log(e)", small(e=lambda made: np.exp(made.x)))
    assert np.isfinite(fit.predict(pd.DataFrame({"e": [1.0, 2.0]}))).all()
    for value in (0.0, -1.0, np.inf):
        with pytest.raises(danl.InputError, match="row 1"):
            fit.predict(pd.DataFrame({"e": [1.0, value]}))
