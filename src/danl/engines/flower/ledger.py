"""The ledger of a site: which sets of records it has answered about, and how often it was asked.

Two answers about sets that differ in one record differ by that record: an appended row, a corrected value, the complete
cases of another formula. So sets that were answered about must be the same or differ by at least `min-rows` records,
whatever the run and whoever asks. And what is exchanged is counted, by run and by day.

    key          32 bytes that hashes are made with (`danl.engines.flower.record_hashes`); readable for its owner alone
    ledger.json  the sets by digest, questions of runs and of days, and which files were seen to hold which sets
    sets.npz     the hashes of all records, and which of them are in which set, a bit each

A SuperNode answers each message in a new process, several at a time: all is read and written under a lock, waited for
at most LOCK_SECONDS, and each file is replaced whole. A question is written down before it is answered, so that what
was lost on the way counts as told. A ledger that cannot be read, or misses a part, does not begin anew by itself: the
site refuses until its operator restores or removes it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from danl.engines.flower.record_hashes import Hashes, differing, set_digest
from danl.engines.flower.site_rules import NONE, RefusedError, SiteRules
from danl.errors import InputError
from danl.storage.arrays import UnreadableError, from_npz, to_npz
from danl.storage.atomic import write_bytes, write_json

LOCK_SECONDS = 30.0
"""Longest wait for other answers of the site to be written down."""
REMEMBERED = 1_000
"""Runs, and files that were seen: of more, the oldest are forgotten. Sets are never."""
KEY, STATE, SETS = "key", "ledger.json", "sets.npz"
HashesOf = Callable[[bytes], Mapping[str, Hashes]]
log = logging.getLogger("danl.site")


@dataclass(frozen=True)
class Ledger:
    """The ledger in a folder, held against a site's rules."""

    folder: Path
    rules: SiteRules
    today: Callable[[], str] = field(default=lambda: datetime.now(UTC).date().isoformat())

    @classmethod
    def of(cls, name: str, rules: SiteRules) -> Ledger | None:
        """That of a site; None where it keeps none."""
        if rules.ledger == NONE:
            return None
        return cls(Path(rules.ledger) if rules.ledger else default_folder(name), rules)

    def claim(self, hashes_of: HashesOf, *, stamp: str | None = None, run: str | None = None, cost: int = 1) -> None:
        """Write down that a question is answered about these records, or raise `RefusedError`.

        `hashes_of` gives the hashes of the records by a key; it is not called where a file with this `stamp` was seen.
        Without a `run` it is a question before one, which only the records matter of.
        """
        with self._held():
            key, state = self._read()
            spent = None if run is None else self._spent(state, run, cost)
            if spent is not None:
                state["runs"], state["days"] = spent
            digests = state["seen"].get(stamp) if stamp is not None else None
            if digests is None:
                write_json(self.folder / STATE, state)  # before it is looked at: a refusal is an answer, too
                hashes = hashes_of(key)
                digests = {set_digest(kind, each, key): (kind, each) for kind, each in hashes.items()}
                new = {digest: each for digest, each in digests.items() if digest not in state["sets"]}
                if new:
                    self._add(state, new)
                if stamp is not None:
                    state["seen"] = _newest({**state["seen"], stamp: sorted(digests)})
            write_json(self.folder / STATE, state)

    def spend(self) -> None:
        """Count a question before a run, before any record is read: what is wrong with them is an answer, too."""
        with self._held():
            _, state = self._read()
            state["days"] = self._of_day(state, 1)
            write_json(self.folder / STATE, state)

    def _spent(self, state: Mapping[str, Any], run: str, cost: int) -> tuple[dict[str, int], dict[str, int]]:
        """The counts of runs and days with this question; other days are over."""
        of_run = _within("max-exchanges", state["runs"].get(run, 0) + cost, self.rules.max_exchanges, "this run")
        others = {name: count for name, count in state["runs"].items() if name != run}
        return _newest({**others, run: of_run}), self._of_day(state, cost)

    def _of_day(self, state: Mapping[str, Any], cost: int) -> dict[str, int]:
        today, most = self.today(), self.rules.max_exchanges_a_day
        count = state["days"].get(today, 0) + cost
        return {today: _within("max-exchanges-a-day", count, most, "today, over all runs,")}

    def _add(self, state: dict[str, Any], new: Mapping[str, tuple[str, Hashes]]) -> None:
        """Compare sets with all there are of their kind, and add them."""
        known, members = self._sets(state)
        names = list(state["sets"])
        for kind, hashes in new.values():
            for name, bits in zip(names, members, strict=True):
                if state["sets"][name] != kind or self.rules.changed_data:
                    continue
                count = differing(hashes, known[bits])
                if 0 < count < self.rules.min_rows:
                    log.warning("%d records differ from those that were answered about before (%s)", count, kind)
                    raise RefusedError(
                        f"changed-data: fewer than min-rows={self.rules.min_rows} records differ from others that were "
                        "answered about, and answers about both would tell of these; restore the file, let more "
                        "records change, or allow changed-data at the site"
                    )
        for digest, (kind, hashes) in new.items():
            together = np.union1d(known, hashes)
            places = np.searchsorted(together, known)
            spread = [np.zeros(len(together), dtype=bool) for _ in range(len(members) + 1)]
            for bits, wide in zip(members, spread, strict=False):
                wide[places] = bits
            spread[-1][np.searchsorted(together, hashes)] = True
            known, members = together, spread
            state["sets"][digest] = kind
        arrays = {"records": known.view(np.int64), "bits": np.packbits(np.array(members), axis=1)}
        write_bytes(self.folder / SETS, to_npz(arrays), durable=True)

    def _sets(self, state: Mapping[str, Any]) -> tuple[Hashes, list[np.ndarray[Any, np.dtype[np.bool_]]]]:
        """The hashes of all records, and for every set which of them are in it."""
        path = self.folder / SETS
        if not state["sets"] and not path.exists():
            return np.zeros(0, dtype=np.uint64), []
        try:
            arrays = from_npz(path.read_bytes(), "ledger")
            records = arrays["records"].view(np.uint64)
            bits = np.unpackbits(arrays["bits"], axis=1, count=len(records)).astype(bool)
        except (OSError, UnreadableError, KeyError, ValueError, TypeError) as error:
            raise self._damaged() from error
        if len(bits) < len(state["sets"]):
            raise self._damaged()
        return records, list(bits[: len(state["sets"])])  # one more is of a process that ended before it said so

    def _read(self) -> tuple[bytes, dict[str, Any]]:
        """The key and the state; a ledger that was never there begins here."""
        key, state = self.folder / KEY, self.folder / STATE
        if not any((self.folder / name).exists() for name in (KEY, STATE, SETS)):
            made = secrets.token_bytes(32)
            with os.fdopen(os.open(key, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(made)
            log.warning("a new ledger begins in %s: what was answered before is not in it", self.folder)
            begun: dict[str, Any] = {"version": 1, "sets": {}, "runs": {}, "days": {}, "seen": {}}
            write_json(state, begun)
            return made, begun
        try:
            secret, found = key.read_bytes(), json.loads(state.read_text())
            whole = len(secret) == 32 and found["version"] == 1
            whole &= all(isinstance(found[part], dict) for part in ("sets", "runs", "days", "seen"))
            counts = [*found["runs"].values(), *found["days"].values()]
            if whole and all(type(count) is int and count >= 0 for count in counts):
                return secret, found
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        raise self._damaged()

    def _damaged(self) -> RefusedError:
        log.error("the ledger in %s is damaged; restore it, or remove the folder to begin anew", self.folder)
        return RefusedError(
            "ledger: it is damaged, and the site cannot know what it has answered about; its operator can restore it, "
            "or remove it to begin anew"
        )

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Have the ledger alone."""
        from filelock import FileLock, Timeout  # here: a site without a ledger needs none

        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(self.folder / "lock", timeout=LOCK_SECONDS):
                yield
        except Timeout:
            raise InputError(
                f"ledger: is in use for more than {LOCK_SECONDS:g} s; look for a process that hangs"
            ) from None
        except OSError as error:
            log.error("the ledger in %s cannot be used: %s", self.folder, error)
            raise RefusedError(f"ledger: cannot be written ({error.strerror}); give ledger another folder") from error


def _within(rule: str, count: int, most: int, of: str) -> int:
    if count > most:
        raise RefusedError(f"{rule}: {of} would have asked {count} times, and at most {most} are answered")
    return count


def default_folder(name: str) -> Path:
    """Where the ledger of a site is that does not say."""
    import platformdirs  # here: most runs have no site

    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60]
    same = "" if plain == name else "-" + name.encode().hex()[:60]
    return Path(platformdirs.user_state_dir("danl")) / "sites" / (plain + same)


def _newest(entries: dict[str, Any]) -> dict[str, Any]:
    return dict(list(entries.items())[-REMEMBERED:])
