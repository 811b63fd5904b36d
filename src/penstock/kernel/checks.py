"""Checks: functions that look at what is about to be published on a branch, and can veto it.

A check sees the exact result: the very commits that the swap would make visible. So it runs before the queue,
on the head as it is then, and at its turn the request may only go by what was checked. If the branch has
moved by then, the result is worked out and checked anew, up to ``Settings.tries_max`` times. Writers of a
branch with checks take turns in this process: none of them makes another one's check run in vain.

Without a check for its branch, a request takes no notice of any of this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, Unpack

from penstock.errors import CommitVetoed, InvalidRequest, RetriesExhausted, TryAgainError
from penstock.kernel.chain import Chain, Draft
from penstock.kernel.conflict import content_of
from penstock.kernel.format import PrepareAgain
from penstock.kernel.objects import Objects
from penstock.kernel.request import Checked, Request
from penstock.kernel.state import Overlay
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.references import Kind, Reference
from penstock.model.transactions import is_transaction

if TYPE_CHECKING:
    from penstock.kernel.batch import Outcome
    from penstock.kernel.kernel import Kernel

logger = logging.getLogger("penstock")

NO_REASON: Final = "it gave no reason"


class Vetoed(Exception):
    """Raised by a check: what it was shown is not to be published, and why."""


class Proposal(NamedTuple):
    """What is about to be published: a state of the lake that no reference has yet."""

    branch: str
    base: ObjectId
    """The branch's head that it would take the place of."""
    meta: CommitMeta
    """What its newest commit says of itself."""
    changed: tuple[Key, ...]
    """The keys at which it differs from that head."""
    view: Overlay
    objects: Objects
    """Those of the store, and those that are still to be stored."""

    def get(self, key: Key) -> AnyContent | None:
        """What a key would hold."""
        return content_of(self.objects, self.view.get(key.encode()))


Function = Callable[[Proposal], Any]


class Check(NamedTuple):
    """A function that looks at what is about to be published on a branch."""

    name: str
    branch: str
    """The branch, or a pattern such as ``release/*``."""
    function: Function


class Assigning(TypedDict, total=False):
    """How a reference is assigned (see ``References.assign``)."""

    kind: Kind | None
    expected: ObjectId | None
    who: str
    key: str
    asked: bytes


class Checks:
    """The checks that one process runs."""

    def __init__(self) -> None:
        self._checks: Mapping[str, Check] = {}
        self._lock = Lock()
        self._turns: dict[str, Lock] = {}
        self._whose: dict[str, int] = {}

    def add(self, check: Check) -> None:
        """``InvalidRequest`` if there is one of its name."""
        with self._lock:
            if check.name in self._checks:
                raise InvalidRequest(f"there is a check '{check.name}' already")
            self._checks = {**self._checks, check.name: check}

    def remove(self, name: str) -> None:
        """``InvalidRequest`` if there is none."""
        with self._lock:
            if name not in self._checks:
                raise InvalidRequest(f"there is no check '{name}'")
            self._checks = {known: check for known, check in self._checks.items() if known != name}

    def all(self) -> tuple[Check, ...]:
        """In the order in which they were added, and in which they run."""
        return tuple(self._checks.values())

    def of(self, branch: str) -> list[Check]:
        """Those that look at what is published on a branch. In a transaction, nothing is until it lands."""
        known = {} if is_transaction(branch) else self._checks
        return [one for one in known.values() if fnmatchcase(branch, one.branch)] if known else []

    @contextmanager
    def turn(self, branch: str) -> Iterator[None]:
        """Wait for the turn of a writer of a branch that has checks; any other goes on at once."""
        if not self.of(branch):
            yield
            return
        if self._whose.get(branch) == get_ident():
            raise InvalidRequest(f"a check of '{branch}' cannot write to '{branch}' itself", name=branch)
        with self._lock:
            turn = self._turns.setdefault(branch, Lock())
        with turn:
            self._whose[branch] = get_ident()
            try:
                yield
            finally:
                del self._whose[branch]

    def run(self, proposal: Proposal) -> None:
        """Show a proposal to all checks of its branch; ``CommitVetoed`` by the first that is against it."""
        for check in self.of(proposal.branch):
            why = _verdict(check, proposal)
            if why is not None:
                raise CommitVetoed(
                    f"check '{check.name}' keeps this from being published on '{proposal.branch}': {why}",
                    check=check.name,
                    name=proposal.branch,
                    reason=why,
                )


def _verdict(check: Check, proposal: Proposal) -> str | None:
    """Why a check vetoes, if it does. One that fails does so too: nothing is published unchecked."""
    try:
        said = check.function(proposal)
    except Vetoed as vetoed:
        return str(vetoed) or NO_REASON
    except TryAgainError:
        raise  # of the store: the same request may work later
    except Exception as problem:
        logger.exception("check '%s' failed", check.name)
        return f"it failed with {type(problem).__name__}: {problem}"
    if said is None:
        return None
    if isinstance(said, str):
        return said or NO_REASON
    if type(said).__name__ in ("bool", "bool_"):  # the latter is how NumPy compares
        return None if said else NO_REASON
    return f"it answered {said!r}, which is neither yes nor no"


def submit_checked(kernel: Kernel, branch: str, request: Request) -> Outcome:
    """Check what a request comes to, and have exactly that published; once more if the branch moved."""
    with kernel.checks.turn(branch):
        for _ in range(kernel.settings.tries_max):
            known = kernel.known(branch, request)
            if known is not None:
                return known
            reference = kernel.branch(branch)
            try:
                if request.needs_preparation:
                    request.prepare(reference)
                drafts = _checked(kernel, reference, request)
                request.checked = Checked(reference.head, reference.incarnation, drafts)
                return kernel.enqueue(branch, request)
            except PrepareAgain:
                continue
            finally:
                request.checked = None
    raise _moves_on(kernel, branch)


def assign_checked(kernel: Kernel, name: str, to: ObjectId, **how: Unpack[Assigning]) -> Reference:
    """Let a branch or tag name another commit, as ``References.assign``, once its checks agree to that.

    What others read there is another state from then on, wherever that came from.
    """
    references = kernel.references
    with kernel.checks.turn(name):
        for _ in range(kernel.settings.tries_max):
            if not kernel.checks.of(name) or (found := references.get(name)).kind is not Kind.BRANCH:
                return references.assign(name, to, **how)
            key, asked, expected = how.get("key"), how.get("asked"), how.get("expected")
            is_done = bool(key) and kernel.outcome(name, key or "", asked, about_itself=True) is not None
            if not is_done and found.head != to and expected in (None, found.head):
                _check_move(kernel, found, to)
            try:
                return references.assign(name, to, checked=(found.incarnation, found.head), **how)
            except PrepareAgain:
                continue
    raise _moves_on(kernel, name)


def _check_move(kernel: Kernel, reference: Reference, to: ObjectId) -> None:
    commit = kernel.history.commit(to)
    meta = CommitMeta(
        message=commit.message,
        authors=commit.authors,
        author_time_us=commit.author_time_us,
        signed_off_by=commit.signed_off_by,
        properties=commit.properties,
        committer=commit.committer,
    )
    changed = [key for key, _, _ in kernel.differing(reference.head, to)]
    kernel.checks.run(proposal_of(reference, Chain(kernel.objects, to), meta, changed))


def _moves_on(kernel: Kernel, branch: str) -> RetriesExhausted:
    return RetriesExhausted(
        f"'{branch}' moved {kernel.settings.tries_max} times while its checks ran. Nothing was changed; "
        "try again when there is less traffic.",
        tries=kernel.settings.tries_max,
    )


def _checked(kernel: Kernel, reference: Reference, request: Request) -> tuple[Draft, ...]:
    chain = Chain(kernel.objects, reference.head)
    request.check_reference(reference, chain)
    drafts = tuple(request.apply(chain, reference))
    if drafts:
        for draft in drafts:
            chain.add(draft)
        changed = {key for draft in drafts for key in draft.changes}
        kernel.checks.run(proposal_of(reference, chain, drafts[-1].meta, sorted(changed)))
    return drafts


def proposal_of(reference: Reference, chain: Chain, meta: CommitMeta, changed: Sequence[bytes]) -> Proposal:
    """A chain as what a branch is about to become."""
    keys = tuple(Key.decode(key) for key in changed if not key.startswith(RESERVED))
    return Proposal(reference.name, reference.head, meta, keys, chain.view, chain.objects)
