"""Frozen data, made and changed in one go: a run makes some fifty such objects an exchange.

`at_once` lets the constructor of a frozen dataclass set all fields together. `replace` is `dataclasses.replace` without
the constructor. The standard library sets the fields of a frozen class one by one, by a call each. `cached_property` is
that of the standard library, without the lock it has up to Python 3.11.

What a class remembers beside its fields (cached properties) is not taken along by `replace`. Classes that check their
fields when they are made go the standard way, unless all that happens then is that defaults are filled in, which are
there in a copy already (`FILLED_IN`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

FILLED_IN = "fills_in_defaults"
"""A class with this attribute has a `__post_init__` that a copy can do without."""
_FIELDS: dict[type, tuple[str, ...]] = {}
"""The names of a class's fields, where a copy can be made without its constructor; none where it cannot."""
_new, _set = object.__new__, object.__setattr__


def at_once(kind: type[T]) -> type[T]:
    """Let the constructor of a frozen dataclass set its fields together; its parameters stay what they are.

    Such an object takes more memory, as `replace` makes it anyway: not for what is kept by the thousand.
    """
    before: Any = kind.__init__
    parameters = [each for each in inspect.signature(before).parameters.values() if each.name != "self"]
    factories = {
        f"make_{field.name}": field.default_factory
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if field.default_factory is not dataclasses.MISSING
    }
    standing_in = next((each.default for each in parameters if f"make_{each.name}" in factories), None)

    def value(name: str) -> str:
        made = f"make_{name}"
        return f"{made}() if {name} is standing_in else {name}" if made in factories else name

    named_only = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    first = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    takes = ", ".join(["self", *first, *(["*", *named_only] if named_only else [])])
    fields = ", ".join(f"{each.name!r}: {value(each.name)}" for each in parameters)
    then = "; self.__post_init__()" if hasattr(kind, "__post_init__") else ""
    names: dict[str, Any] = {"set_fields": _set, "standing_in": standing_in, **factories}
    exec(f"def __init__({takes}): set_fields(self, '__dict__', {{{fields}}}){then}", names)  # as dataclasses does
    made: Any = functools.update_wrapper(names["__init__"], before)
    del made.__wrapped__
    made.__defaults__, made.__kwdefaults__ = before.__defaults__, before.__kwdefaults__
    kind.__init__ = made  # type: ignore[method-assign]
    return kind


def replace(instance: T, /, **changes: Any) -> T:
    """A copy with these fields changed."""
    kind = type(instance)
    try:
        names = _FIELDS[kind]
    except KeyError:
        names = _FIELDS[kind] = _plain_fields(kind)
    if not names:
        return dataclasses.replace(instance, **changes)  # type: ignore[type-var]
    own = instance.__dict__ | changes
    if len(own) != len(names):  # something is remembered beside the fields, or a change is none of a field
        if not changes.keys() <= set(names):
            return dataclasses.replace(instance, **changes)  # type: ignore[type-var]  # which says what is wrong
        own = {name: own[name] for name in names}
    made = _new(kind)
    _set(made, "__dict__", own)
    return made


def _plain_fields(kind: type) -> tuple[str, ...]:
    checked = hasattr(kind, "__post_init__") and not hasattr(kind, FILLED_IN)
    if not dataclasses.is_dataclass(kind) or hasattr(kind, "__slots__") or checked:
        return ()
    fields = dataclasses.fields(kind)
    plain = all(field.init for field in fields) and "__init__" in kind.__dict__
    return tuple(field.name for field in fields) if plain else ()


if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801
        """A property that is computed once for every object."""

        def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
