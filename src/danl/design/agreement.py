"""The server: of what the sites tell it makes one design, or says which site differs, in what, and what to do.

The levels of a column of words are those of all sites, in one order that depends neither on the sites' order nor on
their rows: numbers by size, words by the alphabet, the reference level first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from danl.data.schema import LISTED
from danl.data.table import is_number
from danl.design.analysis import Analysis
from danl.design.design import Agreement, Design
from danl.design.formula import SITE, Model, coded, read_model
from danl.design.survey import NUMBERS, WORDS, Survey, needs_levels, surveyed_kinds
from danl.errors import InputError, bad_argument
from danl.spec import closest_first
from danl.wording import listed

UNITS_DIFFER = 1.0
"""Powers of ten between the sizes of a column's numbers at two sites, from which on there is a note."""


def agree(analysis: Analysis, surveys: Sequence[Survey]) -> Agreement:
    """The design of what the sites told; an `InputError` names the site that differs, and what to do."""
    model = read_model(analysis)
    named = _named(surveys, model)
    levels: dict[str, tuple[str, ...]] = {}
    outcome: tuple[str, ...] | None = None
    notes: list[str] = []
    for name in model.names:
        kinds = surveyed_kinds(named, name)
        _same_kind(name, kinds, model)
        if not needs_levels(name, next(iter(kinds)), model):
            notes += _units(name, named)
            continue
        union = _union(name, named)
        notes += _not_everywhere(name, union, named)
        if name in model.outcome.names and name not in model.word_names:
            outcome = _outcome_levels(name, union, model)
        else:
            levels[name] = _reference_first(name, union, model)
    if outcome is None and model.event is not None:
        raise bad_argument("event", model.event, "left out", f"{model.outcome.text} is 0 and 1 at the sites")
    _refuse_constant(named, model, levels, analysis.site_effects)
    notes += _constant_outcome(named, model, analysis)
    sites = tuple(sorted(named)) if analysis.site_effects else ()
    if analysis.site_effects and len(sites) < 2:
        raise bad_argument("site_effects", True, "left out", f"{sites[0]} is the only site")
    columns = coded(model, levels, sites)
    return Agreement(
        Design(analysis, model.outcome.text, model.intercept, levels, outcome, sites, columns), tuple(notes)
    )


def _named(surveys: Sequence[Survey], model: Model) -> dict[str, Survey]:
    named: dict[str, Survey] = {}
    for each in surveys:
        if tuple(column.name for column in each.columns) != model.names:
            raise InputError(
                f"shards: {each.site} told of other columns than those of the formula; is it the same danl?"
            )
        if each.site in named:
            raise InputError(f"shards: two sites are called {each.site!r}; give each a name of its own")
        named[each.site] = each
    return named


def _same_kind(name: str, kinds: Mapping[str, list[str]], model: Model) -> None:
    if len(kinds) == 1:
        return
    fewer = min((NUMBERS, WORDS), key=lambda kind: len(kinds[kind]))
    other = WORDS if fewer == NUMBERS else NUMBERS
    coding = "" if name in model.outcome.names else f", or write C({name}) to take both as levels"
    raise InputError(
        f"shards: column {name!r} holds {fewer} at {listed(kinds[fewer], LISTED)} and {other} at "
        f"{listed(kinds[other], LISTED)}; code it alike at every site{coding}"
    )


def level_order(level: str) -> tuple[bool, float, str, str]:
    """Numbers by size, then words by the alphabet."""
    number = is_number(level)
    return not number, float(level) if number else 0.0, level.casefold(), level


def _union(name: str, named: Mapping[str, Survey]) -> tuple[str, ...]:
    found = {level for each in named.values() for level in each.column(name).levels}
    if not found:
        raise InputError(f"shards: column {name!r} has no level with enough records at any site; leave it out")
    return tuple(sorted(found, key=level_order))


def _not_everywhere(name: str, union: Sequence[str], named: Mapping[str, Survey]) -> list[str]:
    """Notes on levels that one site alone has, and on such as no site may name."""
    notes = []
    alone: dict[str, list[str]] = {}
    for level in union:
        having = [site for site, each in named.items() if level in each.column(name).levels]
        if len(having) == 1 and len(named) > 1:
            alone.setdefault(having[0], []).append(level)
    for site, levels in alone.items():
        unsure = [other for other, each in named.items() if each.column(name).rare and other != site]
        also = f" (or rare at {listed(unsure, LISTED)})" if unsure else ""
        what, it = (f"{name}[{levels[0]}]", "it is") if len(levels) == 1 else (name, "they are")
        told = "this level" if len(levels) == 1 else f"the levels {listed(map(repr, levels), LISTED)}"
        notes.append(
            f"{what}: {site} alone has {told}{also}; if {it} another spelling, "
            "write it there as elsewhere, or merge levels that are rare"
        )
    for site, each in named.items():
        rare = each.column(name).rare
        if rare:
            notes.append(
                f"{name}: {site} has {rare} level{'s' * (rare > 1)} of too few records to be named; records with a "
                "level that no other site has named are left out"
            )
    return notes


def _outcome_levels(name: str, union: tuple[str, ...], model: Model) -> tuple[str, ...]:
    """The two levels of the outcome; the event is the second."""
    if model.event is not None and model.event not in union:
        raise bad_argument("event", model.event, f"a level of {name!r}", f"the sites have {listed(union, LISTED)}")
    if len(union) == 1:
        raise InputError(f"shards: the outcome {name!r} is {union[0]!r} at every site; there is nothing to explain")
    if len(union) != 2:
        found = f"{len(union)} levels at the sites, {listed(union, LISTED)}"
        raise InputError(f"shards: a binomial outcome has two levels, and {name!r} has {found}; mend them, or merge")
    if model.event is None:
        return union
    return (next(level for level in union if level != model.event), model.event)


def _reference_first(name: str, union: tuple[str, ...], model: Model) -> tuple[str, ...]:
    if len(union) == 1:
        raise InputError(f"shards: {name!r} is {union[0]!r} at every site; leave it out of the formula")
    given = next((factor.reference for factor in model.factors if factor.text == name and factor.reference), None)
    if given is None:
        return union
    if given not in union:
        near = listed(map(repr, closest_first(given, union)), LISTED)
        raise InputError(f"formula: reference={given!r} of {name!r} is a level at no site; they have {near}")
    return (given, *(level for level in union if level != given))


def _units(name: str, named: Mapping[str, Survey]) -> list[str]:
    sizes = {site: size for site, each in named.items() if (size := each.column(name).magnitude) is not None}
    if len(sizes) < 2:
        return []
    low, high = min(sizes, key=lambda site: sizes[site]), max(sizes, key=lambda site: sizes[site])
    if sizes[high] - sizes[low] < UNITS_DIFFER:
        return []
    return [
        f"{name}: the numbers of {high} are about {10 ** (sizes[high] - sizes[low]):.0f} times those of {low}; "
        "look whether the units are the same"
    ]


def _constant_outcome(named: Mapping[str, Survey], model: Model, analysis: Analysis) -> list[str]:
    """A note on an outcome that leaves nothing to explain."""
    found = {tuple(each.column(name).constant for name in model.outcome.names) for each in named.values()}
    plain = model.intercept and analysis.offset is None and analysis.family_name in ("gaussian", "gamma")
    if not plain or len(found) > 1 or None in found.pop():
        return []
    return [
        f"{model.outcome.text}: the outcome is the same in all records of all sites: there is nothing to explain, and "
        "standard errors mean nothing"
    ]


def _refuse_constant(
    named: Mapping[str, Survey], model: Model, levels: Mapping[str, Sequence[str]], site_effects: bool
) -> None:
    """Refuse a column of numbers that is the same everywhere, or with effects of the sites at every site."""
    plain = [term[0].text for term in model.terms if len(term) == 1 and term[0].kind == "either"]
    for name in (name for name in plain if name not in levels):
        values = [each.column(name).constant for each in named.values()]
        if any(value is None for value in values) or not (model.intercept or site_effects):
            continue
        if len(set(values)) == 1:
            raise InputError(f"shards: column {name!r} is the same in all records of all sites; leave it out")
        if site_effects:
            raise InputError(
                f"shards: column {name!r} is constant at each of the sites, so that it is one with their effects; "
                f"leave it out, or site_effects ({SITE})"
            )
