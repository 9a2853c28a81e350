"""Things that are chosen by name: text such as ``coverage:psi=3,gamma=2``, and the registries that make objects of it.

`parse_spec` reads the text, the same way for everything that is chosen so. A `Registry` has the names of one kind of
thing (methods, policies, losses, engines): the built-in ones, and those that installed packages bring as entry points.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Generic, TypeVar

from danl.errors import InputError, bad_argument

SpecValue = int | float | bool | str
T = TypeVar("T")

_FORM = "written as 'name' or 'name:key=value,key=value'"
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_KEY = re.compile(r"[A-Za-z][\w-]*")
_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
_INTEGER = re.compile(r"[+-]?[0-9]+")


def parse_spec(text: str, *, argument: str) -> tuple[str, dict[str, SpecValue]]:
    """Split ``name:key=value,key=value`` into the name and its options; errors name the caller's `argument`.

    Values become int, float, bool (``true``, ``false``) or stay text. A hyphen in a key reads as an underscore, as it
    does in command-line options.
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


@cache  # a signature leaves cycles behind, and every problem makes a loss
def _parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(factory).parameters


@cache
def _needs_nothing(factory: Callable[..., Any]) -> bool:
    return all(each.default is not each.empty or each.kind in _VARIADIC for each in _parameters(factory).values())


@dataclass(frozen=True)
class Registry(Generic[T]):
    """Makes objects of one kind from text: a name, and options as keyword arguments of whatever the name stands for.

    A name that is not built in is looked for among the entry points of the group ``danl.<kind>`` of all installed
    packages; none of them is imported before its name is asked for.
    """

    argument: str
    """What the argument is called that takes such text; errors name it."""
    group: str
    """The group of the entry points, for example ``danl.methods``."""
    builtin: Mapping[str, Callable[..., T] | str]
    """What makes the object of each name: a class, a function, or ``module:attribute``, imported when it is needed."""
    parts: tuple[str, ...] = ()
    """Attributes by which an object of this kind is known; none where the caller looks itself."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Text that works, for names that need an option."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """What is said where something of the caller's `context` is not there, and a name cannot do without it."""

    def names(self) -> list[str]:
        """The names there are: the built-in ones, then those of plug-ins."""
        return list(dict.fromkeys([*self.builtin, *sorted(self._entry_points().names)]))

    def make(self, given: str | T, **context: Any) -> T:
        """Make the object that the text names; an object that is one already is returned as it is.

        `context` is what the caller knows: it is passed to whatever has a parameter of that name, and is no option.
        """
        if not isinstance(given, str):
            if lacks := self._lacks(given):
                raise InputError(f"{self.argument}={given!r}: must be a name ({', '.join(self.names())}) or {lacks}")
            return given
        name, options = parse_spec(given, argument=self.argument)
        factory, source = self._factory(name)
        if not options and not context and not source and _needs_nothing(factory):
            return factory()
        fixed = factory.keywords if isinstance(factory, partial) else {}
        parameters = {key: each for key, each in _parameters(factory).items() if key not in fixed}
        kinds = {each.kind for each in parameters.values()}
        takes = [key for key, each in parameters.items() if key not in context and each.kind not in _VARIADIC]
        for option in options:
            if option not in takes and (option in context or inspect.Parameter.VAR_KEYWORD not in kinds):
                has = ", ".join(closest_first(option, takes)) or "none"
                raise InputError(f"{self.argument}={given!r}: {name} has no option {option!r}; it has {has}")
        for key in takes:
            if parameters[key].default is inspect.Parameter.empty and key not in options:
                example = self.examples.get(name, f"{name}:{key}=...")
                called = f"; {source} is called with the options, and makes the {self.argument}" if source else ""
                raise bad_argument(self.argument, given, f"{name} with {key}", f"try {example!r}{called}")
        known = {key: value for key, value in context.items() if key in parameters}
        for key, value in known.items():
            if value is None and parameters[key].default is inspect.Parameter.empty:
                raise bad_argument(self.argument, given, f"given with {self.needs.get(key, key)}")
        try:
            made = factory(**options, **known)
        except Exception as error:
            if not source or isinstance(error, InputError):
                raise
            raise InputError(f"{self.argument}={given!r}: {source} fails ({type(error).__name__}: {error})") from error
        if lacks := self._lacks(made):
            raise InputError(f"{self.argument}={given!r}: {source} makes a {type(made).__name__}; it must be {lacks}")
        return made

    def _lacks(self, made: object) -> str:
        """What an object would have to be that is none of this kind; empty for one that is."""
        missing = [part for part in self.parts if not hasattr(made, part)]
        if not self.parts or not (missing or isinstance(made, type)):
            return ""
        lacks = "this is a class" if isinstance(made, type) else f"it lacks {', '.join(missing)}"
        return f"an object with {', '.join(self.parts)}; {lacks} (docs/extending.md)"

    def _entry_points(self, **named: Any) -> Any:
        from importlib import metadata  # here: it takes as long as all the rest of `import danl`

        return metadata.entry_points(group=self.group, **named)

    def _factory(self, name: str) -> tuple[Callable[..., T], str]:
        """What makes the object of this name, and which package it is from: empty for what is built in."""
        if name in self.builtin:
            factory = self.builtin[name]
            if isinstance(factory, str):
                module, _, attribute = factory.partition(":")
                factory = getattr(importlib.import_module(module), attribute)
            return factory, ""
        found = self._entry_points(name=name)
        if not found:
            raise unknown_name(self.argument, name, self.names())
        sources = [f"{each.value} of the package {each.dist.name if each.dist else '?'}" for each in found]
        if len(found) > 1:
            raise InputError(f"{self.argument}={name!r}: is there twice: {', '.join(sources)}; uninstall one of them")
        try:
            factory = next(iter(found)).load()
            inspect.signature(factory)
        except Exception as error:  # whatever happens when the package is imported
            raise InputError(
                f"{self.argument}={name!r}: {sources[0]} cannot be used ({type(error).__name__}: {error}); "
                "mend or uninstall that package"
            ) from error
        return factory, sources[0]


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
