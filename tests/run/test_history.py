import math
import re
from pathlib import Path

import numpy as np
import pytest

import danl
from danl.methods import PRESETS
from danl.plots.gallery import COLOURS
from danl.protocol.messages import TASKS
from danl.protocol.own_tasks import OWN_TASKS
from danl.run.history import FIELD_KINDS, FIELD_TRAINING, KINDS, TRAINING, History
from tests.problems import random_problem, random_shards

DOCUMENT = Path(__file__).parents[2] / "docs" / "files.md"


@pytest.fixture(scope="module")
def history():
    return danl.solve(random_problem(), regions=3, policy="coverage:psi=2", max_rounds=8, tol=0.0).history


def test_every_kind_of_exchange_a_run_can_have_is_known():
    names = {task.name for task in TASKS} - {"curvature"} | {"check"}  # curvature is a hessian exchange
    assert names == set(KINDS) - set(FIELD_KINDS) == set(COLOURS)
    assert set(TRAINING) <= set(KINDS)
    assert len(set(KINDS)) == len(KINDS)
    (line,) = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `kind` |")]
    assert set(re.findall("`([a-z-]+)`", line)) - {"kind"} == names
    made = set()
    for method in PRESETS:
        for intercept in (False, True):
            problem = danl.Problem(random_shards(), alpha=0.1, intercept=intercept)
            made |= {row.kind for row in danl.solve(problem, method=method, max_rounds=8).history}
    assert made <= set(KINDS)
    assert {"moments", "smoothness", *TRAINING} - set(FIELD_KINDS) <= made


def test_the_tasks_of_the_fields_methods_are_kinds_of_exchange():
    own = {name: task for name, task in OWN_TASKS.items() if task.__module__.startswith("danl.")}
    assert set(FIELD_KINDS) == set(own)
    assert set(FIELD_TRAINING) == {name for name, task in own.items() if task.answer.trains}
    assert not set(own) & {task.name for task in TASKS}


def test_an_exchange_that_workers_learn_in_is_a_round_of_training():
    run = danl.solve(random_problem(), method="fednl:ls=true", max_rounds=6, engine="local:dropout=0.3,seed=1", tol=0)
    rows = {kind: [row for row in run.history if row.kind == kind] for kind in ("learn", "loss")}
    assert rows["learn"]
    assert rows["loss"]
    assert all(set(row.coverage) == {row.active} for row in rows["learn"])
    assert all(set(row.coverage) == {0} for row in rows["loss"])
    assert run.history[-1].max_staleness > 0
    assert run.history[-1].min_coverage == min(row.active for row in rows["learn"])


def test_csv_out_and_in_is_the_same_to_the_last_bit(history, tmp_path):
    history.to_csv(tmp_path / "history.csv")
    again = History.read_csv(tmp_path / "history.csv")
    assert len(again) == 9
    for a, b in zip(history, again, strict=True):
        for name in danl.Row.__dataclass_fields__:
            x, y = getattr(a, name), getattr(b, name)
            assert type(x) is type(y), name
            assert x == y or (math.isnan(x) and math.isnan(y)), name
    assert [path.name for path in tmp_path.iterdir()] == ["history.csv"]


def test_files_from_before_steps_were_marked_as_refused(history, tmp_path):
    path = tmp_path / "history.csv"
    history.to_csv(path)
    lines = [line.split(",") for line in path.read_text().splitlines()]
    place = lines[0].index("refused")
    path.write_text("\n".join(",".join(cells[:place] + cells[place + 1 :]) for cells in lines))
    again = History.read_csv(path)
    assert [row.refused for row in again] == [0] * 9
    assert again.column("objective").tolist() == history.column("objective").tolist()


def test_frame_has_a_column_for_every_region(history):
    frame = history.to_frame()
    assert frame.shape == (9, 22 + 3)
    assert list(frame.columns[-3:]) == ["coverage_0", "coverage_1", "coverage_2"]
    np.testing.assert_array_equal(frame["coverage_1"], history.column("coverage")[:, 1])


def test_total_bytes_is_cumulative(history):
    up, down = history.column("bytes_up"), history.column("bytes_down")
    assert history.total_bytes()[-1] == up.sum() + down.sum()
    assert history.total_bytes()[0] == up[0] + down[0]


def test_an_unknown_column_is_named(history):
    with pytest.raises(danl.InputError, match="column='loss': must be one of exchange, kind,"):
        history.column("loss")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty or not text; give the history.csv of a run"),
        ("a,b\n1,2\n", "has no column 'exchange'; give the history.csv of a run"),
    ],
)
def test_a_file_that_is_no_history(tmp_path, content, message):
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises(danl.InputError) as error:
        History.read_csv(path)
    assert str(error.value) == f"{path}: {message}"


def test_a_torn_row_is_named(history, tmp_path):
    path = tmp_path / "history.csv"
    history.to_csv(path)
    lines = path.read_text().splitlines()
    lines[5] = lines[5][:20]
    path.write_text("\n".join(lines))
    with pytest.raises(danl.InputError, match=r"history.csv, line 6: not a row of a history \(.*\); nothing was read"):
        History.read_csv(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(danl.InputError, match="cannot be read"):
        History.read_csv(tmp_path / "none.csv")


def test_an_empty_history_is_written_and_read(tmp_path):
    History().to_csv(tmp_path / "history.csv")
    assert len(History.read_csv(tmp_path / "history.csv")) == 0
