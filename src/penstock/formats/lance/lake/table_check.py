"""Checks Lance tables: the entries of their trees can be read, and lead to others that exist.

That the nodes of trees are there, and fit together, is checked by whoever checks objects. Whether manifests
and files are where versions say is looked at by ``readability``.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.errors import Damaged
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.names import LINES, MAIN
from penstock.formats.lance.state import (
    LanceState,
    LanceTableVersion,
    LanceVersionReader,
    OwnBranch,
    OwnTag,
    decode_entry,
    decode_state,
    encode_state_into_table,
    encode_version_key,
    is_managed,
    parse_version_key,
)
from penstock.formats.state_check import check_state
from penstock.kernel import tree
from penstock.kernel.objects import Objects
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId

SHA256_BYTES = 32


class LanceCheck:
    """Checks many tables, and every tree once."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._checked: set[ObjectId] = set()

    def find_flaws(self, key: str, content: AnyContent) -> Iterator[tuple[str, str]]:
        """What is wrong with the table at a key: the id of a tree or the key, and what."""
        if not isinstance(content, LanceTable) or not is_managed(content):
            return
        state, flaws = check_state(key, content, decode_state, encode_state_into_table)
        yield from flaws
        if state is None:
            return
        if not _is_chain(state.chain):
            yield key, f"continues in {state.chain!r}, which is not a version chain"
        yield from ((key, what) for what in self._check_recent_versions(state))
        if state.root not in self._checked:
            self._checked.add(state.root)
            yield from ((state.root.hex(), what) for what in self._check_stored_versions(state))

    def _check_recent_versions(self, state: LanceState) -> Iterator[str]:
        """What is wrong with the versions beside the tree: each comes after all others of its branch."""
        state = msgspec.structs.replace(state, first=0)  # an entry may stay that is not told any more
        versions = LanceVersionReader(self._objects, state)
        older = LanceVersionReader(self._objects, msgspec.structs.replace(state, recent=()))
        newest: dict[str, int] = {}
        try:
            for entry in state.recent:
                yield from _check_entry(
                    encode_version_key(entry.branch, entry.number), entry.version, versions
                )
                if entry.branch not in newest:
                    before = older.find_newest(entry.branch)
                    newest[entry.branch] = 0 if before is None else before[0]
                if entry.number <= newest[entry.branch]:
                    yield f"has a version {entry.number} after version {newest[entry.branch]}"
                newest[entry.branch] = entry.number
        except Damaged:
            return  # told by whoever checks the nodes

    def _check_stored_versions(self, state: LanceState) -> Iterator[str]:
        versions = LanceVersionReader(self._objects, msgspec.structs.replace(state, first=0))
        try:
            for stored, value in tree.scan_entries(self._objects, state.root):
                try:
                    entry = decode_entry(value)
                except Damaged as damaged:
                    yield damaged.message
                    continue
                yield from _check_entry(stored, entry, versions)
        except Damaged:
            return  # told by whoever checks the nodes
        except UnicodeDecodeError:
            yield "has an entry whose name is not UTF-8"


def _check_entry(
    stored: bytes, entry: LanceTableVersion | OwnBranch | OwnTag, versions: LanceVersionReader
) -> Iterator[str]:
    named = parse_version_key(stored)
    if (named is not None) != isinstance(entry, LanceTableVersion):
        yield f"has an entry whose kind does not match its name: {stored!r}"
        return
    if isinstance(entry, LanceTableVersion):
        branch, number = named or (MAIN, 0)
        if not _is_chain(entry.chain):
            yield f"has a version {number} in {entry.chain!r}, which is not a version chain"
        if len(entry.sha256) not in (0, SHA256_BYTES) or entry.size < 0:
            yield f"has a version {number} without a size and hash of its manifest"
        if not entry.sha256 and entry.staged:
            yield f"has a version {number} whose manifest was never read"
        if branch != MAIN and versions.get_branch(branch) is None:
            yield f"has a version {number} of branch {branch!r}, which it does not have"
    elif isinstance(entry, OwnTag):
        name = stored[1:].decode()
        if versions.get_version(entry.branch, entry.version) is None:
            yield f"has a tag {name!r} of version {entry.version}, which it does not have"
    elif entry.parent != MAIN and versions.get_branch(entry.parent) is None:
        yield f"has a branch {stored[1:].decode()!r} that begins at {entry.parent!r}, which it does not have"


def _is_chain(folder: str) -> bool:
    return not folder or (folder.startswith(LINES) and folder.endswith("/") and ".." not in folder)
