"""Rebase: repeating a branch's own commits on a new base.

The new commits are made before the branch is locked, where formats may read table storage. If the branch
has moved by then, they are made once more from what was noted; if that is not enough, all of it begins anew.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import CommitVetoed, MergeConflict
from penstock.kernel.batch import read_request_outcome
from penstock.kernel.chain import CommitChain
from penstock.kernel.checks import make_proposal, run_checks, wait_for_turn_on_branch
from penstock.kernel.default_branch_moves import check_move
from penstock.kernel.format import DRY_RUN, PrepareAgain
from penstock.kernel.lake_state import iterate_differences
from penstock.kernel.records import KeepRow
from penstock.kernel.references import ReferenceDecision
from penstock.kernel.three_way import MergeOptions, ThreeWayTerms
from penstock.kernel.time_limits import WriteRetries
from penstock.kernel.transplant import TransplantRequest
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId
from penstock.model.merges import MergedKey, MergeResult
from penstock.model.objects import Landed
from penstock.model.references import Event, Kind, Reference
from penstock.stores.port import Row

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel


class BranchRebase:
    """A branch's own commits, repeated on a new base."""

    def __init__(
        self,
        kernel: Kernel,
        branch: str,
        onto: ObjectId,
        meta: CommitMeta,
        options: MergeOptions,
        key: str,
        if_head: ObjectId | None,
    ) -> None:
        self._kernel, self._branch, self._onto = kernel, branch, onto
        self._meta, self._options, self._key, self._if_head = meta, options, key, if_head
        self._base = onto
        self._notes: dict[Any, Any] = {}
        self._results: list[MergedKey] = []
        self._commits: list[ObjectId] = []
        self._request: TransplantRequest | None = None
        self._built: tuple[ObjectId, CommitChain] | None = None
        self._checked: tuple[ObjectId, bytes] | None = None
        """The head, and the note of the row, for which checks have agreed to what was built."""

    def rebase_branch(self, request: bytes | None) -> MergeResult:
        """Move the branch; ``request`` is a hash of what is asked for, if the caller gave a key for it."""
        with wait_for_turn_on_branch(self._kernel, self._branch):
            return self._rebase_once(request)

    def _rebase_once(self, request: bytes | None) -> MergeResult:
        kernel, tries = self._kernel, WriteRetries(self._kernel.settings)
        while True:
            reference = kernel.branch(self._branch)
            try:  # what is met here counts only if this is not a repetition
                self._run_branch_checks(reference, self._build_chain_once(reference, may_read=True))
            except (MergeConflict, PrepareAgain):
                pass
            except CommitVetoed:
                if request is None or kernel.find_outcome(self._branch, self._key, request) is None:
                    raise
            try:
                after = kernel.references.swap_reference(
                    self._branch, self._decide_move, self._meta.committer, self._key, request
                )
            except PrepareAgain:
                tries.wait_for_next_try(
                    f"too many commits were made to '{self._branch}' since the rebase was prepared"
                )
            else:
                return after if isinstance(after, MergeResult) else self._make_moved_result(after)

    def preview_rebase(self) -> MergeResult:
        """What it would do; conflicts are among the keys."""
        self._notes[DRY_RUN] = True

        def keep_row(row: Row | None) -> KeepRow[Reference]:
            return KeepRow(self._require_expected(row))

        reference = self._kernel.references.swap_reference(
            self._branch, keep_row, self._meta.committer, self._key
        )
        if not self._is_done(reference):
            with suppress(MergeConflict):
                self._build_chain(reference, may_read=True)
        return msgspec.structs.replace(self._make_unchanged_result(reference), dry_run=True)

    def _make_unchanged_result(self, reference: Reference) -> MergeResult:
        return MergeResult(head=reference.id, base=self._base.hex(), keys=tuple(self._results))

    def _make_moved_result(self, after: Reference) -> MergeResult:
        if self._commits and self._commits[-1] == after.head:
            commits, base, keys = self._commits, self._base.hex(), tuple(self._results)
            if self._request is not None:
                self._kernel.publish_landed(self._request, commits)
        else:  # an earlier try was it, and what this one looked at does not count
            objects = self._kernel.objects
            commits = list(read_request_outcome(objects, objects.get(after.log), self._key).commits)
            base, keys = None, ()
        return MergeResult(
            commits=tuple(commit_id.hex() for commit_id in commits),
            head=after.id,
            base=base,
            keys=keys,
            applied=True,
        )

    def _require_expected(self, row: Row | None) -> Reference:
        return self._kernel.references.require_expected(self._branch, row, self._if_head, Kind.BRANCH)

    def _decide_move(self, row: Row | None) -> ReferenceDecision | KeepRow[MergeResult]:
        reference = self._require_expected(row)
        if self._is_done(reference):
            return KeepRow(self._make_unchanged_result(reference))
        chain = self._build_chain_once(reference, may_read=False)
        if self._kernel.checks.list_checks_for_reference(reference) and self._checked != (
            reference.head,
            reference.note,
        ):
            raise PrepareAgain
        check_move(self._kernel.formats, chain.objects, reference, chain.tip)
        landed: tuple[Landed, ...] = ()
        if self._commits:
            author, head = self._meta.committer, self._commits[-1]
            landed = (Landed(Event.TRANSPLANT.value, self._key, author, head, len(self._commits)),)
        after = msgspec.structs.replace(reference, head=chain.tip)
        return ReferenceDecision(after, Event.TRANSPLANT, chain.objects.fresh, landed)

    def _run_branch_checks(self, reference: Reference, chain: CommitChain) -> None:
        """Show the checks of the branch, if it has any, what it is about to become."""
        checks, objects = self._kernel.checks.list_checks_for_reference(reference), chain.objects
        if not checks or self._is_done(reference):
            return
        changed = iterate_differences(objects, objects.get_commit(reference.head), chain.commit)
        run_checks(checks, make_proposal(reference, chain, self._meta, [key for key, _, _ in changed]))
        self._checked = reference.head, reference.note

    def _build_chain_once(self, reference: Reference, *, may_read: bool) -> CommitChain:
        """The new chain, sealed. It is built once for a head."""
        if self._built is None or self._built[0] != reference.head:
            chain = self._build_chain(reference, may_read=may_read)
            self._commits = [commit_id for commit_id, _ in chain.build_commits(self._kernel.clock())]
            self._built = reference.head, chain
        return self._built[1]

    def _build_chain(self, reference: Reference, *, may_read: bool) -> CommitChain:
        """The new chain, its drafts not yet sealed; also where there are conflicts, the results are kept."""
        kernel = self._kernel
        self._base = kernel.history.merge_bases(reference.head, self._onto)[0]
        chain = CommitChain(kernel.objects, self._onto)
        kernel.formats.forget_horizons()
        own = self._own_commits(reference.head)
        if not own:
            return chain
        terms = ThreeWayTerms(key=self._key, may_read=may_read, notes=self._notes)
        request = self._request = TransplantRequest(
            kernel.history, kernel.formats, own, self._meta, self._options, terms, onto=self._onto
        )
        try:
            drafts = request.draft_commits(chain, reference)
        finally:
            self._results = request.results
        for draft in drafts:
            chain.add_draft(draft)
        return chain

    def _is_done(self, reference: Reference) -> bool:
        """Whether the branch stands on the new base already."""
        history = self._kernel.history
        head, onto = history.read_commit(reference.head), history.read_commit(self._onto)
        if head.depth < onto.depth:
            return False
        return history.find_predecessor(reference.head, head.depth - onto.depth) == self._onto

    def _is_in_base(self, commit: ObjectId) -> bool:
        return self._kernel.history.is_ancestor(commit, self._onto)

    def _own_commits(self, head: ObjectId) -> list[ObjectId]:
        """The branch's commits by first parents that the new base does not have, oldest first."""
        own = []
        for commit_id, _ in self._kernel.history.walk_commits(head):
            if self._is_in_base(commit_id):
                break
            own.append(commit_id)
        return own[::-1]
