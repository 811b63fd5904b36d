"""A lake behind a server: calls go over HTTP, and come back as the same answers and the same errors.

A network may lose a request, or only its answer. Reads are simply repeated. A write carries an idempotency
key, made here if the caller gave none, and is repeated under the same key: the server carries it out once and
answers every repetition. If it stays unknown whether a write was applied, ``OutcomeUnknown`` says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar, cast
from urllib.parse import quote_plus
from uuid import uuid4

import msgspec

from penstock.kernel.reachable import Progress, show_no_progress
from penstock.kernel.request import request_key
from penstock.lake.answers import About, CatalogEntry
from penstock.lake.call import PAGE_MAX, Call, RetrySafety, WriteCall, find_retry_safety
from penstock.lake.read_calls import GetContents, Resolve
from penstock.lake.remote_connection import Connection
from penstock.lake.remote_sender import SETTLE_S, RemoteSender
from penstock.model.keys import Key

R = TypeVar("R")

KEYS_MAX_CHARS: Final = 5_000
"""Of the keys in one address. Servers and proxies refuse addresses that are much longer."""

_COMMIT: Final = re.compile("[0-9a-f]{64}")


class RemoteTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a remote lake waits, and goes on trying."""

    connect_timeout_s: float = 5.0
    answer_timeout_s: float = 40.0
    """Longer than a server works on a request, so that it is the server that says what came of it. One that
    says that it works for longer is waited for as much longer, here and in all."""
    silence_timeout_s: float = 600.0
    """How long a sweep or a check may say nothing."""
    total_s: float = 60.0
    """After this no request is repeated. Finding out what an earlier try came to may go on for longer."""
    settle_s: float | None = None
    """How long after it was sent a write may still be carried out; if nothing is given, what the server says.
    Until then, a repetition that is refused does not say that an earlier try came to nothing."""
    wait_min_s: float = 0.05
    """The wait before the first repetition; it doubles each time, and a random part of it is waited."""
    wait_max_s: float = 2.0


class RemoteCatalogue:
    """A catalogue behind a server's address. May be used by many threads.

    ``token`` is that of ``PENSTOCK_TOKEN``, or in the file that ``PENSTOCK_TOKEN_FILE`` names, if it is not
    given. It is only sent over TLS or to this machine.
    """

    page_max: int | None = PAGE_MAX

    def __init__(
        self, url: str, token: str | None = None, patience: RemoteTimeouts = RemoteTimeouts()
    ) -> None:
        self._patience = patience
        self._connection = Connection(url, token, patience.connect_timeout_s)
        self._told_settle_s: float | None = None

    def __repr__(self) -> str:
        return f"<Remote {self.url}>"

    @property
    def url(self) -> str:
        """The server's address."""
        return self._connection.url

    @property
    def settle_s(self) -> float:
        """How long after it was sent the server may still carry out a write, as far as is known."""
        candidates_s = (self._patience.settle_s, self._told_settle_s, SETTLE_S)
        return next(settle_s for settle_s in candidates_s if settle_s is not None)

    def close(self) -> None:
        self._connection.close()

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        if isinstance(call, GetContents):
            return cast("R", self._get_contents(call))
        return self._send_call(call, progress)

    def _send_call(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        given_key = call.idempotency_key if isinstance(call, WriteCall) else None
        if given_key is None and isinstance(call, WriteCall) and call.fixed_key is not None:
            given_key = call.fixed_key
            call = cast("Call[R]", msgspec.structs.replace(call, idempotency_key=given_key))
        if given_key is not None:
            request_key(given_key)
        needs_key = given_key is None and find_retry_safety(call) is RetrySafety.BY_KEY
        if needs_key:
            call = msgspec.structs.replace(call, idempotency_key=uuid4().hex)
        sending = RemoteSender(
            self._connection,
            self._patience,
            self.do,
            key_is_new=needs_key,
            settle_s=self.settle_s,
            longer_s=max(0.0, (self._told_settle_s or 0.0) - SETTLE_S),
        )
        answer = sending.send_until_answered(call, progress)
        if isinstance(answer, About):  # the lake is here, as far as a client is concerned
            answer = msgspec.structs.replace(answer, url=self.url)
            self.page_max = min(PAGE_MAX, answer.page_max or PAGE_MAX)
            self._told_settle_s = answer.settle_s
        return cast("R", answer)

    def _get_contents(self, call: GetContents) -> tuple[CatalogEntry, ...]:
        """What keys hold. More than an address can name are asked for by several requests, at one commit."""
        parts = list(_split_keys(tuple(dict.fromkeys(call.key))))
        if len(parts) == 1:
            return self._send_call(msgspec.structs.replace(call, key=parts[0]))
        if not _COMMIT.fullmatch(call.at or ""):
            resolved = self._send_call(Resolve(revision=call.at))
            call = msgspec.structs.replace(call, at=resolved.commit, via=resolved.name or call.via)
        pages = [self._send_call(msgspec.structs.replace(call, key=part)) for part in parts]
        return tuple(entry for entries in pages for entry in entries)


def _split_keys(keys: Sequence[Key]) -> Iterator[tuple[Key, ...]]:
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
