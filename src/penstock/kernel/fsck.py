"""Checking a lake: every reachable object's hash, order and shape, and what is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import Damaged
from penstock.kernel import tree
from penstock.kernel.description import read_description
from penstock.kernel.objects import check_object
from penstock.kernel.reachable import Horizon, Progress, Reach, silent
from penstock.model.content import decode_content
from penstock.model.encoding import NO_COMMIT, ObjectId, encode
from penstock.model.objects import OBJECT_MAX_BYTES, AnyObject, CommitObject, Leaf, LogEntry, Node
from penstock.model.references import Kind

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel


class Damage(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    object: str
    what: str

    def __str__(self) -> str:
        return f"{self.object}: {self.what}"


class Checked(msgspec.Struct, frozen=True):
    """What a check looked at, and what it found wrong."""

    references: int
    commits: int
    objects: int
    damages: tuple[Damage, ...]


def fsck(kernel: Kernel, progress: Progress = silent) -> Checked:
    """Check everything that the lake's references lead to."""
    checking = _Checking(kernel, progress)
    return checking.run()


class _Checking:
    def __init__(self, kernel: Kernel, progress: Progress) -> None:
        self._kernel, self._progress = kernel, progress
        self._damages: list[Damage] = []
        self._commits: dict[ObjectId, CommitObject] = {}
        self._entries: dict[ObjectId, LogEntry] = {}
        self._ordered: set[ObjectId] = set()
        self._read = 0

    def run(self) -> Checked:
        kernel = self._kernel
        reach = Reach(self._fetch, read_description(kernel.store).expired)
        references = [
            one for kind in (Kind.BRANCH, Kind.TAG, Kind.DELETED) for one in kernel.references.all(kind)
        ]
        reach.log(reference.log for reference in references)
        heads = [reference.head for reference in references if reference.kind is not Kind.DELETED]
        try:
            reach.commits(heads, Horizon())
        except Damaged as damaged:
            self._damage("lake", damaged.message)
        for one, why in reach.missing.items():
            self._damage(one.hex(), f"is missing or unreadable, but needed as {why}")
        for one, commit in self._commits.items():
            self._check_commit(one, commit)
        for one, entry in self._entries.items():
            self._check_entry(one, entry)
        for root in {commit.root for commit in self._commits.values()}:
            self._check_order(root)
        return Checked(len(references), len(self._commits), len(reach.seen), tuple(self._damages))

    def _damage(self, name: str, what: str) -> None:
        self._damages.append(Damage(name, what))

    def _fetch(self, ids: list[ObjectId]) -> dict[ObjectId, AnyObject]:
        found: dict[ObjectId, AnyObject] = {}
        for one, data in self._kernel.store.fetch(ids).items():
            try:
                found[one] = check_object(one, data)
            except Damaged as damaged:
                self._damage(one.hex(), damaged.message)
                continue
            self._check_shape(one, found[one], data)
        self._read += len(ids)
        self._progress("checked", self._read)
        return found

    def _check_shape(self, one: ObjectId, decoded: AnyObject, data: bytes) -> None:
        """An object is in its one canonical form and not too large."""
        if isinstance(decoded, CommitObject):
            self._commits[one] = decoded
        if isinstance(decoded, LogEntry):
            self._entries[one] = decoded
        if len(data) > OBJECT_MAX_BYTES:
            self._damage(one.hex(), f"has {len(data)} bytes, more than an object may have")
        if isinstance(decoded, Leaf | Node):
            level = decoded.level if isinstance(decoded, Node) else 0
            values = decoded.children if isinstance(decoded, Node) else decoded.values
            canonical = tree.pack(level, decoded.keys, values)[0]
            self._check_keys(one, level, decoded.keys)
        else:
            canonical = encode(decoded)
        if canonical != data:
            self._damage(one.hex(), "is not in canonical form")
        if isinstance(decoded, Leaf):
            for key, value in zip(decoded.keys, decoded.values, strict=True):
                self._check_content(one, key, value)

    def _check_content(self, one: ObjectId, key: bytes, value: object) -> None:
        if isinstance(value, bytes):
            try:
                decode_content(value)
            except msgspec.MsgspecError as problem:
                self._damage(one.hex(), f"holds something unreadable at {key!r}: {problem}")

    def _check_keys(self, one: ObjectId, level: int, keys: list[bytes]) -> None:
        if any(before >= after for before, after in pairwise(keys)):
            self._damage(one.hex(), "has keys that are not in order")
        ends = list(tree.cuts(level, keys))
        if ends and ends != [len(keys)]:
            self._damage(one.hex(), f"should end after {ends[0]} entries, but has {len(keys)}")

    def _check_order(self, root: ObjectId) -> None:
        """Every node's keys lie within what its parent says, and only last nodes may end early."""
        try:
            for one, level, node, last_key, is_last in self._nodes(root):
                if last_key is not None and node.keys[-1:] != [last_key]:
                    self._damage(one.hex(), "ends with another key than its parent says")
                if (node.level if isinstance(node, Node) else 0) != level:
                    self._damage(one.hex(), f"is on another level than {level}, where its parent has it")
                if not is_last and list(tree.cuts(level, node.keys)) != [len(node.keys)]:
                    self._damage(one.hex(), "ends where no node ends")
        except Damaged:
            return  # reported as missing or unreadable already

    def _nodes(self, root: ObjectId) -> Iterator[tuple[ObjectId, int, Leaf | Node, bytes | None, bool]]:
        top = self._kernel.objects.get(root)
        waiting: list[tuple[ObjectId, int, bytes | None, bool]] = [
            (root, top.level if isinstance(top, Node) else 0, None, True)
        ]
        while waiting:
            one, level, last_key, is_last = waiting.pop()
            if one in self._ordered and not is_last:
                continue
            self._ordered.add(one)
            node = self._kernel.objects.get(one)
            yield one, level, node, last_key, is_last
            if isinstance(node, Node):
                for index, (key, child) in enumerate(zip(node.keys, node.children, strict=True)):
                    waiting.append((child, level - 1, key, is_last and index == len(node.keys) - 1))

    def _check_commit(self, one: ObjectId, commit: CommitObject) -> None:
        parents = [self._commits.get(parent) for parent in commit.parents]
        known = [parent for parent in parents if parent is not None]
        if len(known) < len(parents):
            return  # cut off by the horizon, or reported as missing
        first = self._commits.get(commit.parent)
        if commit.parent != NO_COMMIT and first is not None:
            if commit.depth != first.depth + 1:
                self._damage(one.hex(), f"is at depth {commit.depth}, its parent at {first.depth}")
            if commit.time_us <= first.time_us:
                self._damage(one.hex(), "is not younger than its parent")
            if commit.merges != first.merges + bool(commit.further_parents):
                self._damage(one.hex(), "counts the merges before it wrongly")
        if commit.generation != 1 + max((parent.generation for parent in known), default=0):
            self._damage(one.hex(), "has a generation that does not follow from its parents'")
        jump = self._commits.get(commit.jump)
        if jump is not None and commit.jump != commit.parent and jump.depth >= commit.depth:
            self._damage(one.hex(), "jumps to a commit that is no ancestor")

    def _check_entry(self, one: ObjectId, entry: LogEntry) -> None:
        previous = self._entries.get(entry.previous)
        if previous is None:
            return
        if entry.position != previous.position + 1:
            self._damage(one.hex(), f"is log entry {entry.position}, but follows {previous.position}")
        if entry.before != previous.after and entry.incarnation == previous.incarnation:
            self._damage(one.hex(), "starts elsewhere than the log entry before it ended")
