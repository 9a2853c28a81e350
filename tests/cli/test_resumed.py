"""`danl fit --resume`: the files, the page and the view are of the whole run, not of its second part."""

import base64
import io
import json

import numpy as np
import pytest
from rich.console import Console

import danl
from danl.cli.display import ProgressLine
from danl.cli.terminal_view import TerminalView
from danl.report.live_page import LivePage
from danl.wording import human_bytes
from tests.cli.shell import run
from tests.problems import random_problem

pytestmark = pytest.mark.slow

FIT = ("fit", "a1a", "--policy", "coverage:psi=3", "--alpha", "1e-3", "--json")
NAMES = ("exchanges", "asked", "trained", "bytes_up", "bytes_down", "simulated_seconds")


def read(folder):
    return danl.Trace.read(folder / "workers.npz"), danl.History.read_csv(folder / "history.csv")


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("every", [1, 3])  # with 3 workers.npz goes on beyond the checkpoint
def test_workers_npz_is_of_the_whole_run(capsys, tmp_path, every):
    run(capsys, *FIT, "--out", tmp_path / "whole")
    two = ("--out", tmp_path / "two")
    run(capsys, *FIT, *two, "--rounds", 4, "--checkpoint", tmp_path / "ck", "--checkpoint-every", every)
    assert (tmp_path / "ck" / f"checkpoint-0000000{5 if every == 1 else 3}.npz").is_file()
    ended = run(capsys, *FIT, *two, "--resume", tmp_path / "ck").json
    assert ended["notes"] == []
    (joined, history), (whole, _) = read(tmp_path / "two"), read(tmp_path / "whole")
    assert len(joined) == len(history) == ended["exchanges"]
    for name in NAMES:
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


def test_a_run_that_is_at_its_end_keeps_what_it_has(capsys, tmp_path):
    words = (*FIT, "--out", tmp_path / "run", "--rounds", 4)
    run(capsys, *words, "--checkpoint", tmp_path / "ck")
    assert run(capsys, *words, "--resume", tmp_path / "ck").json["notes"] == []
    assert read(tmp_path / "run")[0].exchanges.tolist() == [0, 1, 2, 3, 4]


def damaged(folder):
    (folder / "workers.npz").write_bytes(b"no trace")


def of_another_run(folder):
    """As many workers, regions and exchanges, and other masks."""
    problem = random_problem(sizes=(9,) * 10, d=40)
    trace = danl.Trace()
    danl.solve(problem, regions=4, policy="coverage:psi=2", max_rounds=8, tol=0.0, trace=trace)
    trace.save(folder / "workers.npz")


def of_other_workers(folder):
    trace = danl.Trace()
    danl.solve(random_problem(), max_rounds=8, tol=0.0, trace=trace)
    trace.save(folder / "workers.npz")


def too_short(folder):
    read(folder)[0].first(2).save(folder / "workers.npz")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (damaged, "workers.npz: is torn, or no trace (BadZipFile); give the workers.npz of a run"),
        (of_another_run, "workers.npz is of another run"),
        (of_other_workers, "workers.npz is of another run"),
        (too_short, "workers.npz ends before the checkpoint"),
        (lambda folder: (folder / "workers.npz").unlink(), "workers.npz of its first part is not there"),
    ],
)
def test_where_the_first_part_cannot_be_had_a_note_says_so(capsys, tmp_path, change, why):
    words = (*FIT, "--out", tmp_path / "run")
    run(capsys, *words, "--rounds", 4, "--checkpoint", tmp_path / "ck")
    change(tmp_path / "run")
    ended = run(capsys, *words, "--resume", tmp_path / "ck")
    assert ended.status == 0
    (note,) = ended.json["notes"]
    assert note.startswith("workers.npz begins with exchange 5, where the run went on: ")
    assert why in note
    assert config_of(tmp_path / "run")["notes"] == [note]
    trace, history = read(tmp_path / "run")
    assert trace.exchanges.tolist() == list(range(5, len(history)))
    assert run(capsys, "report", tmp_path / "run").status == 0


def test_the_options_say_where_it_went_on_from(capsys, tmp_path):
    words = (*FIT, "--out", tmp_path / "run", "--rounds")
    run(capsys, *words, 2)
    assert [config_of(tmp_path / "run")["options"][name] for name in ("checkpoint", "resume")] == [None, None]
    run(capsys, *words, 2, "--force", "--checkpoint", tmp_path / "ck")
    run(capsys, *words, 4, "--resume", tmp_path / "ck")
    options = config_of(tmp_path / "run")["options"]
    assert (options["checkpoint"], options["resume"]) == (None, str(tmp_path / "ck"))


# The page and the view.


@pytest.mark.parametrize("first_part", [True, False])
def test_the_page_counts_the_whole_run(capsys, tmp_path, monkeypatch, first_part):
    words = (*FIT, "--out", tmp_path / "run") if first_part else FIT
    run(capsys, *words, "--rounds", 4, "--checkpoint", tmp_path / "ck")
    reported, finish = [], LivePage.finish

    def look(self, config):
        finish(self, config)
        reported.extend([self.rows_after(0), self.rows_after(3), self.rows_after(7)])

    monkeypatch.setattr(LivePage, "finish", look)
    monkeypatch.setattr("danl.report.live_page.LAST_LOOK_SECONDS", 0.0)  # nobody looks any more
    ended = run(capsys, *words, "--serve", "--resume", tmp_path / "ck").json
    summary = reported[0]["run"]["summary"]
    assert [summary[name] for name in ("exchanges", "bytes_up", "bytes_down")] == [
        ended[name] for name in ("exchanges", "bytes_up", "bytes_down")
    ]
    count, begun = ended["exchanges"], 0 if first_part else 5
    for after, answer in zip((0, 3, 7), reported, strict=True):
        assert numbers(answer["run"]["rows"]["exchange"]) == list(range(after, count))
        assert numbers(answer["run"]["masks"]["exchange"]) == list(range(max(after, begun), count))


def numbers(text):
    return np.frombuffer(base64.b64decode(text), dtype="<i4").tolist()


@pytest.fixture
def parts(tmp_path):
    """A run that stopped after 7 exchanges, and how to go on with a callback."""
    arguments = {"regions": 3, "policy": "coverage:psi=2", "tol": 0.0}
    danl.solve(random_problem(), max_rounds=6, checkpoint=tmp_path, **arguments)
    return lambda **more: danl.solve(random_problem(), max_rounds=9, resume=tmp_path, **arguments, **more)


def terminal():
    return Console(width=80, height=24, force_terminal=True, file=io.StringIO(), legacy_windows=False)


def test_the_view_counts_the_whole_run(parts):
    view = TerminalView(terminal(), "title", "danl", 9, 1e-10)
    history = parts(callback=view).history
    whole = TerminalView(terminal(), "title", "danl", 9, 1e-10)
    for row in history:
        whole(row)
    now, then = ([line.plain for line in each.lines(80, 23)] for each in (view, whole))
    assert now[3:-2] == then[3:-2]  # the curve with its marks, who trains what, bytes and counts
    assert any(" with Hessians" in line for line in now[3:-2])


def test_before_the_first_exchange_the_view_shows_where_the_run_is(parts):
    class Stop(Exception):  # noqa: N818
        pass

    class AtOnce(TerminalView):
        def __call__(self, row):
            raise Stop

    view = AtOnce(terminal(), "title", "danl", 9, 1e-10)
    with pytest.raises(Stop):
        parts(callback=view)
    assert view.lines(80, 23)[1].plain.startswith("danl  round 6/9")


def test_the_line_counts_the_bytes_of_the_whole_run(parts):
    line = ProgressLine(terminal(), "danl", 9)
    history = parts(callback=line).history
    assert human_bytes(history.total_bytes()[-1]) in line.line(history[-1], 100)


def test_pieces_without_a_trace_have_no_masks(parts, monkeypatch):
    """A page that fetches many rows piece by piece: the first ones are of the part that left no trace."""
    monkeypatch.setattr("danl.report.live_page.MOST_ROWS", 3)
    trace = danl.Trace()
    page = LivePage(trace, {})
    parts(callback=page, trace=trace)
    pieces = [page.rows_after(after)["run"]["masks"] for after in (0, 3, 6, 9, 10)]
    assert [pieces[0], pieces[1], pieces[4]] == [None, None, None]
    assert [numbers(piece["exchange"]) for piece in pieces[2:4]] == [[7, 8], [9]]
