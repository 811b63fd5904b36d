"""The lake at a commit: a tree with the newest changes laid over it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import merge
from typing import Protocol

from penstock.kernel import tree
from penstock.kernel.objects import Objects
from penstock.model.encoding import ObjectId
from penstock.model.objects import CommitObject, Segment, Value

KNOWN_MAX = 4096
Changes = Mapping[bytes, Value | None]
Difference = dict[bytes, tuple[Value | None, Value | None]]


class StateView(Protocol):
    """A sorted map from stored keys to values that can be read."""

    def get(self, key: bytes) -> Value | None: ...
    def get_many(self, keys: Collection[bytes]) -> dict[bytes, Value]: ...
    def scan_entries(
        self, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, Value]]: ...


class TreeView:
    """A tree as a view. It remembers what it looked up: a tree never changes."""

    def __init__(
        self, objects: Objects, root: ObjectId, known: dict[bytes, Value | None] | None = None
    ) -> None:
        self._objects, self.root = objects, root
        self._known = known if known is not None else {}

    def get(self, key: bytes) -> Value | None:
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= KNOWN_MAX:
                self._known = {}
            value = self._known[key] = tree.find_value(self._objects, self.root, key)
            return value

    def with_changes(self, root: ObjectId, changes: Changes) -> TreeView:
        """The view of the tree that some changes led to."""
        known_values = self._known if len(self._known) < KNOWN_MAX else {}
        return TreeView(self._objects, root, {**known_values, **changes})

    def get_many(self, keys: Collection[bytes]) -> dict[bytes, Value]:
        return tree.find_values(self._objects, self.root, keys)

    def scan_entries(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, Value]]:
        return tree.scan_entries(self._objects, self.root, start, stop)


class StateOverlay:
    """A view with changes laid over it; ``None`` hides what is below."""

    def __init__(self, below: StateView, changes: dict[bytes, Value | None]) -> None:
        self.below, self.changes = below, changes

    def get(self, key: bytes) -> Value | None:
        return self.changes[key] if key in self.changes else self.below.get(key)

    def get_many(self, keys: Collection[bytes]) -> dict[bytes, Value]:
        values = self.below.get_many([key for key in keys if key not in self.changes])
        for key in keys:
            if (value := self.changes.get(key)) is not None:
                values[key] = value
        return values

    def scan_entries(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, Value]]:
        over = sorted(key for key in self.changes if start <= key and (stop is None or key < stop))
        position = 0
        for key, value in self.below.scan_entries(start, stop):
            while position < len(over) and over[position] < key:
                if (mine := self.changes[over[position]]) is not None:
                    yield over[position], mine
                position += 1
            if key not in self.changes:
                yield key, value
        for mine_key in over[position:]:
            if (mine := self.changes[mine_key]) is not None:
                yield mine_key, mine


def find_prefix_end(prefix: bytes) -> bytes | None:
    """The first key after all that begin with ``prefix``."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else None


def read_recent_changes(objects: Objects, commit: CommitObject) -> dict[bytes, Value | None]:
    """The changes that a commit carries on top of its tree."""
    segments = objects.get_many([segment_id for segment_id, _ in commit.recent])
    changes: dict[bytes, Value | None] = {}
    for segment_id, count in commit.recent:
        segment: Segment = segments[segment_id]
        changes.update(zip(segment.keys[:count], segment.values[:count], strict=True))
    return changes


def list_recently_changed_keys(objects: Objects, commit: CommitObject) -> list[bytes]:
    """The keys of the changes that a commit carries on top of its tree, in the order they were made."""
    segments = objects.get_many([segment_id for segment_id, _ in commit.recent])
    return [key for segment_id, count in commit.recent for key in segments[segment_id].keys[:count]]


def count_recent_changes(commit: CommitObject) -> int:
    """How many changes a commit carries on top of its tree."""
    return sum(count for _, count in commit.recent)


def has_grown(parent: CommitObject, commit: CommitObject) -> bool:
    """Whether a commit carries the changes of its first parent, and its own after them.

    So it is until changes are folded into the tree. Which of them are its own is known by their number then.
    """
    return commit.root == parent.root and count_recent_changes(commit) >= count_recent_changes(parent)


def open_state(objects: Objects, commit: CommitObject) -> StateOverlay:
    """The lake at a commit."""
    return StateOverlay(TreeView(objects, commit.root), read_recent_changes(objects, commit))


def diff_commits(
    objects: Objects, before: CommitObject, after: CommitObject, start: bytes = b"", stop: bytes | None = None
) -> Difference:
    """What differs between two commits within a range: key → (value before, value after), sorted by key."""
    return {
        key: (before, now) for key, before, now in iterate_differences(objects, before, after, start, stop)
    }


def iterate_differences(
    objects: Objects, before: CommitObject, after: CommitObject, start: bytes = b"", stop: bytes | None = None
) -> Iterator[tree.Differing]:
    """The same, one after the other: what lies behind the last one asked for is not read."""
    old, new = open_state(objects, before), open_state(objects, after)
    over = old.changes.keys() | new.changes.keys()
    if before.root == after.root:
        # What both carry alike cannot differ; without this, every commit would look up all recent keys.
        over = {key for key in over if _find_recent_change(old, key) != _find_recent_change(new, key)}
    over = {key for key in over if start <= key and (stop is None or key < stop)}
    before_values, now = old.get_many(over), new.get_many(over)
    carried = [
        (key, before_values.get(key), now.get(key))
        for key in sorted(over)
        if before_values.get(key) != now.get(key)
    ]
    if before.root == after.root:
        return iter(carried)
    below = tree.iterate_differences(objects, before.root, after.root, start, stop)
    return merge((difference for difference in below if difference[0] not in over), carried, key=_get_key)


def _get_key(difference: tree.Differing) -> bytes:
    return difference[0]


def _find_recent_change(state: StateOverlay, key: bytes) -> tuple[bool, Value | None]:
    return key in state.changes, state.changes.get(key)
