"""The measured tables of the documents against the code that makes them: the command there is, the columns it writes,
and what it was measured with."""

import re
import subprocess
from itertools import pairwise

import pytest
from benchmarks import blocks
from benchmarks.__main__ import OTHERS, PARTS, main
from benchmarks.blocks import BLOCKS, ROOT, commit, made_with, put_between_markers

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
WRITTEN_ELSEWHERE = {"claims", "open-points", "field", "fednl"}
"""docs/reproduction.md, by `python -m benchmarks reproduction --docs`, and docs/field.md, by `... field --docs`."""
COMMAND = re.compile(r"python -m benchmarks ([a-z_]+)((?: --[a-z-]+)*)")
MADE_WITH = re.compile(r"^Measured with danl \S+ \((commit [0-9a-f]{7,} of \d{4}-\d\d-\d\d|not a git checkout)", re.M)


def header_rows(text):
    """The headers of the Markdown tables in a text: the rows that a rule follows."""
    lines = text.splitlines()
    return [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line, rule in pairwise(lines)
        if re.fullmatch(r"\|(?: -+:? \|)+", rule)
    ]


def parses(words):
    """Whether `python -m benchmarks` takes these words: with --help as well it measures nothing."""
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    return ended.value.code == 0


def test_every_marked_table_is_one_of_these():
    marked = {name for page in PAGES for name in re.findall(r"<!-- ([\w-]+):begin -->", page.read_text("utf-8"))}
    assert marked == set(BLOCKS) | WRITTEN_ELSEWHERE


@pytest.mark.parametrize("name", BLOCKS)
def test_a_table_has_the_columns_that_its_command_writes_today(name):
    assert header_rows(BLOCKS[name].read()) == BLOCKS[name].headers


@pytest.mark.parametrize("name", BLOCKS)
def test_a_table_says_what_it_was_measured_with(name):
    assert MADE_WITH.search(BLOCKS[name].read())


def test_so_does_the_page_of_benchmarks():
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    assert re.search(r"; (commit [0-9a-f]{7,} of \d{4}-\d\d-\d\d|not a git checkout)", page)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_command_stands_beside_the_table_and_is_there(name, capsys):
    block = BLOCKS[name]
    before = blocks.between_markers(block.path, name)[0]
    section = before[before.rindex("\n## ") :]
    assert block.command in section.replace("\n", " ")
    found = COMMAND.fullmatch(block.command)
    if found is None:
        target = block.command.removeprefix("make ")
        made = re.search(rf"^{target}:.*\n\t.*?{COMMAND.pattern}", (ROOT / "Makefile").read_text("utf-8"), re.M)
        assert made, f"no target {target} that makes tables"
        found = COMMAND.search(made[0])
    part, options = found.groups()
    assert "--docs" in options.split()
    assert parses([part, *options.split()])
    assert "--docs" in capsys.readouterr().out


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_every_measuring_command_that_a_page_names_is_there(page, capsys):
    for part, options in COMMAND.findall(page.read_text("utf-8")):
        assert part in (*OTHERS, *PARTS), f"{page.name}: python -m benchmarks {part}"
        assert parses([part, *options.split()])
        shown = capsys.readouterr().out
        assert all(option in shown for option in options.split()), f"{page.name}: {part}{options}"


def test_made_with_has_the_commit_and_whether_the_code_is_another_by_now(tmp_path):
    def git(*words):
        settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(tmp_path), *settings, *words], check=True, capture_output=True)

    assert commit(tmp_path) == "not a git checkout"
    git("init")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("a = 1")
    (tmp_path / "page.md").write_text("one")
    git("add", ".")
    git("commit", "-m", "one", "--date", "2026-01-02T03:04:05")
    look = commit.__wrapped__
    assert re.fullmatch(r"commit [0-9a-f]{7,} of \d{4}-\d\d-\d\d", look(tmp_path))
    (tmp_path / "page.md").write_text("two")
    assert not look(tmp_path).endswith("with changes")  # a page is what is written, not what is measured
    (tmp_path / "src" / "a.py").write_text("a = 2")
    assert look(tmp_path).endswith(" with changes")
    assert look(tmp_path / "src") == "not a git checkout"  # a folder of another repository
    assert MADE_WITH.search(made_with())


def test_what_stands_between_markers_is_replaced_and_nothing_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- x:begin -->\nold\n<!-- x:end -->\nbelow\n")
    put_between_markers(page, "new", "x")
    assert page.read_text() == "above\n<!-- x:begin -->\n\nnew\n\n<!-- x:end -->\nbelow\n"
    with pytest.raises(SystemExit, match="must have the lines <!-- y:begin --> and <!-- y:end -->, once each"):
        put_between_markers(page, "new", "y")
