"""The app, the run configuration, the sites' files, and the command line's part of it; nothing is started here."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import danl
from danl.engines.flower.site import Site
from danl.engines.flower.sitefiles import write_sites
from danl.errors import InputError
from danl.federation.app_template import app_name, write_app
from danl.federation.local_federation import Federation, free_port, running
from danl.federation.run_config import DEFAULTS, KEYS, commented_toml, solve_arguments
from tests.cli.shell import run as run_danl
from tests.problems import random_shards


def test_the_app_has_every_key_and_names_our_components(tmp_path, capsys):
    ended = run_danl(capsys, "flower", "new", tmp_path / "My run_2")
    assert ended.status == 0
    written = tomllib.loads((tmp_path / "My run_2" / "pyproject.toml").read_text())
    assert written["project"]["name"] == "My-run-2"
    assert written["tool"]["flwr"]["app"]["config"] == DEFAULTS
    assert written["tool"]["flwr"]["app"]["publisher"] == "danl"
    assert written["tool"]["flwr"]["app"]["components"] == {
        "serverapp": "danl.federation.serverapp:app",
        "clientapp": "danl.engines.flower.clientapp:app",
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Flower itself uses
def test_flower_takes_the_app(tmp_path):
    pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    write_app(tmp_path / "app")
    _, warnings = load_and_validate(tmp_path / "app" / "pyproject.toml")
    assert not warnings
    assert build_fab_from_disk(tmp_path / "app")


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    ended = run_danl(capsys, "flower", "new", tmp_path)
    assert ended.status == 2
    assert "must be a new or empty folder" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(("text", "name"), [("7 sites", "danl-7-sites"), ("---", "danl"), ("a" * 50, "a" * 32)])
def test_app_names_are_those_flower_takes(text, name):
    assert app_name(text) == name


def test_words_survive_toml():
    words = {"out": 'quote " and \\ back', "loss": "tab\tand\nline", "init": "ä", "tol": 1e-10, "intercept": True}
    assert tomllib.loads(commented_toml(words)) == words
    assert commented_toml({"seed": 3}) == f"seed = 3  # {KEYS['seed'][1]}\n"


def test_the_run_configuration_becomes_arguments():
    problem, run, engine = solve_arguments(
        {"alpha": "1e-3", "regions": "30,30,63", "init": "fedavg:rounds=2", "sites": 3, "tol": 1e-6, "out": "x"}
    )
    assert problem == {"loss": "logistic", "l2": None, "alpha": 1e-3, "weighting": "samples", "intercept": True}
    assert run["regions"] == "30,30,63"
    assert run["w0"] == "fedavg:rounds=2"
    assert engine == {"sites": 3, "deadline": 300.0, "wait": 120.0}
    assert solve_arguments({})[1]["w0"] is None


@pytest.mark.parametrize(
    ("config", "l2", "alpha"),
    [({}, None, 0.0), ({"l2": 1e-4}, 1e-4, None), ({"alpha": ""}, None, None), ({"alpha": 0.1}, None, 0.1)],
)
def test_there_is_no_penalty_unless_one_is_asked_for(config, l2, alpha):
    problem = solve_arguments(config)[0]
    assert (problem["l2"], problem["alpha"]) == (l2, alpha)


def test_the_app_as_it_is_written_is_the_pooled_fit(tmp_path):
    """The coefficients of all rows in one place, without a penalty, however they are divided."""
    write_app(tmp_path / "app")
    written = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    problem, run, _ = solve_arguments(written["tool"]["flwr"]["app"]["config"])
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = (X[:, 0] + 0.5 + rng.logistic(size=600) > 0).astype(float)
    parts = [slice(0, 60), slice(60, 250), slice(250, 600)]
    shards = [danl.Shard.of(X[part], y[part]) for part in parts]
    result = danl.solve(danl.Problem(shards, **problem), **run)
    with_ones = np.column_stack([X, np.ones(600)])
    gradient = with_ones.T @ (1 / (1 + np.exp(-with_ones @ result.w)) - y) / 600
    assert result.status == "converged"
    assert np.abs(gradient).max() <= 1e-8


def test_flower_knows_the_options_of_the_readme(tmp_path):
    pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")
    from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
    from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

    write_app(tmp_path / "app")
    readme = (tmp_path / "app" / "README.md").read_text().replace("\\\n", " ")
    found = {}
    for program, parser in (
        ("flower-superlink", _parse_args_run_superlink),
        ("danl flower node", _parse_args_run_supernode),
    ):
        (line,) = re.findall(rf"^    {program} (.*)$", readme, re.M)
        found[program] = vars(parser().parse_args(line.split()))
    assert found["flower-superlink"]["enable_supernode_auth"]
    assert found["flower-superlink"]["ssl_keyfile"] == "server.key"
    node = found["danl flower node"]
    assert (node["root_certificates"], node["auth_supernode_private_key"]) == ("ca.crt", "north.key")


@pytest.mark.parametrize(
    ("config", "match"),
    [({"aplha": 1}, "must be one of alpha"), ({"alpha": "much"}, "alpha='much'"), ({"regions": "prefix"}, "regions")],
)
def test_a_wrong_run_configuration_is_said(config, match):
    with pytest.raises(InputError, match=match):
        solve_arguments(config)


@pytest.mark.parametrize("as_sparse", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("targets", ["binary", "real"])
def test_a_site_reads_the_numbers_that_were_dealt_to_it(as_sparse, weighted, targets, tmp_path):
    shards = random_shards(as_sparse=as_sparse, weighted=weighted, targets=targets)
    configs = write_sites(shards, tmp_path, binary=targets == "binary")
    for shard, config in zip(shards, configs, strict=True):
        read = Site.from_config(config).reference.read()
        dense = [each.X.toarray() if hasattr(each.X, "toarray") else each.X for each in (shard, read)]
        assert np.array_equal(*dense)
        assert np.array_equal(read.y, shard.y)
        assert (read.weights is None) == (shard.weights is None)
        assert shard.weights is None or np.array_equal(read.weights, shard.weights)


def test_a_result_survives_its_folder(tmp_path):
    problem = danl.Problem(random_shards(), alpha=0.1)
    result = danl.solve(problem, w0="fedavg:rounds=2", max_rounds=5, engine="local:dropout=0.3,seed=2")
    assert result.failures
    result.save(tmp_path)
    read = danl.Result.load(tmp_path)
    assert read.summary() == result.summary()
    assert read.failures == result.failures
    assert np.array_equal(read.w0, result.w0)
    assert read.start.summary() == result.start.summary()
    (tmp_path / "model.npz").unlink()
    with pytest.raises(InputError, match="holds no result"):
        danl.Result.load(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_federation_in_a_folder_by_its_name_ends_when_it_is_told_to(number, capsys, tmp_path, monkeypatch):
    """Its processes run in that folder: what they are given there are whole paths."""
    monkeypatch.chdir(tmp_path)
    started, stopped = [], []
    monkeypatch.setattr(Federation, "start", lambda self: started.append(self))
    monkeypatch.setattr(Federation, "stop", lambda self: stopped.append(self))
    monkeypatch.setattr(Federation, "wait", lambda self: os.kill(os.getpid(), number))
    kept = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        assert run_danl(capsys, "flower", "up", "a1a", "--dir", "here").status == 0
    finally:
        for each, handler in kept.items():
            signal.signal(each, handler)
    assert started == stopped
    assert started[0].folder == tmp_path / "here"
    assert {Path(config["data"]).parent for config in started[0].sites} == {tmp_path / "here" / "sites"}


def test_a_fit_without_a_federation_says_how_to_start_one(capsys, tmp_path):
    ended = run_danl(capsys, "fit", "a1a", "--engine", "flower")
    assert ended.status == 2
    assert "danl flower up" in ended.err
    with pytest.raises(InputError, match="no federation is up there"):
        running(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "flower:sides=3"], "flower has no option 'sides'"),
        (["--engine", "flower", "--reference"], "--reference"),
        (["--engine", "flower", "--checkpoint", "c"], "--checkpoint"),
        (["--engine", "flower", "--workers", "4"], "--workers"),
        (["--engine", "flower:timeout=0"], "timeout=0"),
        (["--engine", "flower", "--method", "neuton"], "method"),
    ],
)
def test_a_fit_that_cannot_be_is_said_before_anything_runs(words, message, capsys):
    ended = run_danl(capsys, "fit", "a1a", *words)
    assert ended.status == 2
    assert message in ended.err


@pytest.mark.engines
def test_only_what_was_started_is_stopped(tmp_path):
    """Each process is a group of its own; another process of this user stays."""
    endless = [sys.executable, "-c", "import signal; signal.pause()"]
    other, mine = (subprocess.Popen(endless, start_new_session=True) for _ in range(2))
    try:
        federation = Federation(tmp_path, "a1a", [])
        federation.processes["mine"] = mine
        federation.stop()
        assert mine.poll() is not None
        assert other.poll() is None
    finally:
        for process in (other, mine):
            process.kill()
            process.wait()


def test_free_ports_are_free():
    assert 1024 <= free_port() < 65536


def test_certificates_are_signed_for_loopback_and_keys_are_private(tmp_path):
    pytest.importorskip("cryptography", reason="comes with Flower: pip install danl[flower]")
    from cryptography import x509

    from danl.federation.certificates import make_certificates, make_node_key

    made = make_certificates(tmp_path)
    authority = x509.load_pem_x509_certificate(made.authority.read_bytes())
    server = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    private, public = make_node_key(tmp_path / "keys" / "north")
    assert public.read_text().startswith("ecdsa-sha2-nistp384 ")
    for path in (made.key, private):
        assert path.stat().st_mode & 0o077 == 0


def test_columns_keep_their_names_in_the_sites_files_unless_they_are_numbers(tmp_path):
    for names, read in ((["age", "bmi"], ("age", "bmi")), (["age", "2019"], ("x0", "x1"))):
        shard = danl.Shard.of(np.array([[1.0, 2.0], [2.0, 1.0]]), [0.0, 1.0], feature_names=names)
        (config,) = write_sites([shard], tmp_path / names[1], binary=True)
        assert Site.from_config(config).reference.read().feature_names == read


@pytest.mark.parametrize("module", ["danl.engines.flower.site", "danl.federation.run_config"])
def test_flower_and_ray_report_to_nobody_whatever_is_imported_first(module):
    names = ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED")
    code = f"import os, {module}; print([os.environ[name] for name in {names}])"
    clean = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True)
    assert done.stdout == "['0', '0']\n"
