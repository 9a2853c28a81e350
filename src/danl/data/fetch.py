"""Finding a registered data set's file, and downloading it when it is nowhere on this machine.

A file is looked for where the user is most in charge first: the folder `DANL_DATA_DIR` names, what ships
with the package, the user's cache, the download site. A file whose digest is known is checked wherever it
was found, because a wrong one gives wrong results without a word. A download reaches the cache in one
rename, after its checks, so that an interrupted one leaves nothing behind. `DANL_OFFLINE=1` forbids
downloads.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from importlib import resources
from pathlib import Path

from danl.data.files import BROKEN_FILE, PACKINGS, open_unpacked
from danl.data.registry import Registered, lookup
from danl.errors import InputError, bad_argument
from danl.wording import counted

ATTEMPTS = 3
RETRY_WAIT_SECONDS = 1.0  # doubled after each failure
TIMEOUT_SECONDS = 30.0  # without a byte arriving
_CHUNK_BYTES = 1 << 16


def cache_dir() -> Path:
    """Return the folder downloads are kept in (it need not exist yet)."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("danl"))


def fetch(name: str, progress: bool = True) -> Path:
    """Return the file of the data set called `name`, downloaded if it is not on this machine yet."""
    return locate(lookup(name), progress=progress)


def status(entry: Registered) -> str:
    """Say where the file is: ``"DANL_DATA_DIR"``, ``"bundled"``, ``"cache"`` or ``"not here"``."""
    found = _find(entry)
    return found[1] if found else "not here"


def locate(entry: Registered, *, progress: bool = True) -> Path:
    """Return the path of the data set's file, downloaded into the cache if need be, with a bar on stderr."""
    found = _find(entry)
    if found is None:
        return _download(entry, progress=progress)
    path, place = found
    wrong = None if entry.sha256 is None else _difference(entry, path)
    if wrong:
        remedy = {
            "DANL_DATA_DIR": f"replace it by the file from {entry.url}",
            "cache": f"delete it to have it downloaded again from {entry.url}",
            "bundled": "the installed package is damaged: install it again",
        }[place]
        raise InputError(f"{path} is not the data set {entry.name}: {wrong}; {remedy}")
    return path


def _find(entry: Registered) -> tuple[Path, str] | None:
    folder = os.environ.get("DANL_DATA_DIR", "")
    if folder:
        if not Path(folder).is_dir():
            raise bad_argument("DANL_DATA_DIR", folder, "a folder that exists", "or unset it")
        path = _first_candidate(Path(folder), entry)
        if path:
            return path, "DANL_DATA_DIR"
    bundled = resources.files("danl.data") / "bundled" / f"{entry.name}.xz"
    if isinstance(bundled, Path) and bundled.is_file():
        return bundled, "bundled"
    path = _first_candidate(cache_dir(), entry)
    return (path, "cache") if path else None


def _first_candidate(folder: Path, entry: Registered) -> Path | None:
    for stem in dict.fromkeys((entry.plain_filename, entry.name)):
        for suffix in ("", *PACKINGS):
            path = folder / (stem + suffix)
            if path.is_file():
                return path
    return None


def _difference(entry: Registered, path: Path) -> str | None:
    """How the file differs from that of the data set: in its digest, or in its rows where no digest is known."""
    received, rows = digest_and_rows(path)
    if entry.sha256 is not None and received != entry.sha256:
        return f"expected SHA-256 {entry.sha256} of its plain text, received {received}"
    if entry.sha256 is None and rows != entry.rows:
        return f"expected {entry.rows} rows, received {rows}"
    return None


def digest_and_rows(path: Path) -> tuple[str, int]:
    """Return the SHA-256 of the plain text and its number of lines that are not blank."""
    digest, rows = hashlib.sha256(), 0
    try:
        with open_unpacked(path) as text:
            for line in text:
                digest.update(line)
                rows += not line.isspace()
    except BROKEN_FILE as error:
        raise InputError(f"{path} cannot be read: {error}; replace or delete it") from error
    return digest.hexdigest(), rows


def _download(entry: Registered, *, progress: bool) -> Path:
    target = cache_dir() / entry.filename
    by_hand = (
        f"set DANL_DATA_DIR to a folder that holds {entry.filename}, "
        f"or place the file by hand at {target}, from {entry.url}"
    )
    if os.environ.get("DANL_OFFLINE", "").lower() not in ("", "0", "false", "no"):
        raise InputError(
            f"the data set {entry.name} is not on this machine and DANL_OFFLINE forbids downloading it; {by_hand}"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".incoming-") as folder:
            incoming = Path(folder) / entry.filename
            _receive(entry, incoming, by_hand=by_hand, progress=progress)
            _check_received(entry, incoming, by_hand=by_hand)
            os.replace(incoming, target)
    except OSError as error:
        raise InputError(f"the data set {entry.name} could not be written to {target}: {error}; {by_hand}") from error
    return target


def _receive(entry: Registered, incoming: Path, *, by_hand: str, progress: bool) -> None:
    """Download to `incoming`, trying again after the failures that may pass by themselves."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _receive_once(entry, incoming, progress=progress)
            return
        except OSError as error:  # every error of requests is one
            answer = getattr(error, "response", None)
            refused = answer is not None and answer.status_code < 500
            if refused or attempt == ATTEMPTS:
                raise InputError(
                    f"downloading the data set {entry.name} from {entry.url} failed after "
                    f"{counted(attempt, 'attempt')}: {error}; {by_hand}"
                ) from error
            time.sleep(RETRY_WAIT_SECONDS * 2 ** (attempt - 1))


def _receive_once(entry: Registered, incoming: Path, *, progress: bool) -> None:
    import requests
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("downloading {task.description}"), BarColumn(), DownloadColumn())
    with (
        Progress(*columns, console=Console(stderr=True), disable=not progress) as bar,
        requests.get(entry.url, stream=True, timeout=TIMEOUT_SECONDS) as response,
        incoming.open("wb") as file,
    ):
        response.raise_for_status()
        task = bar.add_task(entry.name, total=int(response.headers.get("content-length", 0)) or None)
        for piece in response.iter_content(_CHUNK_BYTES):
            file.write(piece)
            bar.advance(task, len(piece))


def _check_received(entry: Registered, incoming: Path, *, by_hand: str) -> None:
    try:
        wrong = _difference(entry, incoming)
    except InputError as error:
        raise InputError(
            f"what {entry.url} sent cannot be unpacked: {error.__cause__}; it was not kept; {by_hand}"
        ) from error
    if wrong:
        raise InputError(f"what {entry.url} sent is not the data set {entry.name}: {wrong}; it was not kept; {by_hand}")
