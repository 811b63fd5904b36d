"""The commits that came after one, per key: what a revert goes by, and who repeats what is there already or
merges what the target had before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from penstock.kernel.format import Formats, LaterCommit, LaterCommitLookup
from penstock.kernel.history import History
from penstock.kernel.lake_state import Difference, open_state
from penstock.kernel.objects import read_content
from penstock.kernel.request import NextBatch
from penstock.kernel.three_way import Intents, find_changes_between, gather_intents, intents_of_format
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId
from penstock.model.objects import CommitObject, Intent


class LaterCommits:
    """What came after a commit on a branch that has it. Looked up once, and again only for what is new."""

    def __init__(self, history: History, formats: Formats, commit: ObjectId) -> None:
        self._history, self._formats, self._commit = history, formats, commit
        self._head = commit
        """Up to which head of the branch the commits are known."""
        self._commits: dict[bytes, list[LaterCommit]] = {}

    @cached_property
    def undo(self) -> Difference:
        """What undoes the commit: of each key that it changed what it became, and what it was."""
        commit = self._history.read_commit(self._commit)
        return find_changes_between(self._history, commit, self._history.read_commit(commit.parent))

    def look_up_commits(self, head: ObjectId | None, key: bytes) -> LaterCommitLookup:
        """What was done to a key between the commit and a head of the branch.

        Whoever asks for the commits without a head comes first in the next batch.
        """
        own: Intents = {}
        gather_intents(self._history, self._history.read_commit(self._commit), own)
        intents = self._own_intents(key, own.get(key, []))
        return LaterCommitLookup(lambda: self._commits_up_to(head, key), tuple(intents or ()))

    def _commits_up_to(self, head: ObjectId | None, key: bytes) -> list[LaterCommit]:
        if head is None:
            raise NextBatch  # what came since depends on commits that have no id yet
        if self._head != head:
            self._look_since(head)
        return self._commits.get(key, [])

    def _look_since(self, head: ObjectId) -> None:
        """Look at the commits that are new since the last look; at all of them if the branch was moved."""
        history = self._history
        if not history.is_on_line(self._head, head):
            self._head, self._commits = self._commit, {}
        for commit_id, commit in history.list_commits_only_in(head, self._head):
            intents: Intents = {}
            if commit.intents:
                gather_intents(history, commit, intents)
            is_merge = bool(commit.further_parents)
            if intents or is_merge:
                is_beside = not history.is_ancestor(self._commit, commit_id)
                keys = self.undo.keys()
                for key in keys if is_merge else intents.keys() & keys:
                    later = self._make_later_commit(commit_id, commit, key, intents.get(key, []), is_beside)
                    self._commits.setdefault(key, []).append(later)
        self._head = head

    def _make_later_commit(
        self, commit_id: ObjectId, commit: CommitObject, key: bytes, intents: list[Intent], is_beside: bool
    ) -> LaterCommit:
        parents = [self._history.read_ancestor(parent) for parent in commit.parents]
        # Of one that has expired, it is not known what it did.
        own_intents = self._own_intents(key, intents) if None not in parents else None
        after, *before = (
            self._read_content_at(commit, key) for commit in (commit, *parents) if commit is not None
        )
        other_side: list[AnyContent | None] = []
        if commit.further_parents and not is_beside and None not in parents:
            builds = [self._history.is_ancestor(self._commit, parent) for parent in commit.parents]
            other_side = [content for content, is_built in zip(before, builds, strict=True) if not is_built]
        author = commit.authors[0] if commit.authors else commit.committer
        named = commit_id.hex(), author, commit.message
        return LaterCommit(
            tuple(before),
            after,
            None if own_intents is None else tuple(own_intents),
            is_beside,
            bool(commit.further_parents),
            tuple(other_side),
            *named,
        )

    def _own_intents(self, key: bytes, intents: list[Intent]) -> list[bytes] | None:
        """Of intents for a key, those for the table that the commit changed there."""
        if key not in self.undo:  # it holds what it held, and only more than that was asked of it
            return None
        objects, (before, after) = self._history.objects, self.undo[key]
        managing = self._formats.find_managing_format(
            *(read_content(objects, side) for side in (after, before))
        )
        return intents_of_format(managing, intents) if managing is not None else None

    def _read_content_at(self, commit: CommitObject, key: bytes) -> AnyContent | None:
        objects = self._history.objects
        return read_content(objects, open_state(objects, commit).get(key))


class OwnCommits:
    """What a branch did to tables that a commit does not have. Looked up once, and again only for what is
    new."""

    def __init__(self, history: History, formats: Formats, commit: ObjectId) -> None:
        self._history, self._formats, self._commit = history, formats, commit
        self._head: ObjectId | None = None
        self._commits: list[tuple[CommitObject, Intents]] = []
        """Each with its intents, oldest first."""
        self._by_key: dict[bytes, list[int]] = {}
        """The positions of those that have intents for a key."""
        self._merges: list[int] = []
        """The positions of merges: they may have changed any key."""

    def look_up_commits(self, head: ObjectId | None, key: bytes) -> LaterCommitLookup:
        """What was done to a key up to a head of the branch: what commits found and left, oldest first.

        Whoever asks for the commits without a head comes first in the next batch.
        """
        return LaterCommitLookup(lambda: self._commits_up_to(head, key))

    def _commits_up_to(self, head: ObjectId | None, key: bytes) -> list[LaterCommit]:
        if head is None:
            raise NextBatch  # some of the commits have no id yet
        if self._head != head:
            self._look_up_to(head)
        positions = sorted({*self._by_key.get(key, ()), *self._merges})
        return [later for position in positions for later in self._list_commits(position, key)]

    def _look_up_to(self, head: ObjectId) -> None:
        history = self._history
        if self._head is None or not history.is_on_line(self._head, head):
            self._head, self._commits, self._by_key, self._merges = self._commit, [], {}, []
        for _, commit in history.list_commits_only_in(head, self._head):
            intents: Intents = {}
            gather_intents(history, commit, intents)
            position = len(self._commits)
            self._commits.append((commit, intents))
            for key in intents:
                self._by_key.setdefault(key, []).append(position)
            if commit.further_parents:
                self._merges.append(position)
        self._head = head

    def _list_commits(self, position: int, key: bytes) -> Iterator[LaterCommit]:
        commit, intents = self._commits[position]
        parents = [self._history.read_ancestor(parent) for parent in (commit.parent, *commit.further_parents)]
        if parents[0] is None:  # it has expired, and it is not known what the commit found
            return
        objects = self._history.objects
        after, *before = (
            read_content(objects, open_state(objects, at).get(key))
            for at in (commit, *parents)
            if at is not None
        )
        managing = self._formats.find_managing_format(after, *before)
        own_intents = [] if managing is None else intents_of_format(managing, intents.get(key, []))
        yield LaterCommit(
            tuple(before),
            after,
            None if own_intents is None else tuple(own_intents),
            is_parallel=True,
            is_merge=bool(commit.further_parents),
        )
