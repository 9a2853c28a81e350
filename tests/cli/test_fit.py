"""`danl fit`: the object on standard output, the exit status, the files, and what Ctrl-C leaves."""

import dataclasses
import hashlib
import inspect
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

import danl
from danl.cli.display import ProgressLine, console
from danl.cli.fit import fit
from danl.data.registry import REGISTRY
from tests.cli.shell import LISTENING, TIMEOUT, contents, run, run_process

pytestmark = pytest.mark.slow

KEYS = {
    "status",
    "rounds",
    "exchanges",
    "hessian_exchanges",
    "objective",
    "gap",
    "grad_norm",
    "bytes_up",
    "bytes_down",
    "min_coverage",
    "max_staleness",
    "min_trained",
    "seconds",
    "w_sha256",
}
FILES = ["config.json", "figure.png", "history.csv", "model.npz", "result.json", "workers.npz"]
START = ["start/history.csv", "start/model.npz", "start/result.json"]


def read_model(folder):
    with np.load(folder / "model.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def digest(w):
    assert w.dtype == np.float64
    return hashlib.sha256(w.tobytes()).hexdigest()


# --- --json and the exit status ---


def test_newton_reaches_the_optimum(capsys):
    ended = run(capsys, "fit", "a1a", "--method", "newton", "--json")
    assert ended.status == 0
    report = ended.json
    assert report.keys() >= KEYS
    assert report["status"] == "converged"
    assert report["grad_norm"] < 1e-12
    assert report["gap"] is None
    assert (report["rows"], report["features"], report["workers"]) == (1605, 123, 10)
    assert report["exchanges"] == report["rounds"] + 1
    assert 1 <= report["hessian_exchanges"] <= report["exchanges"]
    assert "converged" in ended.err
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=10, seed=0), l2=1e-4)
    assert report["objective"] == pytest.approx(danl.reference_optimum(problem).objective, rel=1e-12)


@pytest.mark.slow
def test_one_object_on_standard_output_as_a_process():
    words = (
        "--method",
        "danl-masked",
        "--policy",
        "coverage:psi=3,gamma=2",
        "--alpha",
        "1e-3",
        "--reference",
        "--json",
    )
    ended = run_process("fit", "a1a", "--rounds", "3", *words)
    assert ended.status == 0
    report = ended.json
    assert report.keys() >= KEYS
    assert (report["status"], report["rounds"], report["exchanges"]) == ("max_rounds", 3, 4)
    assert (report["hessian_exchanges"], report["min_trained"]) == (1, 4)
    assert report["min_coverage"] >= 3
    assert 1 <= report["max_staleness"] <= 2
    assert report["gap"] > 0
    assert report["reference"]["grad_norm"] < 1e-12
    assert "gap" in ended.err
    assert "Traceback" not in ended.err


def test_without_json_nothing_goes_to_standard_output(capsys):
    ended = run(capsys, "fit", "a1a", "--rounds", "2")
    assert (ended.status, ended.out) == (0, "")
    assert "max_rounds" in ended.err


def test_divergence_is_exit_status_3(capsys, tmp_path):
    words = ("--method", "danl-paper", "--policy", "coverage:psi=3", "--reference", "--json", "--out", tmp_path / "run")
    ended = run(capsys, "fit", "a1a", *words)
    assert ended.status == 3
    assert ended.json["status"] == "diverged"
    assert sorted(contents(tmp_path / "run")) == FILES  # a run that diverged is a result too
    assert digest(read_model(tmp_path / "run")["w"]) == ended.json["w_sha256"]


def test_lost_workers_are_exit_status_3(capsys, monkeypatch):
    """No engine of this machine loses workers, so the result is one that did."""

    def lose(*args, **arguments):
        return dataclasses.replace(danl.solve(*args, **arguments), status="quorum_lost")

    monkeypatch.setattr("danl.cli.job.solve", lose)
    ended = run(capsys, "fit", "a1a", "--rounds", "1", "--json")
    assert (ended.status, ended.json["status"]) == (3, "quorum_lost")


def test_the_papers_start(capsys):
    ended = run(capsys, "fit", "a1a", "--init", "fedavg:rounds=4", "--rounds", "2", "--json")
    assert ended.status == 0
    start = ended.json["init"]
    assert start["method"] == "fedavg"
    assert start["bytes_up"] > 0
    assert ended.json["exchanges"] == 3  # those of the start are not counted
    assert f"start: fedavg, {start['exchanges']} exchanges" in ended.err


# --- the files ---


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A run with files: the folder and the object on standard output."""
    folder = tmp_path_factory.mktemp("fit") / "deep" / "run"
    words = ("--policy", "coverage:psi=3", "--alpha", "1e-2", "--partition", "dirichlet:alpha=1", "--init")
    ended = run_process(
        "fit", "a1a", *words, "fedavg:rounds=2", "--rounds", "12", "--batch-size", "100", "--json", "--out", folder
    )
    assert ended.status == 0
    assert f"written to {folder}/\n" in ended.err  # on one line, however long, to copy
    return folder, ended.json


@pytest.mark.slow
def test_files(written):
    folder, report = written
    assert sorted(contents(folder)) == sorted([*FILES, *START])
    assert report["out"] == str(folder)


def test_history_reads_back(written):
    folder, report = written
    history = danl.History.read_csv(folder / "history.csv")
    assert len(history) == report["exchanges"] == 13
    assert [row.exchange for row in history] == list(range(13))
    assert history[-1].objective == report["objective"]
    assert sum(row.bytes_up for row in history) == report["bytes_up"]
    assert all(len(row.coverage) == report["regions"] == 4 for row in history)


def test_the_trace_is_of_the_rows(written):
    folder, _ = written
    history, trace = danl.History.read_csv(folder / "history.csv"), danl.Trace.read(folder / "workers.npz")
    assert trace.exchanges.tolist() == [row.exchange for row in history]
    assert trace.trained.shape == (13, 10, 4)
    np.testing.assert_array_equal(trace.bytes_up.sum(axis=1), history.column("bytes_up"))
    np.testing.assert_array_equal(trace.trained.sum(axis=1), history.column("coverage"))


def test_config_tells_of_failures_notes_and_promises(capsys, tmp_path):
    words = ("--policy", "coverage:psi=3,gamma=2", "--engine", "local:dropout=0.4,seed=1", "--rounds", "60", "--json")
    report = run(capsys, "fit", "a1a", *words, "--out", tmp_path).json
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["promised"] == {"min_coverage": 3, "min_trained": 4, "max_staleness": 2}
    assert config["notes"] == report["notes"]
    assert len(config["failures"]) == 100 < report["failed_replies"]
    silent = np.argwhere(danl.Trace.read(tmp_path / "workers.npz").asked == 2).tolist()
    assert [[each["exchange"], each["worker"]] for each in config["failures"]] == silent[:100]
    assert config["failures"][0].keys() == {"exchange", "worker", "kind", "detail"}


def test_model_is_the_one_reported(written):
    folder, report = written
    model = read_model(folder)
    assert digest(model["w"]) == report["w_sha256"]
    assert model["w"].shape == model["w0"].shape == (123,)
    assert np.any(model["w0"] != 0)  # the start of FedAvg
    assert model["classes"].tolist() == ["-1", "1"]


def test_figure_is_a_picture(written):
    folder, _ = written
    data = (folder / "figure.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert 800 <= width <= 3000
    assert 400 <= height <= 2000
    assert 10_000 < len(data) < 1_000_000


def test_config_is_enough_to_run_it_again(written, capsys):
    folder, report = written
    config = json.loads((folder / "config.json").read_text())
    assert config["danl"] == danl.__version__
    assert config["status"] == report["status"]
    assert config["data"]["sha256"] == REGISTRY["a1a"].sha256
    assert config["settings"]["method_options"]["batch_size"] == 100
    assert config["settings"]["rows"] != [161] * 5 + [160] * 5  # uneven shards
    assert config["versions"].keys() == {"python", "numpy", "scipy"}
    options = dict(config["options"])
    words = [options.pop("data")]
    for name, value in options.items():
        if value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}", str(value)]
    again = run(capsys, "fit", *words, "--json")
    assert again.json["w_sha256"] == report["w_sha256"]
    assert again.json["bytes_up"] == report["bytes_up"]


def test_names_of_folders_are_no_markup(capsys, tmp_path):
    ended = run(capsys, "fit", "a1a", "--rounds", "1", "--out", tmp_path / "[red]run :x:")
    assert f"written to {tmp_path}/[red]run :x:/\n" in ended.err
    assert sorted(contents(tmp_path / "[red]run :x:")) == FILES


# --- data ---


def test_phishing_from_the_data_folder(capsys, data_dir, monkeypatch):
    monkeypatch.setenv("DANL_DATA_DIR", str(data_dir))
    ended = run(capsys, "fit", "phishing", "--method", "newton", "--rounds", "3", "--json")
    assert ended.status == 0
    assert (ended.json["rows"], ended.json["features"]) == (11_055, 68)


@pytest.fixture
def clinics(tmp_path):
    """Four rows a clinic, the target in the middle, weights and sites beside it."""
    rng = np.random.default_rng(3)
    lines = ["age,sick,clinic,dose,weight"]
    for row in range(12):
        age, dose = rng.normal(size=2).round(3)
        lines.append(f"{age},{'yes' if row % 3 else 'no'},{'abc'[row // 4]},{dose},{1 + row % 2}")
    path = tmp_path / "clinics.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


COLUMNS = ("--target", "sick", "--site", "clinic", "--weight", "weight")


def test_one_worker_per_site(capsys, clinics, tmp_path):
    ended = run(capsys, "fit", clinics, *COLUMNS, "--json", "--out", tmp_path / "run")
    assert ended.status == 0
    report = ended.json
    assert (report["workers"], report["partition"], report["features"]) == (3, "site", 2)
    assert report["regions"] == 2  # the default of 4, cut to the number of features
    model = read_model(tmp_path / "run")
    assert model["feature_names"].tolist() == ["age", "dose"]
    assert model["classes"].tolist() == ["no", "yes"]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["settings"]["rows"] == [4, 4, 4]
    assert config["options"]["site"] == "clinic"


def test_sites_need_not_be_the_workers(capsys, clinics):
    ended = run(capsys, "fit", clinics, *COLUMNS, "--partition", "sorted", "--workers", "2", "--json")
    assert (ended.json["workers"], ended.json["partition"]) == (2, "sorted")


@pytest.mark.slow
def test_a_weight_of_two_is_the_row_twice(capsys, clinics, tmp_path):
    header, *rows = clinics.read_text().splitlines()
    doubled = [row for row in rows for _ in range(int(row[-1]))]
    without = tmp_path / "without.csv"  # the column of weights too, as it would be a feature
    without.write_text("".join(line.rpartition(",")[0] + "\n" for line in [header, *doubled]))
    common = ("--target", "sick", "--site", "clinic", "--alpha", "0.1", "--method", "newton")
    models = []
    for name, path, extra in (("one", clinics, ("--weight", "weight")), ("two", without, ())):
        assert run(capsys, "fit", path, *common, *extra, "--out", tmp_path / name).status == 0
        models.append(read_model(tmp_path / name)["w"])
    np.testing.assert_allclose(models[0], models[1], rtol=1e-9)
    assert run(capsys, "fit", clinics, *common, "--out", tmp_path / "as feature").status == 0
    assert read_model(tmp_path / "as feature")["w"].shape == (3,)


def test_a_real_valued_target(capsys, tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("x,length\n" + "".join(f"{x},{3 * x}\n" for x in range(1, 11)))
    words = ("--loss", "squared", "--alpha", "0", "--workers", "2", "--json", "--out", tmp_path / "run")
    ended = run(capsys, "fit", path, *words)
    assert ended.json["status"] == "converged"
    np.testing.assert_allclose(read_model(tmp_path / "run")["w"], [3.0], rtol=1e-12)


# --- the default method, absences, warnings ---


def test_the_default_gets_there_under_sparse_masks_and_absences(capsys):
    words = ("--policy", "coverage:psi=1", "--engine", "local:dropout=0.3,seed=1", "--reference", "--rounds", "200")
    ended = run(capsys, "fit", "a1a", *words, "--json")
    assert ended.status == 0
    assert (ended.json["method"], ended.json["status"]) == ("danl", "converged")
    assert abs(ended.json["gap"]) < 1e-12
    assert ended.json["failed_replies"] > 50
    assert f"{ended.json['failed_replies']} replies did not come; the first: worker " in " ".join(ended.err.split())


def test_a_warning_is_one_line(capsys, tmp_path):
    path = tmp_path / "apart.csv"
    path.write_text("x,y\n1,1\n2,1\n-1,0\n-2,0\n")
    ended = run(capsys, "fit", path, "--alpha", "0", "--workers", "2", "--reference", "--rounds", "60")
    assert ended.err.count("the data is separable and there is no penalty") == 1
    assert "Traceback" not in ended.err


# --- Ctrl-C ---


# A shell that starts the tests in the background tells its children to ignore Ctrl-C; this one listens again.
def wait_for(text, master, received, until):
    """Read the terminal until the text shows."""
    while text not in received:
        left = until - time.monotonic()
        assert left > 0, f"{text!r} did not show in ...{bytes(received[-500:])!r}"
        if select.select([master], [], [], left)[0]:
            received += os.read(master, 65536)


@pytest.mark.engines
@pytest.mark.parametrize("display", [(), ("--live",)], ids=["line", "live"])
def test_ctrl_c_keeps_what_there_is(tmp_path, display):
    pty = pytest.importorskip("pty")
    out = tmp_path / "run"
    master, slave = pty.openpty()
    words = ("--method", "gd", "--rounds", "1000000000", "--tol", "0", "--json", "--out", str(out), *display)
    with subprocess.Popen(
        [sys.executable, "-c", LISTENING, "fit", "a1a", *words],
        stdout=subprocess.PIPE,
        stderr=slave,
        text=True,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
    ) as process:
        os.close(slave)
        try:
            received = bytearray()
            wait_for(b"round ", master, received, time.monotonic() + TIMEOUT)  # the run has begun
            process.send_signal(signal.SIGINT)
            wait_for(b"written to", master, received, time.monotonic() + TIMEOUT)
            standard_output = process.communicate(timeout=TIMEOUT)[0]
        finally:
            if process.poll() is None:
                process.kill()
            os.close(master)
    assert process.returncode == 130
    assert b"Traceback" not in received
    report = json.loads(standard_output)
    assert report["status"] == "interrupted"
    assert sorted(contents(out)) == FILES
    assert len(danl.History.read_csv(out / "history.csv")) == report["exchanges"] < 100_000
    assert digest(read_model(out)["w"]) == report["w_sha256"]
    assert json.loads((out / "config.json").read_text())["status"] == "interrupted"


def test_the_default_method_is_that_of_solve():
    here, there = (inspect.signature(of).parameters["method"].default for of in (fit, danl.solve))
    assert here == there


@pytest.mark.parametrize("place", ["danl.cli.job.load_dataset", "danl.cli.job.partition"])
@pytest.mark.parametrize("command", ["fit", "compare", "certify"])
def test_ctrl_c_before_the_run(capsys, monkeypatch, place, command):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupt)
    ended = run(capsys, command, "a1a")
    assert (ended.status, ended.out) == (130, "")
    assert ended.err == "interrupted before there was anything to keep\n"


def test_a_forced_run_stopped_at_once_leaves_no_figure_of_the_old_one(capsys, tmp_path, monkeypatch):
    words = ("fit", "a1a", "--rounds", "1", "--out", tmp_path / "run")
    assert run(capsys, *words).status == 0

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("danl.engines.local.Local.exchange", interrupt)
    ended = run(capsys, *words, "--force", "--json")
    assert (ended.status, ended.json["exchanges"]) == (130, 0)
    assert sorted(contents(tmp_path / "run")) == [
        "config.json",
        "history.csv",
        "model.npz",
        "result.json",
        "workers.npz",
    ]
    assert len(danl.Trace.read(tmp_path / "run" / "workers.npz")) == 0


# --- what a person sees ---


def test_live_display_is_silent_where_nobody_watches(capsys):
    ended = run(capsys, "fit", "a1a", "--rounds", "3", "--method", "gd")
    assert "round " not in ended.err
    assert "\x1b" not in ended.err


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("gap", "shown"), [(1.5e-9, "gap  1.50e-09"), (1.5e-300, "<=1e-15"), (np.nan, "|grad| ")])
@pytest.mark.parametrize("label", ["gd", "newton-undamped", "fedavg:steps=5,learning_rate=0.1"])
def test_live_line_fits_the_terminal(width, gap, shown, label):
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=10))
    row = danl.solve(problem, max_rounds=0, method="gd", policy="random:keep=0.5").history[0]
    row = dataclasses.replace(row, exchange=9_999, gap=gap, coverage=(3, 4, 10, 3), bytes_up=987_654_321)
    live = ProgressLine(console(), label, 10_000, quiet=True)
    live(row)
    line = live.line(row, width)
    assert len(line) <= width
    assert line.startswith(label[:5])
    for part in ("round  9999/10000", "coverage 3-10", " MB", " s", shown):
        assert part in line


# --- what belongs together ---


def test_a_port_without_serve_is_refused(capsys):
    ended = run(capsys, "fit", "a1a", "--serve-port", "9000")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == "error: --serve-port=9000: is the port of --serve, which is not given; add --serve\n"


def test_one_of_a_kind_is_singular(capsys):
    ended = run(capsys, "fit", "a1a", "--workers", "1", "--regions", "1", "--rounds", "1")
    assert ended.err.startswith("a1a: 1 worker (iid), 1 region, full, logistic, lambda 0.0001\n")


@pytest.mark.slow
def test_the_page_of_the_run_that_is_replaced_goes_with_it(capsys, tmp_path):
    pytest.importorskip("plotly")
    words = ("fit", "a1a", "--rounds", "2", "--out", tmp_path / "run")
    run(capsys, *words)
    run(capsys, "report", tmp_path / "run")
    page = tmp_path / "run" / "report.html"
    assert page.is_file()
    ended = run(capsys, *words, "--force")
    assert not page.exists()
    assert f"removed {page}, made of the run that was there; danl report makes a new one\n" in ended.err
    page.write_text("<title>my own</title>")
    assert "removed" not in run(capsys, *words, "--force").err
    assert page.read_text() == "<title>my own</title>"


@pytest.mark.slow
def test_the_page_of_a_comparison_that_is_replaced_goes_with_it(capsys, tmp_path):
    pytest.importorskip("plotly")
    words = ("compare", "a1a", "--methods", "gd,newton", "--rounds", "2", "--out", tmp_path)
    run(capsys, *words)
    run(capsys, "report", tmp_path)
    run(capsys, "report", tmp_path / "gd")
    ended = run(capsys, *words, "--force")
    assert ended.err.count("removed ") == 2
    assert not list(tmp_path.rglob("report.html"))
