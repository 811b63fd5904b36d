"""What is reachable: the objects that the references of a lake, and their recent logs, lead to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import msgspec

from penstock.kernel.objects import parts_of
from penstock.kernel.pace import step
from penstock.model.content import AnyContent, Content, content_types, decode_content, type_bytes
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


def silent(what: str, count: int) -> None:
    """No progress shown."""


class Horizon(NamedTuple):
    """How much of a reference's history is kept: so many commits, and all that are younger."""

    max_commits: int | None = None
    oldest_us: int | None = None
    young_us: int = 0
    """What is younger is kept in any case."""

    def keeps(self, number: int, commit: CommitObject) -> bool:
        """Whether the ``number``-th commit from a head is kept. Without limits, all are."""
        if self.max_commits is None and self.oldest_us is None:
            return True
        by_count = self.max_commits is not None and number < self.max_commits
        by_age = self.oldest_us is not None and commit.time_us >= self.oldest_us
        return by_count or by_age or commit.time_us >= self.young_us


class Reach:
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
            type_bytes(kind) for kind in content_types().values() if kind.objects is Content.objects
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
    def expired(self) -> set[ObjectId]:
        """Parents of kept commits that the horizon cuts off."""
        return self._cut - self._kept

    def commits(self, heads: Iterable[ObjectId], horizon: Horizon) -> None:
        """Everything that commits lead to, as far back as the horizon reaches; their heads always stay."""
        waiting = {head: 0 for head in heads if head != NO_COMMIT}
        kept_at: dict[ObjectId, int] = {}
        below: list[tuple[ObjectId, str]] = []
        while waiting:
            block = dict(list(waiting.items())[:BLOCK])
            for one in block:
                del waiting[one]
                step()
            found = self._fetch(list(block))
            for one, number in block.items():
                commit = found.get(one)
                if number and one in self._expired_before:  # also while a sweep is about to remove it
                    self._cut.add(one)
                    continue
                if not isinstance(commit, CommitObject):
                    self._miss(one, "as a commit")
                    continue
                if number and not horizon.keeps(number, commit):
                    self._cut.add(one)
                    continue
                kept_at[one] = number
                self._kept.add(one)
                if one not in self.seen:
                    self.seen.add(one)
                    below += _below_commit(one, commit)
                for parent in commit.parents:
                    known = kept_at.get(parent)
                    if known is None or number + 1 < known:
                        waiting[parent] = min(number + 1, waiting.get(parent, number + 1))
            if len(below) >= BLOCK or not waiting:
                self._walk(below)
                self._walked()
                below = []

    def log(self, newest: Iterable[ObjectId]) -> None:
        """The entries of ref logs."""
        waiting = [one for one in newest if one not in self.seen]
        while waiting:
            found = self._fetch(waiting)
            following = []
            for one in waiting:
                self.seen.add(one)
                entry = found.get(one)
                if isinstance(entry, LogEntry):
                    if entry.previous not in self.seen:
                        following.append(entry.previous)
                else:
                    self._miss(one, "as a ref log entry")
            waiting = following

    def blobs(self, ids: Iterable[ObjectId], why: str) -> None:
        """Some blobs, and what they hold."""
        self._walk([(one, why) for one in ids])

    def _walk(self, start: list[tuple[ObjectId, str]]) -> None:
        """Trees, segments and blobs below commits."""
        waiting = start
        while waiting:
            block = waiting[-BLOCK:]
            del waiting[-BLOCK:]
            wanted = {one: why for one, why in block if one not in self.seen}
            self.seen.update(wanted)
            found = self._fetch(list(wanted))
            for one, why in wanted.items():
                step()
                below = found.get(one)
                if isinstance(below, Leaf | Node | Segment | Blob):
                    waiting += [(child, why) for child in self._children(one, below)]
                else:
                    self._miss(one, why)
                    self.seen.discard(one)  # a commit may yet be met where it belongs

    def _miss(self, one: ObjectId, why: str) -> None:
        self.damaged.setdefault(one, f"is needed {why}, but is missing, unreadable or of another kind")

    def _children(self, one: ObjectId, found: Leaf | Node | Segment | Blob) -> list[ObjectId]:
        if isinstance(found, Node):
            return found.children
        if isinstance(found, Blob):
            return list(found.held)
        below: list[ObjectId] = []
        for value in found.values:
            if not self._reads_all and type(value) is bytes and value[1:2] in self._types_without_objects:
                continue
            if value in self._without_objects or value is None:
                continue
            if isinstance(value, Large):
                below += value.parts
            held = self._held(one, value)
            if held or isinstance(value, Large):
                below += held
            elif one not in self.damaged:
                if len(self._without_objects) >= VALUES_MAX:
                    self._without_objects.clear()
                self._without_objects.add(value)
        return below

    def _held(self, one: ObjectId, value: Value) -> tuple[ObjectId, ...]:
        """The objects that the content in a value of ``one`` holds."""
        data = value if isinstance(value, bytes) else self._whole(one, value)
        try:
            content = None if data is None else decode_content(data)
            return () if content is None else self._objects_of(content)
        except (msgspec.MsgspecError, ValueError) as problem:
            self.damaged.setdefault(one, f"holds a content that cannot be read: {problem}")
            return ()

    def _whole(self, one: ObjectId, value: Large) -> bytes | None:
        parts = self._fetch(list(value.parts))
        if len(parts) < len(set(value.parts)):
            return None
        data = b"".join(part.data for each in value.parts if isinstance(part := parts[each], Blob))
        if len(data) != value.size:
            self.damaged.setdefault(
                one, f"holds a value of {value.size} bytes, of which {len(data)} are there"
            )
            return None
        return data


def _below_commit(one: ObjectId, commit: CommitObject) -> list[tuple[ObjectId, str]]:
    why = f"by commit {one.hex()[:8]}"
    below = [commit.root, *(segment for segment, _ in commit.recent)]
    below += parts_of((commit.intents,))
    return [(child, why) for child in below]
