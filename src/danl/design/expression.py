"""Arithmetic on columns, from a text that comes from outside: nothing of it is ever run as a program.

The text is read into Python's syntax tree, and only this may stand in it: names of columns (in backticks where they are
no plain words), numbers, + - * / **, and the functions of `FUNCTIONS`. Everything else is refused. The tree is then
worked out with NumPy, one node after the other. No function here depends on other rows than the one it is applied to,
so that every site makes the same number of the same record.
"""

from __future__ import annotations

import ast
import keyword
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danl.errors import InputError

Array = NDArray[np.float64]
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "I": np.asarray,
}
SLOW = ("log", "log2", "log10", "log1p", "sqrt")
"""Functions that bring records nearer to one another."""
OF_ALL_ROWS = ("scale", "center", "standardize", "bs", "cr", "cs", "cc", "ns", "te", "poly", "lag", "hashed")
"""What a formula may have elsewhere, and what depends on the other rows: on those of other sites, too."""
ELSEWHERE = {
    "factor": "write C(x)",
    "offset": "give it beside the formula, as offset='log(days)'",
    "cluster": "give it beside the formula, as cluster='ward'",
    "ln": "write log(x)",
    "pow": "write I(x**2)",
}
"""What other programs have in a formula, and what it is here."""
LONGEST = 500
"""Characters an expression may have."""
DEEPEST = 40
"""Operations inside one another that it may have."""
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: np.positive, ast.USub: np.negative}
_QUOTED = re.compile(r"`([^`]*)`|'[^']*'|\"[^\"]*\"|([^\W\d]\w*)")


@dataclass(frozen=True)
class Expression:
    """An expression that was found to be arithmetic on columns."""

    text: str
    names: tuple[str, ...]
    """The columns it needs, in the order they stand in it."""
    tree: ast.expr = field(repr=False, compare=False)
    quoted: Mapping[str, str] = field(repr=False, compare=False)

    @property
    def is_column(self) -> bool:
        """Whether it is one column as it is."""
        return isinstance(self.tree, ast.Name)

    def of(self, columns: Mapping[str, Array]) -> Array:
        """Its numbers, one for every record; what has none is not finite."""
        with np.errstate(all="ignore"):
            return np.asarray(self._of(self.tree, columns), dtype=np.float64)

    def _of(self, node: ast.expr, columns: Mapping[str, Array]) -> Any:
        if isinstance(node, ast.Name):
            return columns[self.quoted.get(node.id, node.id)]
        if isinstance(node, ast.Constant):
            return np.float64(node.value)  # type: ignore[arg-type]  # checked to be a number
        if isinstance(node, ast.UnaryOp):
            return _SIGNS[type(node.op)](self._of(node.operand, columns))
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](self._of(node.left, columns), self._of(node.right, columns))
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        return FUNCTIONS[node.func.id](self._of(node.args[0], columns))


def parse(text: str) -> Expression:
    """The expression in a text; an `InputError` says what may not stand in it."""
    tree, quoted = syntax(text)
    names: dict[str, None] = {}
    _check(text, tree, quoted, names)
    if not names:
        raise InputError(f"formula: {text!r} has no column in it; name one")
    return Expression(text, tuple(names), tree, quoted)


def degree_of(text: str) -> int | None:
    """1 of a column, or of its logarithm or root, 2 or 3 of its square or cube; None of any other expression.

    Others can be made so that they are large for one record and nothing for the rest.
    """
    return _degree(parse(text).tree)


def _degree(node: ast.expr) -> int | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "I":
            return _degree(node.args[0])
        return 1 if node.func.id in SLOW and isinstance(node.args[0], ast.Name) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.left, ast.Name):
        power = node.right.value if isinstance(node.right, ast.Constant) else None
        return int(power) if power in (2, 3) else None  # type: ignore[arg-type]  # one of these
    return 1 if isinstance(node, ast.Name) else None


def syntax(text: str) -> tuple[ast.expr, dict[str, str]]:
    """The syntax tree of a text, and which column each placeholder of a name in backticks stands for."""
    if not isinstance(text, str) or len(text) > LONGEST:
        raise InputError(f"formula: an expression must be text of at most {LONGEST} characters")
    plain, quoted = without_backticks(text)
    try:
        tree = ast.parse(plain.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"formula: {text!r} cannot be read; {ALLOWED}") from None
    return tree, quoted


def without_backticks(text: str) -> tuple[str, dict[str, str]]:
    """A text with placeholders for the names that Python would not read as they are, and which column each stands for.

    These are in backticks, or words such as x² and µmol: Python has no such name, or reads it in another normal form.
    """
    quoted: dict[str, str] = {}

    def placeholder(match: re.Match[str]) -> str:
        name, word = match.groups()
        if name is None and (word is None or _is_read_as_it_is(word)):
            return match[0]
        name = word if name is None else name
        if quoted_name(name) == name:
            return name
        return next((key for key, each in quoted.items() if each == name), None) or _put(quoted, name, text)

    return _QUOTED.sub(placeholder, text), quoted


def with_backticks(text: str, quoted: Mapping[str, str]) -> str:
    """A text with the names again that its placeholders stand for."""
    for key, name in quoted.items():
        text = text.replace(key, quoted_name(name))
    return text


def quoted_name(name: str) -> str:
    """A column as it stands in an expression."""
    if _is_read_as_it_is(name) and not keyword.iskeyword(name):
        return name
    if "`" in name:
        raise InputError(f"formula: column {name!r} has a backtick in its name; rename it")
    return f"`{name}`"


def _is_read_as_it_is(word: str) -> bool:
    """Whether Python reads a word as a name, and as no other one: it turns µ, the micro sign, into the Greek letter."""
    return word.isidentifier() and unicodedata.normalize("NFKC", word) == word


def _put(quoted: dict[str, str], name: str, text: str) -> str:
    number = len(quoted)
    while (key := f"column_{number}_") in text or key in quoted:
        number += 1
    quoted[key] = name
    return key


def _check(text: str, node: ast.expr, quoted: Mapping[str, str], names: dict[str, None], depth: int = 0) -> None:
    if depth > DEEPEST:
        raise InputError(f"formula: {text!r} has more than {DEEPEST} operations inside one another; make it simpler")
    if isinstance(node, ast.Name):
        names[quoted.get(node.id, node.id)] = None
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float) and abs(node.value) < 1e300:  # type: ignore[arg-type]
        return
    elif isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS:
        _check(text, node.operand, quoted, names, depth + 1)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        _check(text, node.left, quoted, names, depth + 1)
        _check(text, node.right, quoted, names, depth + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        called = node.func.id
        if called in OF_ALL_ROWS:
            raise depends_on_rows(text, called)
        if called not in FUNCTIONS or len(node.args) != 1 or node.keywords:
            hint = ELSEWHERE.get(called, ALLOWED)
            raise InputError(f"formula: {text!r}: there is no function {called!r} of this kind; {hint}")
        _check(text, node.args[0], quoted, names, depth + 1)
    else:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FUNCTIONS:
            raise InputError(f"formula: {text!r}: write {node.func.attr}, without {ast.unparse(node.func.value)}")
        raise InputError(f"formula: {text!r} has something in it that a formula may not have; {ALLOWED}")


def depends_on_rows(text: str, called: str) -> InputError:
    """The refusal of what depends on other sites' rows."""
    what = {
        "poly": "write poly(x, 2, raw=True), or x + I(x**2)",
        "center": "leave it out: with an intercept columns are centred inside, and coefficients stay the same",
        "lag": "make the column at the sites",
        "hashed": "write C(x), whose levels the sites agree on",
    }
    other = "divide by a number that all sites know, as in I((age - 50) / 10), or make the column at the sites"
    if called in ("bs", "cr", "cs", "cc", "ns", "te"):
        other = "use powers, as in poly(x, 3, raw=True), or make the columns at the sites with knots all of them know"
    return InputError(f"formula: {text!r}: {called} depends on the rows of all sites; {what.get(called, other)}")


ALLOWED = f"it may have columns, numbers, + - * / **, C(), poly(x, 2, raw=True) and {', '.join(FUNCTIONS)}"
