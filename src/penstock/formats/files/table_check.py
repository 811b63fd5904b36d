"""Checks tables of files: each entry can be read, and the state counts what its tree has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from penstock.errors import Damaged, InvalidRequest
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import (
    check_file,
    decode_file,
    decode_state,
    encode_state_into_table,
    is_managed,
)
from penstock.formats.state_check import check_state
from penstock.kernel.objects import Objects
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId
from penstock.model.objects import Leaf, Node


class FilesSize(NamedTuple):
    """How many files there are, and how large they are together."""

    files: int
    size: int


class FilesCheck:
    """Checks many tables, and what their trees share once.

    That the nodes of trees are there, and fit together, is checked by whoever checks objects.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._totals: dict[ObjectId, FilesSize | None] = {}
        """Of nodes; nothing for one below which something cannot be read."""
        self._flaws: list[tuple[str, str]] = []

    def find_flaws(self, key: str, content: AnyContent) -> Iterator[tuple[str, str]]:
        """What is wrong with the table at a key: the id of an object or the key, and what."""
        if not isinstance(content, FilesTable) or not is_managed(content):
            return
        state, flaws = check_state(key, content, decode_state, encode_state_into_table)
        yield from flaws
        if state is None:
            return
        total = self._sum_below(state.root)
        yield from self._flaws
        self._flaws.clear()
        if total is not None and total != (state.files, state.size):
            claim = f"the state of '{key}' says {state.files} files of {state.size} bytes"
            yield state.root.hex(), f"has {total.files} files of {total.size} bytes; {claim}"

    def _sum_below(self, data: ObjectId) -> FilesSize | None:
        if data not in self._totals:
            try:
                node = self._objects.find((data,)).get(data)
            except Damaged:
                node = None
            self._totals[data] = self._sum_node(data, node)
        return self._totals[data]

    def _sum_node(self, data: ObjectId, node: object) -> FilesSize | None:
        if isinstance(node, Leaf):
            return self._sum_leaf(data, node)
        if not isinstance(node, Node):
            return None
        missing = [child for child in node.children if child not in self._totals]
        with suppress(Damaged):  # whoever reads it finds out
            self._objects.find(missing)  # with one request
        below = [self._sum_below(child) for child in node.children]
        totals = [each for each in below if each is not None]
        if len(totals) < len(below):
            return None
        return FilesSize(sum(each.files for each in totals), sum(each.size for each in totals))

    def _sum_leaf(self, data: ObjectId, leaf: Leaf) -> FilesSize | None:
        size, is_sound = 0, True
        for path, value in zip(leaf.keys, leaf.values, strict=False):
            try:
                file = decode_file(value)
                check_file(path.decode(), file)
            except (Damaged, InvalidRequest) as wrong:
                self._flaws.append((data.hex(), wrong.message))
                is_sound = False
            except UnicodeDecodeError:
                self._flaws.append((data.hex(), f"has a path that is not UTF-8: {path!r}"))
                is_sound = False
            else:
                size += file.size
        return FilesSize(len(leaf.keys), size) if is_sound else None
