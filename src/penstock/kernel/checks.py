"""Checks: functions that look at what is about to be published on a branch, and can veto it.

A check sees the exact result: the very commits that the swap would make visible. So it runs before the queue,
on the head as it is then, and at its turn the request may only go by what was checked. If the branch has
moved by then, the result is worked out and checked anew, up to ``Settings.tries_max`` times. Writers of a
branch with checks take turns in this process: none of them makes another one's check run in vain.

Some are functions of this process. Others are expectations, which are kept in the branch's own row: a request
that comes to its turn without having been asked about them is sent back here (``MissingChecks``), whichever
process added them, and whenever that was. Without either, a request takes no notice of any of this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatchcase
from threading import Lock, get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypedDict, TypeVar, Unpack

from penstock.errors import CommitVetoed, InvalidRequest, RetriesExhausted, Throttled, TryAgainError
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.format import PrepareAgain
from penstock.kernel.lake_state import StateOverlay
from penstock.kernel.objects import Objects, read_content
from penstock.kernel.reference_rows import decode_branch_or_tag
from penstock.kernel.request import CheckedDrafts, Request
from penstock.kernel.time_limits import time_limit
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId
from penstock.model.expectations import Expectation, read_expectations
from penstock.model.keys import RESERVED, Key
from penstock.model.names import check_name
from penstock.model.references import Kind, Reference
from penstock.model.transactions import is_transaction

if TYPE_CHECKING:
    from penstock.kernel.batch import RequestOutcome
    from penstock.kernel.kernel import Kernel

logger = logging.getLogger("penstock")

LOOK_AGAIN_S: Final = 1.0
"""How often one that waits for its turn looks whether it is still needed."""
EXPECTING_MAX: Final = 1024
"""Of so many branches it is kept in memory that they expect something."""
NO_REASON: Final = "it gave no reason"
NOBODY_ASKS: Final = (
    "this process cannot run queries: it opened the lake by penstock.kernel, without the query engine"
)


class Vetoed(Exception):
    """Raised by a check: what it was shown is not to be published, and why."""


class BranchProposal(NamedTuple):
    """What is about to be published: a state of the lake that no reference has yet."""

    branch: str
    base: ObjectId
    """The branch's head that it would take the place of."""
    meta: CommitMeta
    """What its newest commit says of itself."""
    changed: tuple[Key, ...]
    """The keys at which it differs from that head."""
    view: StateOverlay
    objects: Objects
    """Those of the store, and those that are still to be stored."""

    def get_content(self, key: Key) -> AnyContent | None:
        """What a key would hold."""
        return read_content(self.objects, self.view.get(key.encode()))


Function = Callable[[BranchProposal], Any]
S = TypeVar("S")


class Check(NamedTuple):
    """A function that looks at what is about to be published on a branch."""

    name: str
    branch: str
    """The branch, or a pattern such as ``release/*``."""
    function: Function


class ExpectationEngine(Protocol):
    """Asks what branches expect."""

    def require_available(self) -> None:
        """``InvalidRequest`` if it cannot be asked in this process, with the way out."""

    def find_violation(self, proposal: BranchProposal, expectation: Expectation) -> str | None:
        """Why a proposal is not as expected; ``None`` if it is."""


class ReferenceAssignment(TypedDict, total=False):
    """How a reference is assigned (see ``References.assign_reference``)."""

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
        self._turns: dict[str, _CheckTurn] = {}
        """Of the branches that somebody writes to just now, or waits to."""
        self._whose: dict[str, int] = {}
        self._expecting: frozenset[str] = frozenset()
        """Branches that were seen to expect something; of any other it turns out when its request comes."""
        self.engine: ExpectationEngine | None = None
        """Set by the lake, whose tables it reads."""

    def add_check(self, check: Check) -> None:
        """``InvalidRequest`` if there is one of its name."""
        with self._lock:
            if check.name in self._checks:
                raise InvalidRequest(f"the check '{check.name}' already exists")
            self._checks = {**self._checks, check.name: check}

    def remove_check(self, name: str) -> None:
        """``InvalidRequest`` if there is none."""
        with self._lock:
            if name not in self._checks:
                raise InvalidRequest(f"there is no check '{name}'")
            self._checks = {
                check_name: check for check_name, check in self._checks.items() if check_name != name
            }

    def list_checks(self) -> tuple[Check, ...]:
        """In the order in which they were added, and in which they run."""
        return tuple(self._checks.values())

    def list_checks_of_branch(self, branch: str) -> list[Check]:
        """Those that look at what is published on a branch. In a transaction, nothing is until it lands."""
        checks = self._checks
        if not checks or is_transaction(branch):
            return []
        return [check for check in checks.values() if fnmatchcase(branch, check.branch)]

    def list_checks_for_reference(self, reference: Reference) -> list[Check]:
        """The same for a branch as it is, together with what it expects."""
        expected = read_expectations(reference)
        if bool(expected) != (reference.name in self._expecting):
            with self._lock:
                expecting = self._expecting - {reference.name}
                if len(expecting) >= EXPECTING_MAX:
                    expecting = frozenset()  # most of them are gone by now
                self._expecting = expecting | {reference.name} if expected else expecting
        return [*self.list_checks_of_branch(reference.name), *map(self._make_check, expected)]

    def may_have_checks(self, branch: str) -> bool:
        """Whether something looks at what is published on a branch, as far as is known without its row."""
        return branch in self._expecting or bool(self.list_checks_of_branch(branch))

    def _make_check(self, expectation: Expectation) -> Check:
        def find_violation(proposal: BranchProposal) -> str | None:
            if expectation.keys.isdisjoint(proposal.changed):
                return None
            return NOBODY_ASKS if self.engine is None else self.engine.find_violation(proposal, expectation)

        return Check(expectation.name, "", find_violation)

    @contextmanager
    def wait_for_turn(self, branch: str, wait_s: float, is_needed: Callable[[], bool]) -> Iterator[None]:
        """Wait for the turn of a writer of a branch that has checks; any other goes on at once.

        So does one that has waited until nothing looks at the branch any more. ``Throttled`` if the turn does
        not come in time.
        """
        if not self.may_have_checks(branch):
            yield
            return
        if self._whose.get(branch) == get_ident():
            raise InvalidRequest(f"a check of the branch '{branch}' cannot write to '{branch}'", name=branch)
        with self._hold_lock(branch) as turn:
            until_s = monotonic() + wait_s
            while not turn.acquire(timeout=max(0.0, min(LOOK_AGAIN_S, until_s - monotonic()))):
                if not is_needed():
                    yield
                    return
                if monotonic() >= until_s:
                    raise Throttled(
                        f"the checks of '{branch}' were busy with other commits for {wait_s:g} s. Nothing "
                        "was changed; try again when there is less traffic.",
                        name=branch,
                    )
            self._whose[branch] = get_ident()
            try:
                yield
            finally:
                del self._whose[branch]
                turn.release()

    @contextmanager
    def _hold_lock(self, branch: str) -> Iterator[Lock]:
        """The lock of a branch, which is there as long as somebody has it or waits for it."""
        with self._lock:
            turn = self._turns.setdefault(branch, _CheckTurn())
            turn.users += 1
        try:
            yield turn.lock
        finally:
            with self._lock:
                turn.users -= 1
                if not turn.users:
                    del self._turns[branch]


class _CheckTurn:
    """Whose turn it is on a branch, and how many have it or wait for it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0


def run_checks(checks: Sequence[Check], proposal: BranchProposal) -> None:
    """Show a proposal to checks of its branch; ``CommitVetoed`` by the first that is against it."""
    for check in checks:
        reason = run_check(check.name, check.function, proposal)
        if reason is not None:
            raise CommitVetoed(
                f"check '{check.name}' rejected the change to '{proposal.branch}': {reason}",
                check=check.name,
                name=proposal.branch,
                reason=reason,
            )


def run_check(name: str, function: Callable[[S], Any], shown: S) -> str | None:
    """Why a check vetoes what it is shown, if it does. One that fails does so too: nothing is published
    unchecked."""
    try:
        answer = function(shown)
    except Vetoed as vetoed:
        return str(vetoed) or NO_REASON
    except TryAgainError:
        raise  # of the store: the same request may work later
    except Exception as problem:
        logger.exception("check '%s' failed", name)
        return f"it failed with {type(problem).__name__}: {problem}"
    return read_veto_reason(answer)


def read_veto_reason(answer: object) -> str | None:
    """Why what a check answered is a no; ``None`` if it is a yes."""
    if answer is None:
        return None
    if isinstance(answer, str):
        return answer or NO_REASON
    if type(answer).__name__ in ("bool", "bool_"):  # the latter is how NumPy compares
        return None if answer else NO_REASON
    return f"it returned {answer!r}, which is neither true nor false"


def submit_checked(kernel: Kernel, branch: str, request: Request) -> RequestOutcome:
    """Check what a request comes to, and have exactly that published; once more if the branch moved."""
    with wait_for_turn_on_branch(kernel, branch):
        for _ in range(kernel.settings.tries_max):
            outcome = kernel.find_earlier_outcome(branch, request)
            if outcome is not None:
                return outcome
            reference = kernel.branch(branch)
            try:
                if request.needs_preparation:
                    request.prepare(reference)
                if checks := kernel.checks.list_checks_for_reference(reference):
                    drafts = _draft_and_check(kernel, reference, request, checks)
                    parts = reference.head, reference.incarnation, reference.note
                    request.checked = CheckedDrafts(*parts, drafts)
                return kernel.enqueue_request(branch, request)
            except PrepareAgain:
                continue
            except CommitVetoed:
                if kernel.branch(branch).note == reference.note:
                    raise  # otherwise it is perhaps not expected any more
            finally:
                request.checked = None
    raise _moves_on_error(kernel, branch)


def assign_checked(kernel: Kernel, name: str, to: ObjectId, **how: Unpack[ReferenceAssignment]) -> Reference:
    """Let a branch or tag name another commit, as ``References.assign_reference``, if its checks agree.

    What others read there is another state from then on, wherever that came from.
    """
    references = kernel.references
    with wait_for_turn_on_branch(kernel, name):
        for _ in range(kernel.settings.tries_max):
            reference = decode_branch_or_tag(kernel.store.reference(check_name(name)))
            checks = (
                []
                if reference is None or reference.kind is not Kind.BRANCH
                else kernel.checks.list_checks_for_reference(reference)
            )
            try:
                if reference is not None and checks:
                    key, fingerprint, expected = how.get("key") or "", how.get("asked"), how.get("expected")
                    is_done = (
                        bool(key)
                        and kernel.find_outcome(name, key, fingerprint, about_itself=True) is not None
                    )
                    if not is_done and reference.head != to and expected in (None, reference.head):
                        _check_move(kernel, reference, to, checks)
                return references.assign_reference(name, to, checked=reference if checks else None, **how)
            except PrepareAgain:
                continue
            except CommitVetoed:
                if reference is None or kernel.branch(name).note == reference.note:
                    raise
    raise _moves_on_error(kernel, name)


def wait_for_turn_on_branch(kernel: Kernel, branch: str) -> AbstractContextManager[None]:
    """The turn of a writer, who goes on without if the branch has nothing any more that looks at it."""

    def is_needed() -> bool:
        reference = decode_branch_or_tag(kernel.store.reference(branch))
        return reference is not None and bool(kernel.checks.list_checks_for_reference(reference))

    limit = time_limit(kernel.settings.expectation_timeout_s, "expectation_timeout_s")
    return kernel.checks.wait_for_turn(branch, limit.seconds, is_needed)


def require_able(kernel: Kernel, branch: Reference, before: ObjectId, after: ObjectId) -> None:
    """``InvalidRequest`` if a branch expects something of a change that cannot be asked in this process."""
    keys: set[Key] = set().union(*(expectation.keys for expectation in read_expectations(branch)))
    if not keys:
        return
    named = {key.encode() for key in keys}
    if any(key in named for key, _, _ in kernel.iterate_differences(before, after)):
        if kernel.checks.engine is None:
            raise InvalidRequest(f"'{branch.name}' has expectations, but {NOBODY_ASKS}", name=branch.name)
        kernel.checks.engine.require_available()


def _check_move(kernel: Kernel, reference: Reference, to: ObjectId, checks: Sequence[Check]) -> None:
    commit = kernel.history.read_commit(to)
    meta = CommitMeta(
        message=commit.message,
        authors=commit.authors,
        author_time_us=commit.author_time_us,
        is_dated=True,
        signed_off_by=commit.signed_off_by,
        properties=commit.properties,
        committer=commit.committer,
    )
    changed = [key for key, _, _ in kernel.iterate_differences(reference.head, to)]
    run_checks(checks, make_proposal(reference, CommitChain(kernel.objects, to), meta, changed))


def _moves_on_error(kernel: Kernel, branch: str) -> RetriesExhausted:
    return RetriesExhausted(
        f"'{branch}' moved {kernel.settings.tries_max} times while its checks ran. Nothing was changed; "
        "try again when there is less traffic.",
        tries=kernel.settings.tries_max,
    )


def _draft_and_check(
    kernel: Kernel, reference: Reference, request: Request, checks: Sequence[Check]
) -> tuple[CommitDraft, ...]:
    chain = CommitChain(kernel.objects, reference.head)
    request.check_reference(reference, chain)
    drafts = tuple(request.draft_commits(chain, reference))
    if drafts:
        for draft in drafts:
            chain.add_draft(draft)
        changed = {key for draft in drafts for key in draft.changes}
        run_checks(checks, make_proposal(reference, chain, drafts[-1].meta, sorted(changed)))
    return drafts


def make_proposal(
    reference: Reference, chain: CommitChain, meta: CommitMeta, changed: Sequence[bytes]
) -> BranchProposal:
    """A chain as what a branch is about to become."""
    keys = tuple(Key.decode(key) for key in changed if not key.startswith(RESERVED))
    return BranchProposal(reference.name, reference.head, meta, keys, chain.view, chain.objects)
