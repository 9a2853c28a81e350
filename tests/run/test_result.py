"""A result: its model as coefficients and intercepts, its trace, and the folder it is kept in."""

import json
from dataclasses import replace

import numpy as np
import pytest

import danl
from danl.protocol.messages import Failure
from danl.report import findings, read_run
from tests.cli.shell import run
from tests.problems import random_problem, random_shards

SETTINGS = {"regions": 3, "policy": "coverage:psi=2", "max_rounds": 6}


def classes_problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) + 1e4 * (np.arange(4) == 1)  # a column that is moved inside
    shards = danl.partition(X, rng.integers(3, size=60).astype(float), workers=4, seed=0)
    return danl.Problem(shards, loss="multinomial:classes=3", alpha=0.1, intercept=True)


# The model.


def test_coefficients_and_intercepts_of_several_classes():
    result = danl.solve(classes_problem(), max_rounds=3)
    assert (result.coef.shape, result.intercept.shape) == ((3, 4), (3,))
    np.testing.assert_array_equal(result.layout.join(result.coef, result.intercept), result.w)


def test_coefficients_without_an_intercept():
    result = danl.solve(random_problem(), max_rounds=3)
    np.testing.assert_array_equal(result.coef, [result.w])
    np.testing.assert_array_equal(result.intercept, [0.0])


# The trace.


def test_a_trace_is_kept_where_it_is_asked_for():
    kept = danl.solve(random_problem(), **SETTINGS, trace=True)
    np.testing.assert_array_equal(kept.trace.trained.sum(axis=1), kept.history.column("coverage"))
    mine = danl.Trace()
    assert danl.solve(random_problem(), **SETTINGS, trace=mine).trace is mine
    for nothing in (None, False):
        assert danl.solve(random_problem(), **SETTINGS, trace=nothing).trace is None
    with pytest.raises(danl.InputError, match=r"trace=.*: must be True, or a new danl.Trace\(\)"):
        danl.solve(random_problem(), trace=mine)


# The folder.


def same(read, result):
    assert read.summary() == result.summary()
    np.testing.assert_array_equal(read.w, result.w)
    np.testing.assert_array_equal(read.w0, result.w0)
    np.testing.assert_array_equal(read.coef, result.coef)
    assert list(map(str, read.history)) == list(map(str, result.history))
    assert (read.status, read.method, read.failures, read.notes) == (
        result.status, result.method, result.failures, result.notes
    )  # fmt: skip
    for name in result.settings.keys() - {"w0", "method_options"}:
        assert read.settings[name] == result.settings[name], name


def test_a_result_comes_back_from_its_folder(tmp_path):
    engine = danl.engines.Local(dropout=0.3, seed=2)
    result = danl.solve(random_problem(), **SETTINGS, w0="fedavg:rounds=2", engine=engine, trace=True)
    assert result.failures
    result.save(tmp_path / "new" / "run")
    read = danl.Result.load(str(tmp_path / "new" / "run"))
    same(read, result)
    same(read.start, result.start)
    np.testing.assert_array_equal(read.trace.trained, result.trace.trained)
    exchanges = [each["exchange"] for each in json.loads((tmp_path / "new/run/result.json").read_text())["failures"]]
    assert exchanges == [row.exchange for row in result.history for _ in range(row.failed)]


def test_columns_that_were_moved_inside(tmp_path):
    result = danl.solve(classes_problem(), max_rounds=3)
    assert result.centre is not None
    result.save(tmp_path)
    np.testing.assert_array_equal(danl.Result.load(tmp_path).centre, result.centre)


def test_a_second_result_takes_the_place_of_the_first(tmp_path):
    danl.solve(random_problem(), **SETTINGS, w0="fedavg:rounds=2", trace=True).save(tmp_path)
    result = danl.solve(random_problem(), **SETTINGS)
    result.save(tmp_path)
    read = danl.Result.load(tmp_path)
    same(read, result)
    assert (read.start, read.trace) == (None, None)


def test_a_report_reads_what_was_saved(tmp_path):
    result = danl.solve(random_problem(), **SETTINGS, trace=True)
    result.save(tmp_path)
    recorded = read_run(tmp_path)
    assert (recorded.status, recorded.method) == (result.status, "danl")
    assert len(recorded.trace) == len(recorded.history) == len(result.history)
    assert findings(recorded)


def test_a_run_of_the_command_line_is_loaded(capsys, tmp_path):
    report = run(capsys, "fit", "a1a", "--rounds", "2", "--json", "--out", tmp_path).json
    result = danl.Result.load(tmp_path)
    assert result.summary()["w_sha256"] == report["w_sha256"]
    assert (len(result.trace), result.settings["rows"]) == (3, [161] * 5 + [160] * 5)
    (tmp_path / "result.json").unlink()  # as older versions left it
    same(danl.Result.load(tmp_path), replace(result, dropped=0))


def test_failures_are_all_there_where_no_row_tells_of_them(tmp_path):
    result = danl.solve(danl.Problem(random_shards(), alpha=0.1), max_rounds=1)
    lost = replace(result, failures=(Failure(1, "died", "x"),))
    lost.save(tmp_path)
    assert danl.Result.load(tmp_path).failures == lost.failures


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda folder: (folder / "model.npz").unlink(), "holds no result of a run (FileNotFoundError: "),
        (lambda folder: (folder / "result.json").unlink(), "holds no result of a run (FileNotFoundError: "),
        (lambda folder: (folder / "result.json").write_text("{"), "holds no result of a run (JSONDecodeError: "),
        (lambda folder: (folder / "result.json").write_text("[]"), "holds no result of a run (TypeError: "),
        (lambda folder: (folder / "result.json").write_text("{}"), "holds no result of a run (KeyError: 'status')"),
        (lambda folder: (folder / "model.npz").write_text("PK"), "holds no result of a run ("),
        (lambda folder: (folder / "model.npz").write_text(""), "holds no result of a run ("),
        (lambda folder: (folder / "history.csv").write_text("a\n1\n"), "history.csv: has no column 'exchange'"),
        (lambda folder: (folder / "workers.npz").write_text("no"), "workers.npz: "),
    ],
)
def test_a_folder_without_a_whole_result(tmp_path, break_it, message):
    danl.solve(random_problem(), max_rounds=2, trace=True).save(tmp_path)
    break_it(tmp_path)
    with pytest.raises(danl.InputError) as error:
        danl.Result.load(tmp_path)
    assert str(error.value).startswith(str(tmp_path))
    assert message in str(error.value)
