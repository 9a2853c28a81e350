"""Graphs of workers: known spectral gaps, weights that average, and an answer to every slip."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from danl.errors import InputError
from danl.protocol import graph as graphs
from danl.protocol import streams
from danl.protocol.graph import Graph, make_graph
from danl.storage.serialize import from_file, to_file

NAMES = ("ring", "grid", "complete", "erdos")


def of_edges(n_workers, edges):
    adjacency = np.zeros((n_workers, n_workers), dtype=bool)
    for first, second in edges:
        adjacency[first, second] = adjacency[second, first] = True
    return adjacency


def edges_of(graph):
    return [(int(first), int(second)) for first, second in np.argwhere(np.triu(graph.adjacency))]


def star(n_workers):
    return of_edges(n_workers, [(0, worker) for worker in range(1, n_workers)])


def path(n_workers):
    return of_edges(n_workers, [(worker, worker + 1) for worker in range(n_workers - 1)])


def is_connected(adjacency):
    walks = np.linalg.matrix_power(np.eye(len(adjacency)) + adjacency, len(adjacency) - 1)
    return bool((walks > 0).all())


@st.composite
def connected(draw):
    """A random tree, workers renumbered at random, and any edges more."""
    n_workers = draw(st.integers(1, 12))
    number = draw(st.permutations(range(n_workers)))
    tree = [(number[worker], number[draw(st.integers(0, worker - 1))]) for worker in range(1, n_workers)]
    pairs = [(first, second) for first in range(n_workers) for second in range(first)]
    more = draw(st.lists(st.sampled_from(pairs), max_size=20)) if pairs else []
    return of_edges(n_workers, tree + more)


@pytest.fixture
def edge_file(tmp_path):
    def write(content):
        file = tmp_path / "edges.txt"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return f"file:path={file}", f"graph option path={str(file)!r}"

    return write


# --- known graphs ---


@pytest.mark.parametrize(
    ("given", "n_workers", "n_edges", "second", "last", "gap"),
    [
        ("ring", 10, 10, 0.872678, -1 / 3, 0.127322),
        ("ring", 16, 16, 0.949253, -1 / 3, 0.050747),
        ("grid", 10, 13, 0.904508, -0.420917, 0.095492),
        ("grid", 9, 12, 0.767423, -0.316228, 0.232577),
        ("grid", 16, 24, 0.868641, -0.430843, 0.131359),
        ("complete", 10, 45, 0.0, 0.0, 1.0),
        (star(10), 10, 9, 0.9, 0.0, 0.1),
        (path(10), 10, 9, 0.967371, -0.300704, 0.032629),
    ],
)
def test_the_eigenvalues_are_those_of_the_table(given, n_workers, n_edges, second, last, gap):
    graph = make_graph(given, n_workers)
    values = np.linalg.eigvalsh(graph.mixing)
    np.testing.assert_allclose(values[[-1, -2, 0]], [1, second, last], atol=1e-6)
    assert graph.gap == pytest.approx(gap, abs=1e-6)
    assert (graph.n_workers, graph.n_edges) == (n_workers, n_edges)


def test_the_gap_is_that_of_the_last_eigenvalue_where_it_is_the_larger():
    both_sides = np.kron([[0, 1], [1, 0]], np.ones((3, 3)))  # eigenvalues 1, 1/4 four times and -1/2
    assert make_graph(both_sides, 6).gap == pytest.approx(0.5)


@pytest.mark.parametrize("n_workers", range(3, 12))
def test_the_gap_of_a_ring_has_a_closed_form(n_workers):
    expected = 2 / 3 * (1 - np.cos(2 * np.pi / n_workers))
    assert make_graph("ring", n_workers).gap == pytest.approx(expected, abs=1e-12)


def test_the_weights_of_a_path_of_three():
    expected = [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]]
    np.testing.assert_allclose(make_graph("grid", 3).mixing, expected, atol=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_one_worker_is_alone(name):
    graph = make_graph(name, 1)
    assert graph.mixing.tolist() == [[1.0]]
    assert (graph.n_workers, graph.n_edges, graph.degrees.tolist(), graph.gap) == (1, 0, [0], 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_two_workers_share_one_edge(name):
    graph = make_graph(name, 2)
    assert graph.mixing.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert graph.n_edges == 1
    assert graph.gap == pytest.approx(1.0)


@pytest.mark.parametrize(("n_workers", "rows"), [(4, 2), (6, 2), (12, 3), (16, 4), (18, 3), (22, 2)])
def test_a_grid_is_as_square_as_it_can_be(n_workers, rows):
    columns = n_workers // rows
    graph = make_graph("grid", n_workers)
    assert graph.n_edges == rows * (columns - 1) + columns * (rows - 1)
    down, across = divmod(np.arange(n_workers), columns)
    apart = abs(np.subtract.outer(down, down)) + abs(np.subtract.outer(across, across))
    np.testing.assert_array_equal(graph.adjacency, apart == 1)


def test_a_prime_number_of_workers_has_no_grid():
    with pytest.raises(InputError) as caught:
        make_graph("grid", 7)
    assert str(caught.value) == (
        "graph='grid': must be of a number of workers that is rows times columns; 7 is a prime number: take 'ring' or "
        "'complete', or another number of workers"
    )


# --- weights ---


@given(connected())
def test_mixing_is_doubly_stochastic_on_the_edges(adjacency):
    graph = Graph("drawn", adjacency)
    degrees = [int(own.sum()) for own in adjacency]
    assert graph.degrees.tolist() == degrees
    assert graph.degrees.dtype == np.int64
    assert sum(degrees) == 2 * graph.n_edges
    np.testing.assert_array_equal(graph.mixing, graph.mixing.T)
    np.testing.assert_allclose(graph.mixing.sum(axis=0), 1, atol=1e-14)
    np.testing.assert_allclose(graph.mixing.sum(axis=1), 1, atol=1e-14)
    for first, second in np.argwhere(adjacency):
        assert graph.mixing[first, second] == pytest.approx(1 / (1 + max(degrees[first], degrees[second])))
    assert (graph.mixing.diagonal() >= 1 / (1 + graph.degrees) - 1e-14).all()
    assert not graph.mixing[~adjacency & ~np.eye(len(adjacency), dtype=bool)].any()
    assert 0 < graph.gap <= 1


@pytest.mark.parametrize("name", ["ring", "grid", "erdos:p=0.4", "complete"])
def test_gossip_tends_to_the_mean_at_the_rate_of_the_gap(name):
    graph = make_graph(name, 10)
    start = np.random.default_rng(0).normal(size=(10, 3))
    mean, x = start.mean(axis=0), start
    first = np.linalg.norm(start - mean)
    for k in range(1, 61):
        x = graph.mixing @ x
        assert np.linalg.norm(x - mean) <= (1 - graph.gap) ** k * first + 1e-13
        np.testing.assert_allclose(x.mean(axis=0), mean, atol=1e-13)


@pytest.mark.parametrize("name", ["ring", "grid"])
def test_no_faster_than_the_gap_says(name):
    graph = make_graph(name, 10)
    values, vectors = np.linalg.eigh(graph.mixing)
    slowest = vectors[:, np.argsort(abs(values))[-2]]
    twenty = np.linalg.matrix_power(graph.mixing, 20) @ slowest
    assert np.linalg.norm(twenty) == pytest.approx((1 - graph.gap) ** 20)


# --- random graphs ---


@pytest.mark.parametrize("seed", range(20))
def test_a_random_graph_is_connected_and_a_function_of_its_seed(seed):
    graph = make_graph("erdos", 12, seed)
    assert is_connected(graph.adjacency)
    np.testing.assert_array_equal(make_graph("erdos", 12, seed).adjacency, graph.adjacency)
    assert make_graph("erdos", 12, seed + 1).adjacency.tolist() != graph.adjacency.tolist()


def test_edges_are_there_with_probability_p():
    pairs = 60 * 59 / 2
    assert make_graph("erdos:p=0.4", 60, 3).n_edges == pytest.approx(0.4 * pairs, abs=4 * np.sqrt(0.24 * pairs))
    share = 2 * np.log(60) / 60
    expected = pytest.approx(share * pairs, abs=4 * np.sqrt(share * pairs))
    assert make_graph("erdos", 60, 3).n_edges == expected
    assert make_graph("erdos:p=1", 6).n_edges == 15


def test_the_first_connected_graph_of_the_stream_is_taken():
    pairs, again = np.transpose(np.triu_indices(10, 1)), 0
    for seed in range(10):
        rng = streams.stream(seed, graphs.GRAPH)
        while not is_connected(drawn := of_edges(10, pairs[rng.random(45) < 0.2])):
            again += 1
        np.testing.assert_array_equal(make_graph("erdos:p=0.2", 10, seed).adjacency, drawn)
    assert again > 0


def test_graphs_are_drawn_from_a_stream_of_their_own():
    purposes = [value for name, value in vars(streams).items() if name.isupper()]
    assert sorted(purposes) == list(range(len(purposes)))  # no two have the same
    assert graphs.GRAPH in purposes


def test_a_probability_too_small_for_a_connected_graph_is_said():
    with pytest.raises(InputError) as caught:
        make_graph("erdos:p=0.001", 10)
    assert str(caught.value) == (
        "graph option p=0.001: must be large enough for a connected graph of 10 workers; none of 1000 was, raise p or "
        "leave it out"
    )


@pytest.mark.parametrize("p", ["0", "-0.5", "1.5", "nan", "much", "true"])
def test_a_probability_is_a_share(p):
    with pytest.raises(InputError, match=r"^graph option p=.*: must be a number above 0 and at most 1$"):
        make_graph(f"erdos:p={p}", 5)


# --- files ---


@given(connected())
def test_what_was_written_as_edges_is_read_back(tmp_path_factory, adjacency):
    file = tmp_path_factory.mktemp("edges") / "edges.txt"
    graph = Graph("drawn", adjacency)
    file.write_text("".join(f"{first} {second}\n" for first, second in edges_of(graph)))
    np.testing.assert_array_equal(make_graph(f"file:path={file}", len(adjacency)).adjacency, adjacency)


def test_blanks_commas_comments_and_edges_twice(edge_file):
    text, _ = edge_file(b"\xef\xbb\xbf# a star\r\n0 1\r\n\r\n0,2 # near\n  0 , 3\t\n1\t 0\n0 2\n")
    graph = make_graph(f" {text} ", 4)
    np.testing.assert_array_equal(graph.adjacency, star(4))
    assert graph.name == text


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (
            "0 1 0.5\n",
            1,
            "'0 1 0.5' must be two worker numbers with a blank or a comma between them; leave out",
        ),
        ("# weights\n0,1\n1,2,0.5 # half\n", 3, "'1,2,0.5' must be two worker numbers"),
        ("0 1\n\n1\n", 3, "'1' must be two worker numbers with a blank or a comma between them; try '0 1'"),
        ("0 1\n1 two\n", 2, "'1 two' must be two worker numbers"),
        ("0 1\n1 -2\n", 2, "'1 -2' must be two worker numbers"),
        ("0 1\n1 2.0\n", 2, "'1 2.0' must be two worker numbers"),
        ("0 1\n1,,2\n", 2, "'1,,2' must be two worker numbers"),
        ("0 1\n1;2\n", 2, "'1;2' must be two worker numbers"),
        ("0 1\n1 ²\n", 2, "'1 ²' must be two worker numbers"),
        (f"0 {'1' * 5000}\n", 1, "'0 1111111111... must be two worker numbers"),
        (f"{'1' * 5000} 0\n", 1, "'111111111111... must be two worker numbers"),
        ("0 1\n1 2\n2 3\n", 3, "'2 3' must be two different numbers from 0 to 2; change or remove the line"),
        ("0 1\n1 1\n", 2, "'1 1' must be two different numbers from 0 to 2"),
    ],
)
def test_a_malformed_line_is_named(edge_file, content, line, said):
    text, argument = edge_file(content)
    with pytest.raises(InputError) as caught:
        make_graph(text, 3)
    message = str(caught.value)
    start, dots, rest = said.partition("...")
    assert message.startswith(f"{argument}, line {line}: {start}")
    assert not dots or rest in message
    assert "\n" not in message
    assert len(message) < len(argument) + 200


@pytest.mark.parametrize("content", ["", "# nothing\n", "0 1\n2 3\n"])
def test_a_file_of_a_graph_that_is_not_connected(edge_file, content):
    text, _ = edge_file(content)
    with pytest.raises(InputError, match=r"^graph='file:path=.*': must be connected; add edges: no path leads from "):
        make_graph(text, 4)


def test_a_file_that_cannot_be_read(tmp_path, edge_file):
    text, argument = edge_file(b"\xff\xfe0\x00")
    with pytest.raises(InputError, match=re.escape(f"{argument}: cannot be read (")):
        make_graph(text, 2)
    for missing in (tmp_path / "none.txt", tmp_path, "nul\0"):
        with pytest.raises(InputError, match=r"cannot be read .*; give a text file of edges$"):
            make_graph(f"file:path={missing}", 2)


def test_a_path_that_reads_as_a_number_is_no_path():
    with pytest.raises(InputError) as caught:
        make_graph("file:path=007", 2)
    assert str(caught.value) == (
        "graph option path=7: must be a path, not a number; write ./ in front of the file's name"
    )


# --- what else is refused ---


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("rings", "graph='rings': must be one of ring, grid, complete, erdos, file"),
        ("Complet", "graph='Complet': must be one of complete, ring, grid, erdos, file"),
        ("", "graph='': must be written as 'name' or 'name:key=value,key=value'; the name is missing"),
        ("ring:p=0.5", "graph='ring:p=0.5': ring has no option 'p'; it has none"),
        ("erdos:q=0.5", "graph='erdos:q=0.5': erdos has no option 'q'; it has p"),
        ("erdos:seed=1", "graph='erdos:seed=1': erdos has no option 'seed'; it has p"),
        ("file", "graph='file': must be file with path; try 'file:path=edges.txt'"),
        ("file:edges.txt", "graph='file:edges.txt': must be written as"),
    ],
)
def test_a_name_or_option_that_is_not_there(given, said):
    with pytest.raises(InputError, match="^" + re.escape(said)):
        make_graph(given, 4)


@pytest.mark.parametrize(
    ("adjacency", "said"),
    [
        (of_edges(5, [(0, 1), (1, 2), (3, 4)]), "connected; add edges: no path leads from worker 0 to worker 3"),
        (np.zeros((2, 2)), "connected; add edges: no path leads from worker 0 to worker 1"),
        ([[0, 1, 0], [1, 0, 1], [0, 0, 0]], "symmetric; add an edge from worker 2 to worker 1: there is one back"),
        ([[0, 1], [1, 1]], "without self loops; clear that of worker 1"),
    ],
)
def test_a_graph_that_cannot_be_used(adjacency, said):
    for make in (lambda: Graph("mine", adjacency), lambda: make_graph(adjacency, len(adjacency))):
        with pytest.raises(InputError, match=f"^graph='(mine|custom)': must be {said}$"):
            make()


@pytest.mark.parametrize(
    "given",
    [
        np.zeros((0, 0)),
        np.zeros((2, 3)),
        [0, 1],
        [[0, 1], [1]],
        [[0.5, 0.5], [0.5, 0.5]],
        [[0, np.nan], [np.nan, 0]],
        [["0", "1"], ["1", "0"]],
        None,
        {0: [1], 1: [0]},
        7,
    ],
    ids=repr,
)
def test_what_is_no_adjacency(given):
    with pytest.raises(InputError, match=r"^graph='custom': must be a square array of booleans, or of 0 and 1, with"):
        make_graph(given, 2)


@pytest.mark.parametrize("given", [Graph("mine", path(3)), path(3)], ids=["graph", "array"])
def test_a_graph_is_of_all_workers(given):
    with pytest.raises(InputError, match=r"must be a graph of 4 workers; it has 3, give another or set the number of"):
        make_graph(given, 4)


@pytest.mark.parametrize(("n_workers", "seed", "name"), [(0, 0, "n_workers"), (2.5, 0, "n_workers"), (3, -1, "seed")])
def test_numbers_are_whole(n_workers, seed, name):
    with pytest.raises(InputError, match=f"^{name}=.*: must be a whole number >= "):
        make_graph("ring", n_workers, seed)


# --- graphs as values ---


def test_a_graph_is_taken_as_it_is_and_shows_in_one_line():
    graph = make_graph("ring", 40)
    assert make_graph(graph, 40) is graph
    assert repr(graph) == "Graph(name='ring', n_workers=40, n_edges=40)"


def test_arrays_are_copied_and_cannot_be_changed():
    adjacency = path(3)
    graph = Graph("mine", adjacency)
    adjacency[0, 2] = adjacency[2, 0] = True
    assert graph.n_edges == 2
    for array in (graph.adjacency, graph.degrees, graph.mixing):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert graph.mixing is graph.mixing


def test_a_graph_goes_through_a_checkpoint():
    graph = make_graph("erdos", 9, 5)
    stored = to_file({"graph": graph}, magic="test", version=1)
    back = from_file(stored, magic="test", version=1)["graph"]
    assert back.name == "erdos"
    assert back.adjacency.dtype == bool
    np.testing.assert_array_equal(back.mixing, graph.mixing)
