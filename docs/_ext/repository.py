"""The site from files that are read in the repository as well: they know nothing of Sphinx.

Four things are done to a page when it is read. The index gets a table of contents, made of the links in its tables, a
part for every section. A page that stands for a file outside `docs/` (README.md, CONTRIBUTING.md, CHANGELOG.md) gets
the text of that. The page of the examples gets their code. And links to files outside `docs/` lead to the pages that
stand for them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent

STANDS_FOR = {"pages/overview": "README.md", "pages/contributing": "CONTRIBUTING.md", "pages/changelog": "CHANGELOG.md"}
PAGES = {
    **{file: f"{page}.md" for page, file in STANDS_FOR.items()},
    **{
        f"examples/{path.name}": f"examples.md#{path.stem.replace('_', '-')}"
        for path in (ROOT / "examples").glob("*.py")
    },
}
"""Files outside `docs/`, and where the site has what they say."""

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
SECTION = re.compile(r"^## (.*)$", re.MULTILINE)
OUTPUT = re.compile(r"\(\.\./examples/(\w+)\.py\)(?:(?!^## ).)*?^```text\n.*?^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^(```.*?^```)$", re.MULTILINE | re.DOTALL)


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def read(app: Any, name: str, source: list[str]) -> None:
    """What Sphinx calls with the text of each page."""
    folder, text = (DOCS / name).parent, source[0]
    if name in STANDS_FOR:
        folder, text = ROOT, (ROOT / STANDS_FOR[name]).read_text(encoding="utf-8")
        app.env.note_dependency(str(ROOT / STANDS_FOR[name]))
    if name == "examples":
        text = OUTPUT.sub(with_code, text)
    if name == "index":
        text += contents(text)
    if app.env.doc2path(name).suffix == ".md":
        text = redirected(text, folder, (DOCS / name).parent)
    source[0] = text


def redirected(text: str, folder: Path, page_folder: Path) -> str:
    """The text, written to be read in `folder`, with links that lead where the site has their goals."""

    def there(found: re.Match[str]) -> str:
        label, target = found.groups()
        file, mark, anchor = target.partition("#")
        if not file or re.match(r"[a-z]+:", target):
            return found[0]
        goal = Path(os.path.normpath(folder / file))
        inside = goal.relative_to(DOCS) if goal.is_relative_to(DOCS) else None
        page = PAGES.get(goal.relative_to(ROOT).as_posix()) if inside is None else inside.as_posix()
        if page is None:
            return label  # a file that is only in the repository
        own = "" if "#" in page else mark + anchor
        return f"[{label}]({os.path.relpath(DOCS / page, page_folder)}{own})"

    parts = FENCE.split(text)  # code is left as it is
    return "".join(part if part.startswith("```") else LINK.sub(there, part) for part in parts)


def with_code(found: re.Match[str]) -> str:
    """What is said of an example, and below it the script."""
    return f"{found[0]}\n\n```{{literalinclude}} ../examples/{found[1]}.py\n:language: python\n```"


def contents(index: str) -> str:
    """A hidden table of contents for every section of the index, of the pages that its table links to."""
    parts = SECTION.split(index)[1:]
    trees = []
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        links = re.findall(r"^\| \[([^\]]*)\]\(([^)\s#]+)\)", body, re.MULTILINE)
        names = [entry(label, file) for label, file in links]
        if names:
            trees.append("\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *names, "```", ""]))
    return "".join(trees)


def entry(label: str, file: str) -> str:
    """A line of the contents for a link in the index; files outside `docs/` are called as the index calls them."""
    if not file.startswith(".."):
        return "/" + os.path.splitext(file)[0]
    page = PAGES[os.path.normpath(DOCS / file).removeprefix(f"{ROOT}{os.sep}")]
    return f"{label.capitalize()} </{os.path.splitext(page)[0]}>"
