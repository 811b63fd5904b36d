"""What commits lead to that their parents do not: all that a backup lacks which has the parents.

Costs what the commits changed. Trees are compared level by level with those of the parent, and the objects
that a table's content holds with those of what the key held before. Where two cannot be matched, more is sent
than is new, and never less.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from penstock.errors import Damaged
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import check_object, parts_of
from penstock.kernel.state import differing, state_of
from penstock.kernel.table_horizons import TableHorizons
from penstock.model.content import decode_content
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.objects import (
    EMPTY_ROOT,
    AnyObject,
    Blob,
    CommitObject,
    Leaf,
    Node,
    Segment,
    Value,
)

BLOCK = 500
Send = Callable[[dict[ObjectId, bytes]], None]
"""Takes objects that are to be stored, in this order."""


class NewObjects:
    """Sends what commits have that their parents have not. Parents are given before their children."""

    def __init__(self, kernel: Kernel, send: Send) -> None:
        self._kernel, self._objects, self._send = kernel, kernel.objects, send
        self._horizons = TableHorizons.read(kernel.store, kernel.formats)
        self._sent: set[ObjectId] = {NO_COMMIT, EMPTY_ROOT}

    def take_commit(self, one: ObjectId, *, is_first: bool) -> None:
        """Send everything of a commit, then the commit: so one that is there has all that it leads to.

        ``is_first`` says that its parent is not there and never will be: then nothing is left out.
        """
        commit: CommitObject = self._objects.many([one])[one]
        segments = [segment for segment, _ in commit.recent]
        if is_first:
            self.take_all([commit.root, *segments, *parts_of((commit.intents,))])
        else:
            self._take_changed(commit, segments)
        self._sent.discard(one)
        self._take([one])

    def take_all(self, ids: Iterable[ObjectId]) -> None:
        """Send objects with all that they lead to."""
        waiting = [*ids]
        while waiting:
            block, waiting = waiting[:BLOCK], waiting[BLOCK:]
            for found in self._take(block).values():
                waiting += self._children(found)

    def _take_changed(self, commit: CommitObject, segments: list[ObjectId]) -> None:
        parent: CommitObject = self._objects.many([commit.parent])[commit.parent]
        self._take(parts_of((commit.intents,)))
        if commit.root != parent.root:
            self._take_below([parent.root], [commit.root], _nodes)
        carried = {segment for segment, _ in parent.recent}
        taken = self._take([one for one in segments if one not in carried])
        for segment in taken.values():
            assert isinstance(segment, Segment)
            values: dict[bytes, Value | None] = {**state_of(self._objects, parent).get_many(segment.keys)}
            for key, value in zip(segment.keys, segment.values, strict=True):
                self._take_value(values.get(key), value)
                values[key] = value
        for _, was, now in differing(self._objects, parent, commit):
            self._take_value(was, now)

    def _take_value(self, was: Value | None, now: Value | None) -> None:
        """What the value of a key needs that the one before it did not."""
        if now is None or now == was:
            return
        self._take(parts_of((now,)))
        self._take_below(self._held(was), self._held(now), self._children)

    def _take_below(
        self,
        old: Collection[ObjectId],
        new: Collection[ObjectId],
        children: Callable[[AnyObject], Iterable[ObjectId]],
    ) -> None:
        """What some objects lead to and some others do not, level by level."""
        known = {*old}
        fresh = [one for one in new if one not in known]
        old = [one for one in old if one not in {*new}]
        while fresh:
            taken = self._take(fresh)
            below = {child for found in taken.values() for child in children(found)}
            before = self._objects.find(old) if old else {}
            known_below = {child for found in before.values() for child in children(found)}
            known |= known_below
            fresh = [one for one in below if one not in known and one not in self._sent]
            old = [one for one in known_below if one not in below]

    def _take(self, ids: Iterable[ObjectId]) -> dict[ObjectId, AnyObject]:
        """Send objects that were not sent before, checked, and return them."""
        wanted = [one for one in dict.fromkeys(ids) if one not in self._sent]
        taken: dict[ObjectId, AnyObject] = {}
        for start in range(0, len(wanted), BLOCK):
            block = wanted[start : start + BLOCK]
            found = self._kernel.store.uncached.fetch(block)
            if missing := [one.hex() for one in block if one not in found]:
                raise Damaged(f"object {missing[0]} is missing", objects=missing)
            taken |= {one: check_object(one, data) for one, data in found.items()}
            self._send({one: found[one] for one in block})
            self._sent.update(block)
        return taken

    def _children(self, found: AnyObject) -> list[ObjectId]:
        if isinstance(found, Node):
            return found.children
        if isinstance(found, Blob):
            return list(found.held)
        if isinstance(found, Leaf | Segment):
            values = [value for value in found.values if value is not None]
            return parts_of(values) + [held for value in values for held in self._held(value)]
        return []

    def _held(self, value: Value | None) -> tuple[ObjectId, ...]:
        """The objects that the content in a value holds; none of a table's state that was erased."""
        if value is None:
            return ()
        return self._horizons.objects_of(decode_content(self._objects.read(value)))


def _nodes(found: AnyObject) -> Iterable[ObjectId]:
    """What a tree's node has below it. Values of leaves are compared key by key."""
    return found.children if isinstance(found, Node) else ()
