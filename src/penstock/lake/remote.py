"""A lake behind a server: calls go over HTTP, and come back as the same answers and the same errors.

A network may lose a request, or only its answer. Reads are simply repeated. A write carries an idempotency
key, made here if the caller gave none, and is repeated under the same key: the server carries it out once and
answers every repetition. If it stays unknown whether a write was applied, ``OutcomeUnknown`` says so.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote_plus
from uuid import uuid4

import msgspec

from penstock.errors import Denied, IdempotencyKeyReused, PenstockError, Unauthenticated
from penstock.kernel.reachable import Progress, silent
from penstock.kernel.request import request_key
from penstock.lake.answers import About, Entry
from penstock.lake.calls import PAGE_MAX, Call, GetContents, Resolve, Write
from penstock.lake.remote_connection import Connection, Lost, NotSent, Reply
from penstock.lake.remote_doubt import found_out, unknown
from penstock.lake.remote_request import sound_request
from penstock.lake.remote_verdict import Done, Manner, Refused, Unsettled, judge, manner_of
from penstock.model.keys import Key
from penstock.wire.requests import Request

R = TypeVar("R")

KEYS_MAX_CHARS: Final = 5_000
"""Of the keys in one address. Servers and proxies refuse addresses that are much longer."""

_COMMIT: Final = re.compile("[0-9a-f]{64}")


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a remote lake waits, and goes on trying."""

    connect_timeout_s: float = 5.0
    answer_timeout_s: float = 40.0
    """Longer than a server works on a request, so that it is the server that says what came of it."""
    silence_timeout_s: float = 600.0
    """How long a sweep or a check may say nothing."""
    total_s: float = 60.0
    """After this no request is repeated."""
    wait_min_s: float = 0.05
    """The wait before the first repetition; it doubles each time, and a random part of it is waited."""
    wait_max_s: float = 2.0


class Remote:
    """A catalogue behind a server's address. May be used by many threads.

    ``token`` is that of ``PENSTOCK_TOKEN``, or in the file that ``PENSTOCK_TOKEN_FILE`` names, if it is not
    given. It is only sent over TLS or to this machine.
    """

    page_max: int | None = PAGE_MAX

    def __init__(self, url: str, token: str | None = None, patience: Patience = Patience()) -> None:
        self._patience = patience
        self._connection = Connection(url, token, patience.connect_timeout_s)

    def __repr__(self) -> str:
        return f"<Remote {self.url}>"

    @property
    def url(self) -> str:
        """The server's address."""
        return self._connection.url

    def close(self) -> None:
        self._connection.close()

    def do(self, call: Call[R], progress: Progress = silent) -> R:
        if isinstance(call, GetContents):
            return cast("R", self._contents(call))
        return self._do(call, progress)

    def _do(self, call: Call[R], progress: Progress = silent) -> R:
        given = call.idempotency_key if isinstance(call, Write) else None
        if given is not None:
            request_key(given)
        needs_key = given is None and manner_of(call) is Manner.KEYED
        if needs_key:
            call = msgspec.structs.replace(call, idempotency_key=uuid4().hex)
        answer = _Sending(self, self._connection, self._patience, needs_key).answer(call, progress)
        if isinstance(answer, About):  # the lake is here, as far as a client is concerned
            answer = msgspec.structs.replace(answer, url=self.url)
            self.page_max = min(PAGE_MAX, answer.page_max or PAGE_MAX)
        return cast("R", answer)

    def _contents(self, call: GetContents) -> tuple[Entry, ...]:
        """What keys hold. More than an address can name are asked for by several requests, at one commit."""
        parts = list(_parts(tuple(dict.fromkeys(call.key))))
        if len(parts) == 1:
            return self._do(msgspec.structs.replace(call, key=parts[0]))
        if not _COMMIT.fullmatch(call.at or ""):
            resolved = self._do(Resolve(revision=call.at))
            call = msgspec.structs.replace(call, at=resolved.commit, via=resolved.name or call.via)
        found = [self._do(msgspec.structs.replace(call, key=part)) for part in parts]
        return tuple(entry for entries in found for entry in entries)


class _Sending:
    """One call on its way: its tries, and whether one of them may have been carried out."""

    def __init__(self, remote: Remote, connection: Connection, patience: Patience, key_is_new: bool) -> None:
        self._remote, self._connection, self._patience = remote, connection, patience
        self._key_is_new = key_is_new
        """Whether nobody can have used the call's idempotency key before."""
        self._deadline_s = time.monotonic() + patience.total_s
        self._tries = 0
        self._doubt: PenstockError | None = None
        """Why it is not known whether it was carried out by an earlier try."""

    def answer(self, call: Call[Any], progress: Progress) -> Any:
        """Send the call until its outcome is known, or time is up."""
        request = sound_request(call)
        while True:
            self._tries += 1
            verdict = judge(self._heard(call, request, progress), call, self._connection.url)
            if isinstance(verdict, Done):
                return verdict.answer
            if isinstance(verdict, Refused):
                return self._refused(call, verdict.error)
            if verdict.in_doubt and manner_of(call) is not Manner.READ:
                self._doubt = verdict.error
            if not self._may_repeat(call, verdict) or not self._wait(verdict.wait_s):
                raise verdict.error if self._doubt is None else unknown(call, self._doubt)

    def _heard(self, call: Call[Any], request: Request, progress: Progress) -> Reply | Lost | NotSent:
        try:
            if call.is_long:
                return self._connection.follow(request, self._patience.silence_timeout_s, progress)
            left_s = max(self._deadline_s - time.monotonic(), self._patience.connect_timeout_s)
            return self._connection.exchange(request, min(self._patience.answer_timeout_s, left_s))
        except (Lost, NotSent) as problem:
            return problem

    def _refused(self, call: Call[Any], error: PenstockError) -> Any:
        """Raise the error, unless an earlier try was carried out and it only came too late."""
        if self._doubt is None:
            raise error
        may_be_another = isinstance(error, IdempotencyKeyReused) and not self._key_is_new
        if may_be_another or isinstance(error, Denied | Unauthenticated):
            raise unknown(call, self._doubt) from error
        if not isinstance(call, Write):
            raise error
        try:
            return found_out(self._remote.do, call, error)
        except PenstockError as problem:
            raise (error if problem is error else unknown(call, self._doubt)) from None

    def _may_repeat(self, call: Call[Any], verdict: Unsettled) -> bool:
        if self._doubt is not None and manner_of(call) is Manner.ONCE:
            return False
        return verdict.again

    def _wait(self, at_least_s: float) -> bool:
        """Wait before the next try; whether there is time for one."""
        longest_s = self._patience.wait_min_s * 2 ** min(self._tries - 1, 30)
        wait_s = max(random.uniform(0, min(longest_s, self._patience.wait_max_s)), at_least_s)
        if time.monotonic() + wait_s >= self._deadline_s:
            return False
        time.sleep(wait_s)
        return True


def _parts(keys: Sequence[Key]) -> Iterator[tuple[Key, ...]]:
    """Keys in parts that each fit into an address."""
    part: list[Key] = []
    chars = 0
    for key in keys:
        needed = len(quote_plus(str(key))) + len("&key=")
        if part and chars + needed > KEYS_MAX_CHARS:
            yield tuple(part)
            part, chars = [], 0
        part.append(key)
        chars += needed
    if part:
        yield tuple(part)
