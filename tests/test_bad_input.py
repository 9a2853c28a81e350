"""Wrong input through the command line: the exact message, exit status 2, standard output empty, nothing written."""

import hashlib
import os
import re
import tempfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import danl
from danl.data import fetch, registry
from tests.cli.shell import contents, run, run_process

EXPECTED = "expected '<label> <index>:<value> ...' with indices that increase"
METHODS = "danl-paper, danl-masked, newton-zero, newton, newton-undamped, gd, fedavg"

REGIONS = "a number, sizes such as 30,30,63, index groups, 'prefix', 'prefix:separator=.' or 'classes'"


@pytest.fixture(autouse=True)
def only_what_is_bundled(monkeypatch):
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)
    monkeypatch.setattr(fetch, "RETRY_WAIT_SECONDS", 0.0)


@pytest.fixture
def refused(capsys, tmp_path):
    """Run a command that must be refused; return the message."""

    def refuse(*words):
        out = tmp_path / "out"
        ended = run(capsys, *words, *(() if words[0] == "datasets" else ("--out", out)))
        assert ended.status == 2
        assert ended.out == ""
        assert not out.exists()
        *others, last = ended.err.splitlines()
        assert all(line == "" or line.startswith("downloading ") for line in others)  # the bar of a download
        assert last.startswith("error: ")
        return last.removeprefix("error: ")

    return refuse


@pytest.fixture
def write(tmp_path):
    def write_text(name, text):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write_text


# --- data that are not there ---


def test_unknown_data_set_names_the_closest_first(refused):
    names = "a1a, a2a, a3a, a4a, a5a, a6a, a7a, a8a, a9a, w1a, w2a, w3a, w4a, w5a, w6a, w7a, w8a"
    assert refused("fit", "phising") == (
        f"name='phising': must be one of phishing, {names}, mushrooms, ijcnn1, covtype.binary; "
        "or give the path of a LIBSVM, CSV or Parquet file that exists"
    )


def test_unknown_data_set_to_fetch(refused):
    message = refused("datasets", "fetch", "mushroom")
    assert message.startswith("name='mushroom': must be one of mushrooms, a1a, a2a, ")


def test_a_file_that_is_not_there(refused, tmp_path):
    path = tmp_path / "rows.svm"
    assert refused("fit", path) == f"{path}: there is no such file; check the path"


def test_no_download_when_offline(refused, own_cache, monkeypatch):
    monkeypatch.setenv("DANL_OFFLINE", "1")
    url = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/phishing"
    assert refused("fit", "phishing") == (
        "the data set phishing is not on this machine and DANL_OFFLINE forbids downloading it; set DANL_DATA_DIR to a "
        f"folder that holds phishing, or place the file by hand at {own_cache / 'phishing'}, from {url}"
    )


# --- files with something wrong in them ---


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("+1 3;1", "'3;1' has no colon"),
        ("yes 3:1", "the label 'yes' is not a number"),
        ("3:1 4:1", "the label is missing before '3:1'"),
        ("+1 x:1", "the index 'x' is not a whole number"),
        ("+1 3:one", "the value 'one' of index 3 is not a number"),
        ("+1 4:1 3:1", "the index 3 comes after 4"),
        ("+1 3:1 3:2", "the index 3 comes twice"),
        ("+1 0:1", "index 0 in a file that counts from 1; pass zero_based=True if it counts from 0"),
    ],
)
def test_malformed_libsvm_line(refused, write, line, fault):
    path = write("rows.svm", f"+1 1:1\n-1 2:1\n{line}\n-1 1:0.5\n")
    assert refused("fit", path) == f"{path}, line 3: {line!r}: {fault}; {EXPECTED}; the file was not loaded"


FINITE = "must be a finite number"
FILL_IN = "fill it in or drop the row"
NOT_FINITE = [
    ("rows.svm", "+1 1:1\n-1 2:nan\n", f"X[1, 1]=nan: {FINITE}; {{row}}, column 1 {{zero}}: {FILL_IN}"),
    (
        "rows.svm",
        "+1 1:-inf\n-1 2:1\n",
        f"X[0, 0]=-inf: {FINITE}; {{row}}, column 0 {{zero}}: {FILL_IN}",
    ),
    ("rows.svm", "+1 1:1\nnan 2:1\n", f"y[1]=nan: {FINITE}; {{row}}: {FILL_IN}"),
    ("rows.csv", "x,z,y\n1,2,0\n3,inf,1\n", f"X[1, 1]=inf: {FINITE}; {{row}}, column 'z': {FILL_IN}"),
    ("rows.csv", "x,z,y\n1,2,0\n3,4,inf\n", f"y[1]=inf: {FINITE}; {{row}}: {FILL_IN}"),
]


@pytest.mark.parametrize(("name", "text", "message"), NOT_FINITE)
def test_not_finite(refused, write, name, text, message):
    path = write(name, text)
    row = re.search(r"\[(\d)", message)[1]
    zero = "(counted from 0)"
    assert refused("fit", path) == f"{path}: " + message.format(row=f"it is in row {row} {zero}", zero=zero)


@pytest.mark.parametrize(("cells", "column"), [("3,nan,1", "z"), ("3,,1", "z"), ("3,4,nan", "y")])
def test_missing_in_a_csv_file(refused, write, cells, column):
    path = write("rows.csv", f"x,z,y\n1,2,0\n{cells}\n")
    assert refused("fit", path) == (
        f"{path}, line 3 (row 1, counted from 0), column '{column}': the value is missing; "
        "fill it in or drop the row; the file was not loaded"
    )


def test_one_class_only(refused, write):
    path = write("rows.svm", "+1 1:1\n+1 2:1\n+1 3:1\n")
    message = refused("fit", path)
    assert message == (
        f"{path}: y: found only the value 1 in 3 rows; target='binary' needs exactly two different values; "
        "check the target, or bring rows of both classes"
    )


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_more_than_two_classes_for_a_binary_loss(refused, write, loss):
    path = write("rows.svm", "+1 1:1\n2 2:1\n3 3:1\n")
    assert refused("fit", path, "--loss", loss) == (
        f"{path}: y: found 3 different values (1, 2, 3); target='binary' needs exactly two; "
        "for a real-valued target use loss squared or poisson (load_dataset(..., target='real') in Python), "
        "for more classes loss multinomial (target='classes')"
    )


def test_targets_the_loss_cannot_have(refused):
    assert refused("fit", "a1a", "--loss", "poisson") == (
        "y[0]=-1.0: loss 'poisson' needs targets >= 0, and 1210 of 1605 are negative; "
        "use loss='squared' or correct the targets"
    )


def test_negative_weights(refused, write):
    path = write("rows.csv", "x,weight,y\n1,1,0\n3,-2,1\n")
    assert refused("fit", path, "--weight", "weight") == (
        f"{path}: weights[1]=-2.0: must be 0 or more; it is in row 1 (counted from 0)"
    )


EMPTY = [
    ("rows.svm", "", f"holds no rows (it is empty, or only comments and blank lines); {EXPECTED}"),
    ("rows.svm", "# nothing\n\n", f"holds no rows (it is empty, or only comments and blank lines); {EXPECTED}"),
    ("rows.csv", "", "is empty; expected a header line with the column names, then rows"),
    ("rows.csv", "x,y\n", "holds a header line and no rows"),
]


@pytest.mark.parametrize(("name", "text", "message"), EMPTY)
def test_empty_file(refused, write, name, text, message):
    path = write(name, text)
    assert refused("fit", path) == f"{path}: {message}"


@pytest.mark.parametrize(("option", "word"), [("--target", "target"), ("--site", "site"), ("--weight", "weight")])
def test_columns_are_called_as_their_options_are(refused, write, option, word):
    path = write("rows.csv", "age,height,sick\n1,2,0\n3,4,1\n")
    assert refused("fit", path, option, "ages") == (
        f"{word}='ages': must be a column of {path}; its columns are: age, height, sick"
    )


# --- values out of their range ---

POSITIVE = "must be a finite number > 0; leave it out for the strong convexity of the penalty"
RANGES = [
    (
        "--workers 1606",
        "workers=1606: must be a whole number between 1 and 1605, the number of rows; lower workers or bring more data",
    ),
    ("--workers 0", "workers=0: must be a whole number between 1 and 1605, the number of rows"),
    ("--regions 124", "regions=124: must be between 1 and 123, the number of features; try 4"),
    ("--regions 0", "regions=0: must be between 1 and 123, the number of features; try 4"),
    ("--regions -1", "regions=-1: must be between 1 and 123, the number of features; try 4"),
    ("--regions 30,30", "regions=[30, 30]: must be sizes that sum to 123, the number of features; these sum to 60"),
    (
        "--policy coverage:psi=11",
        "psi=11: must be between 1 and 10, the number of workers; lower psi or use more workers",
    ),
    ("--policy coverage:psi=0", "psi=0: must be a whole number >= 1; try psi=1"),
    (
        "--policy coverage:psi=3,gamma=0",
        "gamma=0: must be a whole number >= 1; leave it out for no bound, or use Full for no staleness",
    ),
    ("--method danl-masked:mu=0", f"mu=0: {POSITIVE}"),
    ("--method danl-paper:mu=-1e-3", f"mu=-0.001: {POSITIVE}"),
    ("--method newton:mu=nan", f"mu=nan: {POSITIVE}"),
    ("--l2 -1", "l2=-1.0: must be a finite number >= 0"),
    ("--l2 inf", "l2=inf: must be a finite number >= 0"),
    ("--alpha -0.5", "alpha=-0.5: must be a finite number >= 0"),
    ("--tol -1e-9", "tol=-1e-09: must be a finite number >= 0"),
    ("--tol nan", "tol=nan: must be a finite number >= 0"),
    ("--rounds -1", "rounds=-1: must be a whole number >= 0"),
    ("--batch-size 0", "batch_size=0: must be a whole number >= 1; leave it out for the whole shard"),
    ("--hessian-batch 0", "hessian_batch=0: must be a whole number >= 1; leave it out for the whole shard"),
]


@pytest.mark.parametrize(("words", "message"), RANGES, ids=[words for words, _ in RANGES])
def test_out_of_range(refused, words, message):
    assert refused("fit", "a1a", *words.split()) == message


@pytest.mark.parametrize("command", ["compare", "certify"])
def test_every_command_refuses_alike(capsys, command):
    ended = run(capsys, command, "a1a", "--policy", "coverage:psi=11")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (
        "error: psi=11: must be between 1 and 10, the number of workers; lower psi or use more workers\n"
    )


# --- names and options that are none ---

FORM = "must be written as 'name' or 'name:key=value,key=value'"
NAMES = [
    (
        "--l2 1e-4 --alpha 1e-3",
        "l2=0.0001 and alpha=0.001: give one of them; l2 is the paper's lambda, alpha absolute",
    ),
    (
        "--method newtn",
        "method='newtn': must be one of newton, newton-zero, newton-undamped, danl, danl-secant, danl-masked, "
        f"danl-paper, gd, fedavg, {', '.join(danl.methods.FIELD)}",
    ),
    ("--method newton:nu=1", "method='newton:nu=1': newton has no option 'nu'; it has mu, hessian_batch"),
    ("--method gd:", f"method='gd:': {FORM}; an option is missing after ':' or ','"),
    (
        "--method newton --batch-size 5",
        "method='newton:batch_size=5': newton has no option 'batch_size'; it has mu, hessian_batch",
    ),
    (
        "--method fedavg:batch_size=5 --batch-size 6",
        "--batch-size=6: is given in --method 'fedavg:batch_size=5' already; give it once",
    ),
    (
        "--policy covrage:psi=3",
        "policy='covrage': must be one of coverage, full, subset, random, magnitude, schedule, resource-aware",
    ),
    ("--policy coverage", "policy='coverage': must be coverage with psi; try 'coverage:psi=3,gamma=2'"),
    (
        "--policy coverage:psy=3",
        "policy='coverage:psy=3': coverage has no option 'psy'; it has psi, gamma, keep, waits",
    ),
    ("--engine lcal", "engine='lcal': must be one of local, ray, flower"),
    (
        "--loss logit",
        "loss='logit': must be one of logistic, squared, poisson, gamma, squared_hinge, negative-binomial, multinomial",
    ),
    ("--weighting rows", "weighting='rows': must be 'uniform' (the paper) or 'samples' (the pooled fit)"),
    ("--partition iit", "partition='iit': must be one of iid, site, dirichlet, contiguous, sorted, quantity"),
    ("--partition dirichlet:beta=1", "beta=1: is not an option of scheme 'dirichlet', which takes alpha"),
    (
        "--partition dirichlet:alpha=0",
        "alpha=0: must be a finite number > 0; small means uneven, large means even",
    ),
    (
        "--partition site",
        "partition='site': needs the site of each row; name the column that has it with --site",
    ),
    ("--regions 3.5", f"regions='3.5': must be {REGIONS}"),
    (
        "--regions thirds",
        f"regions='thirds': must be {REGIONS}",
    ),
    (
        "--regions prefix",
        "regions='prefix': must be a number, sizes or index groups, as this data has no feature names; "
        "try a number such as 4",
    ),
    ("--init one", "init='one': must be zero or fedavg with its rounds; for example fedavg:rounds=10"),
    ("--init fedavg", "init='fedavg': must be zero or fedavg with its rounds; for example fedavg:rounds=10"),
    (
        "--init fedavg:rounds=2,step=3",
        "method='fedavg:rounds=2,step=3': fedavg has no option 'step'; it has steps, rounds, learning_rate, batch_size",
    ),
]


@pytest.mark.parametrize(("words", "message"), NAMES, ids=[words for words, _ in NAMES])
def test_unknown_names(refused, words, message):
    assert refused("fit", "a1a", *words.split()) == message


def test_empty_regions(refused):
    message = f"regions='': must be {REGIONS}"
    assert refused("fit", "a1a", "--regions", "") == message


def test_methods_to_compare(refused):
    assert refused("compare", "a1a", "--methods", "gd,newtn") == (
        "method='newtn': must be one of newton, newton-zero, newton-undamped, danl, danl-secant, danl-masked, "
        f"danl-paper, gd, fedavg, {', '.join(danl.methods.FIELD)}"
    )
    assert refused("compare", "a1a", "--methods", "gd,newton,gd") == (
        "methods='gd,newton,gd': 'gd' is there twice; name each once"
    )
    assert refused("compare", "a1a", "--methods", " , ") == (
        "methods=' , ': must be at least one method; for example --methods danl,newton"
    )
    # The second method has no such option: nothing of the first one must have been written.
    assert refused("compare", "a1a", "--methods", "gd,newton", "--batch-size", "5") == (
        "method='newton:batch_size=5': newton has no option 'batch_size'; it has mu, hessian_batch"
    )


def test_a_comparison_refused_half_way_writes_nothing(refused, write):
    path = write("rows.csv", "x,z,y\n1,2,0\n3,1,3\n4,5,1\n")
    words = ("compare", path, "--loss", "poisson", "--workers", "1", "--rounds", "2", "--methods", "newton,gd")
    assert refused(*words) == (
        "learning_rate=None: this loss has no bound on its curvature to take a step from; "
        "give one, for example --method gd:learning_rate=0.01"
    )


# What the parser says is its own, and differs between its versions; that it names the option and the page is ours.
PARSED = [
    ("fit a1a --methd gd", "No such option: --methd", "danl fit --help"),
    ("fit a1a --workers ten", "Invalid value for '--workers'", "danl fit --help"),
    ("fit a1a --tol small", "Invalid value for '--tol'", "danl fit --help"),
    ("fit", "Missing argument 'DATA'", "danl fit --help"),
    ("compare a1a a2a", "Got unexpected extra argument", "danl compare --help"),
    ("fitt a1a", "No such command 'fitt'", "danl --help"),
    ("datasets fetch", "Missing argument", "danl datasets fetch --help"),
]


@pytest.mark.parametrize(("words", "start", "page"), PARSED, ids=[words for words, _, _ in PARSED])
def test_wrong_options(capsys, words, start, page):
    ended = run(capsys, *words.split())
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {start}")
    assert ended.err.endswith(f"(see {page})\n")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("words", [(), ("datasets",)])
def test_a_command_without_words_shows_its_help_and_no_error(capsys, words):
    ended = run(capsys, *words)
    assert ended.status == 2
    assert "Usage: danl" in ended.out + ended.err
    assert "error" not in ended.out + ended.err


# --- downloads ---

TEXT = b"+1 1:1 3:1\n-1 2:1\n"


@pytest.fixture
def site(monkeypatch):
    """A server on this machine that a4a is downloaded from; `site.answer` is what it says."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 280

        def do_GET(self):
            code, body = self.server.answer
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{server.server_port}/a4a"
    server.digest = hashlib.sha256(b"what a4a should be").hexdigest()
    entry = replace(registry.REGISTRY["a4a"], url=server.url, sha256=server.digest)
    monkeypatch.setattr(registry, "REGISTRY", {**registry.REGISTRY, "a4a": entry})
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join(timeout=5)
    server.server_close()


@pytest.mark.parametrize("words", [("fit", "a4a"), ("datasets", "fetch", "a4a")])
def test_a_download_that_fails(refused, site, own_cache, words):
    site.answer = (404, b"")
    assert refused(*words) == (
        f"downloading the data set a4a from {site.url} failed after 1 attempt: 404 Client Error: Not Found for url: "
        f"{site.url}; set DANL_DATA_DIR to a folder that holds a4a, or place the file by hand at {own_cache / 'a4a'}, "
        f"from {site.url}"
    )
    assert list(own_cache.iterdir()) == []


@pytest.mark.parametrize("words", [("fit", "a4a"), ("datasets", "fetch", "a4a")])
def test_a_download_with_the_wrong_checksum(refused, site, own_cache, words):
    site.answer = (200, TEXT)
    assert refused(*words) == (
        f"what {site.url} sent is not the data set a4a: expected SHA-256 {site.digest} of its plain text, received "
        f"{hashlib.sha256(TEXT).hexdigest()}; it was not kept; set DANL_DATA_DIR to a folder that holds a4a, or place "
        f"the file by hand at {own_cache / 'a4a'}, from {site.url}"
    )
    assert list(own_cache.iterdir()) == []


# --- the folder for the results ---

QUICK = ("fit", "a1a", "--rounds", "2")


@pytest.fixture
def unreachable(monkeypatch):
    """Fail if a run starts."""
    monkeypatch.setattr("danl.cli.job.solve", lambda *args, **kwargs: pytest.fail("the run started"))


@pytest.mark.usefixtures("unreachable")
@pytest.mark.parametrize("below", ["", "run", "run/of/today"])
def test_out_that_is_a_file_or_below_one(capsys, write, below):
    file = write("notes.txt", "mine")
    out = file / below if below else file
    ended = run(capsys, *QUICK, "--out", out)
    assert ended.err == f"error: --out='{out}': must be a folder, and '{file}' is a file; choose another folder\n"
    assert (ended.status, ended.out) == (2, "")
    assert file.read_text() == "mine"


@pytest.mark.usefixtures("unreachable")
def test_out_that_cannot_be_written(capsys, tmp_path, monkeypatch):
    def no_file(dir):
        assert Path(dir) == out
        raise PermissionError(13, "Permission denied")

    out = tmp_path / "some" / "run"
    monkeypatch.setattr(tempfile, "TemporaryFile", no_file)
    ended = run(capsys, *QUICK, "--out", out)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (f"error: --out='{out}': cannot be written (Permission denied); choose another folder\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unreachable")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permission bits do not stop root")
@pytest.mark.parametrize("mode", [0o500, 0o000])
def test_out_without_permission(capsys, tmp_path, mode):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(mode)
    try:
        ended = run(capsys, *QUICK, "--out", folder / "run")
    finally:
        folder.chmod(0o700)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (
        f"error: --out='{folder / 'run'}': cannot be written (Permission denied); choose another folder\n"
    )


@pytest.mark.usefixtures("unreachable")
def test_out_with_a_name_the_file_system_does_not_take(capsys, tmp_path):
    out = tmp_path / ("x" * 300)
    ended = run(capsys, *QUICK, "--out", out)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (f"error: --out='{out}': cannot be written (File name too long); choose another folder\n")


@pytest.mark.slow
def test_an_existing_run_is_kept_until_forced(capsys, tmp_path):
    out = tmp_path / "run"
    assert run(capsys, *QUICK, "--out", out).status == 0
    before = contents(out)
    assert sorted(before) == ["config.json", "figure.png", "history.csv", "model.npz", "result.json", "workers.npz"]

    ended = run(capsys, *QUICK, "--seed", "1", "--out", out)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (
        f"error: --out='{out}': holds a run already (history.csv); choose another folder or add --force\n"
    )
    assert contents(out) == before

    for wrong in ("--policy coverage:psi=11", "--tol -1", "--method newtn", "--workers 0", "--rounds x"):
        assert run(capsys, *QUICK, *wrong.split(), "--out", out, "--force").status == 2
        assert contents(out) == before

    assert run(capsys, *QUICK, "--seed", "1", "--out", out, "--force").status == 0
    assert sorted(contents(out)) == sorted(before)
    assert contents(out)["model.npz"] != before["model.npz"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["comparison.json", "gd/model.npz"])
def test_an_existing_comparison_is_kept_until_forced(capsys, tmp_path, name):
    words = ("compare", "a1a", "--methods", "gd,newton", "--rounds", "2", "--out", tmp_path)
    there = tmp_path / name
    there.parent.mkdir(exist_ok=True)
    there.write_text("mine")
    ended = run(capsys, *words)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (
        f"error: --out='{there.parent}': holds a run already ({there.name}); choose another folder or add --force\n"
    )
    assert contents(tmp_path) == {name: b"mine"}
    assert run(capsys, *words, "--force").status == 0
    assert contents(tmp_path)[name] != b"mine"


# --- the same as a process of its own ---


@pytest.mark.slow
def test_no_traceback_and_nothing_on_standard_output(tmp_path):
    (tmp_path / "rows.svm").write_text("+1 1:1\n-1 2;1\n")
    ended = run_process("fit", "rows.svm", "--out", "run", cwd=tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (
        f"error: rows.svm, line 2: '-1 2;1': '2;1' has no colon; {EXPECTED}; the file was not loaded\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["rows.svm"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_folder_not_even_root_can_write_to():
    ended = run_process("fit", "a1a", "--out", "/proc/danl-run", "--json")
    assert (ended.status, ended.out) == (2, "")
    assert re.fullmatch(
        r"error: --out='/proc/danl-run': cannot be written \([A-Z][a-z ]+\); "
        r"choose another folder\n",
        ended.err,
    )
