"""`danl flower new`: a Flower app, ready to run: a pyproject.toml with every key, and a README."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from danl._version import __version__
from danl.errors import InputError
from danl.federation.run_config import DEFAULTS, commented_toml

PYPROJECT = """\
[project]
name = "{name}"
version = "1.0.0"
description = "A danl run on the sites of a Flower federation"
license = "Apache-2.0"
dependencies = ["danl[flower]>={version}"]

[tool.flwr.app]
publisher = "danl"

[tool.flwr.app.components]
serverapp = "danl.federation.serverapp:app"
clientapp = "danl.engines.flower.clientapp:app"

# What the run is asked to do; `flwr run . --run-config 'alpha=1e-3 sites=3'` changes any of it.
[tool.flwr.app.config]
{config}"""

README = """\
# {name}

A danl run for a [Flower](https://flower.ai) federation. The code is in the package `danl`, which
must be installed at the server and at every site; this folder only says what to run.

At the server, with a SuperLink running and its address in Flower's `config.toml` as `[superlink.ours]`:

    flwr run . ours --run-config 'sites=3 alpha=1e-3 out="result"'

At each site, a SuperNode that knows the site's name, its file and its rules, in a file of its own (`site.toml`):

    name = "north"
    data = "/data/north.svm"
    n-features = 123
    min-rows = 50

    flower-supernode --superlink HOST:PORT --root-certificates ca.crt --node-config site.toml

The result is written at the server: history.csv, model.npz, workers.npz, result.json.
"""


def write_app(folder: Path, config: Mapping[str, Any] | None = None) -> list[Path]:
    """Write an app into a folder that is empty or not there; `config` changes defaults of its run configuration."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"DIR={str(folder)!r}: must be a new or empty folder; choose another one")
    values = DEFAULTS | dict(config or {})
    name = app_name(folder.resolve().name)
    files = {
        "pyproject.toml": PYPROJECT.format(name=name, version=__version__, config=commented_toml(values)),
        "README.md": README.format(name=name),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"DIR={str(folder)!r}: cannot be written ({error.strerror}); choose another folder") from None
    return [folder / file for file in files]


def app_name(text: str) -> str:
    """A name Flower takes: a letter, then letters, digits and hyphens, 32 in all."""
    kept = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")
    return (kept if kept[:1].isalpha() else f"danl-{kept}")[:32].strip("-") or "danl-app"
