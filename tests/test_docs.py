"""The documents: links lead somewhere, examples run, commands work, and nothing of one machine is in a file."""

import ast
import importlib.util
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import danl
from danl.__main__ import main
from danl.data.registry import REGISTRY
from tests.loopback import namespace, only_loopback

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
RUNNABLE = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"(?<![\w.])[A-Za-z][A-Za-z_*-]+")  # not the e of 1e-3: a gap at rounding level may be 0 elsewhere


def name_of(path):
    return str(path.relative_to(ROOT))


def prose(text):
    """The text without its code blocks and code spans, where brackets are no links."""
    return re.sub(r"`[^`\n]+`", "", BLOCK.sub("", text))


@cache
def anchors(path):
    """The #anchors of the headings, as GitHub makes them; a heading that comes again gets -1, -2, ..."""
    seen = {}
    found = set()
    for heading in HEADING.findall(BLOCK.sub("", path.read_text(encoding="utf-8"))):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path):
    broken = []
    for target in LINK.findall(prose(path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue  # another site
        file, _, anchor = target.partition("#")
        goal = (path.parent / file).resolve() if file else path
        if not goal.exists() or (anchor and anchor not in anchors(goal)):
            broken.append(target)
    assert not broken


def test_every_document_is_linked_from_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = {target.partition("#")[0] for target in LINK.findall(index)}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - linked == {"index.md"}


def test_anchors_are_found_and_missing_ones_are_not(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# What `psi*` is\n\n```sh\n# no heading\n```\n\n## Twice\n\n## Twice\n")
    assert anchors(page) == {"what-psi-is", "twice", "twice-1"}


# --- examples: the blocks of a file run in order, in one namespace and one empty folder ---


@dataclass(frozen=True)
class Command:
    words: list[str]
    environment: dict[str, str]
    output: str
    quiet: bool  # ends in 2>/dev/null: what is shown is standard output alone


def commands_of(kind, text):
    """The `danl` commands of a console block (lines after "$ ", each with its output) or of an sh block."""
    if kind == "console":
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, _, output = part.replace("\\\n", " ").partition("\n")
            yield from command_of(line, output)
    else:
        for line in text.replace("\\\n", " ").splitlines():
            yield from command_of(line, "")


def command_of(line, output):
    words = shlex.split(line, comments=True)
    environment = {}
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    quiet = words[-1:] == ["2>/dev/null"]
    if words and words[0] == "danl":
        yield Command(words[1 : -1 if quiet else None], environment, output, quiet)


def needs_a_download(words):
    return words[:2] == ["datasets", "fetch"] or any(word in REGISTRY and word != "a1a" for word in words)


def run_danl(words, capfd, quiet=False):
    """The exit status and what was printed: standard output, then, unless `quiet`, standard error."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capfd.readouterr()
    return ended.value.code, printed.out if quiet else printed.out + printed.err


def runs(options):
    """Whether a Python block runs here: with `needs=name` where there is such a package.

    With `loopback`, where a network namespace is permitted.
    """
    needed = re.findall(r"needs=(\w+)", options)
    there = all(importlib.util.find_spec(name) for name in needed)
    return there and ("loopback" not in options or namespaces())


def test_no_python_block_is_left_out():
    """A block may say what it needs, nothing else: there is no way to mark one that never runs."""
    for path in RUNNABLE:
        for kind, options, _ in BLOCK.findall(path.read_text(encoding="utf-8")):
            if kind == "python":
                assert set(re.sub(r"needs=\w+", "", options).split()) <= {"loopback"}, f"{name_of(path)}: {options}"


@cache
def namespaces():
    """Whether a process may be started in a network of its own."""
    if only_loopback():
        return True
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    return subprocess.run([*namespace(), "true"], capture_output=True, timeout=20, check=False).returncode == 0


def shown_after(block, text):
    """The text block that directly follows a block, with what it prints; None where there is none."""
    after = BLOCK.search(text, block.end())
    directly = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
    return after[3] if directly else None


def words(text):
    """The words of printed text, however it is broken into lines; numbers differ between machines, words do not."""
    return sorted(WORD.findall(text))


def printed_in_a_network_of_its_own(program):
    """What a program prints in a process of its own, with loopback for all its network: Ray's ports are open to all."""
    command = [*([] if only_loopback() else namespace()), sys.executable, "-"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        command, input=program, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", RUNNABLE, ids=name_of)
def test_examples_run(path, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)
    namespace = {"__name__": "__docs__"}
    text = path.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        kind, options, body = block.groups()
        line = text[: block.start(3)].count("\n") + 1
        if kind == "python" and runs(options):
            capfd.readouterr()
            if "loopback" in options:
                print(printed_in_a_network_of_its_own(body))
            else:
                exec(compile("\n" * (line - 1) + body, name_of(path), "exec"), namespace)
            printed, shown = capfd.readouterr().out, shown_after(block, text)
            assert shown is None or words(printed) == words(shown), f"{name_of(path)}:{line}\n{printed}"
        elif kind in ("console", "sh"):
            for command in commands_of(kind, body):
                check_command(command, f"{name_of(path)}:{line}", monkeypatch, capfd)


def check_command(command, where, monkeypatch, capfd):
    where = f"{where}: danl {shlex.join(command.words)}"
    if needs_a_download(command.words):
        status, printed = run_danl([*command.words, "--help"], capfd)
        assert status == 0, f"{where}\n{printed}"
        return
    with monkeypatch.context() as patch:
        for name, value in command.environment.items():
            patch.setenv(name, value)
        status, printed = run_danl(command.words, capfd, command.quiet)
    told = re.search(r"^\(exit status (\d+)\)$", command.output, re.MULTILINE)
    assert status == (int(told[1]) if told else 0), f"{where}\n{printed}"
    shown = command.output.replace(told[0], "") if told else command.output
    if shown.strip():
        assert words(printed) == words(shown), f"{where}\n{printed}"


def test_options_in_tables_exist(capfd, monkeypatch):
    """Every --option that docs/command-line.md names is one of some command."""
    monkeypatch.setenv("COLUMNS", "200")
    names = ("fit", "compare", "certify", "report", "reproduce", "plan", "datasets")
    helps = "".join(run_danl([name, "--help"], capfd)[1] for name in names)
    helps += run_danl(["--help"], capfd)[1]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", (ROOT / "docs" / "command-line.md").read_text("utf-8")))
    assert named - set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", helps)) == set()


# --- the architecture page names what is there ---

NAMED = re.compile(r"`((?:\w+/)*\w+\.py):([A-Za-z_][\w.]*)`")


@cache
def definitions(path):
    """The names that a module defines or imports: functions, classes, and the methods of classes as Class.method."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
    return found


def test_what_the_architecture_page_names_is_there():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = NAMED.findall(text)
    assert len(named) >= 40
    source = ROOT / "src" / "danl"
    missing = [
        f"{file}:{name}"
        for file, name in named
        if not (source / file).is_file() or name not in definitions(source / file)
    ]
    assert missing == []
    assert [path for path in re.findall(r"`(tests/[\w/.]+)`", text) if not (ROOT / path).exists()] == []


# --- the site: `make docs`, its links, and that it needs no network ---


class Page(HTMLParser):
    """What a page of the site holds: its anchors, where its links lead, and what a browser loads with it."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "index", "search", "next", "prev", "author"):
            self.loaded.append(given["href"])
        self.loaded += [given[name] for name in ("src", "srcset", "poster", "data") if given.get(name)]


def broken_links(folder):
    """Links of a site that lead nowhere, as "page -> link"."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue  # another site
            file, _, anchor = unquote(link).partition("#")
            goal = (path.parent / file).resolve() if file else path
            if not goal.is_file() or (anchor and goal in pages and anchor not in pages[goal].anchors):
                broken.append(f"{path.relative_to(folder)} -> {link}")
    return broken


def loaded_from_elsewhere(folder):
    """What pages and style sheets of a site would load over the network."""
    found = []
    for path in folder.rglob("*.html"):
        loaded = Page(path.read_text(encoding="utf-8")).loaded
        found += [f"{path.name}: {goal}" for goal in loaded if re.match(r"(https?:)?//", goal)]
    for path in folder.rglob("*.css"):
        loaded = re.findall(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')]+)""", path.read_text(encoding="utf-8"))
        found += [f"{path.name}: {goal}" for goal in loaded]
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it: a warning is an error."""
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    folders = ["-d", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "html")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", *folders],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return folder / "html"


def test_every_link_of_the_site_leads_somewhere(site):
    assert len(list(site.rglob("*.html"))) > 20
    assert broken_links(site) == []


def test_the_site_loads_nothing_over_the_network(site):
    assert loaded_from_elsewhere(site) == []


def test_every_document_is_in_the_sites_contents(site):
    index = Page((site / "index.html").read_text(encoding="utf-8"))
    pages = {path.with_suffix(".html").name for path in (ROOT / "docs").glob("*.md")} - {"index.html"}
    assert pages <= {link.partition("#")[0] for link in index.links}
    others = {"reference/index.html", "pages/overview.html", "pages/contributing.html", "pages/changelog.html"}
    assert others <= set(index.links)


def test_every_public_name_is_in_the_sites_reference(site):
    there = set()
    for path in (site / "reference").glob("*.html"):
        there |= Page(path.read_text(encoding="utf-8")).anchors
    named = set()
    for name in set(danl.__all__) - {"__version__"}:
        if inspect.ismodule(module := getattr(danl, name)):
            named |= {f"module-danl.{name}", *(f"danl.{name}.{part}" for part in getattr(module, "__all__", ()))}
        else:
            named.add(f"danl.{name}")
    named -= {"danl.policies.Profile"}  # danl.Profile
    assert named - there == set()


def test_equations_of_the_site_are_mathml(site):
    text = (site / "method.html").read_text(encoding="utf-8")
    assert text.count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">') >= 5
    assert "\\frac" not in text
    assert "mathjax.js" not in text.lower()


def test_broken_links_and_foreign_files_of_a_site_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#there">x</a><a href="b.html#gone">x</a><a href="c.html">x</a>')
    (tmp_path / "b.html").write_text('<p id="there"><img src="https://example.org/x.png"><a href="#top">x</a></p>')
    (tmp_path / "s.css").write_text("p { background: url('//example.org/y.png') }")
    assert sorted(broken_links(tmp_path)) == ["a.html -> b.html#gone", "a.html -> c.html", "b.html -> #top"]
    assert loaded_from_elsewhere(tmp_path) == ["b.html: https://example.org/x.png", "s.css: //example.org/y.png"]


# --- the files themselves ---


def test_the_citation_has_the_version_of_the_package():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (\S+)$", citation, re.MULTILINE)[1] == danl.__version__
    assert re.search(r"^cff-version: (\S+)$", citation, re.MULTILINE)[1] == "1.2.0"
    assert "preferred-citation:" in citation


def tracked_files():
    """What git would have: tracked files, and new ones that it does not ignore."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a clone")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


# Put together from parts, so that this file does not hold what it looks for.
HOMES = re.compile(r"(?<![\w.~-])/(?:" + "|".join(("home", "root", "work", "Users")) + r")/[\w.]")
HOSTS = re.compile("|".join(re.escape(".".join(host)) for host in (("pypi", "org"), ("pythonhosted", "org"))))


def test_files_name_no_machine_and_no_registry():
    found = []
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", errors="ignore")
        found += [f"{name_of(path)}: {match[0]}" for pattern in (HOMES, HOSTS) for match in pattern.finditer(text)]
    assert not found


def test_the_patterns_find_what_they_are_for():
    assert HOMES.search(os.sep.join(("", "home", "ann", "x")))
    assert HOSTS.search("https://" + ".".join(("files", "pythonhosted", "org")))
    assert not HOMES.search("docs/work/x and https://example.org/home/x")


def test_the_figures_of_the_reproduction_were_made_with_what_is_run_today():
    """Every committed figure carries the settings of the full plan: a change to them asks for new figures."""
    from danl.reproduce.curves import overviews, penalties_view, views
    from danl.reproduce.drawing import config_of
    from danl.reproduce.runs import FIGURES, Plan

    plan, folder = Plan(), ROOT / "docs" / "reproduction"
    made = [view for name in FIGURES for view in (*views(name, plan), *overviews(name, plan))]
    expected = {view.name: view.config(plan) for view in (*made, penalties_view(plan))}
    shown = sorted(folder.glob("*.png"))
    assert len(shown) >= 10
    for path in shown:
        assert config_of(path) == expected[path.stem], f"{path.name}: make reproduction"
        assert f"(reproduction/{path.name})" in (ROOT / "docs" / "reproduction.md").read_text("utf-8")


def test_the_verdicts_in_the_document_are_those_of_the_rows():
    from benchmarks.reproduction import DOCUMENT, KEPT, section

    from danl.reproduce import report
    from danl.reproduce.claims import CLAIMS

    text = DOCUMENT.read_text(encoding="utf-8")
    assert section(KEPT) in text
    assert report.open_points() in text
    judged = [
        verdict.claim
        for verdict in map(report.verdict_from, json.loads((KEPT / "claims.json").read_text())["verdicts"])
    ]
    assert judged == [claim.name for claim in CLAIMS]
