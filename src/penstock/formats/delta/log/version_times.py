"""When the versions of a table were made, and which one was the newest at a time.

A version's time is the one in its commit, from the version on where the table keeps it there. Before that it
is the time of its file, pushed on by a millisecond wherever it is not later than that of the version before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple, NoReturn

from penstock.formats.delta.errors import InvalidLog, MalformedAction, TableNotFound, VersionNotFound
from penstock.formats.delta.log.log_files import TableFiles
from penstock.formats.delta.log.segments import find_versions
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import CommitInfo, parse_commit
from penstock.formats.delta.protocol.lint import ENABLED_TIMESTAMP, ENABLED_VERSION
from penstock.formats.delta.protocol.names import CommitName, parse_name


def version_at(
    files: TableFiles, tip: LogSnapshot, timestamp_ms: int, ratified: Mapping[int, int] | None = None
) -> int:
    """The newest version that was not made after a time; ``tip`` is the newest one of all.

    Times of versions that are not published yet are given with ``ratified``. ``VersionNotFound`` for a time
    before the first version that can still be read, or after the tip: it names the times of both.
    """
    times = _VersionTimes(files, tip, ratified or {})
    first, last = times.first, tip.version
    if not times.get_time(first) <= timestamp_ms <= times.get_time(last):
        _raise_no_version_error(
            tip.table, timestamp_ms, (first, times.get_time(first)), (last, times.get_time(last))
        )
    if times.start is not None and timestamp_ms >= times.start.timestamp_ms:
        versions = range(max(times.start.version, first), last + 1)
    else:
        versions = range(first, last + 1 if times.start is None else times.start.version)
    return versions[bisect_right(versions, timestamp_ms, key=times.get_time) - 1]


class _TimestampStart(NamedTuple):
    """Where times in commits begin."""

    version: int
    timestamp_ms: int


class _VersionTimes:
    def __init__(self, files: TableFiles, tip: LogSnapshot, ratified: Mapping[int, int]) -> None:
        self._files, self._tip = files, tip
        self._known = dict(ratified)
        self.start = _find_start(tip)
        listed = list(files.list_files(""))
        self._files_ms = {
            name.version: log_file.modified_us // 1000
            for log_file in listed
            if isinstance(name := parse_name(log_file.name), CommitName)
        }
        try:
            first = find_versions(tip.table, listed).start
        except TableNotFound:
            first = 0  # nothing is published yet
        # A checkpoint may outlive its commit, and with it the time; the next version has one.
        timed = (*self._files_ms, *ratified)
        self.first = min((version for version in timed if version >= first), default=tip.version)
        self._extend_times()

    def get_time(self, version: int) -> int:
        if version not in self._known:
            self._known[version] = self._read_in_commit_timestamp(version)
        return self._known[version]

    def _extend_times(self) -> None:
        """Learn the times of all versions before times in commits begin."""
        end = self._tip.version + 1 if self.start is None else self.start.version
        before = -1
        for version in sorted(self._files_ms):
            if self.first <= version < end:
                before = self._known[version] = max(self._files_ms[version], before + 1)

    def _read_in_commit_timestamp(self, version: int) -> int:
        name = str(CommitName(version))
        if version == self._tip.version and self._tip.in_commit_timestamp is not None:
            return self._tip.in_commit_timestamp
        (data,) = self._files.read_files([name])
        try:
            infos = (line.action for line in parse_commit(data or b"") if isinstance(line.action, CommitInfo))
            timestamp = next((info.in_commit_timestamp for info in infos), None)
        except MalformedAction as problem:
            _missing_timestamp_error(self._tip.table, name, str(problem))
        if timestamp is None:
            _missing_timestamp_error(
                self._tip.table, name, "it is not there" if data is None else "it has none"
            )
        return timestamp


def _find_start(tip: LogSnapshot) -> _TimestampStart | None:
    if not tip.has_in_commit_timestamps:
        return None
    version, timestamp = (tip.properties.get(name) for name in (ENABLED_VERSION, ENABLED_TIMESTAMP))
    if version is None or timestamp is None:
        return _TimestampStart(0, 0)
    try:
        return _TimestampStart(int(version), int(timestamp))
    except ValueError:
        raise InvalidLog(
            f"the properties {ENABLED_VERSION} and {ENABLED_TIMESTAMP} of {tip.table} are not numbers",
            table=tip.table,
            version=tip.version,
        ) from None


def _raise_no_version_error(
    table: str, wanted_ms: int, first: tuple[int, int], last: tuple[int, int]
) -> NoReturn:
    side = "before" if wanted_ms < first[1] else "after"
    named = "the first version that can be read" if side == "before" else "the latest version"
    raise VersionNotFound(
        f"{table} has no version at {_format_time(wanted_ms)}: that is {side} {named}\n"
        f"  There are versions from {_format_time(first[1])} (version {first[0]}) to {_format_time(last[1])} "
        f"(version {last[0]}).",
        table=table,
        earliest=first[0],
        earliest_ms=first[1],
        latest=last[0],
        latest_ms=last[1],
    )


def _missing_timestamp_error(table: str, name: str, problem: str) -> NoReturn:
    raise InvalidLog(
        f"{name} of the table {table} has no timestamp, which every version of this table must have: "
        f"{problem}",
        table=table,
        file=name,
    )


def _format_time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
