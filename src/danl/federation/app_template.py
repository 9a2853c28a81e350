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

A danl run for a [Flower](https://flower.ai) federation. The code is in the package `danl[flower]`, which must be
installed at the server and at every site; this folder only says what to run, in `pyproject.toml`. As it is written
it fits the pooled rows of all sites: an intercept, rows that all count alike, no penalty.

## The server

An authority and a certificate that it signs, once. `ca.key` and `server.key` never leave the server; put its name in
place of fl.example.org.

    openssl ecparam -genkey -name secp384r1 -noout -out ca.key
    openssl req -x509 -new -key ca.key -days 365 -subj "/CN=our federation" -out ca.crt
    openssl ecparam -genkey -name secp384r1 -noout -out server.key
    openssl req -new -key server.key -subj "/CN=fl.example.org" -out server.csr
    printf 'subjectAltName=DNS:fl.example.org,DNS:localhost,IP:127.0.0.1\\nextendedKeyUsage=serverAuth\\n' > server.ext
    openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile server.ext \\
        -out server.crt

Start the SuperLink, and leave it running:

    export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.1
    flower-superlink --host 0.0.0.0 --port 9092 --ssl-ca-certfile ca.crt --ssl-certfile server.crt \\
        --ssl-keyfile server.key --enable-supernode-auth --disable-runtime-dependency-installation

Its address in `~/.flwr/config.toml` of whoever submits runs:

    [superlink.ours]
    address = "fl.example.org:9092"
    root-certificates = "/srv/danl/ca.crt"

## A site

Its key: the private half stays, `north.pub` goes to the server, which gives `ca.crt` in return.

    ssh-keygen -t ecdsa -b 384 -N "" -f north && mv north north.key

At the server the key is made known:

    flwr supernode register north.pub ours

What the site has, and what it is willing to answer, in a file that only the site reads, `north.toml`:

    name = "north"
    data = "/data/north.csv"
    target-column = "outcome"
    min-rows = 50

Start its SuperNode, and leave it running:

    danl flower node --superlink fl.example.org:9092 --root-certificates ca.crt \\
        --auth-supernode-private-key north.key --node-config north.toml

Each node talks to its own processes on a port of this host: a free one, unless `--port` says which. With Flower's
`flower-supernode` in place of `danl flower node`, which takes the same options and is slower, that is port 9094: a
second node on one host needs another one there, `--port 9095`.

## The run

When the sites are up:

    flwr run . ours --run-config 'sites=3 out="/srv/danl/run-1"'

With a formula sites agree on columns, levels and missing values first, and `summary=true` adds the tables of the fit;
`target-column` and `target` of a site do not count then. `cohort=true` in place of it describes the records:

    flwr run . ours --run-config 'sites=3 formula="ill ~ age" family="binomial" cohort=true out="/srv/danl/before"'
    flwr run . ours --run-config 'sites=3 formula="ill ~ age" family="binomial" summary=true out="/srv/danl/run-1"'

`out` then has history.csv, model.npz, workers.npz and, last, result.json: `danl.Result.load("/srv/danl/run-1")`,
`danl report /srv/danl/run-1`. What cannot be run is said in error.txt: a site that cannot read its file, or does not
know a setting, ends the run within seconds, by its name, where it is needed for `sites`.
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
