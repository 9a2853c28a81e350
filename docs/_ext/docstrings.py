"""Docstrings as they are written in the code, read as reStructuredText.

|w| is a norm and not a substitution. An indented block is a formula, shown as it stands. The docstring of an attribute
is a sentence, in which a colon says nothing of its type. The type of a parameter is prose: of its words only the names
of classes are links. And a name of danl that has no place in the reference must at least be there in the code.
"""

from __future__ import annotations

import pkgutil
import re
from typing import Any

from sphinx.addnodes import pending_xref

import danl

LITERAL = re.compile(r"(``.*?``)")
NAMES = {name for module in (danl, danl.engines, danl.methods, danl.policies) for name in module.__all__}


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process, priority=400)  # before napoleon looks for its sections
    app.connect("autodoc-process-docstring", sentence, priority=600)  # and after it
    app.connect("autodoc-process-signature", signature)
    app.connect("doctree-read", types_are_prose)
    app.connect("missing-reference", missing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Change the lines of one docstring in place."""
    lines[:] = with_formulas([escaped(line) for line in lines])


def sentence(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Take back what napoleon makes of "this: that" where an attribute is described."""
    if what in ("attribute", "data", "property") and lines and lines[-1].startswith(":type:"):
        kind = lines[-1].removeprefix(":type:").strip()
        lines[:] = [f"{kind}: {lines[0]}", *lines[1:-1]]


def signature(app: Any, what: str, name: str, obj: Any, options: Any, arguments: Any, returns: Any) -> Any:
    """An interface is not called: it has no arguments."""
    return ("", None) if isinstance(obj, type) and getattr(obj, "_is_protocol", False) else None


def types_are_prose(app: Any, doctree: Any) -> None:
    """Leave as text what looks like a type and is the name of no class."""
    for node in list(doctree.findall(pending_xref)):
        target = str(node["reftarget"])
        if node["refdomain"] == "py" and node["reftype"] == "class" and target.rpartition(".")[2] not in NAMES:
            node.replace_self(node.children)


def escaped(line: str) -> str:
    """The line with bars that mean themselves, but for those in double backticks."""
    return "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in LITERAL.split(line))


def with_formulas(lines: list[str]) -> list[str]:
    """The lines with `::` before an indented block that follows a paragraph of no indentation."""
    made: list[str] = []
    formula = False
    for number, line in enumerate(lines):
        indented = line.startswith("    ")
        before = lines[number - 2] if number >= 2 and not lines[number - 1].strip() else ""
        if indented and not formula and before.strip() and not before.startswith((" ", "-")):
            made += ["::", ""]
            formula = True
        elif line.strip() and not indented:
            formula = False
        made.append(line.replace(r"\|", "|") if formula else line)
    return made


def missing(app: Any, env: Any, node: Any, content: Any) -> Any:
    """A reference to something of danl that the reference leaves out: fine if it is there."""
    target = str(node.get("reftarget", "")).partition("(")[0]
    if node.get("refdomain") != "py" or not target.startswith("danl."):
        return None
    try:
        pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError):
        return None
    return content
