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
import tomllib
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
from tests.shown import differences

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
RUNNABLE = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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

RUN = ("python", "sh", "console")
NOT_CODE = ("text", "math", "toml")
ON_ENGINES = re.compile(
    r"^\s*(?:import|from) +(?:ray|flwr)\b|engine=[\"'](?:ray|flower)|\bRay\(|--engine[ =](?:ray|flower)", re.M
)
"""What starts Ray or Flower, or needs them: such a block runs by itself, with loopback for all its network."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page: `options` are the words after its kind, `shown` the text block directly after it."""

    path: Path
    line: int
    kind: str
    options: str
    body: str
    shown: str | None

    @property
    def where(self):
        return f"{name_of(self.path)}:{self.line}"

    @property
    def alone(self):
        """Whether it runs in a process and a network of its own, under the marker `engines`."""
        return "loopback" in self.options.split()

    @property
    def missing(self):
        """The packages it needs that are not here."""
        return [name for name in re.findall(r"needs=(\w+)", self.options) if importlib.util.find_spec(name) is None]


@cache
def blocks_of(path):
    text = path.read_text(encoding="utf-8")
    found = []
    for block in BLOCK.finditer(text):
        after = BLOCK.search(text, block.end())
        directly = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
        line = text[: block.start(3)].count("\n") + 1
        found.append(Block(path, line, block[1], block[2].strip(), block[3], after[3] if directly else None))
    return found


@dataclass(frozen=True)
class Command:
    words: list[str]
    environment: dict[str, str]
    output: str
    quiet: bool  # ends in 2>/dev/null: what is shown is standard output alone


def commands_of(block):
    """The commands of a console block (lines after "$ ", each with its output) or of an sh block."""
    if block.kind == "console":
        for part in re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]:
            line, _, output = part.replace("\\\n", " ").partition("\n")
            yield command_of(line, output)
    else:
        for line in block.body.replace("\\\n", " ").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                yield command_of(line, "")


def command_of(line, output):
    words = shlex.split(line, comments=True)
    environment = {}
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    quiet = words[-1:] == ["2>/dev/null"]
    return Command(words[: -1 if quiet else None], environment, output, quiet)


def needs_a_download(words):
    return words[:2] == ["datasets", "fetch"] or any(word in REGISTRY and word != "a1a" for word in words)


def run_danl(words, capfd, quiet=False):
    """The exit status and what was printed: standard output, then, unless `quiet`, standard error."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capfd.readouterr()
    return ended.value.code, printed.out if quiet else printed.out + printed.err


def fault_of(block):
    """What is wrong with a block's mark; None where it runs, or is no code, or says why it cannot run."""
    if block.kind in NOT_CODE:
        return None if not block.options else "says how it is run, and is no code"
    if block.kind == "bash":
        return None if re.fullmatch(r'not-run="[^"]{10,}"', block.options) else 'needs a reason: not-run="..."'
    if block.kind not in RUN:
        return f"is of a kind that nobody runs; take one of {', '.join((*RUN, 'bash', *NOT_CODE))}"
    if set(re.sub(r"needs=\w+", "", block.options).split()) - {"loopback"}:
        return "may say loopback and needs=PACKAGE, nothing else"
    if ON_ENGINES.search(block.body) and not block.alone:
        return "starts Ray or Flower: mark it loopback"
    return None


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_block_runs_or_says_why_not(path):
    """No block is left out in silence: it runs here or under `engines`, or it is `bash not-run="why"`."""
    text = path.read_text(encoding="utf-8")
    fences = len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE))
    assert fences == 2 * len(blocks_of(path)), "a fence that is not found: indented, with tildes, or without a kind"
    assert [f"{block.where} {fault}" for block in blocks_of(path) if (fault := fault_of(block))] == []
    if path not in RUNNABLE:
        assert [block.where for block in blocks_of(path) if block.kind in RUN] == [], "only README.md and docs/ run"


@pytest.mark.parametrize(
    ("kind", "options", "body", "fault"),
    [
        ("python", "", "print(1)", None),
        ("python", "needs=polars", "import polars", None),
        ("python", "loopback needs=ray", "import ray", None),
        ("python", "needs=flwr", "from flwr.serverapp import ServerApp", "starts Ray or Flower"),
        ("python", "", 'danl.solve(problem, engine="ray:deadline=1")', "starts Ray or Flower"),
        ("python", "", "danl.engines.Ray(deadline=3)", "starts Ray or Flower"),
        ("sh", "", "danl fit a1a --engine flower:simulate=true", "starts Ray or Flower"),
        ("python", "skip", "print(1)", "nothing else"),
        ("py", "", "print(1)", "a kind that nobody runs"),
        ("bash", "", "ray start", "needs a reason"),
        ("bash", 'not-run="on another machine"', "ray start", None),
        ("text", "", "", None),
    ],
)
def test_blocks_that_would_be_left_out_are_found(kind, options, body, fault):
    found = fault_of(Block(ROOT / "README.md", 1, kind, options, body, None))
    assert (fault in found) if fault else found is None


@cache
def namespaces():
    """Whether a process may be started in a network of its own."""
    if only_loopback():
        return True
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    return subprocess.run([*namespace(), "true"], capture_output=True, timeout=280, check=False).returncode == 0


def in_a_network_of_its_own(words, program=""):
    """Status and output of a Python process that has loopback for all its network: Ray's ports are open to all."""
    command = [*([] if only_loopback() else namespace()), sys.executable, *words]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        command, input=program, env=environment, capture_output=True, text=True, timeout=580, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """An empty folder, but for the files that docs/hospitals.md is about."""
    shutil.copytree(ROOT / "examples" / "hospitals", tmp_path / "examples" / "hospitals")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)


@pytest.mark.slow
@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("path", RUNNABLE, ids=name_of)
def test_examples_run(path, monkeypatch, capfd):
    names, left_out = {"__name__": "__docs__"}, []
    for block in blocks_of(path):
        if block.alone or block.kind not in RUN:
            continue
        if block.missing:
            left_out.append(f"{block.where} needs {', '.join(block.missing)}")
        elif block.kind == "python":
            capfd.readouterr()
            exec(compile("\n" * (block.line - 1) + block.body, name_of(path), "exec"), names)
            check_shown(capfd.readouterr().out, block.shown, block.where)
        else:
            for command in commands_of(block):
                check_command(command, block.where, monkeypatch, capfd)
    if left_out:
        pytest.skip("; ".join(left_out))


WITH_ENGINES = [path for path in RUNNABLE if any(block.alone for block in blocks_of(path))]


@pytest.mark.engines
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("path", WITH_ENGINES, ids=name_of)
def test_examples_on_engines_run(path):
    if not namespaces():
        pytest.skip("needs a network namespace with loopback alone")
    left_out = []
    for block in blocks_of(path):
        if not block.alone:
            continue
        if block.missing:
            left_out.append(f"{block.where} needs {', '.join(block.missing)}")
        elif block.kind == "python":
            status, printed, reported = in_a_network_of_its_own(["-"], block.body)
            assert status == 0, f"{block.where}\n{reported}"
            check_shown(printed, block.shown, block.where)
        else:
            for command in commands_of(block):
                assert command.words[0] == "danl", f"{block.where}: only danl's commands run on an engine"
                status, printed, reported = in_a_network_of_its_own(["-m", *command.words])
                assert status == 0, f"{block.where}\n{reported}"
    if left_out:
        pytest.skip("; ".join(left_out))


def test_the_pages_of_both_engines_have_blocks_that_run_on_them():
    assert {"docs/ray.md", "docs/federated.md"} <= {name_of(path) for path in WITH_ENGINES}


def check_shown(printed, shown, where):
    if shown is not None and shown.strip():
        assert differences(printed, shown) == [], f"{where}\n{printed}"


def check_command(command, where, monkeypatch, capfd):
    where = f"{where}: {shlex.join(command.words)}"
    if command.words[0] != "danl":
        assert not command.output.strip(), f"{where}: shows what nobody compares"
        assert stands_for_something(command.words), f"{where}: is not run, and names nothing that is here"
        return
    words = command.words[1:]
    if needs_a_download(words):
        status, printed = run_danl([*words, "--help"], capfd)
        assert status == 0, f"{where}\n{printed}"
        return
    with monkeypatch.context() as patch:
        for name, value in command.environment.items():
            patch.setenv(name, value)
        status, printed = run_danl(words, capfd, command.quiet)
    reported = re.search(r"^\(exit status (\d+)\)$", command.output, re.MULTILINE)
    assert status == (int(reported[1]) if reported else 0), f"{where}\n{printed}"
    check_shown(printed, command.output.replace(reported[0], "") if reported else command.output, where)


def stands_for_something(words):
    """Whether a command that is not danl's is one of this project: a target of make, a script, an extra of pip's."""
    match words:
        case ["make", *targets]:
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            return all(re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE) for target in targets)
        case ["python", "-m", "pip", "install", *whats]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            extras = project["optional-dependencies"].keys()
            named = [re.fullmatch(r"\.(?:\[([a-z,]+)\])?", what) for what in whats]
            return all(each and set(filter(None, (each[1] or "").split(","))) <= extras for each in named)
        case ["python", script]:
            return (ROOT / script).is_file()  # tests/test_examples.py runs them
        case [".", ".venv/bin/activate"]:
            return True
    return False


@pytest.mark.parametrize("line", ["make demos", "python examples/none.py", "python -m pip install .[plots,none]", "ls"])
def test_other_commands_must_name_what_is_here(line):
    assert not stands_for_something(line.split())


def test_options_in_tables_exist(capfd, monkeypatch):
    """Every --option that docs/command-line.md names is one of some command."""
    monkeypatch.setenv("COLUMNS", "200")
    names = ("fit", "predict", "cohort", "compare", "certify", "report", "reproduce", "plan", "datasets", "flower")
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
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return folder / "html"


@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere(site):
    assert len(list(site.rglob("*.html"))) > 20
    assert broken_links(site) == []


@pytest.mark.slow
def test_the_site_loads_nothing_over_the_network(site):
    assert loaded_from_elsewhere(site) == []


@pytest.mark.slow
def test_every_document_is_in_the_sites_contents(site):
    index = Page((site / "index.html").read_text(encoding="utf-8"))
    pages = {path.with_suffix(".html").name for path in (ROOT / "docs").glob("*.md")} - {"index.html"}
    assert pages <= {link.partition("#")[0] for link in index.links}
    others = {"reference/index.html", "pages/overview.html", "pages/contributing.html", "pages/changelog.html"}
    assert others <= set(index.links)


@pytest.mark.slow
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


@pytest.mark.slow
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

    from danl.reproduce import pages
    from danl.reproduce.claims import CLAIMS

    text = DOCUMENT.read_text(encoding="utf-8")
    assert section(KEPT) in text
    assert pages.open_points() in text
    judged = [
        verdict.claim for verdict in map(pages.verdict_from, json.loads((KEPT / "claims.json").read_text())["verdicts"])
    ]
    assert judged == [claim.name for claim in CLAIMS]
