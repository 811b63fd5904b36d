"""What commits lead to that their parents do not: all that a backup lacks which has the parents.

Costs what the commits changed. Trees are compared level by level with those of the parent, and the objects
that a table's content holds with those of what the key held before. Where two cannot be matched, more is sent
than is new, and never less.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from penstock.errors import Damaged
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_state import iterate_differences, open_state
from penstock.kernel.objects import check_object, list_blobs_of_values
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
        self._horizons = TableHorizons.read_horizons(kernel.store, kernel.formats)
        self._sent: set[ObjectId] = {NO_COMMIT, EMPTY_ROOT}

    def take_commit(self, commit_id: ObjectId, *, is_first: bool) -> None:
        """Send everything of a commit, then the commit: so one that is there has all that it leads to.

        ``is_first`` says that its parent is not there and never will be: then nothing is left out.
        """
        commit: CommitObject = self._objects.get_many([commit_id])[commit_id]
        segments = [segment for segment, _ in commit.recent]
        if is_first:
            self.take_all([commit.root, *segments, *list_blobs_of_values((commit.intents,))])
        else:
            self._take_changed(commit, segments)
        self._sent.discard(commit_id)
        self._send_objects([commit_id])

    def take_all(self, ids: Iterable[ObjectId]) -> None:
        """Send objects with all that they lead to."""
        waiting = [*ids]
        while waiting:
            block, waiting = waiting[:BLOCK], waiting[BLOCK:]
            for decoded in self._send_objects(block).values():
                waiting += self._list_children(decoded)

    def _take_changed(self, commit: CommitObject, segments: list[ObjectId]) -> None:
        parent: CommitObject = self._objects.get_many([commit.parent])[commit.parent]
        self._send_objects(list_blobs_of_values((commit.intents,)))
        if commit.root != parent.root:
            self._take_below([parent.root], [commit.root], _list_child_nodes)
        carried = {segment for segment, _ in parent.recent}
        objects = self._send_objects([segment_id for segment_id in segments if segment_id not in carried])
        for segment in objects.values():
            assert isinstance(segment, Segment)
            values: dict[bytes, Value | None] = {**open_state(self._objects, parent).get_many(segment.keys)}
            for key, value in zip(segment.keys, segment.values, strict=True):
                self._take_value(values.get(key), value)
                values[key] = value
        for _, before, now in iterate_differences(self._objects, parent, commit):
            self._take_value(before, now)

    def _take_value(self, before: Value | None, now: Value | None) -> None:
        """What the value of a key needs that the one before it did not."""
        if now is None or now == before:
            return
        self._send_objects(list_blobs_of_values((now,)))
        self._take_below(self._list_held_objects(before), self._list_held_objects(now), self._list_children)

    def _take_below(
        self,
        old: Collection[ObjectId],
        new: Collection[ObjectId],
        children: Callable[[AnyObject], Iterable[ObjectId]],
    ) -> None:
        """What some objects lead to and some others do not, level by level."""
        known_object_ids = {*old}
        fresh = [object_id for object_id in new if object_id not in known_object_ids]
        old = [object_id for object_id in old if object_id not in {*new}]
        while fresh:
            objects = self._send_objects(fresh)
            below = {child for decoded in objects.values() for child in children(decoded)}
            before = self._objects.find(old) if old else {}
            known_below = {child for decoded in before.values() for child in children(decoded)}
            known_object_ids |= known_below
            fresh = [
                object_id
                for object_id in below
                if object_id not in known_object_ids and object_id not in self._sent
            ]
            old = [object_id for object_id in known_below if object_id not in below]

    def _send_objects(self, ids: Iterable[ObjectId]) -> dict[ObjectId, AnyObject]:
        """Send objects that were not sent before, checked, and return them."""
        wanted_ids = [object_id for object_id in dict.fromkeys(ids) if object_id not in self._sent]
        objects: dict[ObjectId, AnyObject] = {}
        for start in range(0, len(wanted_ids), BLOCK):
            block = wanted_ids[start : start + BLOCK]
            data_by_id = self._kernel.store.uncached.fetch(block)
            if missing := [object_id.hex() for object_id in block if object_id not in data_by_id]:
                raise Damaged(f"object {missing[0]} is missing", objects=missing)
            objects |= {object_id: check_object(object_id, data) for object_id, data in data_by_id.items()}
            self._send({object_id: data_by_id[object_id] for object_id in block})
            self._sent.update(block)
        return objects

    def _list_children(self, decoded: AnyObject) -> list[ObjectId]:
        if isinstance(decoded, Node):
            return decoded.children
        if isinstance(decoded, Blob):
            return list(decoded.held)
        if isinstance(decoded, Leaf | Segment):
            values = [value for value in decoded.values if value is not None]
            return list_blobs_of_values(values) + [
                held for value in values for held in self._list_held_objects(value)
            ]
        return []

    def _list_held_objects(self, value: Value | None) -> tuple[ObjectId, ...]:
        """The objects that the content in a value holds; none of a table's state that was erased."""
        if value is None:
            return ()
        return self._horizons.list_retained_objects(decode_content(self._objects.read_value(value)))


def _list_child_nodes(decoded: AnyObject) -> Iterable[ObjectId]:
    """What a tree's node has below it. Values of leaves are compared key by key."""
    return decoded.children if isinstance(decoded, Node) else ()
