"""Damage: ways to spoil what a lake in a SQLite file has stored, and to put it back."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec

import penstock
from penstock.kernel.fsck import CheckResult
from penstock.kernel.tree import pack_node
from penstock.model.encoding import ObjectId, encode, hash_object
from penstock.model.objects import (
    AnyObject,
    CommitObject,
    Leaf,
    LogEntry,
    Node,
    Segment,
    decode_object,
)
from penstock.model.references import Reference, decode_reference, encode_reference
from tests.sweep.oracle import reachable


def check(place: Path) -> CheckResult:
    """What fsck finds in a lake that is opened anew."""
    with penstock.open(place, create=False) as lake:
        return lake.fsck()


def names_damaged(place: Path) -> str:
    """Everything that fsck complains about."""
    return "\n".join(str(damage) for damage in check(place).damages)


def needed(place: Path) -> list[ObjectId]:
    """The objects that references lead to."""
    with penstock.open(place, create=False) as lake:
        return sorted(reachable(lake.kernel.store))


class Database:
    """The rows of a lake's database file, read and written past Penstock."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)

    def close(self) -> None:
        self._connection.close()

    def objects(self) -> dict[ObjectId, bytes]:
        return dict(self._connection.execute("SELECT id, data FROM objects"))

    def get(self, one: ObjectId) -> bytes:
        data: bytes = self._connection.execute("SELECT data FROM objects WHERE id = ?", (one,)).fetchone()[0]
        return data

    def replace(self, one: ObjectId, data: bytes) -> None:
        assert self._connection.execute("UPDATE objects SET data = ? WHERE id = ?", (data, one)).rowcount == 1

    def remove(self, one: ObjectId) -> None:
        assert self._connection.execute("DELETE FROM objects WHERE id = ?", (one,)).rowcount == 1

    def add(self, value: AnyObject | bytes) -> ObjectId:
        """Store an object under its own hash, whatever is wrong with it otherwise."""
        data = value if isinstance(value, bytes) else encode(value)
        one = hash_object(data)
        self._connection.execute(
            "INSERT INTO objects (id, referenced_us, data) VALUES (?, 1, ?) ON CONFLICT DO NOTHING",
            (one, data),
        )
        return one

    def row(self, name: str) -> bytes:
        data: bytes = self._connection.execute("SELECT data FROM refs WHERE name = ?", (name,)).fetchone()[0]
        return data

    def replace_row(self, name: str, data: bytes) -> None:
        assert self._connection.execute("UPDATE refs SET data = ? WHERE name = ?", (data, name)).rowcount == 1

    def reference(self, name: str = "main") -> Reference:
        found: Reference = decode_reference(self.row(name))
        return found

    def repoint(self, name: str = "main", **changes: Any) -> None:
        """Change fields of a reference's row."""
        self.replace_row(name, encode_reference(msgspec.structs.replace(self.reference(name), **changes)))

    def head(self, name: str = "main") -> CommitObject:
        found = decode_object(self.get(self.reference(name).head))
        assert isinstance(found, CommitObject)
        return found

    def put_head(self, **changes: Any) -> ObjectId:
        """Replace the newest commit of ``main`` by a changed one with a valid hash."""
        return self.put_commit(self.head(), **changes)

    def put_commit(self, commit: CommitObject, **changes: Any) -> ObjectId:
        one = self.add(msgspec.structs.replace(commit, **changes))
        self.repoint(head=one)
        return one

    def put_entry(self, **changes: Any) -> ObjectId:
        """Replace the newest log entry of ``main`` by a changed one with a valid hash."""
        entry = decode_object(self.get(self.reference().log))
        assert isinstance(entry, LogEntry)
        one = self.add(msgspec.structs.replace(entry, **changes))
        self.repoint(log=one)
        return one

    def node(self, one: ObjectId) -> Leaf | Node:
        """A tree node with whole keys."""
        found = decode_object(self.get(one))
        assert isinstance(found, Leaf | Node)
        keys = [found.prefix + key for key in found.keys]
        if isinstance(found, Leaf):
            return Leaf(b"", keys, found.values)
        return Node(found.level, b"", keys, found.children)

    def path(self, *steps: int) -> list[ObjectId]:
        """Tree nodes from the root of ``main`` down: at each step the child with that index."""
        path = [self.head().root]
        for index in steps:
            node = self.node(path[-1])
            assert isinstance(node, Node)
            path.append(node.children[index])
        return path

    def put_node(self, path: list[ObjectId], steps: tuple[int, ...], new: ObjectId) -> None:
        """Let another node stand at the end of a path, with valid hashes all the way up."""
        for parent, index in zip(reversed(path[:-1]), reversed(steps), strict=True):
            node = self.node(parent)
            assert isinstance(node, Node)
            children = [*node.children[:index], new, *node.children[index + 1 :]]
            new = self.add(pack_node(node.level, node.keys, children)[0])
        self.put_head(root=new)

    def put_segment(self, segment: Segment) -> ObjectId:
        """Let the newest commit of ``main`` carry another segment."""
        one = self.add(segment)
        self.put_head(recent=((one, len(segment.keys)),))
        return one
