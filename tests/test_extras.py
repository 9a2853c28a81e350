"""The core install has neither matplotlib nor pandas nor tabmat: what needs them names the extra, the rest goes on."""

import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from scipy import sparse

import danl
from danl.objective import kernels
from danl.reproduce import make as reproduction
from tests.cli.shell import run
from tests.problems import random_problem

PLOTS = "needs matplotlib; install it with pip install 'danl[plots]'"
PANDAS = "needs pandas; install it with pip install 'danl[pandas]'"


@pytest.fixture
def without(monkeypatch):
    """Call it with names of packages: from then on they are not there, and importing them fails."""

    def leave_out(*packages):
        for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
            monkeypatch.delitem(sys.modules, name)
        for package in packages:
            monkeypatch.setitem(sys.modules, package, None)
        assert all(find_spec(package) is None for package in packages)

    return leave_out


@pytest.fixture(scope="module")
def result():
    return danl.solve(random_problem(), max_rounds=3)


def test_figures_name_their_extra(without, result, tmp_path):
    without("matplotlib")
    for draw, name in ((danl.plot_histories, "plot_histories"), (danl.gallery.plot_gallery, "plot_gallery")):
        with pytest.raises(danl.InputError) as error:
            draw({"run": result.history}, tmp_path / "f.png")
        assert str(error.value) == f"{name}: {PLOTS}"
    assert not list(tmp_path.iterdir())


def test_frames_name_their_extra(without, result):
    without("pandas")
    with pytest.raises(danl.InputError) as error:
        result.history.to_frame()
    assert str(error.value) == f"to_frame: {PANDAS}"


def test_a_summary_prints_without_pandas(without):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    summary = danl.DANLClassifier(workers=3).fit(X, X[:, 0] + rng.normal(size=60) > 0).summary()
    text = str(summary)
    without("pandas")
    assert str(summary) == text
    assert "odds ratio" in text
    with pytest.raises(danl.InputError) as error:
        summary.to_frame()
    assert str(error.value) == f"to_frame: {PANDAS}"


def test_a_fit_writes_all_but_its_figure(without, capsys, tmp_path):
    without("matplotlib", "pandas", "tabmat")
    out = tmp_path / "run"
    out.mkdir()
    (out / "figure.png").write_bytes(b"of the run before")
    ended = run(capsys, "fit", "a1a", "--rounds", "3", "--out", out, "--force")
    assert ended.status in (0, 3)  # three rounds may not be enough
    assert ended.err.splitlines()[-1] == f"written to {out}/, without a figure: {PLOTS.replace('needs', 'that needs')}"
    names = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    assert names == ["config.json", "history.csv", "model.npz", "result.json", "workers.npz"]
    assert json.loads((out / "config.json").read_text())


def test_a_comparison_writes_all_but_its_figure(without, capsys, tmp_path):
    without("matplotlib")
    ended = run(capsys, "compare", "a1a", "--methods", "danl,newton", "--rounds", "2", "--out", tmp_path / "c")
    assert ended.status == 0
    assert ended.err.splitlines()[-1].startswith(f"written to {tmp_path / 'c'}/, without a figure: ")
    assert (tmp_path / "c" / "comparison.json").is_file()
    assert not list(tmp_path.rglob("*.png"))
    words = ("compare", "a1a", "--methods", "danl,newton", "--gallery", "--out", tmp_path / "d")
    ended = run(capsys, *words)
    assert (ended.status, ended.err) == (2, f"error: --gallery: {PLOTS}\n")
    assert not (tmp_path / "d").exists()


def test_a_reproduction_says_so_before_it_computes(without, capsys, tmp_path):
    without("matplotlib")
    ended = run(capsys, "reproduce", "fig1", "--quick", "--out", tmp_path / "r")
    assert (ended.status, ended.err) == (2, f"error: reproduce: {PLOTS}\n")
    assert not (tmp_path / "r").exists()


def test_large_sparse_products_are_scipys_without_tabmat(without, monkeypatch):
    monkeypatch.setattr(kernels, "LARGE", 0)
    X = sparse.random_array((50, 8), density=0.1, format="csr", rng=np.random.default_rng(0))
    weights = np.linspace(0.5, 2.0, 50)
    without("tabmat")
    np.testing.assert_allclose(kernels.Sandwich(X)(weights), X.toarray().T @ (weights[:, None] * X.toarray()))


def test_certificates_name_their_extra(without, tmp_path):
    from danl.federation.certificates import make_certificates, make_node_key

    without("trustme", "cryptography")
    for make, what in ((make_certificates, "certificates: needs trustme"), (make_node_key, "keys of nodes: needs")):
        with pytest.raises(danl.InputError, match=rf"^{what}.*pip install 'danl\[flower\]'$"):
            make(tmp_path / "made")
    assert not list(tmp_path.iterdir())


def test_names_of_flower_name_their_extra(without, monkeypatch):
    without("flwr")
    assert danl.flower.Site
    for name in ("GridEngine", "client_app"):
        monkeypatch.delitem(vars(danl.flower), name, raising=False)  # where another test has used it
        with pytest.raises(danl.InputError) as error:
            getattr(danl.flower, name)
        assert str(error.value) == f"danl.flower.{name}: needs flwr; install it with pip install 'danl[flower]'"
    with pytest.raises(danl.InputError, match=r"engine='flower': needs flwr; .*'danl\[flower\]'"):
        danl.engines.make_engine("flower")


def test_claims_are_judged_without_matplotlib(without, monkeypatch, capsys, tmp_path):
    without("matplotlib")
    monkeypatch.setattr(reproduction, "needed", lambda plan, targets, out: reproduction.Needed((), ()))
    monkeypatch.setattr(reproduction, "judge_all", lambda plan, read: [])
    ended = run(capsys, "reproduce", "claims", "--quick", "--out", tmp_path / "r")
    assert ended.status == 0, ended.err
    versions = json.loads((tmp_path / "r" / "environment.json").read_text())["versions"]
    assert list(versions) == ["python", "numpy", "scipy", "scikit-learn"]
