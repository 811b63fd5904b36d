"""The actions of a Delta log, and their JSON: one action to a line.

Readers of the protocol ignore actions and fields that they do not know, and so does this module. Nothing is
lost by it: a commit is published as the bytes that its writer gave, and a table whose unknown fields would
matter says so by a feature. A ``commitInfo`` alone may hold anything, and keeps all of it.

Paths stand here as they do in the log, percent-encoded. Times are milliseconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Annotated, Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import msgspec

from penstock.formats.delta.errors import MalformedAction
from penstock.model.decoders import get_json_decoder

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

Long: TypeAlias = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
"""The numbers of the protocol have 64 bits, and no reader takes more."""

Values: TypeAlias = dict[str, str | None]
"""Text by name, for partition values and tags. As a partition value, ``""`` means the same as ``None``."""


class FileKey(NamedTuple):
    """What tells one logical file from another: a newer action of the same key replaces an older one."""

    path: str
    """Decoded, so that two spellings of one address are one file."""
    vector: str | None = None
    """The identity of the deletion vector: the same file with another vector is another logical file."""

    @property
    def digest(self) -> bytes:
        """The key in few bytes: there may be a million."""
        return _hash_text(self.path if self.vector is None else f"{self.path}\0{self.vector}")


def _hash_text(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class DeletionVector(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Where it is written down which rows of a file are deleted."""

    storage_type: str
    """``u``: a file named by a UUID, ``p``: a file by its address, ``i``: inline."""
    path_or_inline_dv: str
    size_in_bytes: Long
    cardinality: Long
    offset: Long | None = None

    @property
    def unique_id(self) -> str:
        text = self.storage_type + self.path_or_inline_dv
        return text if self.offset is None else f"{text}@{self.offset}"


class Add(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A logical file is part of the table from this version on."""

    path: str
    partition_values: Values
    size: Long
    modification_time: Long
    data_change: bool
    stats: str | None = None
    tags: Values | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None

    @property
    def partition(self) -> Values:
        """The partition values with one word only for none."""
        return {name: value or None for name, value in self.partition_values.items()}

    @property
    def key(self) -> FileKey:
        return file_key(self.path, self.deletion_vector)


class Remove(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A logical file is not a part of the table any more; its bytes may be needed for a while."""

    path: str
    data_change: bool
    deletion_timestamp: Long | None = None
    extended_file_metadata: bool | None = None
    partition_values: Values | None = None
    size: Long | None = None
    stats: str | None = None
    tags: Values | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None

    @property
    def key(self) -> FileKey:
        return file_key(self.path, self.deletion_vector)


class Cdc(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A file of the change feed of this version."""

    path: str
    partition_values: Values
    size: Long
    data_change: bool
    tags: Values | None = None


class Txn(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The last batch of an application that is in the table."""

    app_id: str
    version: Long
    last_updated: Long | None = None


class FileFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The format of the data files: ``parquet``, in every table there is."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the table is: schema, partitioning, properties. Replaces the one before as a whole."""

    id: str
    schema_string: str = ""
    """Empty where there is none: some engines begin a table so. Only a version at which it is still so cannot
    be read."""
    partition_columns: tuple[str, ...]
    format: FileFormat = FileFormat()
    configuration: dict[str, str] = {}
    name: str | None = None
    description: str | None = None
    created_time: Long | None = None


class Protocol(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a client must understand to read, and to write, the table."""

    min_reader_version: Long
    min_writer_version: Long
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class DomainMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Text that a feature or a user keeps with the table, by domain."""

    domain: str
    configuration: str
    removed: bool = False


class CheckpointMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Says in a checkpoint of the second version which version of the table it holds."""

    version: Long
    tags: Values | None = None


class Sidecar(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Names, in a checkpoint of the second version, a file with a part of its file actions."""

    path: str
    size_in_bytes: Long
    modification_time: Long
    tags: Values | None = None


class CommitInfo(msgspec.Struct, frozen=True):
    """Where a commit came from: whatever its writer had to say, and a few words that mean something."""

    fields: dict[str, Any] = {}

    @property
    def in_commit_timestamp(self) -> int | None:
        timestamp: int | None = self.fields.get("inCommitTimestamp")
        return timestamp

    @property
    def operation(self) -> str | None:
        return self._get_text_field("operation")

    @property
    def isolation_level(self) -> str | None:
        return self._get_text_field("isolationLevel")

    @property
    def is_blind_append(self) -> bool | None:
        """``None`` if the writer did not say."""
        is_blind = self.fields.get("isBlindAppend")
        return is_blind if isinstance(is_blind, bool) else None

    @property
    def transaction_id(self) -> str | None:
        return self._get_text_field("txnId")

    def with_timestamp(self, in_commit_timestamp: int) -> CommitInfo:
        """The same with another time."""
        return CommitInfo({**self.fields, "inCommitTimestamp": in_commit_timestamp})

    def _get_text_field(self, name: str) -> str | None:
        value = self.fields.get(name)
        return value if isinstance(value, str) else None


FileAction: TypeAlias = Add | Remove
Action: TypeAlias = (
    FileAction | Cdc | Txn | Metadata | Protocol | CommitInfo | DomainMetadata | CheckpointMetadata | Sidecar
)

ACTION_NAMES: Final[dict[type[Action], str]] = {
    Add: "add",
    Remove: "remove",
    Cdc: "cdc",
    Txn: "txn",
    Metadata: "metaData",
    Protocol: "protocol",
    CommitInfo: "commitInfo",
    DomainMetadata: "domainMetadata",
    CheckpointMetadata: "checkpointMetadata",
    Sidecar: "sidecar",
}
"""The word before each action's object in a line of the log."""


class ActionLine(NamedTuple):
    """An action with the number of its line, from 1, and the line itself."""

    number: int
    action: Action
    raw: bytes


def parse_commit(data: bytes) -> Iterator[ActionLine]:
    """The actions of a commit, one after the other; those that are not known are left out.

    ``MalformedAction`` at the first line that is not one JSON object with one well-formed action in it.
    """
    for number, raw in commit_lines(data):
        action = parse_action(raw, number)
        if action is not None:
            yield ActionLine(number, action, raw)


def commit_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of a commit that hold anything, with their numbers from 1."""
    number, counted = 1, 0
    for match in _HOLDS_ANYTHING.finditer(data):
        start = match.start()
        number += data.count(b"\n", counted, start)
        counted = start
        yield number, match[0].rstrip(b" \t\r")


def parse_action(raw: bytes | memoryview, number: int = 1) -> Action | None:
    """The action of one line, ``None`` if it is of a kind that is not known. Else as ``parse_commit``."""
    try:
        line = _DECODER.decode(raw)
        actions = [action for action in msgspec.structs.astuple(line) if action is not None]
        if len(actions) > 1:
            raise ValueError(f"the line has {len(actions)} actions instead of one")
        if not actions:
            return None
        return _decode_commit_info(actions[0]) if isinstance(actions[0], dict) else actions[0]
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        reason = str(problem) or "the line is nested too deeply"
        raise MalformedAction(f"line {number}: {reason}", line=number, reason=reason) from None


def write_commit(actions: Iterable[Action]) -> bytes:
    """The actions as the bytes of a commit: the same actions always give the same bytes."""
    return b"".join(write_action(action) + b"\n" for action in actions)


def write_action(action: Action) -> bytes:
    """One action as a line, without its end. Fields that say nothing are left out."""
    value = action.fields if isinstance(action, CommitInfo) else action
    return _ENCODER.encode({ACTION_NAMES[type(action)]: value})


def reconciliation_key(action: Action) -> tuple[str, str, str | None] | None:
    """Of two actions with the same key only the newer one counts; ``None`` for those that are not kept."""
    match action:
        case Add() | Remove():
            return ("file", *action.key)
        case Txn():
            return ("txn", action.app_id, None)
        case DomainMetadata():
            return ("domainMetadata", action.domain, None)
        case Metadata() | Protocol():
            return (ACTION_NAMES[type(action)], "", None)
        case _:
            return None


def file_key(path: str, vector: DeletionVector | None = None) -> FileKey:
    """The key of a file, from the address in its action and its deletion vector."""
    return FileKey(decode_path(path), None if vector is None else vector.unique_id)


def key_digests(adds: Iterable[Add]) -> list[bytes]:
    """``key.digest`` of files. Most addresses are spelled as they are, and are not looked at one by one."""
    return [
        _hash_text(path)
        if add.deletion_vector is None and "%" not in (path := add.path) and ":" not in path
        else add.key.digest
        for add in adds
    ]


def decode_path(path: str) -> str:
    """An address of the log, decoded once: below the table's root if it is relative, absolute otherwise.

    ``file:/a``, ``file:///a`` and ``/a`` are one and the same.
    """
    if "%" in path:
        path = unquote(path)
    if path.startswith("file:/"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return path


class _AnyAction(msgspec.Struct, rename="camel", gc=False):
    """A line of the log."""

    add: Add | None = None
    remove: Remove | None = None
    cdc: Cdc | None = None
    txn: Txn | None = None
    meta_data: Metadata | None = None
    protocol: Protocol | None = None
    commit_info: dict[str, Any] | None = None
    domain_metadata: DomainMetadata | None = None
    checkpoint_metadata: CheckpointMetadata | None = None
    sidecar: Sidecar | None = None


_HOLDS_ANYTHING: Final = re.compile(rb"[^ \t\r\n][^\n]*")
"""What JSON calls blank, and nothing else, is."""
_DECODER: Final = get_json_decoder(_AnyAction)
_ENCODER: Final = msgspec.json.Encoder()


def _decode_commit_info(fields: dict[str, Any]) -> CommitInfo:
    time = fields.get("inCommitTimestamp")
    if time is not None and (not isinstance(time, int) or isinstance(time, bool)):
        raise ValueError("Expected `int`, at `$.commitInfo.inCommitTimestamp`")
    return CommitInfo(fields)
