"""Spec strings: one line of text that names a thing and sets its options.

Methods, mask policies, starts and partition schemes are all chosen on the command line as
``name:key=value,key=value``, for example ``coverage:psi=3,gamma=2``. They are parsed here, once, so that
the same text means the same thing everywhere and a slip is answered the same way. What a name or an option
means is the caller's business.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from danl.errors import InputError, bad_argument

SpecValue = int | float | bool | str

_FORM = "written as 'name' or 'name:key=value,key=value'"
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_KEY = re.compile(r"[A-Za-z][\w-]*")
_INTEGER = re.compile(r"[+-]?[0-9]+")


def parse_spec(text: str, *, argument: str) -> tuple[str, dict[str, SpecValue]]:
    """Split ``name:key=value,key=value`` into the name and its options.

    Values become int, float, bool (``true``, ``false``) or stay text. A hyphen in a key reads as an
    underscore, as it does in command-line options.

    Parameters
    ----------
    text
        The spec, for example ``"dirichlet:alpha=0.5"``.
    argument
        What the caller's argument is called; errors name it.
    """
    if not isinstance(text, str):
        raise bad_argument(argument, text, f"text {_FORM}")
    name, colon, rest = text.strip().partition(":")
    name = name.strip()
    if not _NAME.fullmatch(name):
        raise bad_argument(argument, text, _FORM, "the name is missing or has a stray character")
    if not colon:
        return name, {}
    options: dict[str, SpecValue] = {}
    for part in rest.split(","):
        key, value = _split_option(part, text=text, argument=argument)
        if key in options:
            raise bad_argument(argument, text, _FORM, f"{key!r} is given twice")
        options[key] = value
    return name, options


def closest_first(name: str, names: Iterable[str]) -> list[str]:
    """Order `names` for a "did you mean" list: those most like `name` first, then the others as they came."""
    listed = list(names)
    lowered = {each.lower(): each for each in reversed(listed)}
    close = difflib.get_close_matches(str(name).lower(), list(lowered), n=3, cutoff=0.5)
    first = [lowered[each] for each in close]
    return first + [each for each in listed if each not in first]


def unknown_name(argument: str, name: str, names: Iterable[str], next_step: str = "") -> InputError:
    """Build the error for a name that is not among `names`: it lists them, the closest first."""
    return bad_argument(argument, name, f"one of {', '.join(closest_first(name, names))}", next_step)


def _split_option(part: str, *, text: str, argument: str) -> tuple[str, SpecValue]:
    key, equals, value = (piece.strip() for piece in part.partition("="))
    if not part.strip():
        raise bad_argument(argument, text, _FORM, "an option is missing after ':' or ','")
    if not equals:
        raise bad_argument(argument, text, _FORM, f"{part.strip()!r} has no '='")
    if not _KEY.fullmatch(key):
        raise bad_argument(argument, text, _FORM, f"{key!r} cannot be the name of an option")
    if not value:
        raise bad_argument(argument, text, _FORM, f"{key!r} has no value")
    return key.replace("-", "_"), _parse_value(value)


def _parse_value(text: str) -> SpecValue:
    if _INTEGER.fullmatch(text):
        return int(text)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "_" in text:  # float() would read 1_5 as 15, which nobody who typed it here meant
        return text
    try:
        return float(text)
    except ValueError:
        return text
