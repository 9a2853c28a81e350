import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danl.errors import InputError
from danl.spec import closest_first, parse_spec, unknown_name


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
