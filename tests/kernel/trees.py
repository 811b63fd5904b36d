"""Trees to test on: grown batch by batch, counted, and looked at node by node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.kernel import tree
from penstock.kernel.objects import Objects, PendingObjects
from penstock.model.encoding import ObjectId
from penstock.model.objects import EMPTY_ROOT, Leaf, Node, Value
from penstock.stores.memory import MemoryStore
from penstock.testing import CountingStore

Mapped = Mapping[bytes, Value | None]


class Forest:
    """Trees in one store."""

    def __init__(self) -> None:
        self.store = CountingStore(MemoryStore())
        self.objects = Objects(self.store)
        self.written: dict[ObjectId, bytes] = {}
        """The nodes that the last update made."""

    def grow(self, changes: Mapped, root: ObjectId = EMPTY_ROOT) -> ObjectId:
        """The root after some changes, its nodes stored."""
        pending = PendingObjects(self.objects)
        root = tree.update_tree(pending, root, changes)
        self.written = {one: data for one, data in pending.fresh.items() if one != EMPTY_ROOT}
        self.store.store(self.written)
        pending.note_stored()
        return root

    def cold(self) -> Objects:
        """The same objects, none of them in memory."""
        self.store.reset()
        return Objects(self.store)

    def nodes(self, root: ObjectId) -> Iterator[tuple[int, Leaf | Node, int, bool]]:
        """Every node of a tree: its level, itself, its size in bytes, and whether it is its level's last."""
        waiting = [(root, True)]
        while waiting:
            one, is_last = waiting.pop()
            node = self.objects.get(one)
            data = self.store.inner.fetch((one,)).get(one, b"")
            yield (node.level if isinstance(node, Node) else 0), node, len(data), is_last
            if isinstance(node, Node):
                last = len(node.children) - 1
                waiting += [(child, is_last and at == last) for at, child in enumerate(node.children)]

    def height(self, root: ObjectId) -> int:
        top = self.objects.get(root)
        return top.level + 1 if isinstance(top, Node) else 1


def ends_a_node(level: int, key: bytes) -> bool:
    """Whether the hash of a key ends a node that is long enough to end."""
    least = (tree.LEAF_CUT if level == 0 else tree.NODE_CUT).least
    return list(tree.find_node_ends(level, [key] * least)) == [least]
