"""The page: a frame of HTML around the data, the page's own style and script, and plotly, all in one file.

Whatever a run was named, or its data, is data: it goes into the page as JSON in which no character can end the element
it stands in, and text.js puts it into the document as text, never as markup. The page's policy forbids it to load
anything, and to run any script but its own two, which are named by their digests.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from danl.checks import check_installed
from danl.errors import InputError
from danl.report.payload import payload_of
from danl.report.recorded import RecordedRun
from danl.storage.atomic import write_text

SCRIPTS = ("data.js", "draw.js", "text.js", "tables.js", "model.js", "page.js")
"""The page's own script, in the order it is put together."""


def write_report(runs: Sequence[RecordedRun], path: str | Path) -> Path:
    """Write the page of one or several runs, whole or not at all; it needs nothing but a browser."""
    if not runs:
        raise InputError("runs: must hold at least one; read them with danl.report.read_runs")
    text = page_of(payload_of(runs))
    try:
        write_text(path, text)
    except OSError as error:
        raise InputError(
            f"path={str(path)!r}: cannot be written ({error.strerror}); choose another file or folder"
        ) from None
    return Path(path)


def page_of(payload: Mapping[str, Any]) -> str:
    parts = {
        "TITLE": html.escape(f"{payload['title']} - danl report"),
        "POLICY": html.escape(policy(bool(payload["live"])), quote=True),
        "STYLE": _part("page.css"),
        "DATA": in_script(payload),
        "PLOTLY": plotly_script(),
        "SCRIPT": own_script(),
    }
    pieces = _part("page.html").split("@@")  # text, name, text, name, ..., text: what is put in is not looked at again
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


@cache
def policy(live: bool) -> str:
    """What the browser lets the page do: run its two scripts; load nothing; if live, ask the server it came from."""
    digests = " ".join(f"'sha256-{_digest(script)}'" for script in (plotly_script(), own_script()))
    allowed = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {allowed}; base-uri 'none'; form-action 'none'"
    )


def in_script(value: Mapping[str, Any]) -> str:
    """JSON that can stand in a script element: nothing in it ends the element, opens a comment or breaks a line."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def plotly_script() -> str:
    """plotly.js as the package has it: the one bundle that is shipped, heat maps among the rest."""
    check_installed("report", "plotly", "report")
    return _safe(files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8"))


def own_script() -> str:
    return _safe("\n".join(_part(name) for name in SCRIPTS))


def _safe(script: str) -> str:
    """A script as the browser will see it: one kind of line end, and nothing that ends its element."""
    return script.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _part(name: str) -> str:
    return files("danl.report").joinpath("parts", name).read_text(encoding="utf-8")
