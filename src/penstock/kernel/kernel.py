"""The kernel: everything a lake can do, over one store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from threading import Lock
from typing import Final, TypeVar, Unpack
from uuid import uuid4

import msgspec

from penstock.errors import (
    CommitNotFound,
    ConflictError,
    HistoryExpired,
    InvalidName,
    InvalidRequest,
    MergeConflict,
    OutOfSync,
    ReferenceNotFound,
    RequestError,
    TransactionNotFound,
    TransactionOver,
)
from penstock.kernel.batch import RequestOutcome, is_called_off, read_request_outcome
from penstock.kernel.chain import CommitChain
from penstock.kernel.checks import Checks, submit_checked
from penstock.kernel.commit import CommitRequest
from penstock.kernel.default_branch_moves import check_move, find_changed_tables
from penstock.kernel.description import (
    LakeDescription,
    change_description,
    check_description_size,
    find_description,
    make_history_rule,
    require_unmoved,
    with_new_grace,
)
from penstock.kernel.edit import LandingNotice
from penstock.kernel.expired import read_expired_commits
from penstock.kernel.format import Format, Formats, PrepareAgain
from penstock.kernel.grace_periods import GracePeriodRules, GracePeriods, make_grace_periods
from penstock.kernel.history import CommitWalk, History
from penstock.kernel.known_tables import KnownTables
from penstock.kernel.lake_state import Difference, StateOverlay, diff_commits, iterate_differences, open_state
from penstock.kernel.merge import MergeRequest
from penstock.kernel.objects import Objects, read_content
from penstock.kernel.queue import BranchQueue
from penstock.kernel.rebase import BranchRebase
from penstock.kernel.reference_rows import decode_reference_row, require_writable
from penstock.kernel.references import References
from penstock.kernel.reflog import RefLog, find_earlier_request
from penstock.kernel.request import (
    GeneratedKey,
    MissingChecks,
    Request,
    RequestTerms,
    TermOptions,
    measure_request,
    request_key,
)
from penstock.kernel.restore import RestoreRequest, RestoreScope
from penstock.kernel.revert import RevertRequest
from penstock.kernel.settings import WRITE_MAX_S, Settings
from penstock.kernel.table_horizons import TableHorizons, find_horizon
from penstock.kernel.three_way import MergeOptions, ThreeWayTerms
from penstock.kernel.time_limits import WriteRetries, time_limit
from penstock.kernel.transplant import TransplantRequest
from penstock.kernel.tree import Differing
from penstock.metrics.meter import SILENT, Meter
from penstock.model.clock import Clock, now_us
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId, encode, hash_object
from penstock.model.merges import MergedKey, MergeResult
from penstock.model.names import Revision, Step, check_name, parse_revision
from penstock.model.objects import CommitObject
from penstock.model.operations import Operation
from penstock.model.references import Kind, Reference
from penstock.model.transactions import is_transaction
from penstock.stores.port import Store

logger = logging.getLogger("penstock")

ABBREVIATION_SEARCH_MAX = 20_000
"""How many commits are looked through for one that an abbreviated id names."""

LINE_WAITS_MAX: Final = 10
"""A request waits for others to be prepared for so many times as long as a write may take without that."""
LOGGED: Final = (Kind.BRANCH, Kind.TAG, Kind.DELETED, Kind.TRANSACTION, Kind.ENDED_TRANSACTION)
"""Rows that have a log, which tells what became of requests."""

M = TypeVar("M", MergeRequest, TransplantRequest, RevertRequest, RestoreRequest)


class Kernel:
    """Commits, branches, tags, merges and history over a store. Used by many threads at once."""

    def __init__(
        self,
        store: Store,
        formats: Sequence[Format] = (),
        settings: Settings | None = None,
        clock: Clock = now_us,
        meter: Meter = SILENT,
        default_branch: str = "main",
    ) -> None:
        self.store, self.clock, self.meter = store, clock, meter
        self.settings = settings or Settings()
        self.formats = Formats(formats, default_branch)
        self.formats.horizons = lambda: TableHorizons.read_horizons(store, self.formats)
        self.formats.find_horizons_by(partial(find_horizon, store))
        self.objects = Objects(store, self.settings.cache_max_bytes)
        self.history = History(self.objects, self._read_expired_commits)
        self.graces = GracePeriodRules(self._read_grace_periods, self.settings, clock)
        self.checks = Checks()
        self._queues: dict[str, BranchQueue] = {}
        self._queues_lock = Lock()
        self.references = References(
            store,
            self.objects,
            self.history,
            clock,
            self.settings,
            self.graces,
            meter,
            self._forget_row,
            partial(check_move, self.formats, self.objects),
        )
        self.known_tables = KnownTables(self)

    def _read_expired_commits(self) -> Collection[ObjectId]:
        lake = find_description(self.store)
        return read_expired_commits(lake, self.objects) if lake is not None else ()

    def _read_grace_periods(self) -> tuple[GracePeriods, ...]:
        lake = find_description(self.store)
        return lake.graces if lake is not None else ()

    # -- reading ---------------------------------------------------------------------------------------

    def resolve_revision(self, text: str | Revision) -> tuple[ObjectId, Reference | None]:
        """The commit that a revision names, and the reference that it names, if it names one.

        With both a reference and a commit, what the revision comes to must be in the reference's history: of
        ``main@<commit>~1`` the commit before that one, whatever branch that one is on.
        """
        revision = text if isinstance(text, Revision) else parse_revision(text)
        reference = self.references.get_reference(revision.name) if revision.name else None
        if revision.commit is not None:
            start = self._find_commit_by_id(revision.commit, reference)
        elif reference is not None:
            start = reference.head
        else:
            raise InvalidName(f"{text!r} is neither a branch, a tag nor a commit")
        for step in revision.steps:
            start = self._follow_step(start, step)
        if revision.commit is not None and reference is not None:
            self._require_in(reference, start)
        return start, reference

    def _find_commit_by_id(self, digits: str, reference: Reference | None) -> ObjectId:
        commit = bytes.fromhex(digits) if len(digits) == 64 else self._find_abbreviated(digits, reference)
        if commit != NO_COMMIT:
            self.history.read_commit(commit)
        return commit

    def _require_in(self, reference: Reference, commit: ObjectId) -> None:
        if not self.history.is_ancestor(commit, reference.head):
            raise CommitNotFound(
                f"commit {commit.hex()} is not in the history of '{reference.name}'",
                commit=commit.hex(),
                name=reference.name,
            )

    def _find_abbreviated(self, digits: str, reference: Reference | None) -> ObjectId:
        """The one commit whose id begins so, among the newest of a reference, or of all of them."""
        heads = [reference.head] if reference else [head for _, head in self.references.list_heads()]
        newest = islice(self.history.walk_commits(*heads, all_parents=True), ABBREVIATION_SEARCH_MAX)
        matches = {commit_id for commit_id, _ in newest if commit_id.hex().startswith(digits)}
        if len(matches) == 1:
            return matches.pop()
        if matches:
            names = ", ".join(sorted(commit_id.hex()[:16] for commit_id in matches))
            raise InvalidName(f"{digits!r} is ambiguous: it matches the commits {names}")
        raise CommitNotFound(f"no recent commit begins with {digits!r}; give the full id", commit=digits)

    def _follow_step(self, start: ObjectId, step: Step) -> ObjectId:
        if step.kind == "~":
            return self.history.find_predecessor(start, step.amount)
        if step.kind == "*":
            return self.history.find_commit_at_time(start, step.amount)
        if step.amount == 0:
            return start
        commit = self.history.read_commit(start)
        parents = (commit.parent, *commit.further_parents)
        if start == NO_COMMIT or step.amount > len(parents):
            count = 0 if start == NO_COMMIT else len(parents)
            has = f"{count} parent" if count == 1 else f"{count or 'no'} parents"
            raise CommitNotFound(
                f"there is no parent {step.amount} of commit {start.hex()[:8]}, which has {has}"
            )
        return parents[step.amount - 1]

    def read_state(self, commit: ObjectId) -> StateOverlay:
        """The lake at a commit."""
        return open_state(self.objects, self.history.read_commit(commit))

    def find_oldest_kept(self, start: ObjectId) -> tuple[ObjectId, CommitObject]:
        """The oldest commit that history is kept from, by first parents: in O(log n) steps."""
        commit_id, commit = start, self.history.read_commit(start)
        while older := next(filter(self._is_kept, (commit.jump, commit.parent)), None):
            commit_id, commit = older, self.history.read_commit(older)
        return commit_id, commit

    def _is_kept(self, commit: ObjectId) -> bool:
        if commit == NO_COMMIT or self.history.read_ancestor(commit) is None:
            return False
        try:
            self.references.require_kept(commit)
        except HistoryExpired:
            return False
        return True

    def diff_commits(
        self, before: ObjectId, after: ObjectId, start: bytes = b"", stop: bytes | None = None
    ) -> Difference:
        """What differs between two commits."""
        return diff_commits(
            self.objects, self.history.read_commit(before), self.history.read_commit(after), start, stop
        )

    def iterate_differences(
        self, before: ObjectId, after: ObjectId, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[Differing]:
        """The same, one after the other in the order of keys; what is not asked for is not read."""
        return iterate_differences(
            self.objects, self.history.read_commit(before), self.history.read_commit(after), start, stop
        )

    # -- writing ---------------------------------------------------------------------------------------

    def commit(
        self,
        branch: str,
        operations: Sequence[Operation],
        meta: CommitMeta | None = None,
        *,
        base: ObjectId | None = None,
        create_namespaces: bool = False,
        **terms: Unpack[TermOptions],
    ) -> RequestOutcome:
        """Carry out operations on a branch, all or none; ``CommitConflict`` names everything in the way."""
        request = CommitRequest(
            self.history,
            self.formats,
            operations,
            meta or CommitMeta(),
            RequestTerms(**terms),
            base=base,
            create_namespaces=create_namespaces,
        )
        return self.submit_request(branch, request)

    def submit_request(self, branch: str, request: Request) -> RequestOutcome:
        """Prepare a request, queue it, and finish what follows once it has landed.

        A request that is refused, or has nothing to do, because it landed before is answered by that.
        """
        _ = request.digest  # here, so that what cannot be hashed is this caller's problem alone
        with measure_request(self.meter, branch, request.event.value):
            outcome = self._find_landed_request(branch, request) or self._submit_or_repeat(branch, request)
        if not outcome.commits:
            outcome = self.find_earlier_outcome(branch, request) or outcome
        if outcome.repeated:
            self._publish_landed_again(branch, outcome.commits)
        elif outcome.commits:
            self.publish_landed(request, list(outcome.commits))
        return outcome

    def _submit_or_repeat(self, branch: str, request: Request) -> RequestOutcome:
        try:
            return self._submit_once(branch, request)
        except (ConflictError, RequestError):
            outcome = self.find_earlier_outcome(branch, request)
            if outcome is None:
                raise
            return outcome
        except OutOfSync:
            require_unmoved(self.store)  # the tables of a lake that has moved go on without it
            raise

    def _submit_once(self, branch: str, request: Request) -> RequestOutcome:
        if self.checks.may_have_checks(branch):
            return submit_checked(self, branch, request)
        tries, line = WriteRetries(self.settings), self._find_queue(branch).preparations
        with line.take_turn() as turn:
            while True:
                if request.needs_preparation:
                    if tries.count or line.is_contended:
                        tries.extend_time(turn.wait(tries.left_s / 2, self._preparation_wait_max_s()))
                    request.prepare(self.branch(branch))
                try:
                    return self.enqueue_request(branch, request)
                except MissingChecks:
                    break
                except PrepareAgain:
                    turn.note_wasted_preparation()
                    tries.wait_for_next_try(
                        f"too many commits were made to '{branch}' since the request was prepared"
                    )
        return submit_checked(self, branch, request)

    def _preparation_wait_max_s(self) -> float:
        """How long a request waits for others to be prepared, as long as they land: until it is due, and
        never for so long that objects which it has stored may be swept."""
        write_s = self.settings.write_timeout_s
        return time_limit(min(LINE_WAITS_MAX * write_s, WRITE_MAX_S - write_s), "").seconds

    def enqueue_request(self, branch: str, request: Request) -> RequestOutcome:
        """Queue a request that is prepared; ``PrepareAgain`` if that is not enough any more."""
        return self._find_queue(branch).submit_request(request)

    def _find_landed_request(self, branch: str, request: Request) -> RequestOutcome | None:
        """What a request came to under a key that Penstock made; from now on, the queue looks."""
        made_key = GeneratedKey.parse_key(request.key)
        if made_key is None:
            return None
        with suppress(ReferenceNotFound, TransactionNotFound, TransactionOver):
            request.doubt_from = self.branch(branch).position
            if made_key.position > request.doubt_from:
                raise InvalidRequest(
                    f"idempotency key '{request.key}' was made for a later state of '{branch}': the "
                    "branch was created again, or the lake restored, since then. Use a new key.",
                    name=branch,
                )
        return self.find_earlier_outcome(branch, request)

    def find_earlier_outcome(self, branch: str, request: Request) -> RequestOutcome | None:
        """What a repeated request came to before."""
        if not request.key_is_given:
            return None
        with suppress(ReferenceNotFound):
            return self.find_outcome(branch, request.key, request.digest, about_itself=False)
        return None

    def publish_landed(self, request: Request, commits: list[ObjectId]) -> None:
        """Have formats publish what landed. It is visible already, so no problem here can take it back."""
        try:
            request.after_commit(commits)
        except Exception:
            logger.exception(
                "commit %s stands, but background work after it failed; it is done later", commits[-1].hex()
            )

    def _publish_landed_again(self, branch: str, commits: Sequence[ObjectId]) -> None:
        """The same for commits that landed before: whoever made them may have died right then.

        Formats are told how the tables are by now, since nobody should go back to what they were.
        """
        if not self.formats or not commits:
            return
        try:
            state = self.read_state(self.references.get_reference(branch).head)
            landing = LandingNotice(self.formats, branch)
            for commit_id in commits:
                changed = find_changed_tables(self.formats, self.objects, commit_id)
                now = {key: read_content(self.objects, state.get(key.encode())) for key in changed}
                landing.add_tables({key: change._replace(after=now[key]) for key, change in changed.items()})
            landing.notify_formats(commits)
        except (ReferenceNotFound, TransactionNotFound, TransactionOver):
            pass  # the branch is gone, and its tables with it
        except Exception:
            logger.exception(
                "commit %s stands, but background work after it failed; it is done later", commits[-1].hex()
            )

    def branch(self, name: str) -> Reference:
        """The branch ``name``; ``InvalidRequest`` if that is a tag, ``TransactionOver`` if it is a
        transaction's that takes no more writes."""
        reference = self.references.get_reference(name)
        require_writable(reference, self.clock())
        return reference

    def _find_queue(self, branch: str) -> BranchQueue:
        queue = self._queues.get(branch)
        if queue is not None:
            return queue
        check_name(branch)
        with self._queues_lock:
            if len(self._queues) >= self.settings.queues_max:
                # An idle queue holds nothing but a copy of its branch's head.
                self._queues = {name: queue for name, queue in self._queues.items() if not queue.is_idle}
            forget = None if self.formats.is_default(branch) else self.formats.forget_horizons
            queue = BranchQueue(
                branch, self.store, self.objects, self.clock, self.settings, self.meter, forget
            )
            return self._queues.setdefault(branch, queue)

    def _forget_row(self, branch: str) -> None:
        """Somebody moves a branch past its queue, which need not try with the row that it remembers."""
        queue = self._queues.get(branch)
        if queue is not None:
            queue.remembered = None

    def find_outcome(
        self, name: str, key: str, digest: bytes | None = None, *, about_itself: bool | None = None
    ) -> RequestOutcome | None:
        """What became of the request with an idempotency key; ``None`` if it has not been applied.

        The branch or tag of that name may have been deleted since. ``about_itself`` tells a request that
        moved the reference from one that brought commits to it, which have keys apart; without it, either is
        found. With a ``digest``, ``IdempotencyKeyReused`` if the key was used for another request.
        """
        row = self.store.reference(check_name(name))
        if row is None or row.kind not in LOGGED:
            return None
        reference, log = decode_reference_row(row), RefLog(self.objects)
        scopes = {False: reference.incarnation, True: name.encode()}
        for scope in scopes.values() if about_itself is None else (scopes[about_itself],):
            located_entry, _ = find_earlier_request(self.store, log, reference, scope, key, digest)
            if located_entry is not None and not is_called_off(located_entry[1], key):
                return read_request_outcome(self.objects, located_entry[1], key)._replace(repeated=True)
        return None

    def merge(
        self,
        source: ObjectId,
        into: str,
        meta: CommitMeta,
        options: MergeOptions = MergeOptions(),
        *,
        dry_run: bool = False,
        is_held: bool = False,
        **terms: Unpack[TermOptions],
    ) -> MergeResult:
        """Bring what ``source`` has and a branch has not, as one commit that records it as a parent.

        ``is_held`` says that a row keeps the source until it has landed. Raises ``MergeConflict``; a dry run
        reports the conflicts in its result instead.
        """
        if not is_held:
            self.references.require_kept(source)
        how = ThreeWayTerms(is_dry_run=dry_run, **terms)
        request = MergeRequest(self.history, self.formats, source, meta, options, how)
        result, landed_before = self._run_merge(into, request)
        if landed_before:  # by now the source may be another commit, and so may the ancestor
            landed = self.history.read_commit(bytes.fromhex(result.head)).further_parents
            return msgspec.structs.replace(result, source=landed[0].hex() if landed else None)
        base = request.base.hex() if request.base is not None else None
        return msgspec.structs.replace(result, base=base, source=source.hex())

    def transplant(
        self,
        commits: Sequence[ObjectId],
        onto: str,
        meta: CommitMeta,
        options: MergeOptions = MergeOptions(),
        *,
        dry_run: bool = False,
        **terms: Unpack[TermOptions],
    ) -> MergeResult:
        """Repeat commits, oldest first, on a branch; all of them land by one swap or none does."""
        for commit_id in commits[:1]:  # those after it are nearer to whatever keeps it
            self.references.require_kept(commit_id)
        how = ThreeWayTerms(is_dry_run=dry_run, **terms)
        request = TransplantRequest(self.history, self.formats, commits, meta, options, how)
        return self._run_merge(onto, request)[0]

    def revert(
        self,
        commit: ObjectId,
        on: str,
        meta: CommitMeta,
        options: MergeOptions = MergeOptions(),
        *,
        dry_run: bool = False,
        **terms: Unpack[TermOptions],
    ) -> MergeResult:
        """Undo on a branch what one of its commits did."""
        self.references.require_kept(self.history.read_commit(commit).parent)
        how = ThreeWayTerms(is_dry_run=dry_run, **terms)
        request = RevertRequest(self.history, self.formats, commit, meta, options, how)
        return self._run_merge(on, request)[0]

    def restore(
        self,
        to: ObjectId | int,
        on: str,
        scope: RestoreScope,
        meta: CommitMeta,
        *,
        dry_run: bool = False,
        **terms: Unpack[TermOptions],
    ) -> MergeResult:
        """Set keys of a branch to what they were at a commit, or one table to a version of its own."""
        if isinstance(to, bytes):
            self.references.require_kept(to)
        how = ThreeWayTerms(is_dry_run=dry_run, **terms)
        request = RestoreRequest(self.history, self.formats, to, scope, meta, how)
        return self._run_merge(on, request)[0]

    def _run_merge(self, branch: str, request: M) -> tuple[MergeResult, bool]:
        """What comes of a request, and whether it landed before, under the same key."""
        if request.is_dry_run:
            return self._preview_request(self.branch(branch), request), False
        outcome = self.submit_request(branch, request)
        keys: list[MergedKey] = [] if outcome.repeated else request.results
        result = MergeResult(
            commits=tuple(commit_id.hex() for commit_id in outcome.commits),
            head=outcome.head.hex(),
            keys=tuple(keys),
            applied=bool(outcome.commits),
        )
        return result, outcome.repeated

    def _preview_request(self, reference: Reference, request: M) -> MergeResult:
        """The same code on the head as it is, without the queue and without a swap."""
        require_unmoved(self.store)
        chain = CommitChain(self.objects, reference.head)
        request.prepare(reference)
        request.check_reference(reference, chain)
        with suppress(MergeConflict):
            request.draft_commits(chain, reference)
        return MergeResult(head=reference.id, keys=tuple(request.results), dry_run=True)

    def rebase(
        self,
        branch: str,
        onto: ObjectId,
        meta: CommitMeta,
        options: MergeOptions = MergeOptions(),
        *,
        if_head: ObjectId | None = None,
        dry_run: bool = False,
        key: str | None = None,
        fingerprint: Callable[[], bytes] | None = None,
    ) -> MergeResult:
        """Repeat a branch's own commits on a new base, and move the branch there by one swap."""
        if is_transaction(branch):
            raise InvalidRequest(
                f"'{branch}' is the branch of a transaction, and cannot be rebased", name=branch
            )
        self.references.require_kept(onto)
        key_is_given, key = key is not None, request_key(key) or uuid4().hex
        rebase = BranchRebase(self, branch, onto, meta, options, key, if_head)
        if dry_run:
            require_unmoved(self.store)
            return rebase.preview_rebase()
        request: bytes | None = None
        if key_is_given:
            wish = ("rebase", branch, onto, if_head, options.fingerprint())
            request = fingerprint() if fingerprint is not None else hash_object(encode(wish))
        return rebase.rebase_branch(request)

    def keep_history(self, pattern: str, max_commits: int | None, max_days: float | None) -> None:
        """Say how much history references keep whose names match a pattern; without limits, all of it.

        What was kept so far stays for a grace period.
        """
        now_us = self.clock()
        rule = make_history_rule(pattern, max_commits, max_days, now_us)
        forgotten_us = now_us - self.graces.find_sweep_grace().objects_us

        def update_description(lake: LakeDescription) -> LakeDescription:
            rules = [rule for rule in lake.history if (rule.ended_us or now_us) > forgotten_us]
            ended = [
                msgspec.structs.replace(rule, ended_us=now_us)
                if rule.pattern == pattern and rule.ended_us is None
                else rule
                for rule in rules
            ]
            history = (*ended, rule) if rule else tuple(ended)
            return check_description_size(lake, msgspec.structs.replace(lake, history=history))

        change_description(self.store, self.settings, update_description)

    def set_grace(self, grace_s: float | None, data_grace_days: float | None) -> GracePeriods:
        """Say how long a sweep leaves alone what nothing leads to; what is not given stays as it is.

        ``InvalidRequest`` below the least that a lake may say.
        """
        now_us = self.clock()

        def update_description(lake: LakeDescription) -> LakeDescription:
            before = (lake.graces or (GracePeriods(),))[-1]
            return with_new_grace(lake, make_grace_periods(before, grace_s, data_grace_days, now_us))

        changed = change_description(self.store, self.settings, update_description)
        return (changed.graces or (GracePeriods(),))[-1]

    def walk_commits(self, start: ObjectId, all_parents: bool = False) -> CommitWalk:
        """Commits from one backwards."""
        return self.history.walk_commits(start, all_parents=all_parents)

    def close(self) -> None:
        self.store.close()
