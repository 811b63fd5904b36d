"""The state of a Lance table: its versions, with Lance's own branches and tags, in a tree of the lake.

The content names the tree's root. A version is found by branch and number, newest first; what is said of it
is where its writer put its manifest, and the hash of it. Where it is once everybody may see it follows from
the number, and that it is there by now changes nothing here.

A few versions, the newest ones, are in the content itself. So the next one costs no change of the tree, and
whoever asks for the newest need not look into it. They go into the tree together: when there are too many of
them, and whenever anything else changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from penstock.errors import Damaged
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.manifests import ManifestOperation
from penstock.formats.lance.names import (
    MAIN,
    VERSION_MAX,
    make_branch_folder,
    make_head_id,
    make_manifest_path,
)
from penstock.kernel import tree
from penstock.kernel.lake_state import find_prefix_end
from penstock.kernel.objects import Objects
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId, encode, make_decoder
from penstock.model.objects import EMPTY_ROOT, Value

NAME: Final = "lance"
"""Of the format."""

STATE_MAX_BYTES: Final = 800
"""A state that would be longer with one more version has the others in its tree. Contents of that size, with
the table's location, are kept by the lake's map in place."""

_VERSIONS: Final = b"v"
_BRANCHES: Final = b"b"
_TAGS: Final = b"t"


class VersionPointer(msgspec.Struct, frozen=True, array_like=True):
    """A version that another one refers to, and by which its manifest is found."""

    number: int
    chain: str
    staged: str
    size: int
    sha256: bytes
    is_v1: bool = False


Step: TypeAlias = tuple[VersionPointer, VersionPointer]
"""A version, after the one before it."""


class RowTrace(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Where the rows went that were removed or rewritten by what a merge brought."""

    rewrites: tuple[VersionPointer, ...] = ()
    """The versions that compacted fragments: their transactions tell which rows are where."""
    updates: tuple[Step, ...] = ()
    """The versions that updated rows."""
    deletes: tuple[Step, ...] = ()
    """The versions that deleted rows."""
    has_inserts: bool = False
    """Whether a merge insert has inserted rows, or may have."""


class MergeArrivals(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What came with a version that was made by a merge."""

    number: int = 0
    id: bytes = b""
    """The number and the id of the newest version of the other side, which all came with it; nothing if only
    a part of that side did."""
    operations: tuple[ManifestOperation, ...] = ()
    """What had been done there."""
    taken: tuple[bytes, ...] = ()
    """Fragments that came by commits which were repeated on their own, here or there, by marks of their data
    files."""
    trace: RowTrace | None = None
    """``None`` if it is not known: the merge was made by an earlier Penstock, or it brought too much."""


Mark: TypeAlias = tuple[str, bytes]


class LanceTableVersion(
    msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True, tag="lance-version"
):
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
    operation: ManifestOperation = ManifestOperation.OTHER
    is_v1: bool = False
    """Whether its manifest is named by Lance's first way."""
    e_tag: str = ""
    metadata: dict[str, str] = {}
    arrived: MergeArrivals | None = None
    """If a merge made it."""
    copied: bytes = b""
    """The state of another version, if this one was made as a copy of that, at another place or later."""

    def promoted_path(self, branch: str, version: int) -> str:
        """Where its manifest is once everybody may see it, below the table's folder."""
        return make_manifest_path(self.chain, branch, version, is_v1=self.is_v1)

    @property
    def mark(self) -> Mark:
        """By which it is told from every other version of its number."""
        return self.staged, self.sha256

    def make_id(self, version: int) -> ObjectId:
        """By which it is told from every other version of the table."""
        return make_head_id(self.staged, self.sha256, version)

    def make_pointer(self, version: int) -> VersionPointer:
        return VersionPointer(version, self.chain, self.staged, self.size, self.sha256, self.is_v1)

    def encode_comparable_state(self, version: int) -> bytes:
        """What two versions have in common whose rows, columns and indexes are the same."""
        return self.copied or self.make_id(version)


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


Entry: TypeAlias = LanceTableVersion | OwnBranch | OwnTag
Changes: TypeAlias = dict[bytes, Entry | None]


class RecentVersion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A version that is not in the tree yet."""

    branch: str
    """Of Lance's own."""
    number: int
    version: LanceTableVersion


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
    recent: tuple[RecentVersion, ...] = ()
    """Versions that are not in the tree, oldest first. None in the tree is newer on the same branch."""
    first: int = 0
    """The version with which the history of the table begins, if it was erased; 0 if it never was. Every
    state from then on has it, on every branch; after an erase up to a moment, every state that is written
    from then on. Earlier versions that the tree still has are not part of the table."""
    fork: int = 0
    """The newest version of the default branch that the versions of another branch, or of a transaction, go
    on from; 0 if there are none, and for what an earlier Penstock has begun."""


_decode_state = make_decoder(LanceState).decode
_decode_entry = make_decoder(Entry).decode


def is_managed(content: AnyContent | None) -> bool:
    """Whether a content is a Lance table whose versions the lake decides, and not only a pointer to one."""
    return isinstance(content, LanceTable) and content.state != b""


def decode_state(content: LanceTable) -> LanceState:
    """What a content says; ``Damaged`` if it cannot be read."""
    try:
        state: LanceState = _decode_state(content.state)
    except msgspec.MsgspecError as problem:
        raise Damaged(
            f"the state of the Lance table at {content.location} cannot be read: {problem}"
        ) from None
    return state


def encode_state_into_table(content: LanceTable, state: LanceState) -> LanceTable:
    held = () if state.root == EMPTY_ROOT else (state.root,)
    return msgspec.structs.replace(content, state=_encode_state(state), held=held)


def begin_table(content: LanceTable, first_version: int) -> LanceTable:
    """A table whose history begins with a version, unless it begins later."""
    state = decode_state(content)
    if state.first >= first_version:
        return content
    return encode_state_into_table(content, msgspec.structs.replace(state, first=first_version))


def _encode_state(state: LanceState) -> bytes:
    """A table that was never erased has, on the default branch, the bytes that it always had."""
    unset = 0 if state.fork else 1 if state.first else 2
    values = msgspec.structs.astuple(state)
    return encode(values[: len(values) - unset])


# -- keys of the tree --------------------------------------------------------------------------------------


def encode_version_key(branch: str, version: int) -> bytes:
    """Newest first."""
    return _make_versions_prefix(branch) + (VERSION_MAX - version).to_bytes(8, "big")


def encode_branch_key(name: str) -> bytes:
    return _BRANCHES + name.encode()


def encode_tag_key(name: str) -> bytes:
    return _TAGS + name.encode()


def _make_versions_prefix(branch: str) -> bytes:
    return _VERSIONS + branch.encode() + b"\0"


def parse_version_key(key: bytes) -> tuple[str, int] | None:
    """The branch and number that a key of the tree stands for; ``None`` if it stands for no version."""
    if not key.startswith(_VERSIONS):
        return None
    return key[1:-9].decode(), VERSION_MAX - int.from_bytes(key[-8:], "big")


def parse_branch_key(key: bytes) -> str | None:
    """Lance's own branch that a key of the tree stands for; ``None`` if it stands for none."""
    return key[1:].decode() if key.startswith(_BRANCHES) else None


# -- reading -----------------------------------------------------------------------------------------------


class LanceVersionReader:
    """Reads what a state has, in its tree and beside it."""

    def __init__(self, objects: Objects, state: LanceState) -> None:
        self._objects, self._root, self._first = objects, state.root, state.first
        self._recent = state.recent[::-1]

    def get_version(self, branch: str, version: int) -> LanceTableVersion | None:
        if self._is_erased(branch, version):
            return None
        for entry in self._recent:
            if entry.branch == branch and entry.number <= version:
                if entry.number == version:
                    return entry.version
                return None  # newer ones would have come before
        found_version = (
            self._get_entry(encode_version_key(branch, version)) if 0 <= version <= VERSION_MAX else None
        )
        return found_version if isinstance(found_version, LanceTableVersion) else None

    def find_newest(self, branch: str = MAIN) -> tuple[int, LanceTableVersion] | None:
        """The newest version of one of Lance's branches."""
        return next(self.list_versions(branch), None)

    def list_versions(
        self, branch: str = MAIN, below: int | None = None
    ) -> Iterator[tuple[int, LanceTableVersion]]:
        """The versions of one of Lance's branches, newest first, those below a number."""
        for entry in self._recent:
            if entry.branch == branch and (below is None or entry.number < below):
                if self._is_erased(branch, entry.number):
                    return
                yield entry.number, entry.version
        prefix = _make_versions_prefix(branch)
        start = prefix if below is None else encode_version_key(branch, below - 1)
        if below is not None and below <= 0:
            return
        for key, value in tree.scan_entries(self._objects, self._root, start, find_prefix_end(prefix)):
            version, named = decode_entry(value), parse_version_key(key)
            if isinstance(version, LanceTableVersion) and named is not None:
                if self._is_erased(*named):
                    return
                yield named[1], version

    def _is_erased(self, branch: str, version: int) -> bool:
        """Whether a version is from before the history of the table."""
        return branch == MAIN and version < self._first

    def get_branch(self, name: str) -> OwnBranch | None:
        branch = self._get_entry(encode_branch_key(name)) if name else None
        return branch if isinstance(branch, OwnBranch) else None

    def list_branches(self) -> dict[str, OwnBranch]:
        return {
            name: version for name, version in self._list_named(_BRANCHES) if isinstance(version, OwnBranch)
        }

    def get_tag(self, name: str) -> OwnTag | None:
        tag = self._get_entry(encode_tag_key(name))
        is_there = isinstance(tag, OwnTag) and not self._is_erased(tag.branch, tag.version)
        return tag if isinstance(tag, OwnTag) and is_there else None

    def list_tags(self) -> dict[str, OwnTag]:
        return {
            name: version
            for name, version in self._list_named(_TAGS)
            if isinstance(version, OwnTag) and not self._is_erased(version.branch, version.version)
        }

    def _list_named(self, kind: bytes) -> Iterator[tuple[str, Entry]]:
        for key, value in tree.scan_entries(self._objects, self._root, kind, find_prefix_end(kind)):
            yield key[1:].decode(), decode_entry(value)

    def _get_entry(self, key: bytes) -> Entry | None:
        value = tree.find_value(self._objects, self._root, key)
        return None if value is None else decode_entry(value)


class VersionsUntil(LanceVersionReader):
    """Those of a state that one of Lance's branches had when a version of it was the newest one."""

    def __init__(self, objects: Objects, state: LanceState, branch: str, newest: int) -> None:
        super().__init__(objects, state)
        self._branch, self._newest = branch, newest

    def get_version(self, branch: str, version: int) -> LanceTableVersion | None:
        return (
            None
            if branch == self._branch and version > self._newest
            else super().get_version(branch, version)
        )

    def list_versions(
        self, branch: str = MAIN, below: int | None = None
    ) -> Iterator[tuple[int, LanceTableVersion]]:
        if branch == self._branch:
            below = self._newest + 1 if below is None else min(below, self._newest + 1)
        return super().list_versions(branch, below)


def decode_entry(value: object) -> Entry:
    try:
        entry: Entry = _decode_entry(value)  # type: ignore[arg-type]
    except (msgspec.MsgspecError, TypeError) as problem:
        raise Damaged(f"an entry of a Lance table cannot be read: {problem}") from None
    return entry


# -- changing ----------------------------------------------------------------------------------------------


def apply_changes(
    objects: Objects, state: LanceState, changes: Mapping[bytes, Entry | None]
) -> tuple[LanceState, dict[ObjectId, bytes]]:
    """Set entries of a state, or remove them where the entry is ``None``. Returns the state and the new tree
    nodes.

    The newest version never goes. What was not in the tree is there then.
    """
    if not changes:
        return state, {}
    root, blobs = tree.apply_changes(
        objects, state.root, _encode_recent(state.recent) | _encode_changes(changes)
    )
    named = (
        parse_version_key(key) for key, version in changes.items() if isinstance(version, LanceTableVersion)
    )
    newest = max(
        (
            state.newest,
            *(version_at[1] for version_at in named if version_at is not None and version_at[0] == MAIN),
        )
    )
    return msgspec.structs.replace(state, root=root, newest=newest, recent=()), blobs


def add_next_version(
    objects: Objects, content: LanceTable, state: LanceState, entry: RecentVersion
) -> tuple[LanceTable, dict[ObjectId, bytes]]:
    """A table with the next version of one of Lance's branches, and new nodes of its tree, if there are any.

    Only when there are too many others beside the tree do they go into it.
    """
    newest = entry.number if entry.branch == MAIN else state.newest
    grown = encode_state_into_table(
        content, msgspec.structs.replace(state, newest=newest, recent=(*state.recent, entry))
    )
    if len(grown.state) <= STATE_MAX_BYTES or not state.recent:
        return grown, {}
    root, blobs = tree.apply_changes(objects, state.root, _encode_recent(state.recent))
    return encode_state_into_table(
        content, msgspec.structs.replace(state, root=root, newest=newest, recent=(entry,))
    ), blobs


def list_differing_keys(objects: Objects, before: LanceState, after: LanceState) -> list[bytes]:
    """The keys of all entries that differ between two states, with some that do not."""
    keys = dict.fromkeys(tree.diff_trees(objects, before.root, after.root))
    return [*(keys | dict.fromkeys((*_encode_recent(before.recent), *_encode_recent(after.recent))))]


def _encode_recent(recent: Iterable[RecentVersion]) -> dict[bytes, Value | None]:
    return {encode_version_key(entry.branch, entry.number): encode(entry.version) for entry in recent}


def _encode_changes(changes: Mapping[bytes, Entry | None]) -> dict[bytes, Value | None]:
    return {key: None if version is None else encode(version) for key, version in changes.items()}


def make_folder_url(location: str, chain: str, branch: str = MAIN) -> str:
    """The whole path or URL of the folder that a chain's dataset is at."""
    return f"{location}/{make_branch_folder(chain, branch)}".rstrip("/")
