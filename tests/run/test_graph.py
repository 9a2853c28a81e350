"""The graph of a run: as text or as an object, on the command line, in its settings and in its checkpoints."""

import numpy as np
import pytest

import danl
from danl.protocol.graph import make_graph
from tests.cli.shell import run
from tests.problems import random_problem

METHOD = "dsgd:learning_rate=0.1"


def solved(graph=None, method=METHOD, **options):
    return danl.solve(random_problem(), method=method, graph=graph, max_rounds=3, **options)


def test_a_method_without_a_server_has_a_ring_unless_told_otherwise():
    default, ring, complete = solved(), solved("ring"), solved("complete")
    np.testing.assert_array_equal(default.w, ring.w)
    assert not np.array_equal(default.w, complete.w)
    assert [each.settings["graph"] for each in (default, ring, complete)] == ["ring", "ring", "complete"]


def test_text_and_object_are_the_same_and_a_random_graph_is_of_the_seed():
    np.testing.assert_array_equal(solved("grid").w, solved(make_graph("grid", 4)).w)
    mine = danl.Graph("mine", np.array([[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]))
    assert solved(mine).settings["graph"] == "mine"
    drawn = make_graph("erdos:p=0.5", 4, seed=5)
    np.testing.assert_array_equal(solved("erdos:p=0.5", seed=5).w, solved(drawn, seed=5).w)


def test_a_file_of_edges(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text("0 1\n1 2\n2 3\n3 0\n")
    np.testing.assert_array_equal(solved(f"file:path={path}").w, solved("ring").w)


def test_methods_with_a_server_leave_it_alone():
    runs = [solved(graph, method="gd") for graph in (None, "complete")]
    np.testing.assert_array_equal(runs[0].w, runs[1].w)
    assert [each.settings["graph"] for each in runs] == [None, "complete"]


@pytest.mark.parametrize("method", ["gd", METHOD])
@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ("rign", "graph='rign': must be one of ring"),
        ("erdos:p=2", "p=2"),
        (danl.Graph("pair", np.array([[0, 1], [1, 0]])), "a graph of 4 workers"),
        (7, "graph='custom': must be a square array"),
    ],
    ids=str,
)
def test_a_wrong_graph_is_refused(graph, said, method):
    with pytest.raises(danl.InputError, match=said):
        solved(graph, method)


def test_a_run_is_resumed_with_its_own_graph_alone(tmp_path):
    solved("grid", checkpoint=tmp_path / "kept")
    with pytest.raises(danl.InputError, match="holds no checkpoint of this run"):
        solved("complete", resume=tmp_path / "kept")
    assert solved(make_graph("grid", 4), resume=tmp_path / "kept").status == "max_rounds"


def test_the_command_line_has_it(capsys):
    ended = run(
        capsys, "fit", "a1a", "--method", METHOD, "--graph", "grid", "--rounds", "3", "--alpha", "1e-3", "--json", "-q"
    )
    assert ended.json["graph"] == "grid"
    assert ended.json["bytes_up"] == 4 * 26 * 8 * 123  # a grid of 2 x 5 has 13 edges
    ended = run(
        capsys, "compare", "a1a", "--methods", f"gd,{METHOD}", "--graph", "complete", "--rounds", "2", "--json", "-q"
    )
    assert [each["graph"] for each in ended.json["runs"]] == ["complete", "complete"]
    ended = run(capsys, "fit", "a1a", "--graph", "rign")
    assert ended.status == 2
    assert ended.err.splitlines()[-1].startswith(
        "error: graph='rign': must be one of ring, grid, complete, erdos, file"
    )
