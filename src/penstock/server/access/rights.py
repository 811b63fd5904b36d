"""Rights: what a caller may ask of a catalogue, in the terms that the rules of all calls share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from typing import Any, TypeVar

import msgspec

from penstock.errors import CommitNotFound, TimedOut, TransactionNotFound, TransactionOver
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.kernel.time_limits import check_read_may_go_on
from penstock.lake.calls import PAGE_MAX, Call, GetAbout, Resolve
from penstock.lake.catalogue import Catalogue
from penstock.lake.transactions.answers import TransactionInfo
from penstock.lake.transactions.calls import IsShared, ListTransactions
from penstock.model.encoding import NO_COMMIT
from penstock.model.names import Revision, check_name, parse_revision
from penstock.model.tokens import Role
from penstock.server.access.caller import ALL_KEYS, Caller, GrantedKeys

R = TypeVar("R")
T = TypeVar("T")


class CallerRights:
    """A caller, and the catalogue that they ask through it."""

    def __init__(
        self,
        catalogue: Catalogue,
        caller: Caller,
        progress: Progress = show_no_progress,
        deadline_s: float = inf,
    ) -> None:
        self._catalogue, self._progress, self._deadline_s = catalogue, progress, deadline_s
        self.caller = caller

    def add_transactions(self, transactions: dict[str, str]) -> CallerRights:
        """The same, where the branches of some transactions may be used too, as those that they land on."""
        caller = msgspec.structs.replace(self.caller, inside={**self.caller.inside, **transactions})
        return CallerRights(self._catalogue, caller, self._progress, self._deadline_s)

    def do(self, call: Call[R]) -> R:
        """Carry out a call that was checked; ``TimedOut`` if nobody waits for it any longer."""
        if time.monotonic() > self._deadline_s:  # a request may be made of many calls
            raise TimedOut("the request took too long and was stopped before it was done")
        return self._catalogue.do(call, self._progress)

    def get_reference_or_default(self, reference: str | None) -> str:
        """The reference that is meant: the default branch, if none is named."""
        return self.do(GetAbout()).default_branch if reference is None else reference

    def find_readable_keys(
        self, revision: str | None, via: str | None = None
    ) -> tuple[str | None, GrantedKeys]:
        """A revision in the form in which the caller may ask for it, and the keys that they may read there.

        All that a readable reference leads to may be read, by whatever way. A commit that is named by its id
        alone must be reachable from the reference that the caller says it came ``via``; without one, only who
        may read all references may read it. What only a transaction leads to is for who may use that.
        """
        anywhere = self.caller.find_keys_granted_everywhere(Role.READ)
        if anywhere.are_all:
            if not self.caller.is_admin and revision is not None:
                self._require_shared(parse_revision(revision), via)
            return revision, ALL_KEYS
        revision = self.get_reference_or_default(revision)
        parsed = parse_revision(revision)
        if parsed.name is not None:
            return revision, self.caller.require_role(Role.READ, parsed.name)
        if via is not None:
            return _write_revision_within(via, revision), self.caller.require_role(Role.READ, via)
        if parsed.commit == NO_COMMIT.hex() and not parsed.steps:
            return revision, ALL_KEYS  # the empty lake
        if not anywhere.patterns:
            raise self.caller.denied_error(
                "read a commit by its id alone: name the reference that it is on, as in "
                f"BRANCH@{parsed.commit}"
            )
        self._require_shared(parsed, None)
        return revision, anywhere

    def _require_shared(self, revision: Revision, via: str | None) -> None:
        """``CommitNotFound`` for the id of a commit that only somebody else's transactions lead to."""
        commit = revision.commit
        if revision.name is not None or commit is None or commit == NO_COMMIT.hex():
            return
        if len(commit) < len(NO_COMMIT.hex()):
            return  # an abbreviated one is looked for on branches and tags
        is_inside = via is not None and via in self.caller.inside
        if not is_inside and self.do(IsShared(commit=commit, via=via)):
            return
        for branch in [via] if is_inside else self._own_branches():
            with suppress(CommitNotFound, TransactionNotFound, TransactionOver):
                self.do(Resolve(revision=f"{branch}@{commit}"))
                return
        raise CommitNotFound(f"there is no commit {commit}", commit=commit)

    def _own_branches(self) -> Iterator[str]:
        """Those of the caller's own transactions that have not ended."""
        transactions = self.do(ListTransactions(limit=None)) if self.caller.name else ()
        return (transaction.branch for transaction in transactions if may_use(self.caller, transaction))

    def read_whole(self, revision: str | None, via: str | None = None) -> str | None:
        """As ``read``, where all keys are needed."""
        resolved, keys = self.find_readable_keys(revision, via)
        if not keys.are_all:
            what = f"'{revision}'" if revision is not None else "the default branch"
            raise self.caller.denied_error(f"take over {what} as a whole: that needs to read all keys there")
        return resolved

    def check_compared(self, revision: str | None, reference: str | None) -> str | None:
        """A revision that a reference, which the caller may read, is only compared with.

        A whole id tells nothing to who knows it already. Anything else is looked for: among what the caller
        may read, so that the answer says nothing about the rest.
        """
        if revision is None or self.caller.find_keys_granted_everywhere(Role.READ).patterns:
            return revision
        parsed = parse_revision(revision)
        is_whole_id = parsed.name is None and len(parsed.commit or "") == 64 and not parsed.steps
        return revision if is_whole_id else self.find_readable_keys(revision, via=reference)[0]

    def list_visible_items(
        self, call: Call[tuple[T, ...]], show: Callable[[T], T | None], after: Callable[[T], Any]
    ) -> tuple[T, ...]:
        """A page of those items of a list that the caller may see, each as ``show`` gives it.

        It is full if there are enough of them: a page that is not tells the caller that it is the last one.
        """
        limit: int | None = call.limit  # type: ignore[attr-defined]
        page_limit, shown = limit, list[T]()
        while True:
            page = self.do(msgspec.structs.replace(call, limit=page_limit))
            for item in page:
                check_read_may_go_on()
                if (seen := show(item)) is not None:
                    shown.append(seen)
                    if len(shown) == limit:
                        return tuple(shown)
            if page_limit is None or len(page) < page_limit or not page:
                return tuple(shown)
            page_limit = PAGE_MAX
            call = msgspec.structs.replace(call, after=after(page[-1]))


def may_use(caller: Caller, transaction: TransactionInfo) -> bool:
    """Whether a transaction is there for a caller: it is theirs, or they administer the lake."""
    return caller.is_admin or (bool(caller.name) and caller.name == transaction.who)


def _write_revision_within(reference: str, revision: str) -> str:
    """A commit id, with the steps from there, as one that must be reachable from a reference."""
    return f"{check_name(reference)}@{revision.removeprefix('@')}"
