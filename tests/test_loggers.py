"""MLflow and TensorBoard: what is in their files is what is in the history. No network: the stores are files."""

import contextlib
import errno
import os
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import danl
from danl.callbacks import MLflow, StopWhen, TensorBoard
from danl.callbacks.logger import metrics_of
from danl.cli.display import ProgressLine
from tests.cli.shell import run
from tests.problems import random_problem

pytestmark = pytest.mark.slow

RUN = {"method": "danl", "regions": 3, "policy": "coverage:psi=2", "max_rounds": 8, "tol": 0.0}


def needs(module):
    return pytest.mark.skipif(find_spec(module) is None, reason=f"{module} is not installed")


# MLflow.


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)  # where MLflow would put artifacts
    return f"sqlite:///{tmp_path}/mlflow.db"


def newest(store, experiment="danl"):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    found = client.get_experiment_by_name(experiment)
    return client, client.search_runs([found.experiment_id], order_by=["attributes.start_time DESC"])


@needs("mlflow")
def test_an_mlflow_run_is_the_history(store):
    logger = MLflow("hospitals", tracking_uri=store, run_name="first")
    problem = random_problem()
    result = danl.solve(problem, **RUN, reference=danl.reference_optimum(problem), callback=logger)
    client, runs = newest(store, "hospitals")
    assert [each.info.run_id for each in runs] == [logger.run_id]
    assert (runs[0].info.run_name, runs[0].info.status) == ("first", "FINISHED")
    params = runs[0].data.params
    assert (params["method"], params["workers"], params["method_options.memory"]) == ("danl", "4", "corrected")
    assert (runs[0].data.tags["danl.status"], runs[0].data.tags["danl.version"]) == ("max_rounds", danl.__version__)
    for name in ("gap", "grad_norm", "bytes_up", "refused", "hessian", "coverage_2", "seconds"):
        points = client.get_metric_history(logger.run_id, name)
        expected = [(row.exchange, metrics_of(row)[name]) for row in result.history]
        assert sorted((point.step, point.value) for point in points) == expected
    assert "simulated_seconds" not in runs[0].data.metrics  # never known


@needs("mlflow")
def test_every_run_is_one_of_its_own_and_tells_its_ending(store):
    logger = MLflow(tracking_uri=store)
    stop, fail = StopWhen(lambda row: row.exchange == 2), lambda row: 1 / 0
    danl.solve(random_problem(), **RUN, callback=[logger, stop])
    ids = [logger.run_id]
    danl.solve(random_problem(), method="gd:learning_rate=1e3", max_rounds=50, callback=logger)
    ids.append(logger.run_id)
    with pytest.raises(ZeroDivisionError):
        danl.solve(random_problem(), **RUN, callback=[logger, fail])
    ids.append(logger.run_id)
    _, runs = newest(store)
    reported = {each.info.run_id: (each.info.status, each.data.tags["danl.status"]) for each in runs}
    assert [reported[each] for each in ids] == [("FINISHED", "stopped"), ("FAILED", "diverged"), ("FAILED", "error")]
    assert len(set(ids)) == 3


@needs("mlflow")
def test_as_a_context_the_store_is_opened_at_once(store, tmp_path):
    with MLflow(tracking_uri=store) as logger:
        assert (tmp_path / "mlflow.db").exists()
        danl.solve(random_problem(), **RUN, callback=logger)
    assert newest(store)[1][0].info.status == "FINISHED"


@needs("mlflow")
@pytest.mark.parametrize("uri", ["nonsense://x", "runs", "sqlite:///text.db"])
def test_a_store_that_cannot_be_used_is_wrong_input(store, uri):
    Path("text.db").write_text("no database\n" * 100)
    with pytest.raises(danl.InputError) as error:
        MLflow(tracking_uri=uri).connect()
    assert str(error.value).startswith(f"tracking_uri={uri!r}: MLflow cannot use it (")
    assert str(error.value).endswith("give the address of a server, or sqlite:///mlflow.db for a file here")


@pytest.mark.parametrize("arguments", [{"experiment": ""}, {"tracking_uri": 3}, {"run_name": ""}])
def test_wrong_words_for_mlflow(arguments):
    ((name, value),) = arguments.items()
    with pytest.raises(danl.InputError, match=f"{name}={value!r}: must be a text that is not empty"):
        MLflow(**arguments)


ALONE = """
import socket, sys
tried = []
def refuse(*arguments, **options):
    tried.append(arguments)
    raise OSError("no network in this test")
socket.getaddrinfo = socket.socket.connect = socket.socket.connect_ex = refuse
import numpy as np, danl
X = np.random.default_rng(0).normal(size=(40, 3))
problem = danl.Problem(danl.partition(X, (X[:, 0] > 0).astype(float), workers=4), alpha=0.1)
logger = danl.callbacks.MLflow(tracking_uri="sqlite:///mlflow.db")
print(danl.solve(problem, callback=logger).status)
from mlflow.telemetry.client import get_telemetry_client
print(get_telemetry_client(), tried)  # who would report in the background is not there
"""


@needs("mlflow")
@pytest.mark.engines
def test_nothing_is_reported_to_anybody(tmp_path):
    """MLflow tells its makers of its use, except in tests and where it is told not to: danl tells it not to."""
    hidden = ("PYTEST_", "CI", "GITHUB_ACTIONS", "MLFLOW_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    done = subprocess.run(
        [sys.executable, "-c", ALONE], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["converged", "None []"]


# TensorBoard.


def events(folder):
    """The events of a folder's one file."""
    (path,) = folder.glob("events.out.tfevents.*")
    return events_of(path)


def events_of(path):
    """The events of a file: TFRecords are a length, its checksum, the bytes, their checksum."""
    from tensorboardX.proto.event_pb2 import Event

    data, place, found = path.read_bytes(), 0, []
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        event = Event()
        event.ParseFromString(data[place + 12 : place + 12 + length])
        found.append(event)
        place += 12 + length + 4
    return found


def scalars(found, tag):
    return [(each.step, value.simple_value) for each in found for value in each.summary.value if value.tag == tag]


@needs("tensorboardX")
def test_tensorboards_events_are_the_history(tmp_path):
    problem = random_problem()
    reference = danl.reference_optimum(problem)
    result = danl.solve(problem, **RUN, reference=reference, callback=TensorBoard(tmp_path / "runs" / "one"))
    found = events(tmp_path / "runs" / "one")
    for tag, name in (("gap", "gap"), ("grad_norm", "grad_norm"), ("bytes_up", "bytes_up"), ("refused", "refused")):
        expected = [(row.exchange, np.float32(getattr(row, name))) for row in result.history]
        assert scalars(found, tag) == expected
    assert scalars(found, "coverage/region_1") == [(row.exchange, row.coverage[1]) for row in result.history]
    assert scalars(found, "simulated_seconds") == []
    texts = {value.tag: value.tensor.string_val[0].decode() for each in found for value in each.summary.value
             if value.tensor.string_val}  # fmt: skip
    assert "| method | danl |" in next(text for tag, text in texts.items() if tag.startswith("settings"))
    assert next(text for tag, text in texts.items() if tag.startswith("status")) == "max_rounds"


@needs("tensorboardX")
def test_an_error_leaves_whole_events(tmp_path):
    def fail(row):
        if row.exchange == 3:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"), TensorBoard(tmp_path) as logger:
        danl.solve(random_problem(), **RUN, callback=[logger, fail])
    assert [step for step, _ in scalars(events(tmp_path), "objective")] == [0, 1, 2, 3]


@needs("tensorboardX")
def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(danl.InputError, match=r"logdir='.*': cannot be made \(.*\); choose another folder"):
        TensorBoard(tmp_path / "file" / "runs").connect()
    with pytest.raises(danl.InputError, match="logdir=3: must be the path of a folder"):
        TensorBoard(3)


# A logger that fails.


class Breaks:
    """A callback that does something to the store in the middle of a run."""

    def __init__(self, what, exchange=3):
        self.what, self.exchange = what, exchange

    def __call__(self, row):
        if row.exchange == self.exchange:
            self.what()


def lose_the_metrics():
    with contextlib.closing(sqlite3.connect("mlflow.db")) as database:
        for table in ("metrics", "latest_metrics"):
            database.execute(f"DROP TABLE {table}")
        database.commit()


@needs("mlflow")
def test_a_store_that_fails_in_the_middle_ends_the_logging_and_not_the_run(store, monkeypatch):
    monkeypatch.setattr("danl.callbacks.logger.FLUSH_EVERY", 0.0)
    logger = MLflow(tracking_uri=store)
    with pytest.warns(danl.DanlWarning) as warned:
        result = danl.solve(random_problem(), **RUN, callback=[logger, Breaks(lose_the_metrics)])
    assert (result.status, len(result.history)) == ("max_rounds", 9)
    (reported,) = [str(each.message) for each in warned if each.category is danl.DanlWarning]  # SQLAlchemy has its own
    assert reported.startswith("MLflow: logging ended at exchange 4 (")
    assert reported.endswith("; the run goes on without it")
    assert "\n" not in reported
    assert "no such table" in reported


@needs("mlflow")
def test_a_store_that_fails_between_two_runs_does_not_end_the_second(store):
    logger = MLflow(tracking_uri=store)
    danl.solve(random_problem(), **RUN, callback=logger)
    with contextlib.closing(sqlite3.connect("mlflow.db")) as database:
        database.execute("DROP TABLE runs")
        database.commit()
    with pytest.warns(danl.DanlWarning, match="MLflow: logging ended before the first exchange"):
        result = danl.solve(random_problem(), **RUN, callback=logger)
    assert (len(result.history), logger.run_id) == (9, None)


@needs("mlflow")
def test_a_fit_whose_store_fails_is_written_and_says_so_in_a_line(capsys, store, tmp_path, monkeypatch):
    monkeypatch.setattr("danl.callbacks.logger.FLUSH_EVERY", 0.0)
    show = ProgressLine.__call__

    def breaks(self, row):
        show(self, row)
        Breaks(lose_the_metrics)(row)

    monkeypatch.setattr(ProgressLine, "__call__", breaks)
    ended = run(capsys, "fit", "a1a", "--rounds", "6", "--mlflow", store, "--out", tmp_path / "run", "--json")
    assert (ended.status, ended.json["exchanges"]) == (0, 7)
    assert len(danl.History.read_csv(tmp_path / "run" / "history.csv")) == 7
    assert ended.err.startswith(f"connecting to {store}\n")
    assert [
        line for line in ended.err.splitlines() if line.startswith("warning: MLflow: logging ended at exchange 3 (")
    ]
    assert "Traceback" not in ended.err
    assert len(ended.err.splitlines()) < 20


@needs("mlflow")
@pytest.mark.engines
def test_a_server_that_answers_nobody_is_asked_a_few_times_and_told(tmp_path):
    """MLflow alone asks for four minutes."""
    asked = []

    def refuse():
        with contextlib.suppress(OSError):
            while True:
                asked.append(server.accept()[0].close())

    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"http://name:secret@127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=refuse, daemon=True).start()
        hidden = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        done = subprocess.run(
            [sys.executable, "-m", "danl", "fit", "a1a", "--mlflow", uri],
            cwd=tmp_path, env=hidden, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert 1 <= len(asked) <= 3  # and twice more
    assert done.stderr.startswith(f"connecting to {uri.replace('name:secret@', '')}\n")
    assert "MLflow cannot use it" in done.stderr
    assert "Traceback" not in done.stderr


@needs("mlflow")
def test_what_the_environment_says_of_mlflow_stays(store, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    MLflow(tracking_uri=store).connect()
    found = os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"], os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]
    assert found == ("77", "2")


@needs("tensorboardX")
@pytest.mark.parametrize("fails_in", ["write_event", "flush", "close"])
def test_a_disk_that_is_full_ends_the_events_and_not_the_run(tmp_path, monkeypatch, fails_in):
    from tensorboardX.event_file_writer import EventsWriter

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("danl.callbacks.logger.FLUSH_EVERY", 0.0)
    fills = Breaks(lambda: monkeypatch.setattr(EventsWriter, fails_in, full))
    with pytest.warns(danl.DanlWarning) as warned:
        result = danl.solve(random_problem(), **RUN, callback=[TensorBoard(tmp_path), fills])
    assert len(result.history) == 9
    (reported,) = [str(each.message) for each in warned]
    when = "at the end" if fails_in == "close" else "at exchange 4"
    assert (
        reported
        == f"TensorBoard: logging ended {when} ([Errno 28] No space left on device); the run goes on without it"
    )


@needs("tensorboardX")
def test_runs_of_the_same_second_have_events_of_their_own(tmp_path, monkeypatch):
    """tensorboardX names a file by the second and the host."""
    from tensorboardX import event_file_writer

    monkeypatch.setattr(event_file_writer, "time", SimpleNamespace(time=lambda: 1_700_000_000.0))
    for _ in range(3):
        danl.solve(random_problem(), **RUN, callback=TensorBoard(tmp_path))
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    for path in files:
        assert len(scalars(events_of(path), "objective")) == 9


@needs("tensorboardX")
def test_events_are_there_while_the_run_goes(tmp_path, monkeypatch):
    monkeypatch.setattr("danl.callbacks.logger.FLUSH_EVERY", 0.0)
    seen = []
    look = Breaks(lambda: seen.extend(scalars(events(tmp_path), "objective")))
    danl.solve(random_problem(), **RUN, callback=[TensorBoard(tmp_path), look])
    assert [step for step, _ in seen] == [0, 1, 2, 3]


# Without them, and on the command line.


@pytest.mark.parametrize(
    ("make", "module", "extra"),
    [(lambda: MLflow(), "mlflow", "mlflow"), (lambda: TensorBoard("runs"), "tensorboardX", "tensorboard")],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, make, module, extra):
    monkeypatch.setattr("danl.checks.find_spec", lambda name: None if name == module else find_spec(name))
    with pytest.raises(danl.InputError, match=rf"install it with pip install 'danl\[{extra}\]'"):
        make()


@needs("mlflow")
@needs("tensorboardX")
def test_as_options_of_fit(capsys, store, tmp_path):
    loggers = ("--mlflow", store, "--tensorboard", tmp_path / "tb")
    report = run(capsys, "fit", "a1a", "--rounds", "4", "--policy", "coverage:psi=3", *loggers, "--json").json
    client, (logged,) = newest(store)
    assert (logged.info.run_name, logged.data.tags["danl.status"]) == ("danl on a1a", "max_rounds")
    assert len(client.get_metric_history(logged.info.run_id, "objective")) == report["exchanges"] == 5
    assert logged.data.metrics["objective"] == report["objective"]
    assert len(scalars(events(tmp_path / "tb"), "objective")) == 5


@needs("tensorboardX")
def test_a_fit_on_sites_is_logged_as_one_that_is_here(tmp_path, monkeypatch):
    """What a federation's run hands over is rows and a result; the run itself is tested where there is one."""
    pytest.importorskip("flwr")
    from danl.cli import sites

    result = danl.solve(random_problem(), **RUN)

    def play(config, *, out, callback, timeout):
        for row in result.history:
            callback(row)
        return result

    monkeypatch.setattr(sites, "run_app", play)
    reported = sites._watched([TensorBoard(tmp_path / "a")], {"method": "danl"}, tmp_path, {"timeout": 1.0})
    assert reported is result
    assert len(scalars(events(tmp_path / "a"), "objective")) == len(result.history)
    monkeypatch.setattr(sites, "run_app", lambda *arguments, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sites._watched([TensorBoard(tmp_path / "b")], {"method": "danl"}, tmp_path, {"timeout": 1.0})
    assert events(tmp_path / "b")  # closed, and whole


@needs("mlflow")
def test_a_store_is_refused_before_anything_is_computed(capsys, store, monkeypatch):
    monkeypatch.setattr("danl.cli.job.solve", lambda *arguments, **options: pytest.fail("it ran"))
    ended = run(capsys, "fit", "a1a", "--mlflow", "nonsense://x")
    assert (ended.status, ended.out) == (2, "")
    assert "MLflow cannot use it" in ended.err


@needs("mlflow")
def test_sites_are_not_asked_where_the_store_cannot_be_used(capsys, store, monkeypatch):
    pytest.importorskip("flwr")
    monkeypatch.setattr("danl.cli.sites.fit_on_sites", lambda *arguments, **options: pytest.fail("it ran"))
    ended = run(capsys, "fit", "a1a", "--engine", "flower:sites=2", "--mlflow", "nonsense://x")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("connecting to nonsense://x\nerror: ")
