"""Relocation: a version of a table becomes a version in another folder, without a copy of its files.

Every file that lay in the folder of the one becomes a file at a base of the other, and what lay at a base
that is the other's own folder needs no base any more. So a branch begins as the version that it forked from,
and a branch that nobody overtook lands as it is, with whatever was done there.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final, TypeAlias
from uuid import UUID

from penstock.formats.lance.manifests import FileBase, Manifest, ManifestFlag
from penstock.formats.lance.protobuf import ProtobufMessage
from penstock.model.encoding import hash_parts

FRAGMENT_ID: Final = 1
FILES: Final = 2
DELETION_FILE: Final = 3
BASE_OF_FILE: Final = 7
INDEX_UUID: Final = 1
INDEX_NAME: Final = 3
INDEX_VERSION: Final = 4
"""The version of the table that an index was made of."""
BASE_OF_INDEX: Final = 9
Moved: TypeAlias = Mapping[int | None, int | None]
"""Which base, or none, becomes which."""
_FRAGMENT_FIELDS: Final = frozenset((1, 2, 3, 4, 5, 7, 9))
"""Those that do not name a file, or whose files are known to name their base."""


class UnknownPlacement(Exception):
    """A version has something whose place is not known here. The reason continues a sentence."""


def check_movable(manifest: Manifest) -> None:
    """``UnknownPlacement`` if a version has something that may name files in a way that is not known here."""
    if manifest.flags & ~ManifestFlag.KNOWN:
        raise UnknownPlacement("uses a feature of Lance that this version of Penstock does not know")
    if unknown := manifest.unknown_fields:
        raise UnknownPlacement(
            f"has a Lance manifest with unknown fields {unknown}: this version of Penstock does not read them"
        )
    if not manifest.data_format.startswith("2"):
        raise UnknownPlacement("is in Lance's oldest file format")
    for fragment in manifest.fragments:
        if unknown := sorted({field.number for field in fragment} - _FRAGMENT_FIELDS):
            raise UnknownPlacement(f"has fragments that Penstock does not understand (fields {unknown})")


def move_to_folder(manifest: Manifest, folder: str, other: str) -> Manifest:
    """A version at one folder as it reads at another one. ``UnknownPlacement`` if that cannot be said.

    It is the same for everybody who asks, so that two who write it write the same.
    """
    if folder == other:
        return manifest
    check_movable(manifest)
    bases, moved = move_bases(manifest.bases, folder, other)
    return manifest.replace_parts(
        fragments=[move_fragment(fragment, moved) for fragment in manifest.fragments],
        bases=bases,
        indexes=[move_index(index, moved) for index in manifest.indexes],
    )


def make_index_id(index: ProtobufMessage) -> UUID:
    """What an index, and the folder that its files are in, is named by. ``UnknownPlacement`` if it has no
    name."""
    uuid = index.get_message(INDEX_UUID)
    raw = uuid.get_values(1) if uuid is not None else []
    if not raw or len(raw[-1]) != 16:
        raise UnknownPlacement("has an index without a UUID")
    return UUID(bytes=raw[-1])


def make_copy_id(index: UUID) -> UUID:
    """A name for a copy of an index, which no other copy has: what another attempt has left may be about to
    be removed. It tells of what it is a copy."""
    return UUID(bytes=_short_index_digest(index) + secrets.token_bytes(8))


def is_copy(identity: UUID, index: UUID) -> bool:
    """Whether a name is that of a copy of an index."""
    return identity.bytes[:8] == _short_index_digest(index)


def _short_index_digest(index: UUID) -> bytes:
    return hash_parts("lance index", index.bytes)[:8]


def remove_idle_bases(manifest: Manifest, below: str) -> Manifest:
    """A manifest without those bases below a folder at which it has no files: or every branch that was ever
    merged would leave one for good."""
    used: set[int | None] = {index.get_number(BASE_OF_INDEX) for index in manifest.indexes}
    for fragment in manifest.fragments:
        files = (*fragment.get_values(FILES), *fragment.get_values(DELETION_FILE))
        used |= {ProtobufMessage.decode(file).get_number(BASE_OF_FILE) for file in files}
    kept_bases = [base for base in manifest.bases if base.id in used or not base.path.startswith(below)]
    return manifest if len(kept_bases) == len(manifest.bases) else manifest.replace_parts(bases=kept_bases)


def move_bases(
    bases: tuple[FileBase, ...], folder: str, other: str, existing: tuple[FileBase, ...] = ()
) -> tuple[tuple[FileBase, ...], dict[int | None, int | None]]:
    """The base paths of a manifest that moves to another folder, and a map from old to new base ids.

    ``existing`` are those that the other has already: they keep their numbers.
    """
    new_bases, moved = list(existing), dict[int | None, int | None]()
    numbers = {base.id for base in (*existing, *bases)}
    for old, base in (*((base.id, base) for base in bases), (None, FileBase(-1, folder))):
        if base.is_root and base.path == other:
            moved[old] = None
            continue
        base_id = next(
            (
                new_base.id
                for new_base in new_bases
                if (new_base.path, new_base.is_root) == (base.path, base.is_root)
            ),
            None,
        )
        if base_id is None:
            is_free = old is not None and old not in {base.id for base in new_bases}
            base_id = base.id if is_free else max(numbers, default=-1) + 1
            numbers.add(base_id)
            new_bases.append(base._replace(id=base_id))
        moved[old] = base_id
    return tuple(new_bases), moved


def move_fragment(fragment: ProtobufMessage, moved: Moved) -> ProtobufMessage:
    """A fragment whose files name other bases."""
    files = [
        _move_base_of(ProtobufMessage.decode(data), BASE_OF_FILE, moved).encode()
        for data in fragment.get_values(FILES)
    ]
    fragment = fragment.replace_field(FILES, *files)
    if (deletion := fragment.get_message(DELETION_FILE)) is not None:
        fragment = fragment.replace_field(
            DELETION_FILE, _move_base_of(deletion, BASE_OF_FILE, moved).encode()
        )
    return fragment


def move_index(index: ProtobufMessage, moved: Moved) -> ProtobufMessage:
    return _move_base_of(index, BASE_OF_INDEX, moved)


def _move_base_of(named: ProtobufMessage, field: int, moved: Moved) -> ProtobufMessage:
    base = named.get_number(field)
    if base not in moved:
        raise UnknownPlacement(f"refers to the base path {base}, which its manifest does not list")
    becomes = moved[base]
    return named.replace_field(field, *(() if becomes is None else (becomes,)))
