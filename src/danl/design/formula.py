"""A formula, read and checked: the outcome, whether there is an intercept, and the terms with their factors.

formulaic reads the operators (+, :, *, /, **, -) into terms. What stands inside a term is read by
`danl.design.expression`, which allows arithmetic on columns and runs nothing. A factor is one of

    a number    an expression: log(bmi), I(age**2), poly(age, 2, raw=True)
    levels      C(smoking), C(smoking, reference="never")
    either      a column by its name: numbers or words, as the sites' answers show

`coded` makes the columns of the design of them, once the sites' levels are known: formulaic's model spec of a synthetic
frame says which factors lose their reference level, so that no column is the sum of others.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from danl.checks import check_installed
from danl.data.records import as_level
from danl.design.analysis import Analysis
from danl.design.expression import (
    ALLOWED,
    Expression,
    depends_on_rows,
    parse,
    quoted_name,
    syntax,
    with_backticks,
    without_backticks,
)
from danl.errors import InputError, bad_argument

Kind = Literal["number", "levels", "either"]
SITE = "site"
"""The factor of the sites' effects; no column."""
MOST_TERMS = 1_000
MOST_POWER = 5
"""The highest power of a sum, (a + b)**2, and of poly."""
MOST_CROSSED = 8
"""How many times * may stand between terms: every one doubles them."""
MOST_PRODUCTS = 1_000_000
"""How many products the powers of sums may stand for, before those that are alike are one."""
MOST_COLUMNS = 20_000
_EVENT = re.compile(r"\s*(`[^`]+`|[^\W\d]\w*)\s*\[\s*([^\[\]]+?)\s*\]\s*")
_STRING = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True)
class Factor:
    """A part of a term: one column of words, or numbers made of columns."""

    kind: Kind
    text: str
    """The expression, or the column of words."""
    names: tuple[str, ...]
    reference: str | None = None
    power: int = 1
    """Of poly: the highest."""

    @property
    def expressions(self) -> tuple[tuple[str, str], ...]:
        """The columns that a factor of numbers makes: what each is called, and its expression."""
        if self.power == 1:
            return ((self.text, self.text),)
        called = f"poly({self.text}, {self.power}, raw=True)"
        return tuple(
            (f"{called}[{power}]", f"({self.text})**{power}" if power > 1 else self.text)
            for power in range(1, self.power + 1)
        )


@dataclass(frozen=True)
class Model:
    """What an analysis needs of its columns."""

    outcome: Expression
    event: str | None
    intercept: bool
    terms: tuple[tuple[Factor, ...], ...]
    offset: Expression | None
    weights: str | None
    trials: str | None
    cluster: str | None
    """The column that standard errors are clustered by; None where there is none, or it is the site."""

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The different factors, in the order they come."""
        return tuple(dict.fromkeys(factor for term in self.terms for factor in term))

    @property
    def products(self) -> tuple[tuple[str, ...], ...]:
        """Of outcome, offset and every term the expressions that are multiplied; of poly its highest power."""
        alone = (self.outcome.text,) if self.offset is None else (self.outcome.text, self.offset.text)
        found: list[tuple[str, ...]] = [(text,) for text in alone]
        for term in self.terms:
            numbers = (factor.expressions[-1][1] for factor in term if factor.kind == "number")
            found.append((*numbers, *(quoted_name(factor.text) for factor in term if factor.kind == "either")))
        return tuple(found)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read, and no others are."""
        found = list(self.outcome.names)
        for factor in self.factors:
            found += factor.names
        found += self.offset.names if self.offset is not None else ()
        found += [name for name in (self.weights, self.trials, self.cluster) if name is not None]
        return tuple(dict.fromkeys(found))

    @property
    def numeric_names(self) -> frozenset[str]:
        """The columns that must hold numbers wherever they are."""
        found = {name for factor in self.factors if factor.kind == "number" for name in factor.names}
        found |= {name for name in (self.weights, self.trials) if name is not None}
        return frozenset(found | set(self.offset.names if self.offset is not None else ()))

    @property
    def valued_names(self) -> frozenset[str]:
        """The columns whose cells the design is made of: all but one that only says which cluster a record is in."""
        found = {name for factor in self.factors for name in factor.names}
        return frozenset(found | self.numeric_names | set(self.outcome.names))

    @property
    def word_names(self) -> frozenset[str]:
        """The columns whose levels count, numbers or not: those in C()."""
        return frozenset(factor.text for factor in self.factors if factor.kind == "levels")


def read_model(analysis: Analysis) -> Model:
    """Read the formula of an analysis, or its columns."""
    event = analysis.event
    if analysis.formula is None:
        assert analysis.outcome is not None
        left = quoted_name(analysis.outcome)
        intercept = True
        terms: tuple[tuple[Factor, ...], ...] = tuple((_column(name),) for name in analysis.columns or ())
    else:
        left, right = _sides(analysis.formula)
        named = _EVENT.fullmatch(left)
        if named is not None:
            if event is not None and event != named[2].strip("'\""):
                raise bad_argument("event", event, "given once", f"the formula says {named[2]}")
            left, event = named[1], named[2].strip("'\"")
        intercept, terms = _terms(right)
    if event is not None and analysis.family_name != "binomial":
        raise bad_argument("formula", analysis.formula, "without [...] at the outcome", "that is for family='binomial'")
    if not terms:
        raise bad_argument("formula", analysis.formula, "a formula with at least one column", "such as outcome ~ age")
    outcome = parse(left.strip())
    model = Model(
        outcome=outcome,
        event=None if event is None else as_level(event),
        intercept=intercept,
        terms=terms,
        offset=None if analysis.offset is None else _number_or_column(analysis.offset),
        weights=analysis.weights,
        trials=analysis.trials,
        cluster=None if analysis.cluster == SITE else analysis.cluster,
    )
    explained = {name for factor in model.factors for name in factor.names}
    if outcome.is_column and outcome.names[0] in explained:
        raise bad_argument("formula", analysis.formula, "without the outcome among what explains it")
    twice = [factor.text for factor in model.factors if factor.kind == "either" and factor.text in model.word_names]
    coded = [factor.text for factor in model.factors if factor.kind == "levels"]
    twice += [name for name in coded if coded.count(name) > 1]
    if twice:
        raise bad_argument("formula", analysis.formula, f"one way of writing {twice[0]!r}", "it is coded in two ways")
    return model


def _number_or_column(text: str) -> Expression:
    """An offset: a column, whatever its name is, or an expression."""
    try:
        return parse(text)
    except InputError as error:
        raise InputError(str(error).replace("formula:", "offset:", 1)) from None


def _sides(formula: str) -> tuple[str, str]:
    """What stands left and right of the ~."""
    hidden = _STRING.sub(lambda match: "x" * len(match[0]), formula)
    if hidden.count("~") != 1 or not formula[: hidden.index("~")].strip():
        raise bad_argument(
            "formula", formula, "an outcome, a ~ and what explains it", "such as outcome ~ age + smoking"
        )
    for mark in "{}|\\":
        if mark in hidden:
            raise bad_argument("formula", formula, f"without {mark}", ALLOWED)
    crossed = _outside_calls(hidden).replace("**", "^")
    if crossed.count("*") + crossed.count("/") > MOST_CROSSED:
        raise bad_argument("formula", formula, f"with at most {MOST_CROSSED} * between terms", "write the terms out")
    powers = re.findall(r"\^\s*(\w*)", crossed)
    if any(not (power.isdecimal() and 1 <= int(power) <= MOST_POWER) for power in powers) or len(powers) > 3:
        raise bad_argument(
            "formula", formula, f"with powers of sums from 1 to {MOST_POWER}", "I(x**2) is that of a column"
        )
    if (crossed.count("+") + 1) ** math.prod(map(int, powers)) > MOST_PRODUCTS:
        raise bad_argument("formula", formula, "with powers of shorter sums", "write the terms out")
    at = hidden.index("~")
    return formula[:at], formula[at + 1 :]


def _outside_calls(text: str) -> str:
    """A formula without what stands in the brackets of calls."""
    kept: list[str] = []
    calls: list[bool] = []
    for place, letter in enumerate(text):
        if letter == "(":
            calls.append(place > 0 and (text[place - 1].isalnum() or text[place - 1] in "_`"))
        elif letter == ")" and calls:
            calls.pop()
        elif not any(calls):
            kept.append(letter)
    return "".join(kept)


def _terms(right: str) -> tuple[bool, tuple[tuple[Factor, ...], ...]]:
    """Whether there is an intercept, and the terms, in the order of formulaic: the simpler ones first."""
    check_installed("formula", "formulaic", "formula")
    from formulaic.errors import FormulaicError
    from formulaic.parser import DefaultFormulaParser

    parser = DefaultFormulaParser(feature_flags=DefaultFormulaParser.FeatureFlags.NONE)
    plain, quoted = without_backticks(right)
    try:
        found = list(parser.get_terms(plain))
    except (FormulaicError, SyntaxError, ValueError, RecursionError, MemoryError, AttributeError, TypeError):
        raise bad_argument("formula", right.strip(), "terms joined by + : * / ** -", ALLOWED) from None
    if len(found) > MOST_TERMS:
        raise bad_argument("formula", right.strip(), f"of at most {MOST_TERMS} terms")
    intercept, terms = False, []
    for term in found:
        texts = [factor.expr for factor in term.factors]
        if texts == ["1"]:
            intercept = True
        else:
            lookups = [factor.eval_method.name == "LOOKUP" for factor in term.factors]
            terms.append(tuple(_factor(*each, quoted) for each in zip(texts, lookups, strict=True)))
    return intercept, tuple(sorted(terms, key=len))


def _factor(text: str, lookup: bool, quoted: Mapping[str, str]) -> Factor:
    if text in quoted:
        return _column(quoted[text])
    text = with_backticks(text, quoted)
    if lookup:
        if "." in text:
            raise InputError(f"formula: {text!r} has a point in it; write a column of this name in backticks")
        return _column(text)
    tree, columns = syntax(text)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in ("C", "poly"):
        return (_levels if tree.func.id == "C" else _powers)(text, tree, columns)
    expression = parse(text)
    return Factor("number", text, expression.names)


def _column(name: str) -> Factor:
    return Factor("either", name, (name,))


def _levels(text: str, call: ast.Call, quoted: Mapping[str, str]) -> Factor:
    """C(column), C(column, reference="level"), C(column, contr.treatment("level"))."""
    example = "write C(smoking) or C(smoking, reference='never')"
    if not call.args or not isinstance(call.args[0], ast.Name):
        raise InputError(f"formula: {text!r}: C() has a column in it; {example}")
    name = quoted.get(call.args[0].id, call.args[0].id)
    given: list[ast.expr] = [each.value for each in call.keywords if each.arg == "reference"]
    if len(call.args) == 2 and not call.keywords:
        given = _of_treatment(call.args[1])
    if len(given) + 1 != len(call.args) + len(call.keywords):
        raise InputError(f"formula: {text!r}: levels are compared with a reference level, and otherwise not; {example}")
    if not given:
        return Factor("levels", name, (name,))
    level = given[0]
    if not isinstance(level, ast.Constant) or isinstance(level.value, bytes | complex):
        raise InputError(f"formula: {text!r}: the reference must be a level in quotation marks; {example}")
    return Factor("levels", name, (name,), as_level(str(level.value).strip()))


def _of_treatment(node: ast.expr) -> list[ast.expr]:
    """The level in contr.treatment("level"), contr.treatment(base="level"), Treatment("level")."""
    if isinstance(node, ast.Call):
        callee = node.func
        known = (
            isinstance(callee, ast.Attribute)
            and isinstance(callee.value, ast.Name)
            and (callee.value.id, callee.attr) == ("contr", "treatment")
        ) or (isinstance(callee, ast.Name) and callee.id == "Treatment")
        values = [*node.args, *(each.value for each in node.keywords if each.arg in ("base", "reference"))]
        if known and len(values) == 1 and len(node.args) + len(node.keywords) == 1:
            return values
    return []


def _powers(text: str, call: ast.Call, quoted: Mapping[str, str]) -> Factor:
    """poly(x, 2, raw=True): powers as they are; those of R and patsy depend on all rows."""
    raw = {each.arg: getattr(each.value, "value", None) for each in call.keywords}
    degree = getattr(call.args[1], "value", None) if len(call.args) == 2 else raw.pop("degree", None)
    if raw != {"raw": True} or not call.args:
        raise depends_on_rows(text, "poly")
    if type(degree) is not int or not 1 <= degree <= MOST_POWER:
        raise InputError(f"formula: {text!r}: the degree of poly must be a whole number from 1 to {MOST_POWER}")
    inner = with_backticks(ast.unparse(call.args[0]), quoted)
    return Factor("number", inner, parse(inner).names, power=degree)


@dataclass(frozen=True)
class Part:
    """A factor of a column of the design: an expression, or whether the record has a level of a column, or a site."""

    kind: Literal["number", "level", "site"]
    text: str
    level: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of a file that it needs."""
        return parse(self.text).names if self.kind == "number" else (self.text,) if self.kind == "level" else ()


@dataclass(frozen=True)
class DesignColumn:
    """A column of the design: the product of its parts."""

    name: str
    parts: tuple[Part, ...]


def coded(model: Model, levels: Mapping[str, Sequence[str]], sites: Sequence[str] = ()) -> tuple[DesignColumn, ...]:
    """The columns of the design; `levels` of every column of words, the reference level first.

    With `sites`, an effect of every site: the first is the one the others are compared with.
    """
    import pandas as pd
    from formulaic import Formula
    from formulaic.parser.types import Factor as Named
    from formulaic.parser.types import Term

    choices: dict[str, list[tuple[str, Part]]] = {}
    keys: dict[Factor, str] = {}
    for number, factor in enumerate(model.factors):
        keys[factor] = f"f{number}"
        if factor.kind == "number" or factor.text not in levels:
            text = factor.text if factor.kind == "number" else quoted_name(factor.text)
            numeric = Factor("number", text, factor.names, power=factor.power)
            called = [(factor.text, text)] if factor.kind == "either" else numeric.expressions
            choices[f"f{number}"] = [(name, Part("number", written)) for name, written in called]
        else:
            choices[f"f{number}"] = [
                (f"{factor.text}[{level}]", Part("level", factor.text, level)) for level in levels[factor.text]
            ]
    terms = [tuple(keys[factor] for factor in term) for term in model.terms]
    if sites:
        choices["fs"] = [(f"{SITE}[{site}]", Part("site", site)) for site in sites]
        terms.append(("fs",))
    least = sum(math.prod(max(len(choices[key]) - 1, 1) for key in term) for term in terms)
    if least > MOST_COLUMNS:
        raise _too_many_columns()
    words = {key for key, found in choices.items() if found[0][1].kind != "number"}
    longest = max([2, *(len(choices[key]) for key in words)])
    frame = pd.DataFrame(
        {
            key: pd.Categorical.from_codes(
                [row % len(found) for row in range(longest)], list(map(str, range(len(found))))
            )
            if key in words
            else [float(row) for row in range(longest)]
            for key, found in choices.items()
        }
    )
    literal = [Term([Named("1", eval_method="literal")])] if model.intercept else []
    formula = Formula(literal + [Term([Named(key, eval_method="lookup") for key in term]) for term in terms])
    spec = formula.get_model_matrix(frame).model_spec
    made: list[DesignColumn] = []
    for _, scoped, _ in spec.structure:
        for term in scoped:
            products: list[tuple[tuple[str, ...], tuple[Part, ...]]] = [((), ())]
            for each in term.factors:
                key = each.factor.expr
                chosen = choices[key][1:] if each.reduced else choices[key]
                # as formulaic has them: the last factor's levels change slowest
                products = [((*names, name), (*parts, part)) for name, part in chosen for names, parts in products]
            made += [DesignColumn(":".join(names), parts) for names, parts in products if parts]
            if len(made) > MOST_COLUMNS:
                raise _too_many_columns()
    if len({column.name for column in made}) != len(made):
        twice = next(column.name for column in made if [each.name for each in made].count(column.name) > 1)
        raise InputError(f"formula: two columns of the design would be called {twice!r}; rename a column, or a site")
    return tuple(made)


def _too_many_columns() -> InputError:
    return InputError(f"formula: makes more than {MOST_COLUMNS} columns; leave out an interaction")
