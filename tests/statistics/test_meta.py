"""The study-level meta-analysis: each site's own fit by statsmodels, combined by statsmodels."""

import numpy as np
import pytest

import danl
from danl.statistics.meta import combined
from tests.statistics.hospitals import FAMILIES, frames, matrix, pooled, their_family

sm = pytest.importorskip("statsmodels.api")
pytest.importorskip("formulaic")

RIGHT = "age + dose + C(smoking, reference='never')"


@pytest.mark.parametrize("family", FAMILIES)
def test_each_sites_own_fit(family):
    outcome, data = FAMILIES[family], pooled()
    meta = danl.glm(f"{outcome} ~ {RIGHT}", sites=frames(), family=family, meta=True).meta
    assert meta.sites == ("north", "south", "west")
    for column, site in enumerate(meta.sites):
        own = data[data.site == site]
        fit = sm.GLM(own[outcome], matrix(data=own), family=their_family(family)).fit(tol=1e-14, maxiter=300)
        np.testing.assert_allclose(meta.estimates[:, column], fit.params, rtol=1e-6)
        np.testing.assert_allclose(meta.std_err[:, column], fit.bse, rtol=1e-6)


def test_together_as_statsmodels_combines_them():
    from statsmodels.stats.meta_analysis import combine_effects

    meta = danl.glm(f"death ~ {RIGHT}", sites=frames(), family="binomial", meta=True).meta
    for line in range(len(meta.names)):
        expected = combine_effects(meta.estimates[line], meta.std_err[line] ** 2, method_re="dl")
        values = [meta.fixed[line], meta.fixed_std_err[line], meta.q[line], meta.i_squared[line]]
        theirs = [expected.mean_effect_fe, expected.sd_eff_w_fe, expected.q, max(expected.i2, 0.0)]
        np.testing.assert_allclose(values, theirs, rtol=1e-9)
        np.testing.assert_allclose(meta.tau_squared[line], max(expected.tau2, 0.0), rtol=1e-9, atol=1e-14)
        random = [meta.random[line], meta.random_std_err[line]]
        theirs = [expected.mean_effect_re, expected.sd_eff_w_re]
        if expected.tau2 < 0:  # statsmodels goes on with it; here, as in R's metafor, it is then 0
            theirs = [expected.mean_effect_fe, expected.sd_eff_w_fe]
        np.testing.assert_allclose(random, theirs, rtol=1e-9)


def test_sites_that_agree_have_no_heterogeneity():
    meta = combined(["a"], ["x", "y"], np.array([[1.0, 1.0]]), np.array([[0.5, 2.0]]), [])
    assert (meta.fixed[0], meta.q[0], meta.i_squared[0], meta.tau_squared[0]) == (1.0, 0.0, 0.0, 0.0)
    assert meta.random[0] == 1.0
    assert meta.fixed_std_err[0] == pytest.approx((1 / (1 / 0.5 + 1 / 2.0)) ** 0.5)


def test_a_level_that_a_site_has_not_is_combined_over_the_others():
    sites = {name: frame.copy() for name, frame in frames().items()}
    sites["west"].loc[sites["west"].smoking == "former", "smoking"] = "current"
    meta = danl.glm(f"death ~ {RIGHT}", sites=sites, family="binomial", meta=True).meta
    line = meta.names.index("smoking[former]")
    assert np.isnan(meta.estimates[line]).tolist() == [False, False, True]
    assert np.isfinite(meta.fixed[line])
    assert np.isfinite(meta.estimates[meta.names.index("age")]).all()


def test_of_one_site_there_is_no_heterogeneity():
    b, v = np.array([[1.0, np.nan], [0.5, 0.7]]), np.full((2, 2), 0.1)
    meta = combined(("a", "b"), ("north", "south"), b, v, ())
    assert (meta.fixed[0], meta.random[0]) == (1.0, 1.0)
    assert np.isnan([meta.q[0], meta.q_p_value[0], meta.i_squared[0], meta.tau_squared[0]]).all()
    assert meta.text().splitlines()[1].split()[-4:] == ["-"] * 4
    assert np.isfinite([meta.q[1], meta.q_p_value[1], meta.i_squared[1], meta.tau_squared[1]]).all()


def test_a_site_that_is_too_small_is_named():
    sites = dict(frames()) | {"tiny": frames()["north"].dropna().iloc[:4]}
    fit = danl.glm(f"pressure ~ {RIGHT}", sites=sites, meta=True)
    assert fit.meta.sites == ("north", "south", "west")
    assert fit.meta.left_out == ("tiny: it has no more rows than coefficients",)
    assert "not in it: tiny" in str(fit.summary())


def test_a_site_without_a_best_model_is_named():
    sites = {name: frame.copy() for name, frame in frames().items()}
    sites["west"]["death"] = (sites["west"].age > 60).astype(int)
    meta = danl.glm("death ~ age", sites=sites, family="binomial", meta=True).meta
    assert meta.sites == ("north", "south")
    assert "west: its rows" in meta.left_out[0]


@pytest.mark.parametrize(("family", "outcome"), [("gaussian", "pressure"), ("gamma", "cost")])
def test_a_site_without_residuals_is_named_and_outweighs_nobody(family, outcome):
    sites = {name: frame.copy() for name, frame in frames().items()}
    expected = danl.glm(
        f"{outcome} ~ age", sites={name: sites[name] for name in ("north", "south")}, family=family, meta=True
    )
    exact = 0.1 + sites["west"].age / 3
    sites["west"][outcome] = exact if family == "gaussian" else np.exp(exact / 10)
    fit = danl.glm(f"{outcome} ~ age", sites=sites, family=family, meta=True)
    assert fit.meta.sites == ("north", "south")
    assert fit.meta.left_out[0].startswith("west: its own model leaves no residuals")
    np.testing.assert_allclose(fit.meta.fixed, expected.meta.fixed, rtol=1e-6)


def test_the_unit_of_the_outcome_changes_nothing():
    unit = 1e8
    sites = {name: frame.assign(pressure=frame.pressure * unit) for name, frame in frames().items()}
    here, there = (danl.glm("pressure ~ age", sites=each, meta=True).meta for each in (frames(), sites))
    np.testing.assert_allclose(there.estimates, here.estimates * unit, rtol=1e-9)
    np.testing.assert_allclose(there.std_err, here.std_err * unit, rtol=1e-9)


def test_effects_of_sites_are_not_in_their_own_models():
    plain = danl.glm("falls ~ age", sites=frames(), family="poisson", meta=True)
    effects = danl.glm("falls ~ age", sites=frames(), family="poisson", meta=True, site_effects=True)
    assert effects.meta.names == ("(intercept)", "age")
    np.testing.assert_allclose(effects.meta.estimates, plain.meta.estimates, rtol=1e-7)


def test_large_means_change_nothing():
    moved = {name: frame.assign(age=frame.age + 1e6) for name, frame in frames().items()}
    here, there = (danl.glm("pressure ~ age", sites=each, meta=True) for each in (frames(), moved))
    np.testing.assert_allclose(there.meta.estimates[1], here.meta.estimates[1], rtol=1e-6)
    np.testing.assert_allclose(there.meta.std_err[1], here.meta.std_err[1], rtol=1e-6)
    np.testing.assert_allclose(there.std_err[1], here.std_err[1], rtol=1e-6)
