"""Shapes: what is wrong with objects that have the right hashes, by themselves and in their trees."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from operator import lt
from typing import Final, NamedTuple

from penstock.errors import Damaged
from penstock.kernel import tree
from penstock.kernel.objects import Objects
from penstock.model.encoding import ObjectId, encode
from penstock.model.objects import OBJECT_MAX_BYTES, AnyObject, Leaf, Node, Segment

BLOCK: Final = 500
"""How many nodes are read at once."""


def find_object_flaws(stored: AnyObject, whole: AnyObject, data: bytes) -> Iterator[str]:
    """What is wrong with an object by itself: its size, its form, its keys.

    ``stored`` is what its bytes say, ``whole`` the same with whole keys, as it is in memory.
    """
    if len(data) > OBJECT_MAX_BYTES:
        yield f"has {len(data)} bytes, more than an object may have"
    is_canonical = encode(stored) == data
    if isinstance(whole, Leaf | Node) and isinstance(stored, Leaf | Node):
        is_canonical = is_canonical and tree.is_shortest(whole.keys, stored.prefix)
    if not is_canonical:
        yield "is not in canonical form"
    if not isinstance(whole, Leaf | Node | Segment):
        return
    keys, values = whole.keys, len(whole.children if isinstance(whole, Node) else whole.values)
    if values != len(keys):
        yield f"has {len(keys)} keys, but {values} values"
    if isinstance(whole, Leaf | Node):
        if not all(map(lt, keys, keys[1:])):
            yield "has keys that are not in order"
        end = tree.find_first_node_end(_read_node_level(whole), keys)
        if end and end != len(keys):
            yield f"should end after {end} entries, but has {len(keys)}"


def _read_node_level(node: Leaf | Node) -> int:
    return node.level if isinstance(node, Node) else 0


class _NodePosition(NamedTuple):
    """A node and where it stands, as its parent has it. A root has no parent, so it may end anywhere."""

    id: ObjectId
    level: int
    after: bytes | None
    """The key before its first one."""
    last_key: bytes | None
    is_last: bool
    """Whether it is the last one of its level."""


class TreeChecker:
    """Checks the nodes of many trees, those that they share once."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._checked: set[_NodePosition] = set()

    def find_tree_flaws(self, root: ObjectId) -> Iterator[tuple[ObjectId, str]]:
        """The nodes of a tree that do not fit where they stand, and why.

        Those that are missing or unreadable are passed over: whoever reads them finds out.
        """
        top = self._fetch_objects([root]).get(root)
        level = _read_node_level(top) if isinstance(top, Leaf | Node) else 0
        waiting = [_NodePosition(root, level, None, None, True)]
        while waiting:
            block = [place for place in waiting[-BLOCK:] if place not in self._checked]
            del waiting[-BLOCK:]
            self._checked.update(block)
            nodes = self._fetch_objects([place.id for place in block])
            for place in block:
                node = nodes.get(place.id)
                if isinstance(node, Leaf | Node):
                    for what in _find_misplaced_keys(node, place):
                        yield place.id, what
                    if isinstance(node, Node):
                        waiting += [
                            below
                            for below in _list_child_positions(node, place)
                            if below not in self._checked
                        ]
                elif node is not None:
                    yield place.id, f"is a {type(node).__name__}, where a tree node belongs"

    def _fetch_objects(self, ids: Collection[ObjectId]) -> dict[ObjectId, AnyObject]:
        try:
            return self._objects.find(ids)
        except Damaged:
            if len(ids) == 1:
                return {}
        return {
            found_id: node for wanted_id in ids for found_id, node in self._fetch_objects([wanted_id]).items()
        }


def _find_misplaced_keys(node: Leaf | Node, position: _NodePosition) -> Iterator[str]:
    """Its keys lie within what its parent says, and only the last node of a level may end early."""
    if _read_node_level(node) != position.level:
        yield f"is on another level than {position.level}, where its parent has it"
    if position.last_key is None and isinstance(node, Node) and len(node.keys) < 2:
        yield "is a root with less than two children"
    if position.last_key is not None and node.keys[-1:] != [position.last_key]:
        yield "ends with another key than its parent says"
    if position.after is not None and node.keys[:1] <= [position.after]:
        yield "begins before the node before it ends"
    if not position.is_last and tree.find_first_node_end(position.level, node.keys) != len(node.keys):
        yield "ends at a key where no node may end"


def _list_child_positions(node: Node, position: _NodePosition) -> Iterator[_NodePosition]:
    after = position.after
    for index, (key, child) in enumerate(zip(node.keys, node.children, strict=False), 1):
        yield _NodePosition(
            child, position.level - 1, after, key, position.is_last and index == len(node.keys)
        )
        after = key
