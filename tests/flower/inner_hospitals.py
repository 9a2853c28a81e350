"""Run by test_loopback.py inside a network of its own: the hospitals of docs/hospitals.md, with TLS and a key for each.

The numbers are those of statsmodels on the pooled complete records.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from danl.federation.local_federation import Federation

pd = pytest.importorskip("pandas")
smf = pytest.importorskip("statsmodels.formula.api")
sm = pytest.importorskip("statsmodels.api")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(800)]
HANGS = 500.0
FILES = Path(__file__).resolve().parents[2] / "examples" / "hospitals"
NAMES = ("north", "south", "island")
QUARTILES = ["q25", "median", "q75"]
EXPLAINED = "age + sex + C(smoking, reference='never') + log(bmi)"
THEIRS = "age + C(sex) + C(smoking, Treatment('never')) + np.log(bmi)"
FAMILIES = {
    "gaussian": ("pressure", (), sm.families.Gaussian()),
    "binomial": ("readmitted", (), sm.families.Binomial()),
    "binomial of trials": ("infections", ("--trials", "procedures"), sm.families.Binomial()),
    "poisson": ("visits", ("--offset", "log(months)"), sm.families.Poisson()),
    "negative-binomial:alpha=0.5": (
        "visits",
        ("--offset", "log(months)"),
        sm.families.NegativeBinomial(alpha=0.5),
    ),
    "gamma": ("stay", (), sm.families.Gamma(sm.families.links.Log())),
}


def federation(folder, island):
    os.environ["XDG_CACHE_HOME"], os.environ["XDG_STATE_HOME"] = str(folder / "cache"), str(folder / "state")
    sites = [{"name": name, "data": str(FILES / f"{name}.csv")} for name in NAMES]
    sites[2] |= island
    made = Federation(folder, "hospitals", [site | {"ledger": str(folder / site["name"])} for site in sites], tls=True)
    made.start()
    return made


@pytest.fixture(scope="module")
def all_three(tmp_path_factory):
    """The island has relaxed its own rule."""
    made = federation(tmp_path_factory.mktemp("relaxed"), {"max-features-per-row": 0.8})
    yield made
    made.stop()


def fit(made, out, family, *, site_effects=False, sites=3):
    """`danl fit --engine flower ... --summary` as a person runs it."""
    outcome, options, _ = FAMILIES[family]
    command = [sys.executable, "-m", "danl", "fit", "--engine", f"flower:dir={made.folder},sites={sites},timeout=500"]
    command += ["--formula", f"{outcome} ~ {EXPLAINED}", "--family", family.partition(" ")[0], *options]
    command += ["--summary", "--quiet", "--out", str(out), *(["--site-effects"] if site_effects else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, pd.read_csv(out / "coefficients.csv", index_col=0)


def pooled(names, family, site_effects):
    """Coefficients and standard errors, by the names that danl has."""
    outcome, options, theirs = FAMILIES[family]
    rows = pd.concat([pd.read_csv(FILES / f"{name}.csv").assign(site=name) for name in names]).dropna()
    rows["readmitted"], told = (rows.readmitted == "yes").astype(float), {}
    if "--trials" in options:
        rows["infections"], told = rows.infections / rows.procedures, {"var_weights": rows.procedures}
    if "--offset" in options:
        told = {"offset": np.log(rows.months)}
    right = THEIRS + (" + C(site, Treatment('island'))" if site_effects else "")
    made = smf.glm(f"{outcome} ~ {right}", rows, family=theirs, **told).fit(tol=1e-12)
    ours = {"Intercept": "(intercept)", "age": "age", "np.log(bmi)": "log(bmi)", "C(sex)[T.m]": "sex[m]"}
    ours |= {f"C(smoking, Treatment('never'))[T.{level}]": f"smoking[{level}]" for level in ("former", "current")}
    ours |= {f"C(site, Treatment('island'))[T.{name}]": f"site[{name}]" for name in ("north", "south")}
    return made.params.rename(ours), made.bse.rename(ours)


def same(table, names, family, site_effects):
    coef, std_err = pooled(names, family, site_effects)
    assert set(table.index) == set(coef.index)
    np.testing.assert_allclose(table.coef, coef[table.index], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(table.std_err, std_err[table.index], rtol=1e-6)


@pytest.mark.parametrize("site_effects", [False, True], ids=["", "with effects of the sites"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_numbers_are_those_of_the_pooled_records(all_three, tmp_path, family, site_effects):
    printed, table = fit(all_three, tmp_path / "run", family, site_effects=site_effects)
    same(table, NAMES, family, site_effects)
    assert "408 records at 3 sites" in printed
    assert "2 at island, 19 at north and 6 at south" in printed


def test_a_table_of_the_cohort_is_that_of_the_files(all_three, tmp_path):
    """Quartiles but nearly: cells of few records are hidden."""
    asked = ["--formula", f"readmitted ~ {EXPLAINED}", "--family", "binomial"]
    where = ["--engine", f"flower:dir={all_three.folder},sites=3,timeout=500", "--out", str(tmp_path / "table")]
    files = [str(FILES / f"{name}.csv") for name in NAMES]
    for words in (where, [*files, "--out", str(tmp_path / "here")]):
        command = [sys.executable, "-m", "danl", "cohort", *words, *asked]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False)
        assert done.returncode == 0, done.stderr
    tables = (pd.read_csv(tmp_path / folder / "cohort.csv").drop(columns=QUARTILES) for folder in ("table", "here"))
    order = ["column", "level", "site"]  # sites of files are in the order of the files
    pd.testing.assert_frame_equal(*(table.sort_values(order, ignore_index=True) for table in tables), rtol=1e-9)
    assert "408" in (tmp_path / "table" / "cohort.txt").read_text().splitlines()[1]


def test_the_island_is_refused_by_the_rules_as_they_are_and_named(tmp_path):
    made = federation(tmp_path, {})
    try:
        _, table = fit(made, tmp_path / "run", "binomial", sites=2)
    finally:
        made.stop()
    same(table, ("north", "south"), "binomial", False)
    notes = " ".join(json.loads((tmp_path / "run" / "result.json").read_text())["notes"])
    assert "site island" in notes
    assert "max-features-per-row" in notes
