"""The page as a text: everything in it, nothing from elsewhere, and no name that breaks out of where it stands."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

import danl
from danl.report import write_report
from danl.report.page import SCRIPTS, in_script, own_script, page_of, policy
from danl.report.payload import payload_of
from tests.report.made import config_of, large_run, row, run_of

HOSTILE = '</script><script>window.hit=1</script><!--<img src=x onerror="window.hit=1">\'"&amp;<b>\u2028\u2029@@DATA@@'


class Parts(HTMLParser):
    """Elements with their attributes, and the text of scripts."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found, self.inside, self.text = [], None, {}

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        self.inside = len(self.found) - 1

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside is not None:
            self.text[self.inside] = self.text.get(self.inside, "") + data

    def of(self, tag):
        return [(attributes, self.text.get(i, "")) for i, (name, attributes) in enumerate(self.found) if name == tag]


def parsed(text):
    parts = Parts()
    parts.feed(text)
    return parts


def hostile_run():
    config = config_of("converged", data=HOSTILE, method=HOSTILE)
    config |= {"notes": [HOSTILE], "failures": [{"exchange": 1, "worker": 2, "kind": "died", "detail": HOSTILE}]}
    config["versions"][HOSTILE] = HOSTILE
    return run_of([row(0, "hessian"), row(1)], name=HOSTILE, **config)


def test_hostile_names_are_data_and_nothing_else():
    parts = parsed(page_of(payload_of([hostile_run(), hostile_run()])))
    scripts = parts.of("script")
    assert [attributes for attributes, _ in scripts] == [{"type": "application/json", "id": "data"}, {}, {}]
    assert not parts.of("img")
    assert not parts.of("b")
    reported = json.loads(scripts[0][1])
    assert reported["runs"][0]["name"] == HOSTILE
    assert HOSTILE in [found["text"] for found in reported["runs"][0]["findings"]]
    assert HOSTILE in parts.of("title")[0][1]


def test_json_in_a_script_is_plain_ascii_without_markup():
    text = in_script({"name": HOSTILE})
    assert text.isascii()
    assert not re.search(r"[<>&]", text)
    assert json.loads(text) == {"name": HOSTILE}


@given(st.text(), st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_any_text_comes_back_from_a_script(name, more):
    text = in_script({"name": name, "more": more})
    assert not re.search(r"[<>&\u2028\u2029]", text)
    assert json.loads(text) == {"name": name, "more": more}


def test_the_script_makes_no_markup_of_text():
    own = own_script()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc", own)


def test_the_policy_names_the_scripts_by_their_digests_and_lets_nothing_load():
    parts = parsed(page_of(payload_of([run_of([row(0)])])))
    (reported,) = [a["content"] for a, _ in parts.of("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert reported == policy(live=False)
    for _, text in parts.of("script")[1:]:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in reported
    assert reported.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'none'" in reported
    assert "connect-src 'self'" in policy(live=True)
    assert "unsafe-eval" not in reported
    assert not re.search(r"script-src[^;]*unsafe", reported)


def test_nothing_in_the_page_refers_elsewhere():
    parts = parsed(page_of(payload_of([run_of([row(0)])])))
    links = [value for _, a in parts.found for name, value in a.items() if name in ("src", "href", "action")]
    assert sorted(links) == ["#findings", "data:,"]
    assert not re.search(r"url\(|@import", parts.of("style")[0][1])


def test_plotly_is_there_once():
    text = page_of(payload_of([large_run(20, 4, 2), large_run(20, 4, 2)]))
    assert text.count("plotly.js v") == 1


def test_the_same_runs_make_the_same_page(tmp_path):
    first, second = (write_report([large_run(20, 4, 2)], tmp_path / name) for name in ("a.html", "b.html"))
    assert first.read_bytes() == second.read_bytes()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.html", "b.html"]


@pytest.mark.slow
def test_a_large_report_is_less_than_15_megabytes(tmp_path):
    path = write_report([large_run(5000, 100, 16)], tmp_path / "large.html")
    assert path.stat().st_size < 15_000_000


def test_the_parts_are_in_the_package():
    folder = files("danl.report").joinpath("parts")
    for name in ("page.html", "page.css", *SCRIPTS):
        assert folder.joinpath(name).is_file()


def test_without_plotly_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("danl.checks.find_spec", lambda name: None)
    with pytest.raises(danl.InputError, match=r"needs plotly.*pip install 'danl\[report\]'"):
        page_of(payload_of([run_of([row(0)])]))


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(danl.InputError, match=r"^path=.*: cannot be written"):
        write_report([run_of([row(0)])], tmp_path / "not there" / "report.html")
    with pytest.raises(danl.InputError, match="at least one"):
        write_report([], tmp_path / "report.html")


def test_settings_are_shown_whole_or_cut_with_a_word():
    config = config_of("converged") | {"extra": "x" * 5000}
    sections = {
        part["title"]: part["lines"] for part in payload_of([run_of([row(0)], **config)])["runs"][0]["sections"]
    }
    assert ["sha256", "ab" * 32] in sections["Data"]
    assert ["danl", "0.1.0"] in sections["Versions"]
    assert sections["More"][0][1].endswith("... (5,000 characters)")
