"""Errors people can act on.

Wrong input raises `InputError`: one sentence with the argument, the value received, what is allowed and what to do
next. Not converging is a status of the result, never an exception.
"""

from __future__ import annotations

import warnings


class InputError(ValueError):
    """Something the caller gave is wrong; the message says what, what is allowed and what to do.

    Where the message shows a value of a row, `redacted` says the same without it: that is all that leaves a site.
    """

    def __init__(self, message: str = "", *, redacted: str | None = None) -> None:
        super().__init__(message)
        self.redacted = redacted


class DanlWarning(UserWarning):
    """Something worth knowing before or after a run: one line, once."""


def bad_argument(name: str, value: object, allowed: str, next_step: str = "", *, of_a_row: bool = False) -> InputError:
    """Build the `InputError` for one argument: ``name=value: must be <allowed>; <next_step>``.

    A value `of_a_row` is left out of what a site tells.
    """
    rule = f"must be {allowed}; {next_step}" if next_step else f"must be {allowed}"
    return InputError(f"{name}={value!r}: {rule}", redacted=f"{name}: {rule}" if of_a_row else None)


def warn(message: str) -> None:
    """Warn the caller of the library: one clear line for what a person would want to know before or after a run."""
    warnings.warn(message, DanlWarning, stacklevel=4)  # whoever called danl.solve, as near as may be
