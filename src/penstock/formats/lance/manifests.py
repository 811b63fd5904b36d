"""Manifests: what a version of a Lance table is, in one file that never changes.

A file ends with where its manifest begins and Lance's four letters. Before the manifest there are two
sections that it tells the places of: what is known of indexes, and the transaction that made the version.
Lance up to 13 tells the place of the transaction in another field than Lance 14 does. Where a manifest is
packed anew, every field that holds a place is renewed or left out: each Lance looks into its own one.

A table may have files in other places than its own: a *base* is such a place, with a number, and whatever
lies there names the number. What names none lies in the table's own folder.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Self

from penstock.formats.lance.protobuf import MalformedMessage, ProtobufMessage
from penstock.storage.moved_roots import NOT_MOVED, MovedRoots

MAGIC: Final = b"LANC"
_FOOTER: Final = struct.Struct("<QHH4s")
_LENGTH: Final = struct.Struct("<I")
_MAJOR, _MINOR = 0, 2
_OLDEST_MINOR: Final = 1
"""Up to Lance 0.39. Their manifests are laid out in the same way, without a transaction."""
_FIELD_METADATA: Final = 10
_FIELD_STORAGE: Final = 11


class _Manifest:
    """The numbers of a manifest's fields."""

    SCHEMA: Final = 1
    FRAGMENTS: Final = 2
    VERSION: Final = 3
    AUX: Final = 4
    SCHEMA_METADATA: Final = 5
    INDEX_SECTION: Final = 6
    TIMESTAMP: Final = 7
    TAG: Final = 8
    READER_FLAGS: Final = 9
    WRITER_FLAGS: Final = 10
    MAX_FRAGMENT_ID: Final = 11
    TRANSACTION_FILE: Final = 12
    WRITER: Final = 13
    NEXT_ROW_ID: Final = 14
    DATA_FORMAT: Final = 15
    CONFIG: Final = 16
    BASES: Final = 18
    TABLE_METADATA: Final = 19
    BRANCH: Final = 20
    TRANSACTION_SECTION_13: Final = 21
    """Lance 1 to 13 write this one, and look into no other. They read the transaction with the manifest, so
    that one which they do not know, or which is not there, keeps them from opening the table."""
    TRANSACTION_SECTION: Final = 23
    """From Lance 14 on, which still looks into the other one if this one is not there."""
    MAX_FIELD_ID: Final = 24
    CLUSTERING: Final = 25
    MAX_CLUSTERING_ID: Final = 26


_TRANSACTION_SECTIONS: Final = (_Manifest.TRANSACTION_SECTION, _Manifest.TRANSACTION_SECTION_13)
_SECTIONS: Final = (_Manifest.INDEX_SECTION, *_TRANSACTION_SECTIONS)
_COUNTERS: Final = (_Manifest.NEXT_ROW_ID, _Manifest.MAX_FIELD_ID, _Manifest.MAX_CLUSTERING_ID)
"""What was given to something before, and is never given again."""
_KNOWN: Final = frozenset(
    value for name, value in vars(_Manifest).items() if name.isupper() and isinstance(value, int)
)
_OF_SCHEMA: Final = frozenset((_Manifest.SCHEMA, _Manifest.SCHEMA_METADATA))
_OF_SETTINGS: Final = frozenset((_Manifest.CONFIG, _Manifest.TABLE_METADATA))
_MAPS: Final[Mapping[str, int]] = {
    "config": _Manifest.CONFIG,
    "table metadata": _Manifest.TABLE_METADATA,
    "schema metadata": _Manifest.SCHEMA_METADATA,
}
"""Maps of texts, by how a conflict calls them."""


class ManifestFlag:
    """Bits by which a table says what its readers and writers must know."""

    DELETIONS: Final = 1
    STABLE_ROW_IDS: Final = 2
    V2_FILES: Final = 4
    CONFIG: Final = 8
    BASES: Final = 16
    NO_TRANSACTION_FILE: Final = 32
    KNOWN: Final = 63


class ManifestOperation(StrEnum):
    """What made a version, as far as it matters to those who made another one at the same time."""

    APPEND = "append"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    CREATE_INDEX = "create index"
    REWRITE = "rewrite"
    MERGE = "merge"
    RESTORE = "restore"
    RESERVE = "reserve fragments"
    UPDATE = "update"
    PROJECT = "project"
    CONFIG = "update config"
    CLONE = "clone"
    OTHER = "other"


_OPERATIONS: Final[Mapping[int, ManifestOperation]] = {
    100: ManifestOperation.APPEND,
    101: ManifestOperation.DELETE,
    102: ManifestOperation.OVERWRITE,
    103: ManifestOperation.CREATE_INDEX,
    104: ManifestOperation.REWRITE,
    105: ManifestOperation.MERGE,
    106: ManifestOperation.RESTORE,
    107: ManifestOperation.RESERVE,
    108: ManifestOperation.UPDATE,
    109: ManifestOperation.PROJECT,
    110: ManifestOperation.CONFIG,
    113: ManifestOperation.CLONE,
}
_NUMBERS: Final = {operation: number for number, operation in _OPERATIONS.items()}


class FileBase(NamedTuple):
    """A place where files of a table lie that are not in its own folder."""

    id: int
    path: str
    is_root: bool = True
    """Whether it is the folder of a table, and not only one of data files."""
    name: str | None = None

    @staticmethod
    def decode(data: bytes) -> FileBase:
        message = ProtobufMessage.decode(data)
        return FileBase(
            message.get_number(1) or 0,
            message.get_text(4) or "",
            bool(message.get_number(3)),
            message.get_text(2),
        )

    def encode(self) -> bytes:
        name = () if self.name is None else ((2, self.name),)
        return ProtobufMessage.from_fields(
            (1, self.id), *name, (3, int(self.is_root)), (4, self.path)
        ).encode()


class Manifest(NamedTuple):
    """A manifest with its sections. Fragments and indexes are messages of their own."""

    body: ProtobufMessage
    indexes: tuple[ProtobufMessage, ...] = ()
    transaction: ProtobufMessage | None = None

    @classmethod
    def decode(cls, data: bytes, moved: MovedRoots = NOT_MOVED) -> Self:
        """The manifest in the bytes of a file. ``MalformedMessage`` if there is none.

        Bases at places that files were ``moved`` to have the locations by which the lake knows them.
        """
        if len(data) < _FOOTER.size + _LENGTH.size:
            raise MalformedMessage(f"{len(data)} bytes are too few for a manifest")
        place, _, minor, magic = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
        if magic != MAGIC or minor < _OLDEST_MINOR:
            raise MalformedMessage("the file does not end like a manifest")
        body = ProtobufMessage.decode(_read_section(data, place))
        if body.get_number(_Manifest.VERSION) is None:
            raise MalformedMessage("the manifest has no version number")
        indexes: tuple[ProtobufMessage, ...] = ()
        if (where := body.get_number(_Manifest.INDEX_SECTION)) is not None:
            indexes = tuple(
                ProtobufMessage.decode(data)
                for data in ProtobufMessage.decode(_read_section(data, where)).get_values(1)
            )
        places = (body.get_number(field) for field in _TRANSACTION_SECTIONS)
        where, transaction = next((place for place in places if place is not None), None), None
        if where is not None:
            transaction = ProtobufMessage.decode(_read_section(data, where))
        manifest = cls(body, indexes, transaction)
        return manifest._with_base_paths(moved.map_to_lake) if moved else manifest

    def encode(self, moved: MovedRoots = NOT_MOVED) -> bytes:
        """The bytes of a file with this manifest. Its bases are where files are that were ``moved``."""
        packed, body = bytearray(), (self._with_base_paths(moved.map_to_storage) if moved else self).body
        if self.indexes:
            body = body.replace_field(_Manifest.INDEX_SECTION, len(packed))
            packed += _pack_with_length(
                ProtobufMessage.from_fields(*((1, index.encode()) for index in self.indexes))
            )
        else:
            body = body.replace_field(_Manifest.INDEX_SECTION)
        told_in = [field for field in _TRANSACTION_SECTIONS if body.get_number(field) is not None]
        for field in told_in or [_Manifest.TRANSACTION_SECTION]:
            body = body.replace_field(field, *(() if self.transaction is None else (len(packed),)))
        if self.transaction is not None:
            packed += _pack_with_length(self.transaction)
        place = len(packed)
        packed += _pack_with_length(body)
        return bytes(packed) + _FOOTER.pack(place, _MAJOR, _MINOR, MAGIC)

    @property
    def version(self) -> int:
        return self.body.get_number(_Manifest.VERSION) or 0

    @property
    def transaction_file(self) -> str:
        """The file with its transaction, below the folder of transactions; empty if there is none."""
        return self.body.get_text(_Manifest.TRANSACTION_FILE) or ""

    @property
    def names_one_transaction(self) -> bool:
        """Whether every Lance finds the same transaction. Earlier versions of Penstock left a former place in
        the field of Lance 13 when they packed a manifest anew, and Lance 13 cannot open such a version."""
        return len({self.body.get_number(field) for field in _TRANSACTION_SECTIONS} - {None}) < 2

    @property
    def unknown_fields(self) -> list[int]:
        """The numbers of its fields that are not known here. One of them may tell a place in the file, or
        name files."""
        return sorted({field.number for field in self.body} - _KNOWN)

    @property
    def branch(self) -> str | None:
        """Lance's own branch that the version is of; ``None`` for its main one."""
        return self.body.get_text(_Manifest.BRANCH)

    @property
    def fragments(self) -> tuple[ProtobufMessage, ...]:
        return tuple(ProtobufMessage.decode(data) for data in self.body.get_values(_Manifest.FRAGMENTS))

    @property
    def bases(self) -> tuple[FileBase, ...]:
        return tuple(FileBase.decode(data) for data in self.body.get_values(_Manifest.BASES))

    @property
    def flags(self) -> int:
        """What readers and writers must know, together."""
        return (self.body.get_number(_Manifest.READER_FLAGS) or 0) | (
            self.body.get_number(_Manifest.WRITER_FLAGS) or 0
        )

    @property
    def max_fragment_id(self) -> int:
        """The highest number that a fragment ever had; -1 if there never was any."""
        noted = self.body.get_number(_Manifest.MAX_FRAGMENT_ID)
        numbers = [fragment.get_number(1) or 0 for fragment in self.fragments] if noted is None else []
        return noted if noted is not None else max(numbers, default=-1)

    @property
    def operation(self) -> ManifestOperation:
        """What made this version; ``OTHER`` if it does not say, or says what is not known here."""
        for field in self.transaction or ():
            if field.number in _OPERATIONS:
                return _OPERATIONS[field.number]
        return ManifestOperation.OTHER

    @property
    def data_format(self) -> str:
        """The version of the format of its data files; empty for the oldest ones."""
        message = self.body.get_message(_Manifest.DATA_FORMAT)
        return (message.get_text(2) if message is not None else None) or ""

    @property
    def schema(self) -> tuple[list[bytes], list[bytes]]:
        """What its columns are, to be compared."""
        fields = [_normalise_field(field) for field in self.body.get_values(_Manifest.SCHEMA)]
        return fields, sorted(self.body.get_values(_Manifest.SCHEMA_METADATA))

    @property
    def settings(self) -> tuple[list[bytes], list[bytes]]:
        """What is said of the table as a whole, to be compared."""
        body = self.body
        return sorted(body.get_values(_Manifest.CONFIG)), sorted(body.get_values(_Manifest.TABLE_METADATA))

    def has_schema_of(self, other: Manifest) -> bool:
        """Whether its columns are those of another one. Most often they are so byte for byte."""
        return self._has_fields_of(other, _OF_SCHEMA) or self.schema == other.schema

    def has_settings_of(self, other: Manifest) -> bool:
        """Whether it says of the table as a whole what another one does."""
        return self._has_fields_of(other, _OF_SETTINGS) or self.settings == other.settings

    def _has_fields_of(self, other: Manifest, numbers: frozenset[int]) -> bool:
        mine, others = (
            [field for field in body if field.number in numbers] for body in (self.body, other.body)
        )
        return mine == others

    def has_moved_bases(self, moved: MovedRoots) -> bool:
        """Whether it names bases at places that files were moved away from: Lance would look there."""
        return any(moved.map_to_storage(base.path) != base.path for base in self.bases)

    def _with_base_paths(self, change: Callable[[str], str]) -> Self:
        bases = self.bases
        changed = tuple(base._replace(path=change(base.path)) for base in bases)
        return self if changed == bases else self.replace_parts(bases=changed)

    def replace_parts(
        self,
        *,
        fragments: Sequence[ProtobufMessage] | None = None,
        bases: Sequence[FileBase] | None = None,
        indexes: Sequence[ProtobufMessage] | None = None,
        max_fragment_id: int | None = None,
    ) -> Self:
        """This manifest with other parts."""
        body = self.body
        if fragments is not None:
            body = body.replace_field(_Manifest.FRAGMENTS, *(fragment.encode() for fragment in fragments))
            if any(fragment.get_values(3) for fragment in fragments):
                body = _add_flag(body, ManifestFlag.DELETIONS)
        if bases is not None:
            body = body.replace_field(_Manifest.BASES, *(base.encode() for base in bases))
            if bases:
                body = _add_flag(body, ManifestFlag.BASES)
        if max_fragment_id is not None and max_fragment_id >= 0:
            body = body.replace_field(_Manifest.MAX_FRAGMENT_ID, max_fragment_id)
        return self._replace(body=body, indexes=self.indexes if indexes is None else tuple(indexes))

    @property
    def fields(self) -> tuple[bytes, ...]:
        """Its columns, as they are written."""
        return tuple(self.body.get_values(_Manifest.SCHEMA))

    @property
    def maps(self) -> dict[str, dict[str, bytes]]:
        """What is said of its schema and of the table as a whole, by the kind of it and by name."""
        return {kind: _decode_map(self.body, field) for kind, field in _MAPS.items()}

    def replace_fields(self, fields: Sequence[bytes]) -> Self:
        """This manifest with other columns."""
        return self._replace(body=self.body.replace_field(_Manifest.SCHEMA, *fields))

    def replace_maps(self, maps: Mapping[str, Mapping[str, bytes]]) -> Self:
        """This manifest with other maps, of the kinds that are given."""
        body = self.body
        for kind, entries in maps.items():
            packed = (
                ProtobufMessage.from_fields((1, name), (2, value)).encode()
                for name, value in sorted(entries.items())
            )
            body = body.replace_field(_MAPS[kind], *packed)
            if kind == "config" and entries:
                body = _add_flag(body, ManifestFlag.CONFIG)
        return self._replace(body=body)

    def continue_numbers(self, before: Manifest) -> Self:
        """This manifest with numbers for what comes that neither it nor another one has given to anything."""
        body = self.body
        for counter in _COUNTERS:
            numbers = [message.get_number(counter) for message in (self.body, before.body)]
            if known_numbers := [number for number in numbers if number is not None]:
                body = body.replace_field(counter, max(known_numbers))
        highest = max(self.max_fragment_id, before.max_fragment_id)
        return self._replace(body=body).replace_parts(max_fragment_id=highest)

    def make_overwrite_operation(self) -> ProtobufMessage:
        """What a transaction says that made a table of nothing."""
        body = self.body
        fragments = ((1, data) for data in body.get_values(_Manifest.FRAGMENTS))
        return ProtobufMessage.from_fields(
            *fragments, *((2, data) for data in body.get_values(_Manifest.SCHEMA))
        )

    def make_version(
        self, version: int, branch: str | None, transaction: ProtobufMessage, time_us: int
    ) -> Self:
        """This manifest as another version, made by a transaction at a time."""
        seconds, micros = divmod(time_us, 1_000_000)
        body = (
            self.body.replace_field(_Manifest.VERSION, version)
            .replace_field(_Manifest.BRANCH, *(() if branch is None else (branch,)))
            .replace_field(
                _Manifest.TIMESTAMP, ProtobufMessage.from_fields((1, seconds), (2, micros * 1000)).encode()
            )
            .replace_field(_Manifest.TRANSACTION_FILE)
            .replace_field(_Manifest.AUX)
            .replace_field(_Manifest.TAG)
        )
        for field in _TRANSACTION_SECTIONS:  # every Lance knows the operations that are written here
            body = body.replace_field(field, 0)
        return self._replace(body=body, transaction=transaction)


def make_transaction(
    operation: ManifestOperation,
    read_version: int,
    uuid: str,
    message: ProtobufMessage,
    properties: Mapping[str, str],
) -> ProtobufMessage:
    """A transaction as a manifest keeps it."""
    entries = (
        (4, ProtobufMessage.from_fields((1, name), (2, value)).encode())
        for name, value in sorted(properties.items())
    )
    return ProtobufMessage.from_fields(
        (1, read_version), (2, uuid), *entries, (_NUMBERS[operation], message.encode())
    )


def _decode_map(body: ProtobufMessage, field: int) -> dict[str, bytes]:
    entries = map(ProtobufMessage.decode, body.get_values(field))
    return {entry.get_text(1) or "": (entry.get_values(2) or [b""])[-1] for entry in entries}


def _normalise_field(field: bytes) -> bytes:
    """A field of a schema as all writers of it would write it: each writes the entries of its metadata in
    another order, and Lance up to 0.39 says of every field in what way it is stored, also if that is none of
    its own."""
    message = ProtobufMessage.decode(field)
    if message.get_values(_FIELD_STORAGE) == [b"default"]:
        message = message.replace_field(_FIELD_STORAGE)
    return message.replace_field(_FIELD_METADATA, *sorted(message.get_values(_FIELD_METADATA))).encode()


def _add_flag(body: ProtobufMessage, flag: int) -> ProtobufMessage:
    for field in (_Manifest.READER_FLAGS, _Manifest.WRITER_FLAGS):
        body = body.replace_field(field, (body.get_number(field) or 0) | flag)
    return body


def _read_section(data: bytes, offset: int) -> bytes:
    end = len(data) - _FOOTER.size
    if offset + _LENGTH.size > end:
        raise MalformedMessage("a section begins after the end of the file")
    (size,) = _LENGTH.unpack_from(data, offset)
    start = offset + _LENGTH.size
    if start + size > end:
        raise MalformedMessage("a section ends after the end of the file")
    return data[start : start + size]


def remove_sections(body: bytes) -> bytes:
    """A manifest's own message, as it is read where its file, with the sections, is not at hand."""
    message = ProtobufMessage.decode(body)
    for field in _SECTIONS:
        message = message.replace_field(field)
    return message.encode()


def _pack_with_length(message: ProtobufMessage) -> bytes:
    data = message.encode()
    return _LENGTH.pack(len(data)) + data
