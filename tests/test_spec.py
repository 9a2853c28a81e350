import math
import sys
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danl.errors import InputError
from danl.spec import Registry, closest_first, parse_spec, unknown_name

from .plugins import install


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("iid", ("iid", {})),
        ("  danl-paper ", ("danl-paper", {})),
        ("coverage:psi=3,gamma=2", ("coverage", {"psi": 3, "gamma": 2})),
        ("sorted: shuffle = 0.2", ("sorted", {"shuffle": 0.2})),
        (
            "x:a=1e-3,b=-4,c=true,d=False,e=cyclic",
            ("x", {"a": 1e-3, "b": -4, "c": True, "d": False, "e": "cyclic"}),
        ),
        ("x:regions-per-round=1", ("x", {"regions_per_round": 1})),
        ("schedule:path=C:/masks=1.npy", ("schedule", {"path": "C:/masks=1.npy"})),
        ("x:a=1_0", ("x", {"a": "1_0"})),
    ],
)
def test_parses(text, expected):
    name, options = parse_spec(text, argument="policy")
    assert (name, options) == expected
    assert [type(value) for value in options.values()] == [type(value) for value in expected[1].values()]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the name is missing or has a stray character"),
        (":a=1", "the name is missing or has a stray character"),
        ("a b", "the name is missing or has a stray character"),
        ("x=3", "the name is missing or has a stray character"),
        ("x:", "an option is missing after ':' or ','"),
        ("x:a=1,", "an option is missing after ':' or ','"),
        ("x:psi", "'psi' has no '='"),
        ("x:=3", "'' cannot be the name of an option"),
        ("x:a=", "'a' has no value"),
        ("x:a=1,a=2", "'a' is given twice"),
    ],
)
def test_malformed_text_says_what_is_wrong(text, reason):
    with pytest.raises(InputError) as caught:
        parse_spec(text, argument="policy")
    expected = f"policy={text!r}: must be written as 'name' or 'name:key=value,key=value'; {reason}"
    assert str(caught.value) == expected


def test_not_text():
    with pytest.raises(InputError, match=r"^scheme=3: must be text written as"):
        parse_spec(3, argument="scheme")


@given(
    st.from_regex(r"[a-z][a-z-]{0,8}", fullmatch=True),
    st.dictionaries(
        st.from_regex(r"[a-z]{1,6}", fullmatch=True),
        st.integers() | st.floats(allow_nan=False) | st.booleans(),
    ),
)
def test_round_trip(name, options):
    text = name + (":" if options else "") + ",".join(f"{key}={value!r}" for key, value in options.items())
    parsed_name, parsed = parse_spec(text, argument="scheme")
    assert parsed_name == name
    assert parsed == options
    assert all(type(parsed[key]) is type(value) for key, value in options.items())


@given(st.text())
def test_any_text_parses_or_is_answered(text):
    name, options, answer = "", {}, ""
    try:
        name, options = parse_spec(text, argument="scheme")
    except InputError as error:
        answer = str(error)
    if answer:
        assert repr(text) in answer
    else:
        assert name
        assert all(key and value != "" for key, value in options.items())


def test_nan_is_a_float():
    assert math.isnan(parse_spec("x:a=nan", argument="scheme")[1]["a"])


def test_closest_come_first_and_none_is_lost():
    names = ["iid", "sorted", "dirichlet", "quantity", "site"]
    assert closest_first("dirichle", names)[0] == "dirichlet"
    assert closest_first("SORT", names)[0] == "sorted"
    assert closest_first("zzz", names) == names
    assert sorted(closest_first("sit", names)) == sorted(names)


def test_unknown_name_lists_all():
    error = unknown_name("scheme", "idd", ["sorted", "iid"], "choose one")
    assert str(error) == "scheme='idd': must be one of iid, sorted; choose one"


# Names: those that are built in, and those of installed packages.

SOURCE = """
class Spring:
    def __init__(self, stiffness, damping=0.5, temperature=None):
        if stiffness < 0:
            raise ValueError("a spring pulls back")
        self.name, self.stiffness, self.damping, self.temperature = "spring", stiffness, damping, temperature

def nothing():
    return 3

class Bunch:
    name = "bunch"

    def __init__(self, stiffness=1.0, *rods, **options):
        self.stiffness, self.options = stiffness, options

class Hot:
    name = "hot"

    def __init__(self, temperature, **options):
        self.temperature = temperature
"""
ENTRIES = {
    "bunch": "springs:Bunch",
    "hot": "springs:Hot",
    "spring": "springs:Spring",
    "nothing": "springs:nothing",
    "gone": "springs:Gone",
    "broken": "nowhere:X",
}


class Rod:
    name = "rod"

    def __init__(self, length=1.0):
        self.length = length


@pytest.fixture
def registry(tmp_path, monkeypatch):
    install(tmp_path, "danl-springs", {"danl.parts": ENTRIES}, springs=SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "springs", raising=False)
    return Registry("part", "danl.parts", {"rod": Rod, "late": "fractions:Fraction"}, parts=("name",))


def test_a_built_in_name_and_its_options(registry):
    made = registry.make("rod:length=2")
    assert (type(made), made.length) == (Rod, 2)
    assert registry.make(made) is made
    assert "springs" not in sys.modules


def test_a_name_of_an_installed_package(registry):
    made = registry.make("spring:stiffness=3", temperature=20.0, pressure=1.0)
    assert (made.stiffness, made.damping, made.temperature) == (3, 0.5, 20.0)
    assert registry.names() == ["rod", "late", "broken", "bunch", "gone", "hot", "nothing", "spring"]


def test_what_fixed_options_make(registry):
    long = Registry("part", "danl.none", {"long": partial(Rod, length=9)})
    assert long.make("long").length == 9
    with pytest.raises(InputError, match="long has no option 'length'; it has none"):
        long.make("long:length=1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sprng", "part='sprng': must be one of spring, rod, late, broken, bunch, gone, hot, nothing"),
        ("rod:lenth=1", "part='rod:lenth=1': rod has no option 'lenth'; it has length"),
        ("spring", "part='spring': must be spring with stiffness; try 'spring:stiffness=...'"),
        ("spring", "; springs:Spring of the package danl-springs is called with the options, and makes the part"),
        ("spring:temperature=3,stiffness=1", "spring has no option 'temperature'; it has stiffness, damping"),
        (
            "spring:stiffness=-1",
            "part='spring:stiffness=-1': springs:Spring of the package danl-springs fails "
            "(ValueError: a spring pulls back)",
        ),
        (
            "broken",
            "part='broken': nowhere:X of the package danl-springs cannot be used "
            "(ModuleNotFoundError: No module named 'nowhere'); mend or uninstall that package",
        ),
        ("gone", "part='gone': springs:Gone of the package danl-springs cannot be used (AttributeError: "),
        ("nothing", "springs:nothing of the package danl-springs makes a int; it must be an object with name"),
        (4, "part=4: must be a name (rod, late, broken, bunch, gone, hot, nothing, spring) or an object with name;"),
        (4, "or an object with name; it lacks name (docs/extending.md)"),
        (Rod, "or an object with name; this is a class (docs/extending.md)"),
    ],
)
def test_what_is_said_of_a_wrong_name(registry, text, message):
    with pytest.raises(InputError) as caught:
        registry.make(text, temperature=20.0)
    assert message in str(caught.value)


def test_an_object_that_is_one_is_taken_without_a_look_at_what_is_installed(registry, monkeypatch):
    monkeypatch.setattr(Registry, "_entry_points", None)
    rod = Rod()
    assert registry.make(rod) is rod


def test_a_factory_that_takes_any_option(registry):
    assert vars(registry.make("bunch")) == {"stiffness": 1.0, "options": {}}
    made = registry.make("bunch:beta=2,stiffness=3,rods=4", temperature=20.0)
    assert (made.stiffness, made.options) == (3, {"beta": 2, "rods": 4})
    with pytest.raises(InputError, match="bunch has no option 'temperature'; it has stiffness"):
        registry.make("bunch:temperature=2", temperature=20.0)


def test_what_a_name_cannot_do_without(registry):
    assert registry.make("hot", temperature=20.0).temperature == 20.0
    assert registry.make("spring:stiffness=1", temperature=None).temperature is None  # it has a default
    with pytest.raises(InputError, match=r"^part='hot': must be given with temperature$"):
        registry.make("hot", temperature=None)


def test_two_packages_with_one_name(registry, tmp_path):
    install(tmp_path, "other-springs", {"danl.parts": {"spring": "springs:Other"}})
    with pytest.raises(InputError) as caught:
        registry.make("spring:stiffness=1")
    assert str(caught.value).startswith("part='spring': is there twice: ")
    for each in ("springs:Spring of the package danl-springs", "springs:Other of the package other-springs"):
        assert each in str(caught.value)
