"""Fragments: the parts of a version of a table, as versions in different folders can compare them.

Each side of a merge numbers fragments by itself. So a fragment is known by where its data files lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from penstock.formats.lance.manifests import FileBase, Manifest, ManifestOperation
from penstock.formats.lance.protobuf import ProtobufMessage
from penstock.formats.lance.relocation import (
    BASE_OF_FILE,
    DELETION_FILE,
    FILES,
    FRAGMENT_ID,
    UnknownPlacement,
)
from penstock.model.encoding import hash_parts

MARK_BYTES: Final = 12
"""Long enough that no two files of a table ever have the same mark by chance."""
FRESH: Final = 2**24 - 1
"""What is drawn anew of the number by which a file of deleted rows is named when it is copied: what another
attempt has left may be about to be swept. The rest tells what it is a copy of."""
SUFFIXES: Final = {0: "arrow", 1: "bin"}
"""How files of deleted rows end, by their kind."""
_PHYSICAL_ROWS: Final = 4
_REWRITE: Final = 104
_GROUPS: Final = 3
_REWRITE_FIELDS: Final = frozenset((_GROUPS, 4))
_GROUP_FIELDS: Final = frozenset((1, 2))


class FolderVersion(NamedTuple):
    """A version of a table, and the folder that it is at."""

    manifest: Manifest
    folder: str


class DeletionKey(NamedTuple):
    """By which a file of deleted rows is told from others, wherever it was copied to."""

    kind: int
    read_version: int
    id: int
    rows: int


class Fragment(NamedTuple):
    """A fragment, as two sides can compare it."""

    message: ProtobufMessage
    files: tuple[str, ...]
    """The whole paths of its data files."""
    deletion_file: str | None
    """The whole path of the file of its deleted rows."""

    @property
    def number(self) -> int:
        return self.message.get_number(FRAGMENT_ID) or 0

    @property
    def first_data_file(self) -> str:
        """The data file by which its rows are named."""
        return self.files[0]

    @property
    def physical_rows(self) -> int:
        """How many rows its data files have, deleted ones too."""
        rows = self.message.get_number(_PHYSICAL_ROWS)
        if rows is None:
            raise UnknownPlacement("has a fragment without a number of rows in its manifest")
        return rows

    @property
    def deletions(self) -> DeletionKey | None:
        message = self.message.get_message(DELETION_FILE)
        if message is None:
            return None
        kind, read_version, number, rows = (message.get_number(field) or 0 for field in (1, 2, 3, 4))
        return DeletionKey(kind, read_version, number & ~FRESH, rows)

    @property
    def live_rows(self) -> int:
        deletions = self.deletions
        return self.physical_rows - (0 if deletions is None else deletions.rows)

    @property
    def identity(self) -> tuple[tuple[str, ...], DeletionKey | None]:
        """Equal for fragments with the same rows and columns."""
        return self.files, self.deletions


class RewriteGroup(NamedTuple):
    """Fragments whose rows compaction has written to others, in their order."""

    before: tuple[Fragment, ...]
    after: tuple[Fragment, ...]


def map_base_places(bases: Iterable[FileBase], folder: str) -> Mapping[int | None, FileBase]:
    return {None: FileBase(-1, folder), **{base.id: base for base in bases}}


def list_fragments(side: FolderVersion) -> list[Fragment]:
    """The fragments of a version. ``UnknownPlacement`` if it names a file in a way that is not known."""
    places = map_base_places(side.manifest.bases, side.folder)
    return [_locate_fragment(fragment, places) for fragment in side.manifest.fragments]


def read_rewrites(side: FolderVersion) -> list[RewriteGroup]:
    """What the transaction of a version says that was compacted. ``UnknownPlacement`` if that is not
    known."""
    transaction = side.manifest.transaction
    message = None if transaction is None else transaction.get_message(_REWRITE)
    if message is None or side.manifest.operation is not ManifestOperation.REWRITE:
        raise UnknownPlacement(
            f"has no record of which fragments were compacted in version {side.manifest.version}"
        )
    _check_fields(message, _REWRITE_FIELDS)
    places = map_base_places(side.manifest.bases, side.folder)
    groups: list[RewriteGroup] = []
    for group in map(ProtobufMessage.decode, message.get_values(_GROUPS)):
        _check_fields(group, _GROUP_FIELDS)
        before, after = (
            tuple(
                _locate_fragment(ProtobufMessage.decode(packed), places) for packed in group.get_values(field)
            )
            for field in (1, 2)
        )
        groups.append(RewriteGroup(before, after))
    return groups


def make_file_mark(file: str) -> bytes:
    """By which a data file is remembered: a hash of where it lies."""
    return hash_parts("lance fragment", file.encode())[:MARK_BYTES]


def _check_fields(message: ProtobufMessage, fields: frozenset[int]) -> None:
    """A Rewrite of a later Lance may say that rows are in another order."""
    if unknown := {field.number for field in message} - fields:
        raise UnknownPlacement(
            f"was compacted in a way that Penstock does not understand (fields {sorted(unknown)})"
        )


def _locate_fragment(fragment: ProtobufMessage, places: Mapping[int | None, FileBase]) -> Fragment:
    def find_base(base: int | None) -> FileBase:
        if base not in places:
            raise UnknownPlacement(f"has files at base path {base}, which its manifest does not list")
        return places[base]

    files = []
    for file in map(ProtobufMessage.decode, fragment.get_values(FILES)):
        base = find_base(file.get_number(BASE_OF_FILE))
        files.append(
            f"{base.path}/data/{file.get_text(1)}" if base.is_root else f"{base.path}/{file.get_text(1)}"
        )
    if not files:
        raise UnknownPlacement("has a fragment without data files in its manifest")
    return Fragment(fragment, tuple(files), _make_deletion_file_path(fragment, find_base))


def _make_deletion_file_path(fragment: ProtobufMessage, at: Callable[[int | None], FileBase]) -> str | None:
    message = fragment.get_message(DELETION_FILE)
    if message is None:
        return None
    suffix = SUFFIXES.get(message.get_number(1) or 0)
    if suffix is None:
        raise UnknownPlacement("has a kind of deletion file that this version of Penstock does not know")
    number = fragment.get_number(FRAGMENT_ID) or 0
    name = f"{number}-{message.get_number(2) or 0}-{message.get_number(3) or 0}.{suffix}"
    return f"{at(message.get_number(BASE_OF_FILE)).path}/_deletions/{name}"
