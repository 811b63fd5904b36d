"""The map: a search tree whose shape follows from its keys alone.

A prolly tree. Entries are sorted by key and cut into nodes; where to cut is decided by a hash of the key
that would end the node and by how many entries the node has so far. The same content therefore has the
same nodes and the same root, whatever its history, equal subtrees have equal ids, and a change rewrites
only the path to it. Values play no part in where nodes end, so replacing a value never moves a cut.

An inner entry carries the *last* key of its child. Nodes hold some six entries at the bottom and sixteen
above: what a one-key change has to rewrite stays near a kilobyte a level.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

from penstock.errors import Damaged
from penstock.kernel.objects import Objects, PendingObjects
from penstock.kernel.time_limits import check_read_may_go_on
from penstock.model.encoding import ObjectId, encode
from penstock.model.objects import EMPTY_ROOT, Leaf, Node, Value


class _NodeCutRule(NamedTuple):
    """Where nodes of a kind end: never below ``least`` entries, always at ``most``, in between by chance."""

    least: int
    most: int
    below: int


LEAF_CUT: Final = _NodeCutRule(least=3, most=24, below=2**32 // 4)
NODE_CUT: Final = _NodeCutRule(least=8, most=64, below=2**32 // 8)
PREFETCH_MAX: Final = 64
DIFF_FIRST: Final = 256
DIFF_MOST: Final = 16_384
"""How many leaves a diff reads at once, at first and at most."""

_Edit = tuple[bytes, Any]


def find_value(objects: Objects, root: ObjectId, key: bytes) -> Value | None:
    """The value of a key, ``None`` if it has none."""
    node = objects.get(root)
    while type(node) is Node:
        index = bisect_left(node.keys, key)
        if index == len(node.keys):
            return None
        node = objects.get(node.children[index])
    keys = _require_leaf(node, root).keys
    index = bisect_left(keys, key)
    if index < len(keys) and keys[index] == key:
        value: Value = node.values[index]
        return value
    return None


def find_values(objects: Objects, root: ObjectId, keys: Collection[bytes]) -> dict[bytes, Value]:
    """The values of those keys that have one, with one request a level for what is not in memory."""
    load_nodes(objects, root, keys)
    return {key: value for key in keys if (value := find_value(objects, root, key)) is not None}


def load_nodes(objects: Objects, root: ObjectId, keys: Collection[bytes]) -> None:
    """Bring the paths to some keys into memory, with one request a level."""
    level: dict[ObjectId, Collection[bytes]] = {root: keys}
    while level:
        nodes = objects.get_many(level.keys())
        below: dict[ObjectId, list[bytes]] = {}
        for node_id, wanted_keys in level.items():
            node = nodes[node_id]
            if type(node) is Node:
                last = len(node.keys) - 1
                for key in wanted_keys:
                    index = bisect_left(node.keys, key)
                    below.setdefault(node.children[min(index, last)], []).append(key)
        level = below  # type: ignore[assignment]


def scan_entries(
    objects: Objects, root: ObjectId, start: bytes = b"", stop: bytes | None = None
) -> Iterator[tuple[bytes, Value]]:
    """The entries from ``start`` up to but without ``stop``, in the order of their keys."""
    check_read_may_go_on()
    node = objects.get(root)
    first = bisect_left(node.keys, start)
    if type(node) is Node:
        last = len(node.keys) if stop is None else min(bisect_left(node.keys, stop) + 1, len(node.keys))
        ahead = 1
        while first < last:
            block = node.children[first : min(first + ahead, last)]
            objects.get_many(block)
            for child in block:
                yield from scan_entries(objects, child, start, stop)
            first += len(block)
            ahead = min(ahead * 2, PREFETCH_MAX)
        return
    last = len(node.keys) if stop is None else bisect_left(node.keys, stop)
    yield from zip(node.keys[first:last], _require_leaf(node, root).values[first:last], strict=True)


Differing: TypeAlias = tuple[bytes, Value | None, Value | None]
"""A key, its value before and its value after."""


def diff_trees(
    objects: Objects, before: ObjectId, after: ObjectId, start: bytes = b"", stop: bytes | None = None
) -> dict[bytes, tuple[Value | None, Value | None]]:
    """What differs between two trees within a range: key → (value before, value after), sorted by key."""
    return {
        key: (before, now) for key, before, now in iterate_differences(objects, before, after, start, stop)
    }


def iterate_differences(
    objects: Objects, before: ObjectId, after: ObjectId, start: bytes = b"", stop: bytes | None = None
) -> Iterator[Differing]:
    """What differs between two trees within a range, in the order of keys.

    Nodes that both trees have are never read: a node holds its keys, so an equal id says that the same
    keys have the same values. The cost is what changed, with one request a level; leaves are read as far as
    the differences are asked for.
    """
    left, right = _TreeSide(objects, before, start, stop), _TreeSide(objects, after, start, stop)
    while True:
        if left.level == right.level:
            for shared in left.ids.keys() & right.ids.keys():
                del left.ids[shared], right.ids[shared]
        if left.level == right.level == 0 or not (left.ids or right.ids):
            break
        top = max(left.level, right.level)
        for side in (left, right):
            if side.level == top:
                side.descend_one_level()
    return _compare_entries(left.list_entries(), right.list_entries())


def _compare_entries(
    before: Iterator[tuple[bytes, Value]], after: Iterator[tuple[bytes, Value]]
) -> Iterator[Differing]:
    """What differs between two series of entries, each in the order of keys."""
    old, new = next(before, None), next(after, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old[0] < new[0]):
            assert old is not None
            yield old[0], old[1], None
            old = next(before, None)
        elif old is None or new[0] < old[0]:
            yield new[0], None, new[1]
            new = next(after, None)
        else:
            if old[1] != new[1]:
                yield old[0], old[1], new[1]
            old, new = next(before, None), next(after, None)


class _TreeSide:
    """One side of a diff: the nodes of one level that the other side does not have, with their last keys."""

    def __init__(self, objects: Objects, root: ObjectId, start: bytes, stop: bytes | None) -> None:
        self._objects, self._start, self._stop = objects, start, stop
        top = objects.get(root)
        self.ids: dict[ObjectId, bytes] = {root: top.keys[-1] if top.keys else b""}
        self.level = top.level if type(top) is Node else 0

    def descend_one_level(self) -> None:
        below: dict[ObjectId, bytes] = {}
        for node in self._objects.get_many(self.ids).values():
            first = bisect_left(node.keys, self._start)
            last = len(node.keys) if self._stop is None else bisect_left(node.keys, self._stop) + 1
            below.update(zip(node.children[first:last], node.keys[first:last], strict=True))
        self.ids = below
        self.level -= 1

    def list_entries(self) -> Iterator[tuple[bytes, Value]]:
        """The entries of the leaves, in the order of keys; more leaves at once the further it goes."""
        leaves = sorted(self.ids, key=self.ids.__getitem__)
        start, ahead = 0, DIFF_FIRST
        while start < len(leaves):
            block = leaves[start : start + ahead]
            nodes = self._objects.get_many(block)
            for node_id in block:
                check_read_may_go_on()
                leaf = nodes[node_id]
                first = bisect_left(leaf.keys, self._start)
                last = len(leaf.keys) if self._stop is None else bisect_left(leaf.keys, self._stop)
                yield from zip(leaf.keys[first:last], leaf.values[first:last], strict=True)
            start, ahead = start + len(block), min(ahead * 4, DIFF_MOST)


def apply_changes(
    objects: Objects, root: ObjectId, changes: Mapping[bytes, Value | None]
) -> tuple[ObjectId, dict[ObjectId, bytes]]:
    """The root of a tree with some keys set or removed, and those nodes of it that are new."""
    pending = PendingObjects(objects)
    new = update_tree(pending, root, changes)
    needed: dict[ObjectId, bytes] = {}
    waiting = [new]
    while waiting:
        node_id = waiting.pop()
        data = pending.fresh.get(node_id)
        if data is not None and node_id not in needed:
            needed[node_id] = data
            node = pending.get(node_id)
            if isinstance(node, Node):
                waiting += node.children
    return new, needed


def update_tree(objects: PendingObjects, root: ObjectId, changes: Mapping[bytes, Value | None]) -> ObjectId:
    """The root of the tree with some keys set or, where the value is ``None``, removed.

    New nodes are added to ``objects``. Level by level, the nodes that an edit touches are cut anew, on to
    the next cut that the old tree has too; what that replaces are the edits of the level above.
    """
    if not changes:
        return root
    if len(changes) > 1:
        load_nodes(objects, root, changes.keys())
    edits: list[_Edit] = sorted(changes.items(), key=_get_key)
    node = objects.get(root)
    top = node.level if type(node) is Node else 0
    for level in range(top + 1):
        edits = _rewrite_level(objects, root, level, edits)
        if not edits:
            return root
    tops: dict[bytes, ObjectId | None] = {node.keys[-1]: root} if node.keys else {}
    tops.update(edits)
    nodes: list[_Edit] = [edit for edit in sorted(tops.items(), key=_get_key) if edit[1] is not None]
    level = top
    while len(nodes) > 1:
        level += 1
        nodes = _cut_into_nodes(objects, level, [key for key, _ in nodes], [child for _, child in nodes])
    return _collapse_root(objects, nodes[0][1]) if nodes else EMPTY_ROOT


def _get_key(edit: _Edit) -> bytes:
    return edit[0]


def _collapse_root(objects: Objects, root: ObjectId) -> ObjectId:
    """A root with a single child gives way to it."""
    node = objects.get(root)
    while type(node) is Node and len(node.children) == 1:
        root = node.children[0]
        node = objects.get(root)
    return root


def _rewrite_level(
    objects: PendingObjects, root: ObjectId, level: int, edits: Sequence[_Edit]
) -> list[_Edit]:
    """Apply edits to the nodes of one level, and return what that means for the level above."""
    above: dict[bytes, ObjectId | None] = {}
    position = 0
    while position < len(edits):
        node_id, node, is_last = _find_node(objects, root, level, edits[position][0])
        end = len(edits) if is_last else _find_edits_end(edits, position, node.keys[-1])
        replaced = _replace_values(objects, level, node_id, node, edits[position:end])
        if replaced is not None:
            above.update(replaced)
            position = end
        else:
            position = _rewrite_nodes_from(objects, root, level, edits, position, above)
    return sorted(above.items(), key=_get_key)


def _replace_values(
    objects: PendingObjects, level: int, node_id: ObjectId, node: Any, edits: Sequence[_Edit]
) -> dict[bytes, ObjectId | None] | None:
    """The short way: edits that only replace values of existing keys leave all cuts where they are."""
    keys = node.keys
    values = list(node.values if level == 0 else node.children)
    for key, value in edits:
        index = bisect_left(keys, key)
        if value is None or index == len(keys) or keys[index] != key:
            return None
        values[index] = value
    new = _add_node(objects, level, keys, values)
    return {keys[-1]: new} if new != node_id else {}


def _rewrite_nodes_from(
    objects: PendingObjects,
    root: ObjectId,
    level: int,
    edits: Sequence[_Edit],
    position: int,
    above: dict[bytes, ObjectId | None],
) -> int:
    """Cut anew from the start of the node that an edit touches, until a cut falls on an old one.

    What changed goes into ``above``; returns the position of the next edit.
    """
    keys: list[bytes] = []
    values: list[Any] = []
    old: dict[bytes, ObjectId] = {}
    seek = edits[position][0]
    while True:
        node_id, node, is_last = _find_node(objects, root, level, seek)
        merged = dict(zip(node.keys, node.values if level == 0 else node.children, strict=True))
        end = len(edits) if is_last or not node.keys else _find_edits_end(edits, position, node.keys[-1])
        for key, value in edits[position:end]:
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = value
        position = end
        for key, value in sorted(merged.items(), key=_get_key):
            keys.append(key)
            values.append(value)
        if node.keys:
            old[node.keys[-1]] = node_id
        if is_last or not keys or _is_node_end(level, keys):
            break
        seek = node.keys[-1] + b"\0"
    new = dict(_cut_into_nodes(objects, level, keys, values))
    for key in old.keys() | new.keys():
        if old.get(key) != new.get(key):
            above[key] = new.get(key)
    return position


def _find_edits_end(edits: Sequence[_Edit], start: int, last_key: bytes) -> int:
    """The position after the last edit whose key is not beyond ``last_key``."""
    return bisect_left(edits, last_key + b"\0", lo=start, key=_get_key)


def _find_node(objects: Objects, root: ObjectId, level: int, key: bytes) -> tuple[ObjectId, Any, bool]:
    """The node of a level where a key belongs, and whether it is the last one of its level."""
    node_id, node, is_last = root, objects.get(root), True
    while type(node) is Node and node.level > level:
        index, last = bisect_left(node.keys, key), len(node.keys) - 1
        if index < last:
            is_last = False
        node_id = node.children[min(index, last)]
        node = objects.get(node_id)
    return node_id, node, is_last


def _hash_key(key: bytes, level: int) -> int:
    """A well-mixed number below 2**32 of a key, another one on every level."""
    mixed = crc32(key, level * 0x9E3779B1 & 0xFFFFFFFF)
    mixed = (mixed ^ mixed >> 15) * 0x2C1B3C6D & 0xFFFFFFFF
    return mixed ^ mixed >> 12


def find_node_ends(level: int, keys: Sequence[bytes]) -> Iterator[int]:
    """The positions in a run of keys, which begins a node, after which a node ends."""
    least, most, below = LEAF_CUT if level == 0 else NODE_CUT
    count = 0
    for position, key in enumerate(keys, 1):
        count += 1
        if count >= least and (count == most or _hash_key(key, level) < below):
            yield position
            count = 0


def find_first_node_end(level: int, keys: Sequence[bytes]) -> int:
    """The first of ``cuts``; 0 if there is none. A check of a lake asks for it at every node."""
    least, most, below = LEAF_CUT if level == 0 else NODE_CUT
    seed = level * 0x9E3779B1 & 0xFFFFFFFF
    for position in range(least, min(len(keys), most - 1) + 1):
        mixed = crc32(keys[position - 1], seed)
        mixed = (mixed ^ mixed >> 15) * 0x2C1B3C6D & 0xFFFFFFFF
        if mixed ^ mixed >> 12 < below:
            return position
    return most if len(keys) >= most else 0


def _is_node_end(level: int, keys: Sequence[bytes]) -> bool:
    """Whether a node ends with the last of these keys."""
    last = 0
    for position in find_node_ends(level, keys):
        last = position
    return last == len(keys)


def _cut_into_nodes(objects: PendingObjects, level: int, keys: list[bytes], values: list[Any]) -> list[_Edit]:
    """Cut entries into new nodes, and return the last key and the id of each."""
    nodes, start = [], 0
    for end in (*find_node_ends(level, keys), len(keys)):
        if start < end:
            nodes.append((keys[end - 1], _add_node(objects, level, keys[start:end], values[start:end])))
        start = end
    return nodes


def _add_node(objects: PendingObjects, level: int, keys: list[bytes], values: list[Any]) -> ObjectId:
    packed, whole = pack_node(level, keys, values)
    return objects.add_node(packed, whole)


def pack_node(level: int, keys: list[bytes], values: list[Any]) -> tuple[bytes, Leaf | Node]:
    """A node's bytes, in which the prefix that all its keys share stands once, and its form in memory."""
    length = _shared_prefix_length(keys[0], keys[-1]) if keys else 0
    prefix = keys[0][:length] if keys else b""
    short = [key[length:] for key in keys]
    if level == 0:
        return encode(Leaf(prefix, short, values)), Leaf(b"", keys, values)
    return encode(Node(level, prefix, short, values)), Node(level, b"", keys, values)


def is_shortest(keys: Sequence[bytes], prefix: bytes) -> bool:
    """Whether a prefix of keys is all that the first and the last of them begin with alike."""
    return len(prefix) == (_shared_prefix_length(keys[0], keys[-1]) if keys else 0)


def _shared_prefix_length(left: bytes, last: bytes) -> int:
    """How many bytes two keys begin with alike."""
    length = min(len(left), len(last))
    differing = int.from_bytes(left[:length], "big") ^ int.from_bytes(last[:length], "big")
    return length - (differing.bit_length() + 7) // 8


def _require_leaf(node: Any, root: ObjectId) -> Leaf:
    if type(node) is not Leaf:
        raise Damaged(f"the tree {root.hex()} has an object that is not a node")
    return node
