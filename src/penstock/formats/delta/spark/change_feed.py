"""The change data feed: which rows the versions of a table inserted, deleted and updated.

A version that wrote its changes down has them in files of their own. The changes of any other follow from the
files that it added and removed; where only the deletion vector of a file is another, from the difference of
the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import InvalidLog, MalformedAction, VersionNotFound
from penstock.formats.delta.lake.answers import TableVersions
from penstock.formats.delta.lake.file_columns import FileColumns
from penstock.formats.delta.lake.snapshot import list_commit_files
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    Metadata,
    Remove,
    decode_path,
    parse_commit,
)
from penstock.formats.delta.protocol.change_feed import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from penstock.formats.delta.protocol.durations import TOMBSTONE_RETENTION, duration_ms
from penstock.formats.delta.protocol.properties import CHANGE_DATA_FEED, is_on
from penstock.formats.delta.rows.deletion_words import NONE, BitmapWords, read_deletion_vectors
from penstock.formats.delta.rows.file_addresses import name_inside, open_table_place
from penstock.formats.delta.spark.scan import scans
from penstock.formats.delta.spark.scan.older_schemas import explain_unreadable
from penstock.formats.delta.spark.scan.scans import FilePiece
from penstock.formats.rows.schema import Field
from penstock.lake.table import Table
from penstock.model.clock import now_us, to_utc_datetime
from penstock.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_TYPE: Final = Field(name=CHANGE_TYPE, type="string", nullable=True)
_ORIGIN: Final = (
    Field(name=COMMIT_VERSION, type="long", nullable=True),
    Field(name=COMMIT_TIMESTAMP, type="timestamp", nullable=True),
)
_LOOKED_AT_ONCE: Final = 500

Group: TypeAlias = tuple[bool, frozenset[str]]
"""Whether files hold ``CHANGE_TYPE``, and which columns they do not hold, by their names there."""


def read_changes(spark: SparkSession, table: Table, first: int, last: int | None) -> DataFrame:
    """The changes of a table from one version to another, both included; to the latest if none is named."""
    log = table.get_commits()
    versions = _requested_versions(log, first, last)
    metadata = table.snapshot(versions[-1]).metadata
    place = open_table_place(table.lake.places, log.location, metadata.configuration)
    feed = _ChangeFeedReader(table, log, place, metadata)
    groups: dict[Group, list[FilePiece]] = {}
    for piece in feed.list_pieces(versions):
        held = piece.file.partition_values or {}
        groups.setdefault((isinstance(piece.file, Cdc), frozenset(held)), []).append(piece)
    parts = [
        scans.read_pieces(
            spark,
            feed.place,
            FileColumns(metadata, partition_by),
            pieces,
            beside=(_TYPE,) if has_type else (),
            constants=_ORIGIN if has_type else (_TYPE, *_ORIGIN),
        )
        for (has_type, partition_by), pieces in (groups or {(False, frozenset[str]()): []}).items()
    ]
    return reduce(lambda one, other: one.union(other), parts)


class _FeedCommit(msgspec.Struct, frozen=True):
    """What a version of a table did."""

    version: int
    timestamp_ms: int
    actions: tuple[Action, ...]

    @property
    def origin(self) -> tuple[str, str]:
        """As the log would spell it, were it the value of a partition."""
        return str(self.version), to_utc_datetime(self.timestamp_ms * 1000).strftime("%Y-%m-%d %H:%M:%S.%f")


class _ChangeFeedReader:
    """Reads the changes of versions of a table: which rows of which files each added or removed."""

    def __init__(self, table: Table, log: TableVersions, place: Place, shown: Metadata) -> None:
        self._table, self._log, self.place = table, log, place
        self._shown = shown
        """Its columns are those of all rows."""

    def list_pieces(self, versions: range) -> Iterator[FilePiece]:
        metadata = self._table.snapshot(versions[0]).metadata
        for commit in self._read_commits(versions):
            stated = [action for action in commit.actions if isinstance(action, Metadata)]
            metadata = stated[-1] if stated else metadata
            self._check_recorded(metadata, commit.version)
            if stated and commit.version == versions[0]:
                self._check_removed(commit)
            self._check_columns(metadata, commit.version, versions[-1])
            pieces = list(self._list_commit_pieces(commit))
            self._check_there(metadata, commit, pieces)
            yield from pieces

    def _read_commits(self, versions: range) -> Iterator[_FeedCommit]:
        for commit_file in list_commit_files(self._log, self.place, versions):
            if commit_file.data is None:
                raise VersionNotFound(
                    f"the commit of version {commit_file.version} of '{self._log.key}' was removed by log "
                    "cleanup, so its changes are no longer known\n  Read the changes from a later "
                    "version on.",
                    table=self.place.url,
                    version=commit_file.version,
                )
            try:
                actions = tuple(line.action for line in parse_commit(commit_file.data))
            except MalformedAction as problem:
                raise InvalidLog(
                    f"the commit {commit_file.name} in the log of the table {self.place.url} cannot be "
                    f"parsed: {problem}",
                    table=self.place.url,
                    file=commit_file.name,
                ) from None
            yield _FeedCommit(commit_file.version, self._time_ms(commit_file.name, actions), actions)

    def _time_ms(self, name: str, actions: Sequence[Action]) -> int:
        """When a version was made: by its own word, or in old versions by the time of its file."""
        infos = (action for action in actions if isinstance(action, CommitInfo))
        noted = next((info.in_commit_timestamp for info in infos), None)
        if noted is not None:
            return noted
        entry = self.place.look(name)
        return 0 if entry is None else entry.modified_us // 1000

    def _list_commit_pieces(self, commit: _FeedCommit) -> Iterator[FilePiece]:
        written = [action for action in commit.actions if isinstance(action, Cdc)]
        if written:
            yield from (FilePiece(file, commit.origin) for file in written)
            return
        adds = [action for action in commit.actions if isinstance(action, Add) and action.data_change]
        before = {
            decode_path(removed_file.path): (removed_file, gone)
            for removed_file, gone in read_deletion_vectors(self.place, self._removed_files(commit))
        }
        for file, gone in read_deletion_vectors(self.place, adds):
            earlier_file = before.pop(decode_path(file.path), None)
            if earlier_file is None:
                # All rows of the file that are in the table.
                yield FilePiece(file, ("insert", *commit.origin), gone, is_inverse=True)
            else:
                yield from _rows_between_vectors(file, earlier_file[1] or NONE, gone or NONE, commit)
        for removed_only, gone in before.values():
            yield FilePiece(removed_only, ("delete", *commit.origin), gone, is_inverse=True)

    def _removed_files(self, commit: _FeedCommit) -> Iterator[Remove]:
        """The files that a version removed, with partition values and sizes."""
        removes = [action for action in commit.actions if isinstance(action, Remove) and action.data_change]
        if all(remove.partition_values is not None and remove.size is not None for remove in removes):
            yield from removes
            return
        # Some writers only say which files. The version before knows the rest.
        keys = {remove.key for remove in removes}
        before = {
            remove.key: remove
            for remove in self._table.snapshot(commit.version - 1).files()
            if remove.key in keys
        }
        for remove in removes:
            file = before.get(remove.key)
            if file is None:
                raise InvalidLog(
                    f"version {commit.version} of the table {self.place.url} removes {remove.path}, which is "
                    "not a file of the version before",
                    table=self.place.url,
                    version=commit.version,
                    file=remove.path,
                )
            details = {
                "partition_values": file.partition_values,
                "size": file.size,
                "stats": file.stats,
            }
            yield msgspec.structs.replace(remove, **details)

    def _check_recorded(self, metadata: Metadata, version: int) -> None:
        if not is_on(metadata.configuration, CHANGE_DATA_FEED):
            raise InvalidRequest(
                f"'{self._log.key}' did not record its changes at version {version}: its property "
                f"{CHANGE_DATA_FEED} was not 'true' there\n  Read only versions at which it was 'true'.",
                key=str(self._log.key),
                version=version,
            )

    def _check_columns(self, metadata: Metadata, version: int, last: int) -> None:
        """``InvalidRequest`` if rows of a version would not be what they were with the columns shown."""
        problem = explain_unreadable(metadata, self._shown)
        if problem is None:
            return
        stated = (
            commit.version
            for commit in self._read_commits(range(version + 1, last + 1))
            if any(
                isinstance(action, Metadata) and explain_unreadable(metadata, action)
                for action in commit.actions
            )
        )
        up_to = next(stated) - 1
        raise InvalidRequest(
            f"the rows of version {version} of '{self._log.key}' cannot be shown with the columns of "
            f"version {last}: {problem}\n  Read the changes up to version {up_to}.",
            key=str(self._log.key),
            version=version,
            up_to=up_to,
        )

    def _check_removed(self, commit: _FeedCommit) -> None:
        """The same for what the first version removed. It was written with the columns of the one before."""
        if not any(isinstance(action, Remove) and action.data_change for action in commit.actions):
            return
        before = commit.version - 1
        problem = explain_unreadable(self._table.snapshot(before).metadata, self._shown)
        if problem is not None:
            raise InvalidRequest(
                f"version {commit.version} of '{self._log.key}' removed rows that cannot be shown with the "
                f"columns of the last requested version: {problem}\n  Read the table at version {before}, "
                f"and the changes from version {commit.version + 1} on.",
                key=str(self._log.key),
                version=commit.version,
            )

    def _check_there(self, metadata: Metadata, commit: _FeedCommit, pieces: Sequence[FilePiece]) -> None:
        """``VersionNotFound`` if files of a version are gone. They may be, once nobody has to keep them."""
        kept_ms = duration_ms(metadata.configuration, TOMBSTONE_RETENTION)
        if kept_ms is None or commit.timestamp_ms > now_us() // 1000 - kept_ms:
            return
        names = [name_inside(piece.file.path, self.place) for piece in pieces]
        for start in range(0, len(names), _LOOKED_AT_ONCE):
            some = names[start : start + _LOOKED_AT_ONCE]
            gone = [name for name, size in zip(some, self.place.sizes(some), strict=True) if size is None]
            if gone:
                raise VersionNotFound(
                    f"the changes of version {commit.version} of '{self._log.key}' can no longer be read: "
                    f"{gone[0]} was removed from {self.place.url}\n  Read the changes from a later version "
                    "on.",
                    table=self.place.url,
                    version=commit.version,
                )


def _rows_between_vectors(
    file: Add, old: BitmapWords, new: BitmapWords, commit: _FeedCommit
) -> Iterator[FilePiece]:
    """The rows of a file that only one of its two deletion vectors names."""
    for change, picked in (("delete", new.subtract_rows(old)), ("insert", old.subtract_rows(new))):
        if picked.rows:
            yield FilePiece(file, (change, *commit.origin), picked)


def _requested_versions(log: TableVersions, first: int, last: int | None) -> range:
    """The versions asked for. ``VersionNotFound`` if the table has not all of them."""
    end = log.latest_version if last is None else last
    for version in (first, end):
        if not 0 <= version <= log.latest_version:
            raise VersionNotFound(
                f"'{log.key}' has no version {version}: the newest one is {log.latest_version}",
                table=log.location,
                version=version,
            )
    if first > end:
        raise InvalidRequest(f"invalid range of versions: {first} is later than {end}")
    return range(first, end + 1)
