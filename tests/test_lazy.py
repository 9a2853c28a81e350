"""Names that a stub lists: what they are imported from, and which lines of the stub are for type checkers alone."""

import pytest

from danl._lazy import LazyNames

STUB = '''"""What is here."""

import json

from . import decoder as decoder
from .decoder import JSONDecoder as JSONDecoder
from .decoder import scanstring
from .encoder import JSONEncoder as Other
from elsewhere import thing as thing

value = json.tool
'''


@pytest.fixture
def names(tmp_path):
    (tmp_path / "__init__.pyi").write_text(STUB, encoding="utf-8")
    return LazyNames("json", str(tmp_path / "__init__.py"))


def test_only_names_that_are_given_as_public_are_listed(names):
    assert names.names == ["JSONDecoder", "decoder"]


def test_a_name_is_what_its_module_has(names):
    import json.decoder

    assert names.attribute("decoder") is json.decoder
    assert names.attribute("JSONDecoder") is json.JSONDecoder


@pytest.mark.parametrize("name", ["scanstring", "JSONEncoder", "Other", "thing", "value"])
def test_another_name_is_no_attribute(names, name):
    with pytest.raises(AttributeError, match=f"module 'json' has no attribute {name}"):
        names.attribute(name)
