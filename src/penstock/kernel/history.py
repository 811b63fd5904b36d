"""History: what led to a commit, and where two commits met."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from penstock.errors import CommitNotFound, Damaged, HistoryExpired
from penstock.kernel import skip_pointers
from penstock.kernel.objects import Objects
from penstock.kernel.read_ahead import LINKS_MAX, list_next
from penstock.kernel.time_limits import check_read_may_go_on
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.objects import CommitObject

BLOCK: Final = 1000
"""How many commits are read by one request where a walk has many beginnings."""
AHEAD_AFTER: Final = 16
"""So many commits of a walk are read one by one. Who follows it further has as many again read ahead."""
AHEAD_WIDTH_MAX: Final = 8
"""Where more commits than that may be next, none are read ahead."""


class CommitWalk(Iterator[tuple[ObjectId, CommitObject]]):
    """Commits from some backwards, each once, those of higher generations first.

    Only the commits that may be next are remembered: the generations of parents are lower, so a commit comes
    before its parents, and none of them is met again once it has come.
    """

    def __init__(self, history: History, starts: Sequence[ObjectId], all_parents: bool) -> None:
        self._history, self._all_parents = history, all_parents
        self._next: list[tuple[int, int, ObjectId]] = []
        self._known: set[ObjectId] = {NO_COMMIT}
        """Those that may be next, and the empty lake, which never comes."""
        self._count = 0
        self._came, self._ahead = 0, AHEAD_AFTER
        """How many commits have come, and after how many of them the next ones are read ahead."""
        self._latest: CommitObject | None = None
        """The commit that came last: its parents are read when the next one is asked for."""
        if len(starts) > 1:
            for number in range(0, len(starts), BLOCK):
                history.objects.find({*starts[number : number + BLOCK]})
        for start in starts:
            self._add_commit(start)

    def __next__(self) -> tuple[ObjectId, CommitObject]:
        latest, self._latest = self._latest, None
        if latest is not None:
            for parent in latest.parents if self._all_parents else (latest.parent,):
                self._add_commit(parent)
        while self._next:
            check_read_may_go_on()
            commit_id = heapq.heappop(self._next)[2]
            self._known.discard(commit_id)
            self._latest = self._history.read_ancestor(commit_id)
            if self._latest is not None:
                self._came += 1
                if self._came >= self._ahead and len(self._next) < AHEAD_WIDTH_MAX:
                    self._read_ahead(self._latest)
                return commit_id, self._latest
            self._history.require_expired(commit_id)
        raise StopIteration

    def _read_ahead(self, commit: CommitObject) -> None:
        count = min(self._came, LINKS_MAX)
        self._ahead = self._came + count
        self._history.read_ahead(commit, count)

    @property
    def is_at_end(self) -> bool:
        """Whether the commit that came last was certainly the last one."""
        return not self._next and self._latest is not None and not self._latest.parents

    @property
    def width(self) -> int:
        """How many commits may be next."""
        return len(self._next)

    def copy(self) -> CommitWalk:
        """Another walk, which goes on from the same place."""
        copied = CommitWalk(self._history, (), self._all_parents)
        copied._next, copied._known = [*self._next], {*self._known}
        copied._count, copied._latest = self._count, self._latest
        copied._came, copied._ahead = self._came, self._ahead
        return copied

    def _add_commit(self, commit_id: ObjectId) -> None:
        if commit_id in self._known:
            return
        self._known.add(commit_id)
        self._count += 1
        commit = self._history.read_ancestor(commit_id)
        heapq.heappush(self._next, (-commit.generation if commit is not None else 0, -self._count, commit_id))


class CommitRelation(NamedTuple):
    """How two commits are related."""

    bases: list[ObjectId]
    """The newest common ancestors."""
    ahead: int
    """How many commits only the first one has."""
    behind: int
    """How many commits only the second one has."""


class _ColoredAncestors(NamedTuple):
    """What a walk back from two commits has found."""

    bases: list[ObjectId]
    only_left: list[ObjectId]
    only_right: list[ObjectId]
    met_horizon: bool


class History:
    """The commits of a lake. ``expired`` tells which parents of kept commits the sweep has removed."""

    def __init__(self, objects: Objects, expired: Callable[[], Collection[ObjectId]]) -> None:
        self.objects = objects
        self._expired = expired

    def read_commit(self, commit_id: ObjectId) -> CommitObject:
        """A commit that somebody names; ``CommitNotFound`` or ``HistoryExpired`` if it is not there."""
        commit = self.objects.get_cached(commit_id) or self.objects.find((commit_id,)).get(commit_id)
        if isinstance(commit, CommitObject):
            return commit
        if commit is None and commit_id in self._expired():
            raise HistoryExpired(
                f"commit {commit_id.hex()} is older than the history that this lake keeps",
                commit=commit_id.hex(),
            )
        raise CommitNotFound(f"there is no commit {commit_id.hex()}", commit=commit_id.hex())

    def read_ancestor(self, commit_id: ObjectId) -> CommitObject | None:
        """A commit that another one names as its ancestor; ``None`` if it has expired."""
        commit = self.objects.get_cached(commit_id) or self.objects.find((commit_id,)).get(commit_id)
        if commit is None:
            return None
        if not isinstance(commit, CommitObject):
            raise Damaged(
                f"the lake is damaged: object {commit_id.hex()}, which a commit names as its "
                "ancestor, is not a commit; 'penstock fsck' lists all damage",
                objects=[commit_id.hex()],
            )
        return commit

    def read_ahead(self, commit: CommitObject, count: int) -> None:
        """Bring so many ancestors of a commit by first parents into memory, with a few requests.

        Jumps lead to all of them at once. What is missing or damaged is told to who comes to it.
        """
        links, lowest, seen = [commit], max(commit.depth - count, 1), set[ObjectId]()
        try:
            while next_ids := list_next(links, lowest) - seen:
                seen |= next_ids
                objects = self.objects.find(next_ids).values()
                links = [link for link in objects if isinstance(link, CommitObject)]
        except Damaged:
            return

    def walk_commits(self, *starts: ObjectId, all_parents: bool = False) -> CommitWalk:
        """Commits from some backwards, newest first; by first parents unless told otherwise.

        Ends at the history horizon; ``Damaged`` if a commit is missing that has not expired.
        """
        return CommitWalk(self, starts, all_parents)

    def require_expired(self, commit_id: ObjectId) -> None:
        """``Damaged`` if a commit that is missing cannot have expired."""
        # Commits that are in memory may lead further than the sweep has left; fsck tells that from damage.
        if not self._expired():
            raise Damaged(f"commit {commit_id.hex()} is missing", objects=[commit_id.hex()])

    def find_predecessor(self, start: ObjectId, steps: int) -> ObjectId:
        """The ``steps``-th predecessor by first parents."""
        commit = self.read_commit(start)
        if steps > commit.depth:
            raise CommitNotFound(f"commit {start.hex()[:8]} has only {commit.depth} ancestors, not {steps}")
        return self._require_reached(
            *skip_pointers.walk_back_to_depth(self.read_ancestor, start, commit.depth - steps)
        )

    def find_commit_at_time(self, start: ObjectId, time_us: int) -> ObjectId:
        """The newest commit not after a time, by first parents: O(log n), since time only grows."""
        return self._require_reached(
            *skip_pointers.walk_back_to(self.read_ancestor, start, lambda commit: commit.time_us <= time_us)
        )

    def _require_reached(self, commit_id: ObjectId, commit: CommitObject | None) -> ObjectId:
        if commit is None:
            self.require_expired(commit_id)
            raise HistoryExpired(
                "the requested commit is older than the history that this lake keeps, which begins at commit "
                f"{commit_id.hex()}"
            )
        return commit_id

    def is_ancestor(self, ancestor: ObjectId, descendant: ObjectId) -> bool:
        """Whether a commit is reachable from another (or is it), by any parent.

        O(log n) reads by first parents and where there are no merges in between.
        """
        if ancestor in (descendant, NO_COMMIT):
            return True
        goal, start = self.read_ancestor(ancestor), self.read_ancestor(descendant)
        if goal is None or start is None:
            return False
        if goal.generation >= start.generation:
            return False
        shared, fork = skip_pointers.find_common_link(self.read_ancestor, ancestor, descendant)
        if shared == ancestor:
            return True
        if fork is not None and start.merges == fork.merges:
            return False
        return any(
            commit_id == ancestor
            for commit_id, _ in self._commits_above_generation(descendant, goal.generation)
        )

    def is_on_line(self, ancestor: ObjectId, descendant: ObjectId) -> bool:
        """Whether a commit leads to another (or is it) by first parents: O(log n) reads."""
        goal = self.read_ancestor(ancestor)
        return (
            goal is not None
            and skip_pointers.walk_back_to_depth(self.read_ancestor, descendant, goal.depth)[0] == ancestor
        )

    def is_near(self, ancestor: ObjectId, descendant: ObjectId, steps: int) -> bool:
        """Whether a commit is less than so many steps away from another, by any parents."""
        goal, level, seen = self.read_commit(ancestor), {descendant}, {descendant}
        for _ in range(steps):
            if ancestor in level:
                return True
            check_read_may_go_on()
            commits = [commit for commit_id in level if (commit := self.read_ancestor(commit_id)) is not None]
            # No ancestor has a higher generation, so what is as old as the goal leads past it.
            above = {
                parent
                for commit in commits
                if commit.generation > goal.generation
                for parent in commit.parents
            }
            level = above - seen
            seen |= level
            if not level:
                return False
        return False

    def _commits_above_generation(
        self, start: ObjectId, generation: int
    ) -> Iterator[tuple[ObjectId, CommitObject]]:
        """What is reachable from a commit, by any parent, and not older than a generation."""
        waiting, seen = [start], {start}
        while waiting:
            commit_id = waiting.pop()
            check_read_may_go_on()
            commit = self.read_ancestor(commit_id)
            if commit is None or commit.generation < generation:
                continue
            yield commit_id, commit
            for parent in commit.parents:
                if parent not in seen:
                    seen.add(parent)
                    waiting.append(parent)

    def merge_bases(self, left: ObjectId, right: ObjectId) -> list[ObjectId]:
        """The newest common ancestors: one, unless merges crossed each other.

        Without merges in between this is O(log n) reads wherever the fork is. With merges it costs what lies
        between the two sides; what lies behind the fork costs nothing. The empty lake is everybody's
        ancestor. ``CommitNotFound`` if the common history has expired.
        """
        return self.compare_commits(left, right).bases

    def compare_commits(self, left: ObjectId, right: ObjectId) -> CommitRelation:
        """The newest common ancestors of two commits, and how many commits only one of them has.

        Costs what ``merge_bases`` does: where no merge lies in between, commits are counted by their depth.
        """
        shared, fork = skip_pointers.find_common_link(self.read_ancestor, left, right)
        left_commit, other = self.read_ancestor(left), self.read_ancestor(right)
        if fork is not None and left_commit and other and left_commit.merges == fork.merges == other.merges:
            return CommitRelation([shared], left_commit.depth - fork.depth, other.depth - fork.depth)
        painted = self._color_ancestors(left, right)
        if not painted.bases and (fork is None or painted.met_horizon):
            raise CommitNotFound(
                f"commits {left.hex()[:8]} and {right.hex()[:8]} have no common ancestor within the history "
                "that this lake keeps"
            )
        return CommitRelation(painted.bases or [shared], len(painted.only_left), len(painted.only_right))

    def _color_ancestors(self, left: ObjectId, right: ObjectId) -> _ColoredAncestors:
        """The newest common ancestors, what only one side has, and whether the horizon was met.

        Walks back from both sides at once, highest generation first, until everything left is common. A
        commit comes after all its descendants, so whose it is does not change any more.
        """
        from_left, from_right, stale = 1, 2, 4
        paint = {left: from_left}
        paint[right] = paint.get(right, 0) | from_right
        heap = [(-self.read_commit(commit_id).generation, commit_id) for commit_id in paint]
        heapq.heapify(heap)
        queued, fresh = set(paint), len(paint)
        bases: list[ObjectId] = []
        only_left: list[ObjectId] = []
        only_right: list[ObjectId] = []
        met_horizon = False
        while heap and fresh:
            check_read_may_go_on()
            _, commit_id = heapq.heappop(heap)
            queued.discard(commit_id)
            marks = paint[commit_id]
            if not marks & stale:
                fresh -= 1
            if marks in (from_left, from_right) and commit_id != NO_COMMIT:
                (only_left if marks == from_left else only_right).append(commit_id)
            if marks == from_left | from_right:
                bases.append(commit_id)
                marks |= stale
            commit = self.read_ancestor(commit_id)
            for parent in commit.parents if commit else ():
                before = paint.get(parent, 0)
                after = before | marks
                paint[parent] = after
                if parent not in queued:
                    above = self.read_ancestor(parent)
                    if above is None:
                        met_horizon = True
                    if above is None or before == after:
                        continue
                    queued.add(parent)
                    heapq.heappush(heap, (-above.generation, parent))
                    fresh += 0 if after & stale else 1
                elif not before & stale and after & stale:
                    fresh -= 1
        newest = [base for base in bases if paint[base] == from_left | from_right]
        return _ColoredAncestors(newest, only_left, only_right, met_horizon)

    def list_commits_only_in(self, source: ObjectId, target: ObjectId) -> list[tuple[ObjectId, CommitObject]]:
        """The commits reachable from ``source`` and not from ``target``, oldest first."""
        shared, fork = skip_pointers.find_common_link(self.read_ancestor, source, target)
        source_commit, other = self.read_ancestor(source), self.read_ancestor(target)
        if (
            fork is not None
            and source_commit
            and other
            and source_commit.merges == fork.merges == other.merges
        ):
            own = list(takewhile(lambda item: item[0] != shared, self.walk_commits(source)))
            return own[::-1]
        commits = [
            (commit_id, self.read_commit(commit_id))
            for commit_id in self._color_ancestors(source, target).only_left
        ]
        return sorted(commits, key=lambda item: (item[1].generation, item[0]))
