"""What clients did: every call with its real times, kept in memory or in a file that outlives the process.

A call is recorded before it is made and its answer once there is one. A call without an answer, because its
process was killed, is one whose outcome is unknown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import TypeAlias

import msgspec

from penstock.errors import ConflictError, RequestError, TryAgainError
from penstock.model.decoders import get_json_decoder

Values: TypeAlias = dict[str, str | None]
"""Per key what it holds; ``None`` for nothing."""


class Answer(StrEnum):
    """How a call ended, as far as its client knows."""

    OK = "ok"
    REFUSED = "refused"
    """The request cannot be, and was not applied; not by an earlier call of the same request either."""
    NOT_NOW = "not now"
    """This call changed nothing; the same request may be applied later."""
    UNKNOWN = "unknown"


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """A client asks for a commit: the idempotency key, what to write, and what it had read before."""

    client: str
    number: int
    at_ns: int
    key: str
    writes: Values
    reads: Values = {}
    """What the client saw at the base that it named: to be unchanged."""
    base: str | None = None


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag="answered"):
    """The answer to a call."""

    client: str
    number: int
    at_ns: int
    answer: Answer
    commit: str | None = None
    why: str = ""


class ReadDone(msgspec.Struct, frozen=True, kw_only=True, tag="read"):
    """A client read some keys of the branch as it was then; ``head`` is the commit it read, if it knows."""

    client: str
    number: int
    from_ns: int
    at_ns: int
    values: Values
    head: str | None = None


Event: TypeAlias = RecordedCall | Answered | ReadDone

_decode = get_json_decoder(Event).decode


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A call together with its answer."""

    call: RecordedCall
    answer: Answer = Answer.UNKNOWN
    returned_ns: int | None = None
    """When the client knew; ``None`` if it never did."""
    commit: str | None = None
    why: str = ""


class Recorder:
    """Records what one client does. Several may share a file: every line is appended by one write.

    The times are of the machine's monotonic clock, which all processes of a machine share.
    """

    def __init__(self, client: str, path: str | os.PathLike[str] | None = None) -> None:
        self.client = client
        self._events: list[Event] = []
        self._lock = Lock()
        self._number = 0
        self._file: int | None = None
        if path is not None:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    @property
    def events(self) -> list[Event]:
        with self._lock:
            return list(self._events)

    @contextmanager
    def call(
        self,
        key: str,
        writes: Mapping[str, str | None],
        reads: Mapping[str, str | None],
        base: str | None = None,
    ) -> Iterator[_OpenAttempt]:
        """Record a call and, by how the block ends, its answer. Errors go on to the caller."""
        number = self._next_position()
        opened = _OpenAttempt()
        self._write(
            RecordedCall(
                client=self.client,
                number=number,
                at_ns=time.monotonic_ns(),
                key=key,
                writes=dict(writes),
                reads=dict(reads),
                base=base,
            )
        )
        try:
            yield opened
        except BaseException as error:
            self._record_answer(number, _answer_of(error), None, f"{type(error).__name__}: {error}")
            raise
        self._record_answer(number, Answer.OK, opened.commit, "")

    def read(self, from_ns: int, values: Values, head: str | None = None) -> None:
        """Record a read that began at ``from_ns`` and is done now."""
        self._write(
            ReadDone(
                client=self.client,
                number=self._next_position(),
                from_ns=from_ns,
                at_ns=time.monotonic_ns(),
                values=values,
                head=head,
            )
        )

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _next_position(self) -> int:
        with self._lock:
            self._number += 1
            return self._number

    def _record_answer(self, number: int, answer: Answer, commit: str | None, why: str) -> None:
        now_ns = time.monotonic_ns()
        self._write(
            Answered(
                client=self.client, number=number, at_ns=now_ns, answer=answer, commit=commit, why=why[:500]
            )
        )

    def _write(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
            if self._file is not None:
                # One write to the operating system: a process that is killed after it has lost nothing.
                os.write(self._file, msgspec.json.encode(event) + b"\n")


class _OpenAttempt:
    """A call that is being made; the commit it led to is noted here."""

    commit: str | None = None


def _answer_of(error: BaseException) -> Answer:
    """What an error says about the request. Whatever is not of Penstock's leaves everything open."""
    if isinstance(error, ConflictError | RequestError):
        return Answer.REFUSED
    if isinstance(error, TryAgainError):
        return Answer.NOT_NOW
    return Answer.UNKNOWN


def load(paths: Iterable[str | os.PathLike[str]]) -> list[Event]:
    """The events in some files; a last line that was not written whole is left out."""
    events: list[Event] = []
    for path in paths:
        *whole, _ = Path(path).read_bytes().split(b"\n")
        events += [_decode(line) for line in whole]
    return events


def attempts(events: Iterable[Event]) -> list[Attempt]:
    """The calls with their answers, in the order in which they were made."""
    calls: dict[tuple[str, int], RecordedCall] = {}
    answers: dict[tuple[str, int], Answered] = {}
    for event in events:
        if isinstance(event, RecordedCall):
            calls[event.client, event.number] = event
        elif isinstance(event, Answered):
            answers[event.client, event.number] = event
    return [
        _attempt(call, answers.get(which))
        for which, call in sorted(calls.items(), key=lambda item: item[1].at_ns)
    ]


def _attempt(call: RecordedCall, answered: Answered | None) -> Attempt:
    if answered is None:
        return Attempt(call=call)
    return Attempt(
        call=call,
        answer=answered.answer,
        returned_ns=answered.at_ns,
        commit=answered.commit,
        why=answered.why,
    )
