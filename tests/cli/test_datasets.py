"""`danl datasets`, and the quick answers: --version, --help, `import danl`."""

import subprocess
import sys

import pytest

import danl
from danl.data.registry import REGISTRY
from tests.cli.shell import TIMEOUT, run, run_process


@pytest.fixture
def without_data_dir(monkeypatch):
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)


@pytest.mark.usefixtures("without_data_dir")
def test_list_names_every_set_and_where_it_is(capsys, own_cache, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    own_cache.mkdir()
    (own_cache / "a4a").write_text("+1 1:1\n")
    ended = run(capsys, "datasets", "list")
    assert (ended.status, ended.err) == (0, "")
    header, *lines = [line.split() for line in ended.out.splitlines()]
    assert header == ["name", "rows", "features", "checksum", "where"]
    assert [line[0] for line in lines] == list(REGISTRY)
    where = {line[0]: " ".join(line[4:]) for line in lines}
    assert (where["a1a"], where["a4a"], where["phishing"]) == ("bundled", "cache", "not here")
    rows = {line[0]: line[1] for line in lines}
    assert rows["covtype.binary"] == "581,012"


def test_list_knows_the_data_folder(capsys, data_dir, monkeypatch):
    monkeypatch.setenv("DANL_DATA_DIR", str(data_dir))
    lines = run(capsys, "datasets", "list").out.splitlines()
    assert any(line.split()[0] == "phishing" and line.split()[-1] == "DANL_DATA_DIR" for line in lines)


@pytest.mark.usefixtures("without_data_dir")
def test_fetch_says_where_the_file_is(capsys):
    ended = run(capsys, "datasets", "fetch", "a1a")
    assert (ended.status, ended.err) == (0, "")
    name, _, path = ended.out.strip().partition(": ")
    assert name == "a1a"
    assert path.endswith("a1a.xz")
    assert danl.load_dataset(path, n_features=123).X.shape == (1605, 123)


@pytest.mark.usefixtures("without_data_dir")
def test_fetch_refuses_a_wrong_name_before_the_first_download(capsys, monkeypatch):
    monkeypatch.setattr("danl.data.fetch.fetch", lambda name: pytest.fail(f"fetched {name}"))
    ended = run(capsys, "datasets", "fetch", "a4a", "a1b")
    assert ended.status == 2
    assert ended.err.startswith("error: name='a1b': must be one of a1a, ")


def test_path_is_the_cache(capsys, own_cache):
    ended = run(capsys, "datasets", "path")
    assert (ended.status, ended.out, ended.err) == (0, f"{own_cache}\n", "")
    assert not own_cache.exists()  # asking makes no folder


@pytest.mark.slow
def test_a_reader_that_has_had_enough():
    """`danl datasets path | true`: no traceback."""
    process = subprocess.Popen(
        [sys.executable, "-m", "danl", "datasets", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(timeout=TIMEOUT) != 2  # not as if it were asked for something wrong


def test_version_is_quick():
    ended = run_process("--version", python=("-X", "importtime"))
    assert (ended.status, ended.out) == (0, f"danl {danl.__version__}\n")
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in ended.err.splitlines()}
    assert "danl" in imported
    assert not imported & {"numpy", "scipy", "typer", "rich", "sklearn", "matplotlib", "pandas"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import danl", {"numpy", "scipy", "sklearn", "matplotlib", "pandas", "typer"}),
        ("import danl; danl.solve, danl.load_dataset, danl.certify", {"sklearn", "matplotlib", "pandas", "typer"}),
        ("import danl.cli.app", {"sklearn", "matplotlib", "pandas", "requests"}),
    ],
)
def test_heavy_imports_wait_until_they_are_used(statement, absent):
    code = f"import sys; {statement}; print(sorted({absent!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("words", [(), ("fit",), ("compare",), ("certify",), ("datasets",), ("datasets", "fetch")])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help(capsys, monkeypatch, words, flag):
    monkeypatch.setenv("COLUMNS", "80")
    ended = run(capsys, *words, flag)
    assert (ended.status, ended.err) == (0, "")
    assert f"Usage: {' '.join(('danl', *words))}" in ended.out


def test_help_lists_the_options_in_the_order_of_the_work(capsys):
    out = run(capsys, "fit", "--help").out
    places = [out.index(f" {panel} ─") for panel in ("Data", "Problem", "Run", "Output")]
    assert places == sorted(places)
    assert out.index("--method ") < out.index("--policy ", places[2])
