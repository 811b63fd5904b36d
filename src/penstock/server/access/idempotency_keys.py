"""Idempotency keys of tokens: each has its own, so that none meets, takes or asks for another's.

Whose a key is, the token's name says: a token that replaces another one of the same name finds the keys of
that one. A key is stored with a mark of the name (``model.commits``). Without a mark are the keys of

- jobs and transactions, whose ids are keys: a row of theirs tells who may use them;
- requests that came without one: Penstock makes it, random and good for that request only;
- tokens that used them while a release served that did not mark keys yet.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Final

import msgspec

from penstock.errors import PenstockError, RequestError
from penstock.kernel.request import GeneratedKey, request_key
from penstock.lake.answers import LandedRequest
from penstock.lake.calls import (
    Call,
    GetOutcome,
    GetReferenceLog,
    GetSetting,
    ListReferences,
    PutSetting,
    WriteCall,
)
from penstock.lake.catalogue import Catalogue
from penstock.model.clock import Clock, now_us, to_utc_datetime
from penstock.model.commits import add_key_owner
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.references import Kind
from penstock.server.access.caller import Caller

BEFORE_ALL: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNMARKED_KEYS_DAYS: Final = 7.0
"""For so long the first release, which did not mark keys, let writers rely on them."""
NOTE: Final = "penstock.keys-marked-since"
"""The setting of a lake that says since when a server marks keys there."""


class UnmarkedKeys:
    """Says whether tokens may still have keys in a lake that are not marked. Shared by all threads."""

    def __init__(self, catalogue: Catalogue, clock: Clock = now_us) -> None:
        self._catalogue, self._clock = catalogue, clock
        self._until: datetime | None = None
        self._lock = Lock()

    def may_exist(self) -> bool:
        """Whether one of an earlier release may still be promised to be found.

        Since when keys are marked is noted with the lake, by whoever comes first.
        """
        now = to_utc_datetime(self._clock())
        if self._until is None:
            with self._lock, suppress(PenstockError):  # a lake that is moving takes no note, and no writes
                if self._until is None:  # the first request decides, before it or another one has landed
                    self._until = self._find_unmarked_since(now) + timedelta(days=UNMARKED_KEYS_DAYS)
        return self._until is None or now < self._until

    def _find_unmarked_since(self, now: datetime) -> datetime:
        noted = self._catalogue.do(GetSetting(name=NOTE))
        try:
            return min(datetime.fromisoformat(noted or ""), now)
        except (ValueError, TypeError):  # nothing, or what somebody else put there
            since = BEFORE_ALL if self._is_unused() else now
            self._catalogue.do(PutSetting(name=NOTE, value=since.isoformat()))
            return since

    def _is_unused(self) -> bool:
        """Whether nothing was ever written to the lake's branches, so that no key was used there yet."""
        branches = self._catalogue.do(ListReferences(limit=2))
        if len(branches) != 1 or branches[0].head != NO_COMMIT:
            return False
        deleted = self._catalogue.do(ListReferences(kind=Kind.DELETED, limit=1))
        return not deleted and len(self._catalogue.do(GetReferenceLog(name=branches[0].name, limit=2))) == 1


def make_stored_key(
    catalogue: Catalogue,
    caller: Caller,
    call: WriteCall[Any],
    this_one: ObjectId,
    unmarked: UnmarkedKeys | None = None,
) -> str:
    """The key of a call as it is stored for the caller. ``this_one`` is the hash of what is asked for."""
    key = request_key(call.idempotency_key)
    if not caller.name or call.fixed_key is not None or GeneratedKey.parse_key(key) is not None:
        return key
    if unmarked is not None and unmarked.may_exist():
        branch: str | None = getattr(call, call.target)
        with suppress(RequestError):  # the call itself tells what is wrong with its branch
            landing = catalogue.do(GetOutcome(key=key, branch=branch, asked=this_one))
            if landing is not None and _is_from_caller(caller, landing, this_one):
                return key
    return add_key_owner(key, caller.name)


def find_own_outcome(
    do: Callable[[Call[Any]], Any], caller: Caller, call: GetOutcome
) -> LandedRequest | None:
    """What a request of the caller's came to: under a key of theirs, or one without a mark that they used."""
    if not caller.name:
        unmarked: LandedRequest | None = do(call)
        return unmarked
    marked: LandedRequest | None = do(msgspec.structs.replace(call, who=caller.name))
    if marked is not None:
        return marked
    landing: LandedRequest | None = do(msgspec.structs.replace(call, who=None))
    return landing if landing is not None and _is_from_caller(caller, landing, call.asked) else None


def _is_from_caller(caller: Caller, landing: LandedRequest, asked: bytes | None) -> bool:
    """Whether what landed was the caller's: its commit says so. A reference that moved does not, but who
    knows the request by its hash sent it."""
    if not landing.commits:
        return asked is not None
    return landing.commit is not None and landing.commit.committer == caller.name
