"""Errors people can act on.

Wrong input raises `InputError`: one sentence with the argument, the value received, what is allowed and what to do
next. Not converging is a status of the result, never an exception.
"""

from __future__ import annotations


class InputError(ValueError):
    """Something the caller gave is wrong; the message says what, what is allowed and what to do."""


class DanlWarning(UserWarning):
    """Something worth knowing before or after a run: one line, once."""


def bad_argument(name: str, value: object, allowed: str, next_step: str = "") -> InputError:
    """Build the `InputError` for one argument: ``name=value: must be <allowed>; <next_step>``."""
    message = f"{name}={value!r}: must be {allowed}"
    return InputError(f"{message}; {next_step}" if next_step else message)
