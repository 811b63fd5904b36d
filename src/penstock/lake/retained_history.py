"""Kept history: every commit that anybody can still read, at any reference, told once each.

What is kept is decided as a sweep of the lake's own objects decides it, and not by what can be found: commits
behind the horizon may still be in the memory of this process, with or without what they lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final, Generic, TypeVar

from penstock.errors import Damaged, LocationRefused
from penstock.kernel.description import read_description
from penstock.kernel.expired import ExpiredCommits, read_expired_commits
from penstock.kernel.kernel import Kernel
from penstock.kernel.ledger import list_folders_above, read_dropped_content
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.kernel.sweep import find_kept_heads
from penstock.kernel.table_horizons import TableHorizons
from penstock.model.content import AnyContent, ManagedTable, Namespace
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED
from penstock.model.objects import CommitObject
from penstock.storage.locations import normalise_location

T = TypeVar("T")
Content = TypeVar("Content", bound=ManagedTable)

ATTEMPTS_MAX: Final = 5
"""How often history is walked that another sweep makes shorter meanwhile."""

Link = Callable[[ObjectId], CommitObject | None]
"""Looks up a commit; ``None`` if it is not there."""
Tell = Callable[[ObjectId, CommitObject, bool], Iterator[T]]
"""What a commit tells: all that it has if it is the first one that is kept, else what it has changed."""


class NeighbourTables:
    """Where kept commits have tables of other kinds than one, also those that were dropped.

    A sweep of one kind of table knows which files its own tables name, and nothing of those of others. So it
    removes nothing from a folder that another table is in as well, whatever brought the two together.
    """

    def __init__(self, kind: type[ManagedTable]) -> None:
        self._kind = kind
        self._taken: set[tuple[str, bool]] = set()
        self._locations: set[str] = set()
        """Where tables are that the lake manages."""
        self._above: set[str] = set()
        """Where anything is, and the folders above."""

    def note_content(self, stored: bytes, content: AnyContent | None) -> None:
        """Learn what a stored key of the map holds at a kept commit."""
        if content is None or isinstance(content, self._kind):
            return
        if stored.startswith(RESERVED):
            content = read_dropped_content(stored, content)
        if isinstance(content, ManagedTable) and not isinstance(content, self._kind):
            self._add_location(content.location, is_table=content.state != b"")
        elif content is not None and not isinstance(content, Namespace | self._kind):
            for location in content.locations:
                self._add_location(location, is_table=False)

    def _add_location(self, location: str, *, is_table: bool) -> None:
        """What only points somewhere is in the way where it points, and not everywhere below."""
        if not location or (location, is_table) in self._taken:
            return
        self._taken.add((location, is_table))
        where = _normalise_location(location)
        self._above |= {where, *list_folders_above(where)}
        if is_table:
            self._locations.add(where)

    def check_location(self, location: str) -> None:
        """``LocationRefused`` if another table is at a location, above it or below it."""
        if self.is_near(location):
            raise LocationRefused(
                f"{location} is also the location of another table of the lake, or is inside or above one; "
                "so nothing is removed there\n  Drop the table that should not be there. Its own files are "
                "removed once no kept commit has the table any more: penstock horizon",
                location=location,
            )

    def is_near(self, location: str) -> bool:
        """Whether another table is at a location, above it or below it."""
        where = _normalise_location(location)
        return where in self._above or any(folder in self._locations for folder in list_folders_above(where))


def _normalise_location(location: str) -> str:
    """A location as it is compared. One that only points somewhere may be written in any way."""
    with suppress(LocationRefused):
        return normalise_location(location)
    return location.rstrip("/")


class RetainedHistory(Generic[T]):
    """Looks at every commit that a branch or tag leads to, or one that was there until lately; once each."""

    def __init__(self, kernel: Kernel, tell: Tell[T], progress: Progress = show_no_progress) -> None:
        self._kernel, self._tell, self._progress = kernel, tell, progress
        self._seen: set[ObjectId] = {NO_COMMIT}
        self._horizons = TableHorizons.read_horizons(kernel.store, kernel.formats)

    def is_retained(self, content: AnyContent | None) -> bool:
        """Whether a table as a kept commit has it is retained; not before the table's own horizon."""
        return content is not None and not self._horizons.is_behind(content)

    def drop_erased(self, content: Content) -> Content | None:
        """What is retained of a table as a kept commit has it; ``None`` before the table's own horizon."""
        retained = self._horizons.drop_erased(content)
        assert retained is None or isinstance(retained, type(content))
        return retained

    def list_unseen(self) -> Iterator[T]:
        """What commits tell at which nobody has looked before, some of it repeatedly.

        Whoever does not come to the end is told all of it again next time.
        ``Damaged`` if something is missing that has not expired.
        """
        seen, self._seen = self._seen, {NO_COMMIT}
        for attempt in range(ATTEMPTS_MAX):
            heads, expired = find_kept_heads(self._kernel), self._read_expired_commits()
            self._horizons = TableHorizons.read_horizons(self._kernel.store, self._kernel.formats)
            try:
                yield from self._walk_unseen(heads.live, expired, self._kernel.history.read_ancestor, seen)
                yield from self._walk_unseen(heads.left, expired, self._find_stored, seen, may_lack=True)
            except Damaged:
                is_known = (
                    self._read_expired_commits() == expired
                    and heads.left <= find_kept_heads(self._kernel).left
                )
                if is_known or attempt == ATTEMPTS_MAX - 1:
                    raise
                # Another sweep goes on, and removes what was kept until now: all is looked at again.
                seen = {NO_COMMIT}
            else:
                self._seen = seen
                return

    def _walk_unseen(
        self,
        heads: Iterable[ObjectId],
        expired: Collection[ObjectId],
        link: Link,
        seen: set[ObjectId],
        *,
        may_lack: bool = False,
    ) -> Iterator[T]:
        """What commits tell that were not seen: from heads that are kept up to those that have expired."""
        waiting = [*heads]
        while waiting:
            commit_id = waiting.pop()
            if commit_id in seen:
                continue
            commit = self._find_commit(commit_id, link, may_lack)
            if commit is None:
                continue
            seen.add(commit_id)
            if not len(seen) % 100:
                self._progress("commits", len(seen))
            is_first = commit.parent in expired or self._find_commit(commit.parent, link, may_lack) is None
            yield from self._tell(commit_id, commit, is_first)
            waiting.extend(parent for parent in commit.parents if parent not in expired)

    def _find_commit(self, commit_id: ObjectId, link: Link, may_lack: bool) -> CommitObject | None:
        commit = link(commit_id)
        if commit is None and not may_lack:
            raise Damaged(f"commit {commit_id.hex()} is missing", objects=[commit_id.hex()])
        return commit

    def _read_expired_commits(self) -> ExpiredCommits:
        """Parents of kept commits that a sweep has removed, or is about to: it says so before it does."""
        return read_expired_commits(read_description(self._kernel.store), self._kernel.objects)

    def _find_stored(self, commit_id: ObjectId) -> CommitObject | None:
        """A commit that is not only in memory; ``None`` if there is none."""
        if commit_id == NO_COMMIT or self._kernel.store.uncached.fetch([commit_id]):
            return self._kernel.history.read_ancestor(commit_id)
        return None
