"""The command line's door: `danl ...` and `python -m danl ...`.

`danl --version` is answered here, before anything else is imported. Wrong input ends with one line on standard error
and exit status 2, never with a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from danl._version import __version__

WRONG_INPUT = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        print(f"danl {__version__}")
        sys.exit(0)
    from danl.cli.app import app
    from danl.errors import InputError

    try:
        status = app(args=words, prog_name="danl", standalone_mode=False)
    except InputError as error:
        fail(str(error))
    except KeyboardInterrupt:
        print("interrupted before the run had anything to keep", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader, `head` for example, has had enough
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        # The parser's own complaints (an unknown option, a number that is none) know how to show themselves.
        if not hasattr(error, "format_message"):
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "danl")
        fail(f"{error.format_message()} (see {command} --help)")
    sys.exit(status if isinstance(status, int) else 0)


def fail(message: str) -> None:
    """Say what is wrong in one line and leave."""
    print("error: " + " ".join(message.split("\n")), file=sys.stderr)
    sys.exit(WRONG_INPUT)


if __name__ == "__main__":
    main()
