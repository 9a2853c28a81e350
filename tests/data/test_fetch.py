"""Finding and downloading files, against an HTTP server on this machine."""

import bz2
import gzip
import hashlib
import lzma
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from danl.data import fetch as fetch_module
from danl.data.fetch import cache_dir, fetch, locate, status
from danl.data.registry import REGISTRY, lookup
from danl.errors import InputError

TEXT = b"+1 1:1 3:1 \n-1 2:1 \n+1 1:0.5 \n"
DIGEST = hashlib.sha256(TEXT).hexdigest()
OTHER = b"-1 1:1 \n"
OTHER_DIGEST = hashlib.sha256(OTHER).hexdigest()


class Site:
    """Answers each request with the next of `answers`, the last one for ever after."""

    def __init__(self):
        self.answers = [(200, TEXT, None)]
        self.paths = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 280

            def do_GET(self):
                site.paths.append(self.path)
                code, body, length = site.answers[0] if len(site.answers) == 1 else site.answers.pop(0)
                self.send_response(code)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield site
    site.server.shutdown()
    thread.join(timeout=5)
    site.server.server_close()


@pytest.fixture
def entry(site):
    return replace(
        lookup("a4a"), name="tiny", filename="tiny", rows=3, features=3, sha256=DIGEST, url=f"{site.url}/tiny"
    )


@pytest.fixture(autouse=True)
def quick_and_without_data_dir(monkeypatch):
    monkeypatch.setattr(fetch_module, "RETRY_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(fetch_module, "TIMEOUT_SECONDS", 5.0)
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)


def by_hand(entry):
    return (
        f"set DANL_DATA_DIR to a folder that holds {entry.filename}, "
        f"or place the file by hand at {cache_dir() / entry.filename}, from {entry.url}"
    )


def cached_files():
    return sorted(path.name for path in cache_dir().rglob("*")) if cache_dir().exists() else []


# --- where files are found ---


def test_the_bundled_set_is_the_sites_file():
    path = locate(lookup("a1a"))
    assert status(lookup("a1a")) == "bundled"
    assert hashlib.sha256(lzma.decompress(path.read_bytes())).hexdigest() == lookup("a1a").sha256


@pytest.mark.parametrize(
    ("suffix", "pack"), [("", bytes), (".bz2", bz2.compress), (".gz", gzip.compress), (".xz", lzma.compress)]
)
@pytest.mark.parametrize("stem", ["tiny", "tiny.source"])
def test_found_in_the_data_folder_however_packed(entry, site, tmp_path, monkeypatch, suffix, pack, stem):
    entry = replace(entry, filename="tiny.source.bz2", packed="bz2")
    monkeypatch.setenv("DANL_DATA_DIR", str(tmp_path))
    path = tmp_path / (stem + suffix)
    path.write_bytes(pack(TEXT))
    assert status(entry) == "DANL_DATA_DIR"
    assert locate(entry) == path
    assert site.paths == []


def test_the_data_folder_comes_before_the_bundled_set(tmp_path, monkeypatch):
    text = lzma.decompress(locate(lookup("a1a")).read_bytes())
    (tmp_path / "a1a").write_bytes(text)
    monkeypatch.setenv("DANL_DATA_DIR", str(tmp_path))
    assert locate(lookup("a1a")) == tmp_path / "a1a"


def test_a_wrong_file_in_the_data_folder(entry, tmp_path, monkeypatch):
    monkeypatch.setenv("DANL_DATA_DIR", str(tmp_path))
    (tmp_path / "tiny").write_bytes(OTHER)
    with pytest.raises(InputError) as caught:
        locate(entry)
    assert str(caught.value) == (
        f"{tmp_path / 'tiny'} is not the data set tiny: expected SHA-256 {DIGEST} of its plain text, "
        f"received {OTHER_DIGEST}; replace it by the file from {entry.url}"
    )


def test_a_wrong_file_in_the_cache(entry, site):
    cache_dir().mkdir()
    (cache_dir() / "tiny").write_bytes(OTHER)
    with pytest.raises(InputError, match="delete it to have it downloaded again from http"):
        locate(entry)
    assert site.paths == []


def test_a_broken_archive_in_the_data_folder(entry, tmp_path, monkeypatch):
    monkeypatch.setenv("DANL_DATA_DIR", str(tmp_path))
    (tmp_path / "tiny.xz").write_bytes(lzma.compress(TEXT)[:-8])
    with pytest.raises(InputError, match=r"tiny\.xz cannot be read: .*; replace or delete it"):
        locate(entry)


def test_the_data_folder_must_exist(entry, tmp_path, monkeypatch):
    monkeypatch.setenv("DANL_DATA_DIR", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"^DANL_DATA_DIR='.*none': must be a folder that exists; or unset it$"):
        locate(entry)


def test_every_known_digest_is_that_of_the_file(data_dir, monkeypatch):
    monkeypatch.setenv("DANL_DATA_DIR", str(data_dir))
    there = [e for e in REGISTRY.values() if status(e) == "DANL_DATA_DIR"]
    assert there
    assert all(locate(each).parent == data_dir for each in there)


# --- downloads ---


@pytest.mark.parametrize("progress", [True, False])
def test_download_then_cache(entry, site, capsys, progress):
    assert status(entry) == "not here"
    path = locate(entry, progress=progress)
    assert path == cache_dir() / "tiny"
    assert path.read_bytes() == TEXT
    assert status(entry) == "cache"
    assert locate(entry) == path
    assert site.paths == ["/tiny"]
    assert cached_files() == ["tiny"]
    out, err = capsys.readouterr()
    assert out == ""
    assert ("downloading tiny" in err) == progress
    assert progress or err == ""


def test_a_packed_download_is_checked_by_its_plain_text(entry, site):
    site.answers = [(200, bz2.compress(TEXT), None)]
    path = locate(replace(entry, filename="tiny.bz2", packed="bz2"), progress=False)
    assert bz2.decompress(path.read_bytes()) == TEXT
    assert cached_files() == ["tiny.bz2"]


def test_fetch_takes_a_name(entry, site, monkeypatch):
    monkeypatch.setattr(fetch_module, "lookup", {"tiny": entry}.__getitem__)
    assert fetch("tiny", progress=False).read_bytes() == TEXT


def test_wrong_checksum(entry, site):
    site.answers = [(200, OTHER, None)]
    with pytest.raises(InputError) as caught:
        locate(entry, progress=False)
    assert str(caught.value) == (
        f"what {entry.url} sent is not the data set tiny: expected SHA-256 {DIGEST} of its plain text, "
        f"received {OTHER_DIGEST}; it was not kept; {by_hand(entry)}"
    )
    assert cached_files() == []


def test_wrong_number_of_rows_where_the_digest_is_not_known(entry, site):
    site.answers = [(200, OTHER, None)]
    with pytest.raises(InputError, match=r"expected 3 rows, received 1; it was not kept; set DANL_DATA_DIR"):
        locate(replace(entry, sha256=None), progress=False)
    assert cached_files() == []


def test_what_was_sent_cannot_be_unpacked(entry, site):
    site.answers = [(200, b"<html>", None)]
    with pytest.raises(InputError, match=r"tiny sent cannot be unpacked: .*; it was not kept; set DANL"):
        locate(replace(entry, filename="tiny.bz2", packed="bz2"), progress=False)
    assert cached_files() == []


def test_not_found_is_not_tried_again(entry, site, capsys):
    site.answers = [(404, b"", None)]
    with pytest.raises(InputError) as caught:
        locate(entry)
    assert str(caught.value) == (
        f"downloading the data set tiny from {entry.url} failed after 1 attempt: "
        f"404 Client Error: Not Found for url: {entry.url}; {by_hand(entry)}"
    )
    assert len(site.paths) == 1
    assert cached_files() == []


def test_truncated_every_time(entry, site):
    site.answers = [(200, TEXT[:10], len(TEXT))]
    with pytest.raises(InputError, match=r"failed after 3 attempts: .*; set DANL_DATA_DIR"):
        locate(entry, progress=False)
    assert len(site.paths) == 3
    assert cached_files() == []


def test_tries_again_after_failures_that_may_pass(entry, site):
    site.answers = [(503, b"", None), (200, TEXT[:10], len(TEXT)), (200, TEXT, None)]
    assert locate(entry).read_bytes() == TEXT
    assert len(site.paths) == 3
    assert cached_files() == ["tiny"]


def test_nobody_answers(entry, site):
    site.server.shutdown()
    site.server.server_close()
    with pytest.raises(InputError, match=rf"from {entry.url} failed after 3 attempts: .*refused"):
        locate(entry, progress=False)
    assert cached_files() == []


def test_an_interrupted_download_leaves_nothing(entry, site, monkeypatch):
    def interrupt(*args, **kwargs):
        assert cached_files() != []
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch_module, "_check_received", interrupt)
    with pytest.raises(KeyboardInterrupt):
        locate(entry, progress=False)
    assert cached_files() == []


def test_the_cache_cannot_be_written(entry, site):
    cache_dir().parent.joinpath("danl").write_text("a file where the folder should be")
    with pytest.raises(InputError, match=r"the data set tiny could not be written to .*; set DANL_DATA_DIR"):
        locate(entry, progress=False)


@pytest.mark.parametrize("value", ["1", "true"])
def test_offline(entry, site, monkeypatch, value):
    monkeypatch.setenv("DANL_OFFLINE", value)
    with pytest.raises(InputError) as caught:
        locate(entry)
    assert str(caught.value) == (
        "the data set tiny is not on this machine and DANL_OFFLINE forbids downloading it; " + by_hand(entry)
    )
    assert site.paths == []
    assert not cache_dir().exists()


def test_offline_takes_what_was_placed_by_hand(entry, site, monkeypatch):
    monkeypatch.setenv("DANL_OFFLINE", "1")
    cache_dir().mkdir()
    (cache_dir() / "tiny").write_bytes(TEXT)
    assert locate(entry) == cache_dir() / "tiny"


def test_offline_0_allows_downloads(entry, site, monkeypatch):
    monkeypatch.setenv("DANL_OFFLINE", "0")
    assert locate(entry, progress=False).read_bytes() == TEXT


def test_requests_is_not_imported_for_a_file_that_is_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "requests", None)  # importing it would now fail
    assert locate(lookup("a1a")).is_file()
