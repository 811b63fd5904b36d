"""Rules for calls that read. Keys that a caller may not read are refused if named, and left out of lists."""

from __future__ import annotations

from math import inf
from typing import Final, TypeVar

import msgspec

from penstock.errors import HistoryExpired, TimedOut
from penstock.lake import calls
from penstock.lake.answers import (
    CatalogEntry,
    Comparison,
    Difference,
    LandedRequest,
    LogLine,
    LogSearch,
    ResolvedCommit,
)
from penstock.lake.audits.calls import ListExpectations
from penstock.lake.log_search import check_search
from penstock.model.commits import Commit
from penstock.model.expectations import Expectation
from penstock.model.keys import Key
from penstock.model.names import parse_revision
from penstock.model.references import Reference
from penstock.model.tokens import Role
from penstock.server.access.caller import GrantedKeys
from penstock.server.access.idempotency_keys import find_own_outcome
from penstock.server.access.rights import CallerRights

CHANGES_MAX: Final = calls.PAGE_MAX
"""Of a commit that changed more keys, only who may read all of them reads the message."""

SEARCHED_AT_ONCE: Final = 100
"""So many commits of a log are searched before it is looked which of them are shown."""

D = TypeVar("D", CatalogEntry, Difference)
LogCall = TypeVar("LogCall", calls.ListCommits, calls.SearchLog)


def list_references(rights: CallerRights, call: calls.ListReferences) -> tuple[Reference, ...]:
    begin = rights.caller.readable_prefix
    if begin.startswith(call.prefix):  # the others need not be looked at
        call = msgspec.structs.replace(call, prefix=begin)
    return rights.list_visible_items(
        call, lambda reference: _redact_reference(rights, reference), lambda reference: reference.name
    )


def _redact_reference(rights: CallerRights, reference: Reference) -> Reference | None:
    """A reference as the caller may see it. Its note is about keys."""
    keys = rights.caller.find_granted_keys(Role.READ, reference.name)
    if not keys.patterns:
        return None
    return reference if keys.are_all else msgspec.structs.replace(reference, note=b"")


def get_reference(rights: CallerRights, call: calls.GetReference) -> Reference:
    keys = rights.caller.require_role(Role.READ, call.name)
    reference = rights.do(call)
    return reference if keys.are_all else msgspec.structs.replace(reference, note=b"")


def get_reference_log(rights: CallerRights, call: calls.GetReferenceLog) -> tuple[LogLine, ...]:
    rights.caller.require_role(Role.READ, call.name)
    return rights.do(call)


def list_expectations(rights: CallerRights, call: ListExpectations) -> tuple[Expectation, ...]:
    rights.caller.require_all_keys(Role.READ, call.branch)
    return rights.do(call)


def resolve_revision(rights: CallerRights, call: calls.Resolve) -> ResolvedCommit:
    revision, _ = rights.find_readable_keys(call.revision)
    return rights.do(msgspec.structs.replace(call, revision=revision))


def get_contents(rights: CallerRights, call: calls.GetContents) -> tuple[CatalogEntry, ...]:
    at, keys = rights.find_readable_keys(call.at, call.via)
    for key in call.key:
        rights.caller.require_key(keys, Role.READ, key)
    return rights.do(msgspec.structs.replace(call, at=at))


def list_entries(rights: CallerRights, call: calls.ListEntries) -> tuple[CatalogEntry, ...]:
    at, keys = rights.find_readable_keys(call.at, call.via)
    prefix = call.prefix or keys.namespace
    return _filter_list_by_keys(rights, msgspec.structs.replace(call, at=at, prefix=prefix), keys)


def _filter_list_by_keys(
    rights: CallerRights, call: calls.Call[tuple[D, ...]], *scopes: GrantedKeys
) -> tuple[D, ...]:
    """A list by key, without those that the caller may not read on one side or the other."""
    if all(keys.are_all for keys in scopes):
        return rights.do(call)

    def show_item(item: D) -> D | None:
        return item if all(keys.covers_key(item.key) for keys in scopes) else None

    return rights.list_visible_items(call, show_item, lambda item: item.key)


def get_changes(rights: CallerRights, call: calls.GetChanges) -> tuple[Difference, ...]:
    revision, keys = rights.find_readable_keys(call.revision, call.via)
    return _filter_list_by_keys(rights, msgspec.structs.replace(call, revision=revision), keys)


def diff_commits(rights: CallerRights, call: calls.Diff) -> tuple[Difference, ...]:
    before, keys_before = rights.find_readable_keys(call.before, call.before_via)
    to, keys_after = rights.find_readable_keys(call.to, call.to_via)
    prefix = call.prefix or keys_before.namespace
    call = msgspec.structs.replace(call, before=before, to=to, prefix=prefix)
    return _filter_list_by_keys(rights, call, keys_before, keys_after)


def compare_commits(rights: CallerRights, call: calls.Compare) -> Comparison:
    first, _ = rights.find_readable_keys(call.one)
    other, _ = rights.find_readable_keys(call.other)
    return rights.do(msgspec.structs.replace(call, one=first, other=other))


def get_outcome(rights: CallerRights, call: calls.GetOutcome) -> LandedRequest | None:
    """What came of somebody else's request concerns only who administers the lake."""
    caller = rights.caller
    keys = caller.find_keys_granted_everywhere(Role.READ)
    if not keys.are_all:
        keys = caller.require_role(Role.READ, rights.get_reference_or_default(call.branch))
    if call.who not in (None, caller.name):
        caller.require_admin()
        return rights.do(call)
    landing = find_own_outcome(rights.do, caller, call)
    if landing is None or keys.are_all:
        return landing
    return msgspec.structs.replace(landing, commit=None)


def get_commit(rights: CallerRights, call: calls.GetCommit) -> Commit:
    revision, keys = rights.find_readable_keys(call.revision, call.via)
    commit = rights.do(msgspec.structs.replace(call, revision=revision))
    return commit if _may_read_message(rights, commit, keys) else _remove_message(commit)


def list_commits(rights: CallerRights, call: calls.ListCommits) -> tuple[Commit, ...]:
    call, keys = _check_log(rights, call)
    if keys.are_all:
        return rights.do(call)
    return rights.list_visible_items(
        call, lambda commit: _redact_commit(rights, call, commit, keys), lambda commit: commit.id
    )


def search_log(rights: CallerRights, call: calls.SearchLog) -> LogSearch:
    """As ``list_commits``: where the search stops tells nothing of what the caller may not read."""
    call, keys = _check_log(rights, call)
    if keys.are_all:
        return rights.do(call)
    if call.text is not None or (call.table is not None and not keys.cover_everything_below(call.table)):
        return _search_visible_commits(rights, call, keys)
    page = rights.do(call)  # every commit that matches is shown
    shown = (_redact_commit(rights, call, commit, keys) for commit in page.commits)
    return msgspec.structs.replace(page, commits=tuple(commit for commit in shown if commit is not None))


def _check_log(rights: CallerRights, call: LogCall) -> tuple[LogCall, GrantedKeys]:
    """The question for a log as it is put to the lake, and the keys that the caller may read there."""
    ref, keys = rights.find_readable_keys(call.ref, call.via)
    after = _page_start(rights, call.after, ref)
    if not keys.are_all and call.table is not None:
        rights.caller.require_key(keys, Role.READ, call.table)
    return msgspec.structs.replace(call, ref=ref, after=after), keys


def _search_visible_commits(rights: CallerRights, call: calls.SearchLog, keys: GrantedKeys) -> LogSearch:
    """A search that stops at a commit that is shown, or after so many commits as were asked for."""
    check_search(call.limit, call.within)
    limit, within = call.limit or inf, call.within or inf
    search = LogSearch(commits=(), searched=0)
    while True:
        count = int(min(SEARCHED_AT_ONCE, within - search.searched))
        try:
            page = rights.do(msgspec.structs.replace(call, limit=None, within=count))
            shown_commits = [_redact_commit(rights, call, commit, keys) for commit in page.commits]
        except TimedOut:
            if not search.searched:
                raise
            return search
        commits = (*search.commits, *(commit for commit in shown_commits if commit is not None))
        search = msgspec.structs.replace(page, commits=commits, searched=search.searched + page.searched)
        if len(commits) >= limit:
            last = commits[int(limit) - 1]
            return msgspec.structs.replace(
                search, commits=commits[: int(limit)], reached=last.id, reached_time=last.time
            )
        if page.reached is None or page.searched < count or search.searched >= within:
            return search
        call = msgspec.structs.replace(call, after=page.reached)


def _redact_commit(
    rights: CallerRights, call: calls.ListCommits | calls.SearchLog, commit: Commit, keys: GrantedKeys
) -> Commit | None:
    """A commit of a log as the caller may see it; ``None`` if not at all."""
    if call.table is not None and not _may_read_why(rights, commit, keys, call.table):
        return None
    if _may_read_message(rights, commit, keys):
        return commit
    # Whether a message contains a text is a way to read it.
    return _remove_message(commit) if call.text is None else None


def _page_start(rights: CallerRights, after: str | None, ref: str | None) -> str | None:
    """The commit that a page begins after, which the log is only searched for."""
    if ref is None:
        return after
    return rights.check_compared(after, parse_revision(ref).name)


def _may_read_message(rights: CallerRights, commit: Commit, keys: GrantedKeys) -> bool:
    """Whether the caller may read all keys that a commit changed: its message and properties tell of them."""
    if keys.are_all:
        return True
    changed = _list_changed_keys(rights, commit)
    return changed is not None and all(map(keys.covers_key, changed))


def _may_read_why(rights: CallerRights, commit: Commit, keys: GrantedKeys, table: Key) -> bool:
    """Whether a commit that changed something at or below a key changed something there that may be read."""
    if keys.cover_everything_below(table):
        return True
    changed = _list_changed_keys(rights, commit) or []
    return any(keys.covers_key(key) and key[: len(table)] == tuple(table) for key in changed)


def _list_changed_keys(rights: CallerRights, commit: Commit) -> list[Key] | None:
    """The keys that a commit changed; ``None`` if they are too many, or not known any more."""
    try:
        changes = rights.do(calls.GetChanges(revision=commit.id, limit=CHANGES_MAX + 1))
    except HistoryExpired:
        return None
    return [change.key for change in changes] if len(changes) <= CHANGES_MAX else None


def _remove_message(commit: Commit) -> Commit:
    return msgspec.structs.replace(commit, message="", properties={})
