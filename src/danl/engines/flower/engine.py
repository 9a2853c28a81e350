"""The engine over a Flower Grid: tasks to SuperNodes, replies back, and nothing else.

Every exchange is a push and pulls until all have answered or the deadline has passed. Messages live as long as their
deadline, so that a site that was away does not come back to a heap of old tasks. A reply is taken if it answers a
message of this exchange, from the node that was asked, once; others are dropped and counted.

A site that is offline (its SuperNode is restarted, or its line is down) is not absent yet. Flower says so at once, each
time; so it is asked again within the exchange, for `wait` seconds from when it was first seen to be offline, as at the
start. If the deadline comes first, its failure is "restarting", which counts as no absence; after `wait` seconds it is
"died", and nobody waits for it any more until it answers.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from flwr.app import ConfigRecord, Message, RecordDict

from danl.checks import check_seconds, check_whole, is_finite, is_whole
from danl.data.shard import ShardInfo
from danl.design.survey import Survey, Surveyed
from danl.engines.flower.opening import (
    ANALYSIS,
    DESIGN,
    INFO,
    MESSAGE,
    OPENING,
    RECORD,
    SURVEY,
    Opening,
    danl_record,
    message_type,
    named_loss,
)
from danl.engines.flower.pauses import Pauses
from danl.engines.flower.site import LONGEST_DETAIL
from danl.errors import InputError, bad_argument, warn
from danl.frozen import replace
from danl.objective.problem import BaseProblem, RemoteProblem
from danl.objective.regions import Regions
from danl.policies.base import WorkerPolicy
from danl.protocol.messages import Exchange, Failure, FailureKind, Reply, Task
from danl.protocol.replies import Replies
from danl.protocol.reply_form import ReplyForm
from danl.protocol.wire import WireError, decode, encode, most_bytes

OFFLINE = 5
"""Flower's error code for a node that is not there."""
RETRY_SECONDS = 3.0
"""Seconds between two messages to a site that is offline."""
FIRST_LOOK = 0.02
"""Seconds to the first look for replies, at most."""
DIED = (OFFLINE, 8)
"""Flower's error codes for a node that is gone and for a ClientApp whose process crashed."""
EXPIRED = (3, 4)
"""Flower's error codes for a message or a reply that is no longer there."""
FAILURE_ROOM = 8192
"""Bytes that are left for a failure's text, whatever escapes it needs."""
Told = TypeVar("Told")
NUMBERS = [part for part in fields(ShardInfo) if part.type in ("int", "float")]


class GridEngine:
    """Workers at the SuperNodes of a Flower federation.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        As a ServerApp's main function gets it.
    sites : int
        How many sites there must be before the run starts; all that are there take part.
    deadline : float
        Seconds an exchange may take; who has not answered by then is left out of it.
    wait : float
        Seconds to wait for the sites at the start, and for one that is offline later.
    poll : float
        Most seconds between two looks for replies; the first ones are sooner (`danl.engines.flower.pauses`).

    """

    name = "flower"

    def __init__(
        self, grid: Any, *, sites: int = 1, deadline: float = 300.0, wait: float = 120.0, poll: float = 0.2
    ) -> None:
        sites = check_whole("sites", sites)
        for name, value in (("deadline", deadline), ("wait", wait), ("poll", poll)):
            check_seconds(name, value)
        self._grid, self._sites, self._deadline, self._wait, self._poll = grid, sites, deadline, wait, poll
        self._nodes: list[int] = []  # by worker
        self._names: list[str] = []  # by worker
        self._surveyed: set[int] = set()  # the nodes whose columns the design is of
        self._opening: Opening | None = None
        self._most_bytes = FAILURE_ROOM
        self._late: set[str] = set()  # messages that were given up and may yet be answered
        self._offline: dict[int, float] = {}  # nodes that are not there, and since when

    def __repr__(self) -> str:
        return f"GridEngine(sites={self._names or self._sites}, deadline={self._deadline:g})"

    @property
    def site_names(self) -> tuple[str, ...]:
        """The site of each worker."""
        return tuple(self._names)

    def survey(self, problem: RemoteProblem) -> Surveyed:
        """Wait for the sites and ask each what the columns of the analysis hold; who cannot say is left out."""
        assert problem.analysis is not None
        question = {ANALYSIS: problem.analysis.to_json()}
        found, left_out = self._told(problem, SURVEY, question, _read_survey)
        self._surveyed = set(found)
        return Surveyed(tuple(self._number(found)), left_out)

    def connect(self, problem: RemoteProblem) -> Sequence[ShardInfo]:
        """Wait for the sites and ask each for its name and `ShardInfo`; workers are numbered by the sites' names."""
        question = {"loss": named_loss(problem)}
        if problem.design is not None:
            question[DESIGN] = problem.design.to_json()
        return self._number(self._told(problem, INFO, question, _read_shard_info)[0])

    def _told(
        self,
        problem: RemoteProblem,
        kind: str,
        question: Mapping[str, str],
        read: Callable[[Any], tuple[str, Told] | str],
    ) -> tuple[dict[int, tuple[str, Told]], tuple[str, ...]]:
        """What every site told, by its node, with its name; and of each that told nothing, why."""
        if problem.shards:
            raise bad_argument("shards", len(problem.shards), "left out", "the sites know where their rows are")
        sites = len(problem.design.sites) or self._sites if problem.design is not None else self._sites
        found: dict[int, tuple[str, Told]] = {}
        faults: dict[int, str] = {}
        asked: dict[str, int] = {}  # nodes that have not answered, by the message that asks them
        hopeless = False
        pauses = Pauses(FIRST_LOOK, self._poll)
        end = time.monotonic() + self._wait
        while True:
            known = {*found, *faults, *asked.values()}
            there = self._grid.get_node_ids() if kind == SURVEY or not self._surveyed else self._surveyed
            new = [node for node in there if node not in known]
            sent = self._push_question(kind, question, new, max(end - time.monotonic(), 1.0))
            asked |= sent
            faults |= dict.fromkeys(set(new) - set(sent.values()), "a node could not be asked")
            for reply in self._grid.pull_messages(set(asked)) if asked else ():
                node = asked.get(reply.metadata.reply_to_message_id)
                if node is None or not (reply.has_error() or reply.metadata.src_node_id == node):
                    continue
                del asked[reply.metadata.reply_to_message_id]
                answer = read(reply)
                if isinstance(answer, str):
                    faults[node] = answer
                    hopeless |= not reply.has_error() or _kind_of(reply.error.code) == "error"
                else:
                    found[node] = answer
            if hopeless and len(found) + len(asked) < sites:
                break  # a site said that it cannot take part, and without it there are too few: waiting heals nothing
            if (len(found) >= sites and not asked) or time.monotonic() >= end:
                break
            time.sleep(pauses.next())
        self._late |= set(asked)
        if len(found) < sites:
            why = "; ".join(faults.values()) or "start their SuperNodes, and check their logs"
            if asked:
                why += f"; {len(asked)} did not tell of their data {'before that' if hopeless else 'in time'}"
            within = "" if hopeless else f" within {self._wait:g} s"
            raise InputError(f"sites={sites}: found {len(found)}{within}; {why}")
        lacking = [*faults.values(), *["a node did not tell of its data in time"] * len(asked)]
        left_out = tuple(f"a node is left out: {fault}" for fault in lacking)
        for each in left_out:
            warn(each)
        return found, left_out

    def _push_question(
        self, kind: str, question: Mapping[str, str], nodes: Sequence[int], seconds: float
    ) -> dict[str, int]:
        """Ask nodes what they have; the nodes whose message Flower took, by its id."""
        request = RecordDict({RECORD: ConfigRecord(dict(question))})
        named = f"query.{kind}"
        return self._pushed({node: Message(request, node, named, ttl=seconds, group_id=kind) for node in nodes})

    def _number(self, found: Mapping[int, tuple[str, Told]]) -> Sequence[Told]:
        """Workers in the order of their sites' names: the same whichever node came first."""
        ordered = sorted(found, key=lambda node: (found[node][0], node))
        self._nodes, self._names = ordered, [found[node][0] for node in ordered]
        for name in self._names:
            if self._names.count(name) > 1:
                raise InputError(f"name={name!r}: two sites have this name; give each its own in its --node-config")
        return [found[node][1] for node in ordered]

    def open(self, problem: BaseProblem, *, regions: Regions, policy: WorkerPolicy | None, seed: int) -> None:
        """Write the terms down; they travel with every task."""
        if not self._nodes:
            raise InputError("problem: rows in memory cannot be solved on Flower's sites; use danl.RemoteProblem()")
        self._opening = Opening.of(problem, regions=regions, policy=policy, seed=seed, run=secrets.token_hex(8))
        self._form = ReplyForm(regions, problem.layout)
        self._most_bytes = most_bytes(regions.n_coefficients, regions.n_regions) + FAILURE_ROOM

    def exchange(self, exchange: Exchange, *, deadline: float | None = None) -> Replies:
        """Send the tasks, collect what comes by the deadline."""
        assert self._opening is not None, "the engine has not been opened"
        seconds = self._deadline if deadline is None else deadline
        opening, tasks = self._opening, exchange.tasks()
        workers = {self._nodes[worker]: worker for worker in tasks}

        def message(node: int, seconds: float) -> Any:
            task = tasks[workers[node]]
            content = ConfigRecord({MESSAGE: encode(task), OPENING: opening.to_json(workers[node])})
            kind, group = message_type(type(task)), str(task.exchange)
            return Message(RecordDict({RECORD: content}), node, kind, ttl=max(seconds, 1.0), group_id=group)

        answers, dropped = self._ask(workers, seconds, message)
        given = {worker: self._read(worker, answers.get(self._nodes[worker]), seconds) for worker in tasks}
        return self._form.stack(exchange, given, dropped)

    def close(self) -> None:
        """Forget the nodes, which are Flower's to stop; the sites' names stay, for the record."""
        self._nodes, self._opening, self._offline = [], None, {}

    def _ask(
        self, nodes: Iterable[int], seconds: float, message: Callable[[int, float], Any]
    ) -> tuple[dict[int, Any], int]:
        """Replies by node, and how many others were dropped; a node that is offline is sent a new message."""
        end, next_time = time.monotonic() + seconds, time.monotonic() + RETRY_SECONDS
        waiting = self._pushed({node: message(node, seconds) for node in nodes})
        answers: dict[int, Any] = {}
        dropped = 0
        pauses = Pauses(FIRST_LOOK, self._poll)
        while True:
            for reply in self._grid.pull_messages({*waiting, *self._late}) if waiting else ():
                answered = reply.metadata.reply_to_message_id
                node = waiting.get(answered)
                if node is not None and (reply.has_error() or reply.metadata.src_node_id == node):
                    answers[node] = reply
                    del waiting[answered]
                else:
                    dropped += not reply.has_error()
                    self._late.discard(answered)
            now = time.monotonic()
            answered = set(nodes).difference(waiting.values())
            away = [node for node in answered if self._is_away(node, answers.get(node), now)]
            if not (waiting or away) or now >= end:
                break
            if away and now >= next_time:
                waiting |= self._pushed({node: message(node, end - now) for node in away})
                next_time = now + RETRY_SECONDS
            time.sleep(min(pauses.next(), max(end - time.monotonic(), 0.0)))
        self._late |= set(waiting)
        return answers, dropped

    def _pushed(self, messages: Mapping[int, Any]) -> dict[str, int]:
        """Send them; the nodes whose message Flower took, by its name."""
        accepted = set(self._grid.push_messages(list(messages.values()))) if messages else set()
        sent = {message.metadata.message_id: node for node, message in messages.items()}
        return {name: node for name, node in sent.items() if name in accepted}

    def _is_away(self, node: int, answer: Any, now: float) -> bool:
        """Whether a node that was asked is offline, and to be asked again."""
        if answer is not None and not (answer.has_error() and answer.error.code == OFFLINE):
            self._offline.pop(node, None)
            return False
        return now < self._offline.setdefault(node, now) + self._wait

    def _read(self, worker: int, answer: Any, seconds: float) -> Reply | Failure:
        """A worker's reply, or what became of it."""

        def failure(kind: FailureKind, detail: str) -> Failure:
            return Failure(worker, kind, f"site {self._names[worker]}: {detail}"[: 2 * LONGEST_DETAIL])

        since = self._offline.get(self._nodes[worker])
        if since is not None:
            away = time.monotonic() - since
            if away < self._wait:
                return failure("restarting", f"offline for {away:.0f} s, expected back")
            return failure("died", f"offline, and not back within {self._wait:g} s")
        if answer is None:
            return failure("timeout", f"no answer within {seconds:g} s")
        if answer.has_error():
            return failure(_kind_of(answer.error.code), _reason(answer.error))
        try:
            message = decode(danl_record(answer).get(MESSAGE), most_bytes=self._most_bytes)  # type: ignore[arg-type]
        except WireError as error:
            return failure("invalid", f"its reply cannot be read: {error}")
        if isinstance(message, Task):
            return failure("invalid", f"answered with a task, {type(message).__name__}")
        if not isinstance(message, Failure):
            return message
        if message.worker != worker or message.kind not in ("refused", "forgot", "error"):
            return failure("invalid", f"sent a failure nobody can send: {message.kind} of worker {message.worker}")
        return failure(message.kind, message.detail.removeprefix(f"site {self._names[worker]}: "))


def _kind_of(code: int) -> FailureKind:
    return "died" if code in DIED else "timeout" if code in EXPIRED else "error"


def _reason(error: Any) -> str:
    lines = [line.strip() for line in str(error.reason or "").splitlines() if line.strip()]
    return f"Flower's error {error.code}: {lines[-1] if lines else 'no reason given'}"


def _failed(answer: Any) -> str:
    """What is wrong with a node that did not tell what it was asked; empty where it did."""
    if answer.has_error():
        return _reason(answer.error)
    record = danl_record(answer)
    if MESSAGE not in record:
        return ""
    try:
        failed = decode(record[MESSAGE], most_bytes=FAILURE_ROOM)
    except WireError as error:
        return f"a node's answer cannot be read: {error}"
    return failed.detail if isinstance(failed, Failure) else "a node answered a question nobody asked"


def _read_survey(answer: Any) -> tuple[str, Survey] | str:
    """What a node told of its columns, or what is wrong with it."""
    if fault := _failed(answer):
        return fault
    try:
        told = Survey.from_json(danl_record(answer).get(SURVEY))
    except InputError:
        return "a node described its columns in a way nobody can read; do both ends run the same danl?"
    if not 0 < len(told.site) <= 100:
        return "a node has no name; give it one in its --node-config"
    return told.site, told


def _read_shard_info(answer: Any) -> tuple[str, ShardInfo] | str:
    """What a node reported of its site, or what is wrong with it."""
    if fault := _failed(answer):
        return fault
    record = danl_record(answer)
    try:
        report = json.loads(record[INFO])
        name, info = report["site"], ShardInfo(**report["facts"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return "a node described its data in a way nobody can read; do both ends run the same danl?"
    if not isinstance(name, str) or not 0 < len(name) <= 100:
        return "a node has no name; give it one in its --node-config"
    for part in NUMBERS:
        value = getattr(info, part.name)
        fits = is_whole(value) if part.type == "int" else is_finite(value)
        if not fits or value < 0:
            return f"site {name}: reported {part.name}={value!r}"
    if not isinstance(info.offset, bool) or info.records > info.rows:
        return f"site {name}: reported offset={info.offset!r}, and {info.records!r} records of {info.rows} rows"
    if info.rows < 1 or info.records < 1 or info.n_features < 1 or not info.total_weight > 0:
        return f"site {name}: has no rows"
    if not _named(info.feature_names, info.n_features) or not isinstance(info.target_name, str | None):
        return f"site {name}: reported names of its columns that nobody can read; do both ends run the same danl?"
    names = None if info.feature_names is None else tuple(info.feature_names)
    return name, replace(info, feature_names=names, site=name)


def _named(names: Any, width: int) -> bool:
    """Whether these are names of that many columns, no two alike, or none."""
    if names is None:
        return True
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return texts and len(names) == len(set(names)) == width
