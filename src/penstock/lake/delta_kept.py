"""The Delta tables of all kept commits: whatever anybody can still read, at any reference."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import Damaged
from penstock.formats.delta.owner.tables import Tables
from penstock.kernel.conflict import content_of
from penstock.kernel.description import read_description
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress, silent
from penstock.kernel.sweep import kept_heads
from penstock.model.content import DeltaTable
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED
from penstock.model.objects import CommitObject


class KeptTables:
    """Looks at every commit that a branch or tag leads to, or one that was there until lately; once each.

    A table that was dropped is told as it was last, for as long as the lake knows of it: it may be brought
    back. Tables are told with their location, whatever their id: one that was released and adopted again, or
    dropped and recovered, has another id since, and the same files.
    """

    def __init__(self, kernel: Kernel, tables: Tables, progress: Progress = silent) -> None:
        self._kernel, self._tables, self._progress = kernel, tables, progress
        self._seen: set[ObjectId] = {NO_COMMIT}

    def news(self) -> Iterator[DeltaTable]:
        """Managed tables as commits have them at which nobody has looked before, some of them repeatedly.

        ``Damaged`` if a commit is missing that has not expired.
        """
        waiting = [*kept_heads(self._kernel)]
        while waiting:
            one = waiting.pop()
            if one in self._seen:
                continue
            self._seen.add(one)
            if not len(self._seen) % 100:
                self._progress("commits", len(self._seen))
            commit = self._kernel.history.link(one)
            if commit is None:
                self._require_expired(one)
                continue
            yield from self._told_by(one, commit)
            waiting.extend(commit.parents)

    def _told_by(self, one: ObjectId, commit: CommitObject) -> Iterator[DeltaTable]:
        """What a commit has changed; all that it has, if the one before it cannot be looked at."""
        if commit.parent != NO_COMMIT and self._kernel.history.link(commit.parent) is None:
            yield from (content for _, content in self._tables.all(one))
            yield from (content for _, content in self._tables.all_dropped(one))
            return
        for stored, _, value in self._kernel.differing(commit.parent, one):
            if not stored.startswith(RESERVED):
                content = content_of(self._kernel.objects, value)
                if isinstance(content, DeltaTable) and content.state:
                    yield content

    def _require_expired(self, one: ObjectId) -> None:
        # As in any walk: commits in memory may lead further than a sweep has left.
        if not read_description(self._kernel.store).expired:
            raise Damaged(f"commit {one.hex()} is missing", objects=[one.hex()])
