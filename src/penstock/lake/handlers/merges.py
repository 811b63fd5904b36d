"""Answering calls that merge, transplant, revert, restore and rebase."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import HistoryExpired, InvalidRequest
from penstock.kernel.restore import RestoreScope
from penstock.kernel.three_way import MergeOptions
from penstock.lake import calls
from penstock.lake.call import commit_meta, in_transaction_error, request_digest
from penstock.lake.calls import Restore
from penstock.model.clock import to_utc_datetime
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeResult
from penstock.model.names import parse_revision
from penstock.model.references import Kind

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded

VERSION_MAX: Final = 2**63 - 1
NAMED_MAX: Final = 3
"""How many tables are named in the message of a commit."""


class MergeHandlers:
    """Answers the calls that bring changes of other commits to a branch."""

    def __init__(self, lake: Embedded) -> None:
        self._lake, self._kernel = lake, lake.kernel
        self.by_call: dict[type[calls.Call[Any]], Callable[[Any], Any]] = {
            calls.Merge: self._merge_branch,
            calls.Transplant: self._transplant_commits,
            calls.Revert: self._revert_commit,
            calls.Restore: self._restore_keys,
            calls.Rebase: self._rebase_branch,
        }

    def _merge_branch(self, call: calls.Merge) -> MergeResult:
        target = self._lake.get_branch_or_default(call.into)
        commit = self._lake.resolve_reachable(call.source)
        merged = self._kernel.merge(
            commit,
            target,
            commit_meta(call.said, call.who, f"merge {call.source} into {target}"),
            self._make_merge_options(call),
            if_head=self._lake.resolve_optional(call.if_head),
            dry_run=call.dry_run,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )
        if merged.applied:
            self._lake.await_published(
                target, ((merged_key.key, merged_key.after) for merged_key in merged.keys)
            )
        return merged

    def _transplant_commits(self, call: calls.Transplant) -> MergeResult:
        return self._kernel.transplant(
            self._resolve_commits(call.commits),
            self._lake.get_branch_or_default(call.onto),
            commit_meta(call.said, call.who, ""),
            self._make_merge_options(call),
            if_head=self._lake.resolve_optional(call.if_head),
            dry_run=call.dry_run,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )

    def _resolve_commits(self, commits: Sequence[str]) -> list[ObjectId]:
        if len(commits) != 1 or ".." not in commits[0]:
            return [self._lake.resolve_reachable(revision) for revision in commits]
        start, _, end = commits[0].partition("..")
        first, last = self._lake.resolve_commit(start), self._lake.resolve_reachable(end)
        if first != NO_COMMIT and not self._kernel.history.is_on_line(first, last):
            raise InvalidRequest(f"'{start}' is not a first-parent ancestor of '{end}'")
        walk = (commit_id for commit_id, _ in self._kernel.walk_commits(last))
        return [*takewhile(lambda commit_id: commit_id != first, walk)][::-1]

    def _revert_commit(self, call: calls.Revert) -> MergeResult:
        commit_id, reference = self._kernel.resolve_revision(call.commit)
        if commit_id == NO_COMMIT:
            raise InvalidRequest(f"'{call.commit}' has no commits yet")
        if reference is not None and reference.kind is Kind.TRANSACTION and reference.name != call.on:
            raise in_transaction_error(reference.name)
        text = f"revert {commit_id.hex()[:8]}: {self._kernel.history.read_commit(commit_id).message}".rstrip(
            ": "
        )
        return self._kernel.revert(
            commit_id,
            self._lake.get_branch_or_default(call.on),
            commit_meta(call.said, call.who, text),
            self._make_merge_options(call),
            if_head=self._lake.resolve_optional(call.if_head),
            dry_run=call.dry_run,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )

    def _restore_keys(self, call: calls.Restore) -> MergeResult:
        branch, scope = self._lake.get_branch_or_default(call.branch), make_restore_scope(call)
        to = call.version if call.version is not None else self._require_restorable(call.to or "", branch)
        restored = self._kernel.restore(
            to,
            branch,
            scope,
            commit_meta(call.said, call.who, write_restore_message(call, to)),
            if_head=self._lake.resolve_optional(call.if_head),
            dry_run=call.dry_run,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )
        if restored.applied:
            self._lake.await_published(
                branch, ((merged_key.key, merged_key.after) for merged_key in restored.keys)
            )
        return restored

    def _require_restorable(self, revision: str, branch: str) -> ObjectId:
        """The commit whose state is wanted; if it has expired, the error says from when on there is any."""
        try:
            commit_id, reference = self._kernel.resolve_revision(revision)
            self._kernel.references.require_kept(commit_id)
            named = parse_revision(revision)
            if commit_id == NO_COMMIT and (named.name is not None or named.steps):
                # The empty lake is meant only by who gives its id: to drop all tables takes more than a slip.
                raise HistoryExpired("the lake had no commits at that time")
        except HistoryExpired as expired:
            oldest_id, oldest = self._kernel.find_oldest_kept(
                self._kernel.references.get_reference(branch).head
            )
            time = to_utc_datetime(oldest.time_us).isoformat(timespec="seconds")
            raise HistoryExpired(
                f"'{revision}' cannot be restored: {expired.message}\n  The oldest state that can be "
                f"restored on '{branch}' is of {time}, commit {oldest_id.hex()[:8]}.",
                **{**expired.details, "oldest": oldest_id.hex(), "oldest_time": time},
            ) from None
        if reference is None:
            self._kernel.references.require_reachable(commit_id)
        elif reference.kind is Kind.TRANSACTION and reference.name != branch:
            raise in_transaction_error(reference.name)
        return commit_id

    def _rebase_branch(self, call: calls.Rebase) -> MergeResult:
        if call.branch == self._lake.default_branch:
            raise InvalidRequest(
                f"the default branch '{call.branch}' cannot be rebased; rebase others onto it"
            )
        return self._kernel.rebase(
            call.branch,
            self._lake.resolve_reachable(call.onto),
            commit_meta(calls.CommitDescription(), call.who, ""),
            self._make_merge_options(call),
            if_head=self._lake.resolve_optional(call.if_head),
            dry_run=call.dry_run,
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )

    def _make_merge_options(self, call: calls.MergeCall) -> MergeOptions:
        chosen: Mapping[Key, KeyMerge] = {Key.parse(key): how for key, how in call.keys.items()}
        for key_merge in chosen.values():
            self._lake.check_location(key_merge.content)
        return MergeOptions(dict(chosen), call.default)


def make_restore_scope(call: Restore) -> RestoreScope:
    """What is to be restored; ``InvalidRequest`` unless the call says exactly one thing, and one time."""
    if sum((bool(call.keys), call.namespace is not None, call.all)) != 1:
        raise InvalidRequest("give exactly one of keys, a namespace, or all, to say what to restore")
    if (call.to is None) == (call.version is None):
        raise InvalidRequest("give the state to restore: a revision ('to'), or a version of one table")
    if call.version is not None and len(call.keys) != 1:
        raise InvalidRequest("a version belongs to one table: give one key, or restore to a revision")
    if call.version is not None and not 0 <= call.version <= VERSION_MAX:
        raise InvalidRequest(f"version must be 0 or greater, got {call.version}")
    if len(set(call.keys)) < len(call.keys):
        raise InvalidRequest("a key is given twice")
    if call.leave and call.keys:
        raise InvalidRequest("give only the keys to restore; all others stay as they are")
    return RestoreScope(call.keys, call.namespace, call.leave)


def write_restore_message(call: Restore, to: ObjectId | int) -> str:
    """What the commit says if its author says nothing."""
    if call.all:
        what = "everything"
    elif call.namespace is not None:
        what = f"namespace {call.namespace}"
    else:
        more = f" and {len(call.keys) - NAMED_MAX} more" if len(call.keys) > NAMED_MAX else ""
        what = ", ".join(map(str, call.keys[:NAMED_MAX])) + more
    return f"restore {what} to {f'version {to}' if isinstance(to, int) else to.hex()[:8]}"
