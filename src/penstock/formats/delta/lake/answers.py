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
    """Identifies the last version (the `end` of the request, or the latest) across branches, where versions
    of the same number differ. An opaque text, to be passed on unchanged. Older servers do not give it."""
    fork: int | None = None
    """The last version that the default branch has as well. Older servers do not give it."""
    goes_on: bool = True
    """Whether the version given as `tip` is still on the branch."""

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
    """Reserved numbers of an identity column."""

    key: Key
    column: str
    last: int
    """The last of the numbers; those before it follow by the step of the column."""


class ReservedColumnIds(msgspec.Struct, frozen=True, kw_only=True):
    """Reserved ids for new columns of a table: no other column on any branch has or gets them."""

    key: Key
    last: int
    """The last of the reserved ids; the others are the numbers before it."""


class OwnershipResult(msgspec.Struct, frozen=True, kw_only=True):
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
    """The result for one of many tables that are adopted or released."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key | None
    """Its key in the lake; null if its path is not a valid key."""
    location: str
    outcome: str
    """`adopted` or `released`; `present`: the lake has it already, under this key; `refused`: it cannot be,
    and nothing was changed; `lost`: another writer's commit came first; `unfinished`: storage did not answer,
    and doing the same again finishes it. In a dry run `planned`, or `collides` for a key that is taken."""
    version: int
    """The version that it was done with; the newest one, if it was not done; -1 if it cannot be read."""
    features: tuple[str, ...] = ()
    """The features that the table's protocol requires of readers and writers."""
    problem: str = ""
    """Why it was not done."""


class BulkOwnershipResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of adopting or releasing many tables."""

    tables: tuple[TableHandedOver, ...]
    """By location."""
    dry_run: bool = False


class RecoveredTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was recovered."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key
    location: str
    version: int
    """The version from which it continues."""
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
    """How many versions are ratified and not published; 0 for a table that another lake publishes."""
    oldest_s: float | None = None
    """How long the oldest of them waits."""
    alarm: str = ""
    """Why it is not published."""
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
    """The newest version that it covers."""
    name: str
    """Relative to the table's root; empty if there was nothing to write."""


class CleanedLog(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed from a table's log."""

    key: Key
    names: tuple[str, ...]
    """Relative to the table's root."""
    dry_run: bool = False
