"""Equations as MathML, made when the site is built: a page needs no script and no network to show them."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    # What code hosts call aligned, this converter calls split.
    equation = convert(node.astext().replace("{aligned}", "{split}"), display="block")
    writer.body.append(f'<div class="math">{equation}</div>\n')
    raise nodes.SkipNode
