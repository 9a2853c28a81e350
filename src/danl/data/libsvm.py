"""LIBSVM text to arrays: all of it at once where it is well formed, line by line where it may not be.

`read_at_once` works on arrays of bytes and knows no lines to blame: it returns None for whatever it is not sure of, a
nan as well as a mistake. `read_by_line` then goes through the text slowly, takes what Python takes for a number, and
says which line is wrong and why. Both read a number to the same, correctly rounded float64.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from danl.data.table import is_number, shorten
from danl.errors import InputError

FORM = "expected '<label> <index>:<value> ...' with indices that increase"
MAX_INDEX = 2**31 - 1  # what 32-bit sparse indices hold

_CHUNK = 1 << 18  # bytes of text whose arrays stay in the processor's cache
_KNOWN = b"0123456789+-.eE: \t\r\n"
_COMMENT = re.compile(rb"#[^\n]*")
_INDEX = re.compile(rb"[+-]?[0-9]+")
_INDEX_DIGITS = len(str(MAX_INDEX))
_READABLE_DIGITS = 4000  # Python does not make an integer of more than 4300
_EXACT_DIGITS = 18  # fit a 64-bit integer
_EXACT_MANTISSA = 2**53  # up to here an integer is a float64 exactly
_POWERS = 10.0 ** np.arange(_EXACT_DIGITS + 1)  # exact, up to 1e22
_LONGEST_NUMBER = 64
_ZERO, _DOT, _COLON, _NEWLINE, _PLUS, _MINUS = (np.uint8(ord(character)) for character in "0.:\n+-")

Positions = NDArray[np.intp]
Bytes = NDArray[np.uint8]


class Entries(NamedTuple):
    """The rows of a text: their labels, how many entries each has, and the entries with indices as written."""

    labels: NDArray[np.float64]
    counts: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float64]


# --- at once ---


def read_at_once(text: bytes, *, lowest: int, highest: int) -> Entries | None:
    """Read well-formed text whose indices are within bounds and increase; None where that is not sure."""
    if b"#" in text:
        text = _COMMENT.sub(b"", text)
    if text.translate(None, _KNOWN):
        return None
    parts = []
    for chunk in _chunks(text):
        part = _parse(chunk)
        if part is None or not _in_order(part, lowest, highest):
            return None
        parts.append(part)
    return Entries(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _chunks(text: bytes) -> Iterator[bytes]:
    """Parts of the text that end where a line does."""
    begin, end = 0, -1
    while end < len(text):
        end = text.find(b"\n", begin + _CHUNK) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _parse(chunk: bytes) -> Entries | None:
    letters = np.frombuffer(b"\n" + chunk + b"\n", dtype=np.uint8)  # every token has a blank on both sides
    blank = letters <= ord(" ")
    edges = np.flatnonzero(blank[1:] != blank[:-1]) + 1
    starts, ends = edges[0::2], edges[1::2]
    line_starts = np.searchsorted(starts, np.flatnonzero(letters == _NEWLINE))  # the first token after each newline
    labels = line_starts[:-1][line_starts[:-1] != line_starts[1:]]  # of the lines that have one
    is_pair = np.ones(len(starts), dtype=bool)
    is_pair[labels] = False
    begins, stops, colons = starts[is_pair], ends[is_pair], np.flatnonzero(letters == _COLON)
    # As many colons as pairs, and each inside its own pair: so there is none in a label either.
    if len(colons) != len(begins) or not ((begins < colons) & (colons < stops - 1)).all():
        return None
    indices = _whole_numbers(letters, begins, colons)
    values = _numbers(letters, colons + 1, stops)
    targets = _numbers(letters, starts[labels], ends[labels])
    if indices is None or values is None or targets is None:
        return None
    return Entries(targets, np.diff(labels, append=len(starts)) - 1, indices, values)


def _in_order(part: Entries, lowest: int, highest: int) -> bool:
    """Whether indices are within bounds and increase along each row."""
    indices = part.indices
    if not len(indices):
        return True
    firsts = np.cumsum(part.counts)[:-1]  # where a row begins, an index may be smaller than the one before
    increases = np.empty(len(indices) + 1, dtype=bool)
    increases[1:-1] = indices[1:] > indices[:-1]
    increases[0] = increases[-1] = True
    increases[firsts] = True
    return bool(increases.all() and indices.min() >= lowest and indices.max() <= highest)


def _whole_numbers(letters: Bytes, starts: Positions, ends: Positions) -> NDArray[np.int64] | None:
    """The digits between starts and ends as integers; None if there is anything but digits."""
    lengths = ends - starts
    if lengths.max(initial=1) > _INDEX_DIGITS:
        return None
    numbers = np.zeros(len(starts), dtype=np.int64)
    for place in range(int(lengths.max(initial=0))):
        chosen = slice(None) if place < lengths.min() else np.flatnonzero(lengths > place)
        digits = letters[starts[chosen] + place] - _ZERO  # what stands before 0 wraps around and is above 9, too
        if (digits > 9).any():
            return None
        numbers[chosen] = numbers[chosen] * 10 + digits
    return numbers


def _numbers(letters: Bytes, starts: Positions, ends: Positions) -> NDArray[np.float64] | None:
    """The tokens between starts and ends as float64; None if one is not a number."""
    lengths = ends - starts
    numbers = np.empty(len(starts))
    for length in np.flatnonzero(np.bincount(lengths)).tolist():
        chosen = np.flatnonzero(lengths == length)
        if length > _LONGEST_NUMBER:
            return None
        plain, found = _decimals(letters, starts[chosen], length)
        odd = np.flatnonzero(~plain)
        if len(odd):
            texts = np.ascontiguousarray(letters[starts[chosen[odd]][:, None] + np.arange(length)]).view(f"S{length}")
            try:
                with np.errstate(over="ignore"):  # 1e999 is inf, to Python as well
                    found[odd] = texts[:, 0].astype(np.float64)
            except ValueError:
                return None
        numbers[chosen] = found
    return numbers


def _decimals(letters: Bytes, starts: Positions, length: int) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Which tokens of one length are plain decimals such as -0.25, and these as numbers.

    The digits without the dot are an integer, and 10 to the number of places behind the dot is a power of ten. Where
    both are floats exactly, their quotient is the float nearest to the decimal, the one that Python reads.
    """
    first = letters[starts]
    if length == 1:
        digit = first - _ZERO
        return digit <= 9, digit.astype(np.float64)
    if length > _EXACT_DIGITS + 2:  # a sign and a dot
        return np.zeros(len(starts), dtype=bool), np.empty(len(starts))
    negative = first == _MINUS
    signed = negative | (first == _PLUS)
    plain = np.ones(len(starts), dtype=bool)
    mantissa = np.zeros(len(starts), dtype=np.int64)
    digits_seen, places = np.zeros(len(starts), dtype=np.int8), np.zeros(len(starts), dtype=np.int8)
    dotted = np.zeros(len(starts), dtype=bool)
    for place in range(length):
        letter = letters[starts + place]
        digit = letter - _ZERO
        is_digit, is_dot = digit <= 9, letter == _DOT
        mantissa = np.where(is_digit, mantissa * 10 + digit, mantissa)
        places += is_digit & dotted
        digits_seen += is_digit
        plain &= is_digit | (is_dot & ~dotted) | (signed if place == 0 else False)
        dotted |= is_dot
    plain &= (digits_seen >= 1) & (digits_seen <= _EXACT_DIGITS) & (mantissa <= _EXACT_MANTISSA)
    numbers = mantissa / _POWERS[np.where(plain, places, 0)]
    return plain, np.where(negative, -numbers, numbers)


# --- line by line ---


def read_by_line(name: str, text: bytes, *, n_features: int | None, zero_based: bool) -> Entries:
    """Read any text, or say which of its lines is wrong and why."""
    labels, counts, indices, values = array("d"), array("q"), array("q"), array("d")
    for number, raw in enumerate(text.split(b"\n"), start=1):
        tokens = raw.partition(b"#")[0].split()
        fault = _fault(tokens, n_features, zero_based)
        if fault:
            line, where, end = shorten(_shown(raw).strip()), f", line {number}: ", f"; {FORM}; the file was not loaded"
            sent, shown = fault
            raise InputError(f"{name}{where}{line!r}: {shown}{end}", redacted=f"{Path(name).name}{where}{sent}{end}")
        if tokens:
            labels.append(float(tokens[0]))
            counts.append(len(tokens) - 1)
            pairs = [token.partition(b":") for token in tokens[1:]]
            indices.extend(int(index) for index, _, _ in pairs)
            values.extend(float(value) for _, _, value in pairs)
    return Entries(np.array(labels), np.array(counts), np.array(indices), np.array(values))


def _fault(tokens: Sequence[bytes], n_features: int | None, zero_based: bool) -> tuple[str, str] | None:
    """Say what is wrong with one line, cut at the blanks: by its place, and as it stands there. None: nothing is."""
    if not tokens:
        return None
    if b":" in tokens[0]:
        return "the label is missing", f"the label is missing before {shorten(_shown(tokens[0]))!r}"
    if not is_number(tokens[0]):
        return "the label is not a number", f"the label {shorten(_shown(tokens[0]))!r} is not a number"
    previous = None
    for number, token in enumerate(tokens[1:], start=1):
        index_text, colon, value = token.partition(b":")
        entry = f"entry {number}"
        if not colon:
            return f"{entry} has no colon", f"{shorten(_shown(token))!r} has no colon"
        shown = f"the index {shorten(_shown(index_text))!r}"
        if not _INDEX.fullmatch(index_text):
            return f"the index of {entry} is not a whole number", f"{shown} is not a whole number"
        if not is_number(value):
            shown = f"the value {shorten(_shown(value))!r} of index {_shown(index_text)} is not a number"
            return f"the value of {entry} is not a number", shown
        if len(index_text) > _READABLE_DIGITS:
            return f"the index of {entry} has too many digits", f"{shown} has too many digits"
        index = int(index_text)
        if index == 0 and not zero_based:
            zero = "index 0 in a file that counts from 1; pass zero_based=True if it counts from 0"
            return f"{entry} has {zero}", zero
        wrong = _misplaced(index, previous, n_features, zero_based)
        if wrong:
            return f"the index of {entry} {wrong[0]}", f"the index {index} {wrong[1]}"
        previous = index
    return None


def _misplaced(index: int, previous: int | None, n_features: int | None, zero_based: bool) -> tuple[str, str] | None:
    """What is wrong with an index, without and with the one before it."""
    if index < 0:
        return "is negative", "is negative"
    if previous is not None and index == previous:
        return "comes twice", "comes twice"
    if previous is not None and index < previous:
        return "comes after a higher one", f"comes after {previous}"
    if n_features is not None and index >= n_features + (not zero_based):
        return f"is beyond n_features={n_features}", f"is beyond n_features={n_features}"
    if index > MAX_INDEX:
        return f"is beyond {MAX_INDEX}, the highest there can be", f"is beyond {MAX_INDEX}, the highest there can be"
    return None


def _shown(text: bytes) -> str:
    return text.decode("utf-8", errors="replace")
