"""Answering calls that read commits and what differs between them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import HistoryExpired, IdempotencyKeyReused, InvalidRequest
from penstock.kernel.batch import RequestOutcome
from penstock.kernel.history import CommitWalk
from penstock.lake import calls
from penstock.lake.answers import Comparison, Difference, LandedRequest, LogSearch
from penstock.lake.call import take_first
from penstock.lake.log_search import (
    CommitCriteria,
    LogPages,
    find_matching_commits,
    list_changes_of_commit,
    list_differences,
    not_in_log_error,
    search_commits,
)
from penstock.model.commits import Commit, add_key_owner
from penstock.model.encoding import NO_COMMIT, ObjectId

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded


class HistoryHandlers:
    """Answers the calls about commits."""

    def __init__(self, lake: Embedded) -> None:
        self._lake, self._kernel = lake, lake.kernel
        self._log_pages = LogPages()
        self.by_call: dict[type[calls.Call[Any]], Callable[[Any], Any]] = {
            calls.GetCommit: self._get_commit,
            calls.GetChanges: self._get_changes,
            calls.ListCommits: self._list_commits,
            calls.SearchLog: self._search_log,
            calls.Diff: self._diff_commits,
            calls.Compare: self._compare_commits,
            calls.GetOutcome: self._get_outcome,
        }

    def _get_commit(self, call: calls.GetCommit) -> Commit:
        commit = self._lake.resolve_commit(call.revision)
        if commit == NO_COMMIT:
            raise InvalidRequest(f"'{call.revision}' has no commits yet")
        return Commit.from_stored(commit, self._kernel.history.read_commit(commit))

    def _get_changes(self, call: calls.GetChanges) -> tuple[Difference, ...]:
        changes = list_changes_of_commit(self._kernel, self._lake.resolve_commit(call.revision), call.after)
        return tuple(take_first(changes, call.limit))

    def _diff_commits(self, call: calls.Diff) -> tuple[Difference, ...]:
        before, after = self._lake.resolve_commit(call.before), self._lake.resolve_commit(call.to)
        changes = list_differences(self._kernel, before, after, call.prefix, call.after)
        return tuple(take_first(changes, call.limit))

    def _list_commits(self, call: calls.ListCommits) -> tuple[Commit, ...]:
        chosen = CommitCriteria(
            key=call.table, author=call.author, since=call.since, until=call.until, text=call.text
        )
        start = self._lake.resolve_commit(call.ref)
        last = self._lake.resolve_commit(call.after) if call.after is not None else None
        commits = self._walk_after(start, last, call.all_parents)
        page = tuple(
            take_first(find_matching_commits(self._kernel, commits, chosen, call.all_parents), call.limit)
        )
        if call.all_parents and call.limit is not None and page:
            self._log_pages.remember_page(start, page[-1].object_id, commits)
        return page

    def _search_log(self, call: calls.SearchLog) -> LogSearch:
        chosen = CommitCriteria(
            key=call.table, author=call.author, since=call.since, until=call.until, text=call.text
        )
        start = self._lake.resolve_commit(call.ref)
        last = self._lake.resolve_commit(call.after) if call.after is not None else None
        commits = self._walk_after(start, last, call.all_parents)
        page = search_commits(
            self._kernel,
            commits,
            chosen,
            all_parents=call.all_parents,
            limit=call.limit,
            within=call.within,
        )
        if call.all_parents and page.reached is not None:
            self._log_pages.remember_page(start, bytes.fromhex(page.reached), commits)
        return page

    def _walk_after(self, start: ObjectId, last: ObjectId | None, all_parents: bool) -> CommitWalk:
        """The commits of a log, all or those that come after a given one."""
        if last is None:
            return self._kernel.walk_commits(start, all_parents)
        if all_parents:
            return self._log_pages.continue_walk(self._kernel, start, last)
        if not self._kernel.history.is_on_line(last, start):
            raise not_in_log_error(last)
        return self._kernel.walk_commits(self._kernel.history.read_commit(last).parent)

    def _compare_commits(self, call: calls.Compare) -> Comparison:
        first, other = self._lake.resolve_commit(call.one), self._lake.resolve_commit(call.other)
        relation = self._kernel.history.compare_commits(first, other)
        return Comparison(
            base=(relation.bases[0] if relation.bases else NO_COMMIT).hex(),
            ahead=relation.ahead,
            behind=relation.behind,
        )

    def _get_outcome(self, call: calls.GetOutcome) -> LandedRequest | None:
        name = self._lake.get_branch_or_default(call.branch)
        if call.who:
            call = msgspec.structs.replace(call, key=add_key_owner(call.key, call.who), who=None)
        outcome = (
            self._kernel.find_outcome(name, call.key)
            if call.asked is None
            else self._find_request_outcome(name, call)
        )
        if outcome is None:
            return None
        commit: Commit | None = None
        if outcome.head != NO_COMMIT:
            with suppress(HistoryExpired):
                commit = Commit.from_stored(outcome.head, self._kernel.history.read_commit(outcome.head))
        ids = tuple(commit_id.hex() for commit_id in outcome.commits)
        return LandedRequest(commits=ids, head=outcome.head.hex(), commit=commit)

    def _find_request_outcome(self, name: str, call: calls.GetOutcome) -> RequestOutcome | None:
        """What a very request came to; its key may have been used for others."""
        for about_itself in (False, True):
            with suppress(IdempotencyKeyReused):
                outcome = self._kernel.find_outcome(name, call.key, call.asked, about_itself=about_itself)
                if outcome is not None:
                    return outcome
        return None
