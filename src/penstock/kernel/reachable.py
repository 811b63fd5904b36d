"""What is reachable: the objects that the references of a lake, and their recent logs, lead to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import msgspec

from penstock.kernel.objects import list_blobs_of_values
from penstock.kernel.time_limits import check_read_may_go_on
from penstock.model.content import AnyContent, Content, decode_content, encode_type, load_content_types
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.objects import (
    EMPTY_ROOT,
    AnyObject,
    Blob,
    CommitObject,
    Large,
    Leaf,
    LogEntry,
    Node,
    Segment,
    Value,
)

BLOCK = 500
VALUES_MAX = 20_000
"""How many values are remembered that lead to no objects."""
Fetch = Callable[[list[ObjectId]], dict[ObjectId, AnyObject]]
"""Reads and checks objects; those that are missing or unreadable are left out."""


Progress = Callable[[str, int], None]
"""Is told what is being done, and how many of it are done."""


def show_no_progress(subject: str, count: int) -> None:
    """No progress shown."""


class HistoryHorizon(NamedTuple):
    """How much of a reference's history is kept: so many commits, and all that are younger."""

    max_commits: int | None = None
    oldest_us: int | None = None
    young_us: int = 0
    """What is younger is kept in any case."""

    def keeps_commit(self, number: int, commit: CommitObject) -> bool:
        """Whether the ``number``-th commit from a head is kept. Without limits, all are."""
        if self.max_commits is None and self.oldest_us is None:
            return True
        by_count = self.max_commits is not None and number < self.max_commits
        by_age = self.oldest_us is not None and commit.time_us >= self.oldest_us
        return by_count or by_age or commit.time_us >= self.young_us


class ReachableObjects:
    """Walks over everything reachable, a block of objects at a time."""

    def __init__(
        self,
        fetch: Fetch,
        expired_before: Collection[ObjectId] = (),
        objects_of: Callable[[AnyContent], tuple[ObjectId, ...]] = lambda content: content.objects,
        walked: Callable[[], None] = lambda: None,
        *,
        reads_all: bool = True,
    ) -> None:
        """``objects_of`` says which objects of a content are retained. ``walked`` is called whenever all
        below some commits was read. With ``reads_all``, contents that hold no objects are decoded too, and
        those that cannot be are damaged."""
        self._reads_all = reads_all
        self._fetch, self._objects_of, self._walked = fetch, objects_of, walked
        self._types_without_objects = frozenset(
            encode_type(kind) for kind in load_content_types().values() if kind.objects is Content.objects
        )
        self._expired_before = frozenset(expired_before)
        self.seen: set[ObjectId] = {NO_COMMIT, EMPTY_ROOT}
        self.damaged: dict[ObjectId, str] = {}
        """What cannot be followed, and what is wrong with it."""
        self._kept: set[ObjectId] = set()
        self._cut: set[ObjectId] = set()
        self._without_objects: set[Value] = set()
        """Values that lead to nothing, lately seen: a leaf that is written anew has most of them again."""

    @property
    def expired_parents(self) -> set[ObjectId]:
        """Parents of kept commits that the horizon cuts off."""
        return self._cut - self._kept

    def mark_commits(self, heads: Iterable[ObjectId], horizon: HistoryHorizon) -> None:
        """Everything that commits lead to, as far back as the horizon reaches; their heads always stay."""
        waiting = {head: 0 for head in heads if head != NO_COMMIT}
        kept_at: dict[ObjectId, int] = {}
        below: list[tuple[ObjectId, str]] = []
        while waiting:
            block = dict(list(waiting.items())[:BLOCK])
            for commit_id in block:
                del waiting[commit_id]
                check_read_may_go_on()
            objects = self._fetch(list(block))
            for commit_id, number in block.items():
                commit = objects.get(commit_id)
                if number and commit_id in self._expired_before:  # also while a sweep is about to remove it
                    self._cut.add(commit_id)
                    continue
                if not isinstance(commit, CommitObject):
                    self._report_missing(commit_id, "as a commit")
                    continue
                if number and not horizon.keeps_commit(number, commit):
                    self._cut.add(commit_id)
                    continue
                kept_at[commit_id] = number
                self._kept.add(commit_id)
                if commit_id not in self.seen:
                    self.seen.add(commit_id)
                    below += _list_objects_below_commit(commit_id, commit)
                for parent in commit.parents:
                    depth = kept_at.get(parent)
                    if depth is None or number + 1 < depth:
                        waiting[parent] = min(number + 1, waiting.get(parent, number + 1))
            if len(below) >= BLOCK or not waiting:
                self._mark_below(below)
                self._walked()
                below = []

    def mark_log_entries(self, newest: Iterable[ObjectId]) -> None:
        """The entries of ref logs."""
        waiting = [entry_id for entry_id in newest if entry_id not in self.seen]
        while waiting:
            objects = self._fetch(waiting)
            following = []
            for entry_id in waiting:
                self.seen.add(entry_id)
                entry = objects.get(entry_id)
                if isinstance(entry, LogEntry):
                    if entry.previous not in self.seen:
                        following.append(entry.previous)
                else:
                    self._report_missing(entry_id, "as a ref log entry")
            waiting = following

    def mark_blobs(self, ids: Iterable[ObjectId], why: str) -> None:
        """Some blobs, and what they hold."""
        self._mark_below([(object_id, why) for object_id in ids])

    def _mark_below(self, start: list[tuple[ObjectId, str]]) -> None:
        """Trees, segments and blobs below commits."""
        waiting = start
        while waiting:
            block = waiting[-BLOCK:]
            del waiting[-BLOCK:]
            reasons = {object_id: reason for object_id, reason in block if object_id not in self.seen}
            self.seen.update(reasons)
            objects = self._fetch(list(reasons))
            for object_id, reason in reasons.items():
                check_read_may_go_on()
                below = objects.get(object_id)
                if isinstance(below, Leaf | Node | Segment | Blob):
                    waiting += [(child, reason) for child in self._list_children(object_id, below)]
                else:
                    self._report_missing(object_id, reason)
                    self.seen.discard(object_id)  # a commit may yet be met where it belongs

    def _report_missing(self, object_id: ObjectId, why: str) -> None:
        self.damaged.setdefault(object_id, f"is needed {why}, but is missing, unreadable or of another kind")

    def _list_children(self, object_id: ObjectId, decoded: Leaf | Node | Segment | Blob) -> list[ObjectId]:
        if isinstance(decoded, Node):
            return decoded.children
        if isinstance(decoded, Blob):
            return list(decoded.held)
        below: list[ObjectId] = []
        for value in decoded.values:
            if not self._reads_all and type(value) is bytes and value[1:2] in self._types_without_objects:
                continue
            if value in self._without_objects or value is None:
                continue
            if isinstance(value, Large):
                below += value.parts
            held = self._list_held_objects(object_id, value)
            if held or isinstance(value, Large):
                below += held
            elif object_id not in self.damaged:
                if len(self._without_objects) >= VALUES_MAX:
                    self._without_objects.clear()
                self._without_objects.add(value)
        return below

    def _list_held_objects(self, object_id: ObjectId, value: Value) -> tuple[ObjectId, ...]:
        """The objects that the content in a value of ``one`` holds."""
        data = value if isinstance(value, bytes) else self._read_large_value(object_id, value)
        try:
            content = None if data is None else decode_content(data)
            return () if content is None else self._objects_of(content)
        except (msgspec.MsgspecError, ValueError) as problem:
            self.damaged.setdefault(object_id, f"has a content that cannot be read: {problem}")
            return ()

    def _read_large_value(self, object_id: ObjectId, value: Large) -> bytes | None:
        parts = self._fetch(list(value.parts))
        if len(parts) < len(set(value.parts)):
            return None
        data = b"".join(part.data for part_id in value.parts if isinstance(part := parts[part_id], Blob))
        if len(data) != value.size:
            self.damaged.setdefault(
                object_id, f"has a value of {value.size} bytes, but only {len(data)} of them are there"
            )
            return None
        return data


def _list_objects_below_commit(commit_id: ObjectId, commit: CommitObject) -> list[tuple[ObjectId, str]]:
    reason = f"by commit {commit_id.hex()[:8]}"
    below = [commit.root, *(segment for segment, _ in commit.recent)]
    below += list_blobs_of_values((commit.intents,))
    return [(child, reason) for child in below]
