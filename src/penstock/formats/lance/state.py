"""The state of a Lance table: its versions, with Lance's own branches and tags, in a tree of the lake.

The content names the tree's root. A version is found by branch and number, newest first; what is said of it
is where its writer put its manifest, and the hash of it. Where it is once everybody may see it follows from
the number, and that it is there by now changes nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from penstock.errors import Damaged
from penstock.formats.lance.manifests import Operation
from penstock.formats.lance.names import MAIN, VERSION_MAX, folder_of, head_id, manifest_name
from penstock.kernel import tree
from penstock.kernel.objects import Objects
from penstock.kernel.state import prefix_end
from penstock.model.content import AnyContent, LanceTable
from penstock.model.encoding import ObjectId, decoder, encode
from penstock.model.objects import EMPTY_ROOT

NAME: Final = "lance"
"""Of the format."""

_VERSIONS: Final = b"v"
_BRANCHES: Final = b"b"
_TAGS: Final = b"t"


class Arrived(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What came with a version that was made by a merge."""

    number: int = 0
    id: bytes = b""
    """The number and the id of the newest version of the other side, which all came with it; nothing if only
    a part of that side did."""
    operations: tuple[Operation, ...] = ()
    """What had been done there."""


Mark: TypeAlias = tuple[str, bytes]


class Version(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True, tag="lance-version"):
    """A version of a table."""

    chain: str = ""
    """The chain that it is in: a folder below the table's, with a slash at its end, or nothing."""
    staged: str = ""
    """Where its writer put its manifest, below the table's folder. Empty for one that was at its place
    before the lake knew the table."""
    size: int = 0
    """Of the manifest, in bytes."""
    sha256: bytes = b""
    """Of the manifest; empty if nobody has read it."""
    time_us: int = 0
    """When it was ratified."""
    operation: Operation = Operation.OTHER
    is_v1: bool = False
    """Whether its manifest is named by Lance's first way."""
    e_tag: str = ""
    metadata: dict[str, str] = {}
    arrived: Arrived | None = None
    """If a merge made it."""
    copied: bytes = b""
    """The state of another version, if this one was made as a copy of that, at another place or later."""

    def place(self, branch: str, version: int) -> str:
        """Where its manifest is once everybody may see it, below the table's folder."""
        return manifest_name(self.chain, branch, version, is_v1=self.is_v1)

    @property
    def mark(self) -> Mark:
        """By which it is told from every other version of its number."""
        return self.staged, self.sha256

    def id(self, version: int) -> ObjectId:
        """By which it is told from every other version of the table."""
        return head_id(self.staged, self.sha256, version)

    def state(self, version: int) -> bytes:
        """What two versions have in common whose rows, columns and indexes are the same."""
        return self.copied or self.id(version)


class OwnBranch(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="lance-branch"):
    """One of Lance's own branches of a table."""

    parent: str = MAIN
    version: int
    """Of the parent, where it forked; its own versions begin with that number."""
    created_us: int = 0
    metadata: dict[str, str] = {}


class OwnTag(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="lance-tag"):
    """One of Lance's own tags of a table."""

    branch: str = MAIN
    version: int
    created_us: int = 0
    updated_us: int = 0
    metadata: dict[str, str] = {}


Entry: TypeAlias = Version | OwnBranch | OwnTag
Changes: TypeAlias = dict[bytes, Entry | None]


class LanceState(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What the content of a Lance table says."""

    root: ObjectId = EMPTY_ROOT
    chain: str = ""
    """The chain that new versions go to."""
    owner: bytes = b""
    """The incarnation of the branch whose chain it is; nothing for the default branch's, the table's own
    folder."""
    is_private: bool = False
    """Whether its versions are for those only who ask the lake: no manifest is ever put where Lance looks."""
    is_registered: bool = False
    """Whether its files were there before the lake knew the table. Nobody removes them as a whole."""
    properties: dict[str, str] = {}
    newest: int = 0
    """The newest version of Lance's main branch, so that lists need not look into the tree; 0 if there is
    none."""

    def grown(self, root: ObjectId, changes: Mapping[bytes, Entry | None]) -> LanceState:
        """The state with another tree, which differs by some entries. The newest version never goes."""
        named = (version_of(key) for key, one in changes.items() if isinstance(one, Version))
        numbers = (found[1] for found in named if found is not None and found[0] == MAIN)
        return msgspec.structs.replace(self, root=root, newest=max((self.newest, *numbers)))


_decode_state = decoder(LanceState).decode
_decode_entry = decoder(Entry).decode


def is_managed(content: AnyContent | None) -> bool:
    """Whether a content is a Lance table whose versions the lake decides, and not only a pointer to one."""
    return isinstance(content, LanceTable) and content.state != b""


def state_of(content: LanceTable) -> LanceState:
    """What a content says; ``Damaged`` if it cannot be read."""
    try:
        found: LanceState = _decode_state(content.state)
    except msgspec.MsgspecError as problem:
        raise Damaged(
            f"the state of the Lance table at {content.location} cannot be read: {problem}"
        ) from None
    return found


def with_state(content: LanceTable, state: LanceState) -> LanceTable:
    held = () if state.root == EMPTY_ROOT else (state.root,)
    return msgspec.structs.replace(content, state=encode(state), held=held)


# -- keys of the tree --------------------------------------------------------------------------------------


def version_key(branch: str, version: int) -> bytes:
    """Newest first."""
    return _versions_of(branch) + (VERSION_MAX - version).to_bytes(8, "big")


def branch_key(name: str) -> bytes:
    return _BRANCHES + name.encode()


def tag_key(name: str) -> bytes:
    return _TAGS + name.encode()


def _versions_of(branch: str) -> bytes:
    return _VERSIONS + branch.encode() + b"\0"


def version_of(key: bytes) -> tuple[str, int] | None:
    """The branch and number that a key of the tree stands for; ``None`` if it stands for no version."""
    if not key.startswith(_VERSIONS):
        return None
    return key[1:-9].decode(), VERSION_MAX - int.from_bytes(key[-8:], "big")


def branch_of(key: bytes) -> str | None:
    """Lance's own branch that a key of the tree stands for; ``None`` if it stands for none."""
    return key[1:].decode() if key.startswith(_BRANCHES) else None


# -- reading -----------------------------------------------------------------------------------------------


class Versions:
    """Reads a state's tree."""

    def __init__(self, objects: Objects, root: ObjectId) -> None:
        self._objects, self._root = objects, root

    def get(self, branch: str, version: int) -> Version | None:
        found = self._get(version_key(branch, version)) if 0 <= version <= VERSION_MAX else None
        return found if isinstance(found, Version) else None

    def newest(self, branch: str = MAIN) -> tuple[int, Version] | None:
        """The newest version of one of Lance's branches."""
        return next(self.all(branch), None)

    def all(self, branch: str = MAIN, below: int | None = None) -> Iterator[tuple[int, Version]]:
        """The versions of one of Lance's branches, newest first, those below a number."""
        prefix = _versions_of(branch)
        start = prefix if below is None else version_key(branch, below - 1)
        if below is not None and below <= 0:
            return
        for key, value in tree.scan(self._objects, self._root, start, prefix_end(prefix)):
            found, named = decode_entry(value), version_of(key)
            if isinstance(found, Version) and named is not None:
                yield named[1], found

    def every(self) -> Iterator[tuple[str, int, Version]]:
        """The versions of all of Lance's branches."""
        for key, value in tree.scan(self._objects, self._root, _VERSIONS, prefix_end(_VERSIONS)):
            found, named = decode_entry(value), version_of(key)
            if isinstance(found, Version) and named is not None:
                yield *named, found

    def branch(self, name: str) -> OwnBranch | None:
        found = self._get(branch_key(name)) if name else None
        return found if isinstance(found, OwnBranch) else None

    def branches(self) -> dict[str, OwnBranch]:
        return {name: one for name, one in self._named(_BRANCHES) if isinstance(one, OwnBranch)}

    def tag(self, name: str) -> OwnTag | None:
        found = self._get(tag_key(name))
        return found if isinstance(found, OwnTag) else None

    def tags(self) -> dict[str, OwnTag]:
        return {name: one for name, one in self._named(_TAGS) if isinstance(one, OwnTag)}

    def _named(self, kind: bytes) -> Iterator[tuple[str, Entry]]:
        for key, value in tree.scan(self._objects, self._root, kind, prefix_end(kind)):
            yield key[1:].decode(), decode_entry(value)

    def _get(self, key: bytes) -> Entry | None:
        found = tree.get(self._objects, self._root, key)
        return None if found is None else decode_entry(found)


def decode_entry(value: object) -> Entry:
    try:
        found: Entry = _decode_entry(value)  # type: ignore[arg-type]
    except (msgspec.MsgspecError, TypeError) as problem:
        raise Damaged(f"an entry of a Lance table cannot be read: {problem}") from None
    return found


# -- changing ----------------------------------------------------------------------------------------------


def changed(
    objects: Objects, root: ObjectId, changes: Mapping[bytes, Entry | None]
) -> tuple[ObjectId, dict[ObjectId, bytes]]:
    """The root of a tree with some entries set or, where there is nothing, removed; and its new nodes."""
    values = {key: None if one is None else encode(one) for key, one in changes.items()}
    return tree.changed(objects, root, values)


def folder_at(location: str, chain: str, branch: str = MAIN) -> str:
    """The whole path or URL of the folder that a chain's dataset is at."""
    return f"{location}/{folder_of(chain, branch)}".rstrip("/")
