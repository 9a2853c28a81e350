"""The command line's door: `danl ...` and `python -m danl ...`.

`danl --version` is answered here, before anything else is imported. Wrong input ends with one line on standard error
and exit status 2, never with a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from danl._version import __version__

WRONG_INPUT = 2
INTERRUPTED = 130
OPTIONS = {
    "every": "checkpoint-every",
    "max_rounds": "rounds",
    "path": "--out",
    "scheme": "partition",
    "site_column": "site",
    "target_column": "target",
    "weight_column": "weight",
}
"""Arguments in Python whose options on the command line have another name."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        print(f"danl {__version__}")
        sys.exit(0)
    try:
        from danl.cli.imports import quick_imports

        with quick_imports():  # here, because it takes a while and somebody may press Ctrl-C
            from danl.cli.app import application

            app = application(words[0] if words else "")
        status = app(args=words, prog_name="danl", standalone_mode=False)
    except KeyboardInterrupt:
        print("interrupted before there was anything to keep", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader, `head` for example, has had enough
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        from danl.errors import InputError

        if isinstance(error, InputError):
            fail(in_options(str(error)))
        # The parser's own complaints (an unknown option, a number that is none) know how to show themselves.
        if not hasattr(error, "format_message"):
            raise
        if not error.format_message():  # a command without its arguments has shown its help
            sys.exit(WRONG_INPUT)
        command = getattr(getattr(error, "ctx", None), "command_path", "danl")
        fail(f"{error.format_message()} (see {command} --help)")
    sys.exit(status if isinstance(status, int) else 0)


def in_options(message: str) -> str:
    """Call an argument as the command line does, where Python calls it otherwise: max_rounds is --rounds."""
    name, equals, rest = message.partition("=")
    return OPTIONS.get(name, name) + equals + rest


def fail(message: str) -> NoReturn:
    """Say what is wrong in one line and leave."""
    print("error: " + " ".join(message.split("\n")), file=sys.stderr)
    sys.exit(WRONG_INPUT)


if __name__ == "__main__":
    main()
