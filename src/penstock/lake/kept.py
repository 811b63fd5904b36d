"""Kept history: every commit that anybody can still read, at any reference, told once each.

What is kept is decided as a sweep of the lake's own objects decides it, and not by what can be found: commits
behind the horizon may still be in the memory of this process, with or without what they lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, Generic, TypeVar

from penstock.errors import Damaged
from penstock.kernel.description import read_description
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress, silent
from penstock.kernel.sweep import kept_heads
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.objects import CommitObject

T = TypeVar("T")

ATTEMPTS_MAX: Final = 5
"""How often history is walked that another sweep makes shorter meanwhile."""

Link = Callable[[ObjectId], CommitObject | None]
"""Looks up a commit; ``None`` if it is not there."""
Tell = Callable[[ObjectId, CommitObject, bool], Iterator[T]]
"""What a commit tells: all that it has if it is the first one that is kept, else what it has changed."""


class KeptHistory(Generic[T]):
    """Looks at every commit that a branch or tag leads to, or one that was there until lately; once each."""

    def __init__(self, kernel: Kernel, tell: Tell[T], progress: Progress = silent) -> None:
        self._kernel, self._tell, self._progress = kernel, tell, progress
        self._seen: set[ObjectId] = {NO_COMMIT}

    def news(self) -> Iterator[T]:
        """What commits tell at which nobody has looked before, some of it repeatedly.

        ``Damaged`` if something is missing that has not expired.
        """
        for attempt in range(ATTEMPTS_MAX):
            heads, expired = kept_heads(self._kernel), self._expired()
            try:
                yield from self._walk(heads.live, expired, self._kernel.history.link)
                yield from self._walk(heads.left, expired, self._stored, may_lack=True)
            except Damaged:
                is_known = self._expired() == expired and heads.left <= kept_heads(self._kernel).left
                if is_known or attempt == ATTEMPTS_MAX - 1:
                    raise
                # Another sweep goes on, and removes what was kept until now: all is looked at again.
                self._seen = {NO_COMMIT}
            else:
                return

    def _walk(
        self, heads: Iterable[ObjectId], expired: Collection[ObjectId], link: Link, *, may_lack: bool = False
    ) -> Iterator[T]:
        """What commits tell from some heads on, which are kept themselves, up to those that have expired."""
        waiting = [*heads]
        while waiting:
            one = waiting.pop()
            if one in self._seen:
                continue
            commit = self._found(one, link, may_lack)
            if commit is None:
                continue
            self._seen.add(one)
            if not len(self._seen) % 100:
                self._progress("commits", len(self._seen))
            is_first = commit.parent in expired or self._found(commit.parent, link, may_lack) is None
            yield from self._tell(one, commit, is_first)
            waiting.extend(parent for parent in commit.parents if parent not in expired)

    def _found(self, one: ObjectId, link: Link, may_lack: bool) -> CommitObject | None:
        commit = link(one)
        if commit is None and not may_lack:
            raise Damaged(f"commit {one.hex()} is missing", objects=[one.hex()])
        return commit

    def _expired(self) -> frozenset[ObjectId]:
        """Parents of kept commits that a sweep has removed, or is about to: it says so before it does."""
        return frozenset(read_description(self._kernel.store).expired)

    def _stored(self, one: ObjectId) -> CommitObject | None:
        """A commit that is not only in memory; ``None`` if there is none."""
        if one == NO_COMMIT or self._kernel.store.uncached.fetch([one]):
            return self._kernel.history.link(one)
        return None
