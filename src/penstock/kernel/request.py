"""A request: something that wants to add commits to a branch when its turn comes."""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Final, NamedTuple, TypedDict

import msgspec

from penstock.errors import PenstockError, ReferenceChanged
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.format import PrepareAgain
from penstock.metrics.meter import SILENT, Meter
from penstock.metrics.table import REQUEST_SECONDS, REQUESTS
from penstock.model.commits import check_key
from penstock.model.encoding import ObjectId
from penstock.model.expectations import has_expectations
from penstock.model.references import Event, Reference
from penstock.model.transactions import PREFIX, is_transaction

MADE_KEY_CHARS = 75
"""So long is a key that Penstock makes, at most."""
_MADE_KEY = re.compile(r"(\d{1,18})~(\d{1,18})~([0-9a-f]{16})~([0-9a-f]{16})")


class CheckedDrafts(NamedTuple):
    """What was found of a request to be publishable: its commits, on one head of the branch."""

    head: ObjectId
    incarnation: bytes
    note: bytes
    """Of the branch's row, which says what is expected of it."""
    drafts: tuple[CommitDraft, ...]

    def is_of(self, reference: Reference) -> bool:
        """Whether the branch is still as it was then."""
        return self[:3] == (reference.head, reference.incarnation, reference.note)


class MissingChecks(PrepareAgain):
    """The branch expects something, and the request comes without having been asked about that."""


class RequestTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer says of a request besides what it changes: its key, and what must hold of the branch."""

    key: str | None = None
    """The idempotency key: the same key and the same wish have the same outcome, however often repeated."""
    fingerprint: Callable[[], bytes] | None = None
    """Makes a hash of the request as its writer put it. ``main`` may name another commit when it is
    repeated."""
    if_head: ObjectId | None = None
    incarnation: bytes | None = None
    """Of the branch when the writer read it: one that was made anew since has another."""
    grown_from: ObjectId | None = None
    """A commit that the branch had when the writer began, and from which it must only have grown since."""
    doubt_from: int | None = None
    """The log position from which another process may have landed it, if nothing but the log tells."""


class TermOptions(TypedDict, total=False):
    """The same, as the kernel's methods take them: see ``RequestTerms``."""

    key: str | None
    fingerprint: Callable[[], bytes] | None
    if_head: ObjectId | None
    incarnation: bytes | None
    grown_from: ObjectId | None
    doubt_from: int | None


class Request(ABC):
    """One writer's wish: prepared in its own thread, applied at its turn in the branch's queue."""

    event: Event

    def __init__(self, author: str, terms: RequestTerms) -> None:
        self.author, self._fingerprint = author, terms.fingerprint
        self.key = request_key(terms.key)
        """One that the caller does not give is made at the first turn."""
        self.key_is_given = terms.key is not None
        """Whether the caller chose the key, so that the request may be a repetition."""
        self.if_head, self.incarnation, self.grown_from = terms.if_head, terms.incarnation, terms.grown_from
        self.doubt_from = terms.doubt_from
        self.checked: CheckedDrafts | None = None
        """What checks have agreed to, if the branch has any: nothing else may land."""

    @cached_property
    def digest(self) -> bytes:
        """A hash of what is wished for, to tell a repetition from another request under the same key."""
        return self._fingerprint() if self._fingerprint is not None else self.fingerprint

    @property
    @abstractmethod
    def fingerprint(self) -> bytes:
        """A hash of what is wished for, with everything resolved."""

    @property
    def touched_keys(self) -> Collection[bytes]:
        """Keys that are surely looked at when it is applied."""
        return ()

    needs_preparation: bool = False

    def prepare(self, reference: Reference) -> None:  # noqa: B027
        """Read and check what needs I/O, against the branch as it is now; called if it is needed."""

    @abstractmethod
    def draft_commits(self, chain: CommitChain, reference: Reference) -> list[CommitDraft]:
        """The commits to add to the chain; none if there is nothing to do.

        Leaves the chain as it is. Raises an error of ``penstock.errors`` to be refused, ``PrepareAgain`` to
        go round once more, ``NextBatch`` to be asked again once what is before it has landed.
        """

    def make_drafts(self, chain: CommitChain, reference: Reference) -> Sequence[CommitDraft]:
        """As ``draft_commits``; where checks looked at that before, it is just what they agreed to."""
        checked = self.checked
        if checked is None:
            if reference.note and has_expectations(reference):
                raise MissingChecks
            return self.draft_commits(chain, reference)
        if chain.has_drafts or not checked.is_of(reference):
            raise PrepareAgain
        return [draft._replace(key=self.key) for draft in checked.drafts]

    def after_commit(self, commits: list[ObjectId]) -> None:  # noqa: B027
        """The commits are visible now."""

    def check_reference(self, reference: Reference, chain: CommitChain) -> None:
        """Refuse a branch that is not where, or not what, the writer expected."""
        if self.incarnation is not None and self.incarnation != reference.incarnation:
            raise ReferenceChanged(
                f"branch '{reference.name}' was deleted and created again since it was read",
                name=reference.name,
            )
        if self.grown_from is not None and not chain.has_grown_from(self.grown_from):
            raise ReferenceChanged(
                f"branch '{reference.name}' was moved: it no longer contains commit "
                f"{self.grown_from.hex()[:8]}, on which this write is based",
                name=reference.name,
            )
        expected = self.if_head
        if expected is None or (expected == reference.head and not chain.has_drafts):
            return
        state = "at a newer commit" if chain.has_drafts else f"at {reference.id[:8]}"
        raise ReferenceChanged(
            f"branch '{reference.name}' is {state}, not at {expected.hex()[:8]}",
            name=reference.name,
            expected=expected.hex(),
            found=None if chain.has_drafts else reference.id,
        )


class GeneratedKey(NamedTuple):
    """A key that Penstock makes when a request comes to its first turn, if the caller gave none.

    It tells what a receipt would: where the ref log was then, when that was, and what the request was.
    """

    position: int
    time_us: int
    request: str
    random: str

    @classmethod
    def generate(cls, position: int, time_us: int, digest: bytes) -> GeneratedKey:
        return cls(position, time_us, digest[:8].hex(), os.urandom(8).hex())

    @classmethod
    def parse_key(cls, key: str) -> GeneratedKey | None:
        """The key that Penstock made, ``None`` if a caller did."""
        match = _MADE_KEY.fullmatch(key)
        return cls(int(match[1]), int(match[2]), match[3], match[4]) if match else None

    def __str__(self) -> str:
        return f"{self.position}~{self.time_us}~{self.request}~{self.random}"

    def is_for(self, digest: bytes) -> bool:
        return self.request == digest[:8].hex()


class NextBatch(Exception):
    """A request cannot be decided among the others of its batch; it comes first in the next one."""


def request_key(key: str | None) -> str:
    """The caller's idempotency key; nothing if there is none, then it gets one at its first turn."""
    return "" if key is None else check_key(key)


# What the kernel tells a meter about a request: what it was, what came of it, how long it took.


TRANSACTIONS: Final = PREFIX + "*"
"""What the branches of all transactions are counted as: each lives for a short while only."""


@contextmanager
def measure_request(meter: Meter, branch: str, kind: str) -> Iterator[None]:
    """Count and time the request that is made within."""
    if meter is SILENT:
        yield
        return
    start, outcome = time.perf_counter(), "ok"
    try:
        yield
    except PenstockError as refused:
        outcome = refused.code
        raise
    except BaseException:
        outcome = "error"
        raise
    finally:
        meter.count(REQUESTS, branch=make_branch_label(branch), kind=kind, outcome=outcome)
        meter.observe(REQUEST_SECONDS, time.perf_counter() - start, kind=kind)


def make_branch_label(branch: str) -> str:
    """What a branch is called in metrics."""
    return TRANSACTIONS if is_transaction(branch) else branch
