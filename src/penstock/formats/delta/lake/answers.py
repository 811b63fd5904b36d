"""Answers of calls about Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

import msgspec

from penstock.errors import UnsupportedFormat
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.formats.delta.protocol.actions import Metadata, Protocol


class TableVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that is not published, or was not when this was asked."""

    version: int
    name: str
    """Of a file that holds it, relative to the table's root."""
    size: int
    timestamp_ms: int
    """Its in-commit timestamp."""
    lines: str | None = None
    """Of what the file holds, if the table's storage can only be read, so that the file may be missing."""


class TableVersions(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader needs to read a Delta table at a commit of the lake."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key
    id: UUID
    location: str
    latest_version: int
    published: int
    """Versions up to this one are read from the table's own log, none of those after it."""
    commits: tuple[TableVersion, ...]
    protocol: str
    """The line of the log that holds the table's protocol, as of the latest version."""
    metadata: str
    """The line of the log that holds the table's metadata, as of the latest version."""
    tip: str | None = None
    """Which version the last one is: the `end` that was asked for, or the latest. Another branch, or this one
    after it was set to another commit, may have another version of the same number; this text is of no
    other. It is to be kept as it is. Servers of before do not tell it."""
    fork: int | None = None
    """The last version that is the default branch's. Servers of before do not tell it."""
    goes_on: bool = True
    """Whether the version is still there that was asked for as `tip`."""

    def parse_declared(self) -> tuple[Protocol, Metadata]:
        """Protocol and metadata, parsed. ``UnsupportedFormat`` if they cannot be parsed."""
        from penstock.formats.delta.protocol.actions import Metadata, Protocol, parse_action

        protocol, metadata = parse_action(self.protocol.encode()), parse_action(self.metadata.encode())
        if not isinstance(protocol, Protocol) or not isinstance(metadata, Metadata):
            raise UnsupportedFormat(
                f"the lake's entry of '{self.key}' cannot be read: it may be of a newer Penstock"
            )
        return protocol, metadata


class PublishedTable(msgspec.Struct, frozen=True, kw_only=True):
    """How far a table is published."""

    key: Key
    latest_version: int
    published: int


class ReservedIdentities(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of an identity column that nobody else is given."""

    key: Key
    column: str
    last: int
    """The last of the numbers; those before it follow by the step of the column."""


class ReservedColumnIds(msgspec.Struct, frozen=True, kw_only=True):
    """Ids for new columns of a table that no column of it has, or gets, on any branch."""

    key: Key
    last: int
    """The last of the ids; the others are the numbers before it."""


class TableMade(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was created, adopted or released."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key
    id: UUID
    location: str
    version: int
    """The version that it was done with."""
    commit: str
    """The id of the lake's commit that did it."""
    repeated: bool = False
    """Whether the table was adopted already, so that nothing had to be done."""


class ConvertedFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of Parquet files that became a table, or would."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key
    location: str
    schema: str = ""
    """The table's columns, as Delta's metadata spells them."""
    partition_by: tuple[str, ...] = ()
    files: int = 0
    """How many files it has; those without rows are left out."""
    rows: int = 0
    size_bytes: int = 0
    commit: str = ""
    """The id of the lake's commit that did it."""
    dry_run: bool = False
    repeated: bool = False
    """Whether the same request did it before. Then nothing was read, and nothing is counted."""


class TableHandedOver(msgspec.Struct, frozen=True, kw_only=True):
    """One of many tables that were to be adopted or released, and what came of it."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key | None
    """What it is called in the lake; nothing if its path makes no key."""
    location: str
    outcome: str
    """`adopted` or `released`; `present`: the lake has it already, under this key; `refused`: it cannot be,
    and nothing was changed; `lost`: another writer's commit came first; `unfinished`: storage did not answer,
    and doing the same again finishes it. In a dry run `planned`, or `collides` for a key that is taken."""
    version: int
    """The version that it was done with; the newest one, if it was not done; -1 if it cannot be read."""
    features: tuple[str, ...] = ()
    """What the table's protocol asks of readers and writers."""
    problem: str = ""
    """Why it was not done."""


class HandedOver(msgspec.Struct, frozen=True, kw_only=True):
    """The result of adopting or releasing many tables."""

    tables: tuple[TableHandedOver, ...]
    """By location."""
    dry_run: bool = False


class RecoveredTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was taken back."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key
    location: str
    version: int
    """The version that it goes on from."""
    doubtful: tuple[str, ...] = ()
    """Files of commits after the published part: whether they were ratified cannot be known."""


class TableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the default branch, and how far it is published."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key
    location: str
    phase: str
    """`owned`; `adopting` or `released` while that is not finished."""
    latest_version: int
    published: int
    backlog: int
    """How many versions are ratified and not published; none of a table that another lake publishes."""
    oldest_s: float | None = None
    """How long the oldest of them waits."""
    alarm: str = ""
    """What stands against publishing."""
    owner: str = ""
    """The id of the lake that publishes the table, if it is another one: this one is a copy of it."""


class TablePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where in a lake a table is."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key
    location: str


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a table's log that is there now."""

    key: Key
    version: int
    """The newest version that it stands for."""
    name: str
    """Relative to the table's root; empty if there was nothing to write."""


class CleanedLog(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed from a table's log."""

    key: Key
    names: tuple[str, ...]
    """Relative to the table's root."""
    dry_run: bool = False
