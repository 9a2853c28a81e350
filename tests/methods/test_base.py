"""What methods of one's own are written against says what it is."""

import ast
import inspect
from dataclasses import fields
from itertools import pairwise

import pytest

from danl.methods import Info, Setup, Turn


@pytest.mark.parametrize("part", [Info, Setup, Turn], ids=lambda part: part.__name__)
def test_every_field_has_a_docstring(part):
    body = ast.parse(inspect.getsource(part)).body[0].body
    told = {
        name.target.id
        for name, text in pairwise(body)
        if isinstance(name, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
    assert told == {field.name for field in fields(part)}
