"""Publishing: copies the ratified versions of a line to the table's log, for readers without the lake.

Any process that knows a line may publish it, at any time, repeatedly, and at the same time as others. Three
rules make that safe:

1. A version is written only when the one before it is in the log: written here, or found there with the
   bytes that were ratified.
2. It is written only where there is no file of its name. What is there is compared; nothing is overwritten.
3. The bytes of a ratified version never change.

By 1, the newest version in the log that has the right bytes tells that all before it were right when they
were published. So whoever does not know how far a log is published looks at one file. What is missing before
the first file of a log, or behind a checkpoint, was published once and cleaned up: it is not written again.
Where there is no such file, nothing tells that it is the table's log, but what the log itself says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from penstock.errors import OutcomeUnknown, Unavailable
from penstock.formats.delta.branch_log.branch_log import (
    BranchLogEntry,
    Read,
    decode_branch_log,
    is_named_after,
    read_commit_record,
)
from penstock.formats.delta.errors import ForeignCommit, InvalidLog
from penstock.formats.delta.protocol.names import (
    END_OF_VERSIONS,
    LOG,
    START_OF_VERSIONS,
    ClassicName,
    CommitName,
    PartName,
    UuidName,
    parse_name,
)
from penstock.formats.delta.publishing.prefetch_reader import read_ahead
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Place

BATCH_MAX: Final = 64
BATCH_MAX_BYTES: Final = 8 * 1024 * 1024
"""How much of a log is held in memory and handed to storage at a time."""
FRUITLESS_MAX: Final = 3
"""Rounds without progress, until storage is said to be in trouble."""

Progress = Callable[[int, int], None]
"""Told how far the log is published by now, and how many of those versions were written here."""
Check = Callable[[Place, DeltaTable], None]
"""Raises unless a log is the table's."""
Guard = Callable[[], None]
"""Called before every write where storage itself keeps nobody apart; raises if another may be writing."""


class LogListing(NamedTuple):
    """What a look at a log tells."""

    published: int
    """Versions up to this one are in it as they were ratified, or were and are cleaned up."""
    problem: ForeignCommit | None = None
    """The first file after that which is not what was ratified."""
    beyond: int = -1
    """The newest version of the log that is newer than all that the line has; -1 if there is none."""


def inspect_log(place: Place, content: DeltaTable, read: Read, check: Check) -> LogListing:
    """How far a table's log is published, by looking at it. Of versions that the line does not have, only
    ``beyond`` tells.

    ``check`` is asked where no version tells that the log is the table's. Raises what that does, and
    ``InvalidLog`` if bytes that are needed to compare are gone.
    """
    line = decode_branch_log(content)
    listed = _list_log(place, line.published, line.fork_version)
    if not listed.commits:
        # A line that somebody held on to for so long that the log begins behind it has nothing to publish.
        if listed.is_past and not _is_published(place, line.published):
            return LogListing(line.fork_version, beyond=listed.newest)
        if line.published >= 0 or not listed.is_empty:
            check(place, content)
        return LogListing(line.published, beyond=listed.newest)
    entries = [entry for entry in line.read_entries_after(line.published, read) if entry[0] in listed.commits]
    end = _end_of_run(listed.commits)
    sizes_fit = all(listed.commits[version] == entry.size for version, entry in entries)
    if sizes_fit and _find_foreign_version(place, content, entries[-1:], read) is None:
        return LogListing(end, beyond=listed.newest)
    other = _find_foreign_version(place, content, entries, read)
    if other is None:
        return LogListing(end, beyond=listed.newest)
    # The first file of a log tells that those before it were right only if it is right itself.
    is_first = other == entries[0][0]
    return LogListing(
        line.published if is_first else min(end, other - 1),
        foreign_commit_error(content, other),
        listed.newest,
    )


def find_newest_version_after(place: Place, version: int) -> int:
    """The newest version of a log that is newer than a given one; -1 if there is none. One request."""
    return _list_log(place, version, version).newest


def publish_versions(
    place: Place,
    content: DeltaTable,
    read: Read,
    start: int,
    goal: int,
    progress: Progress,
    guard: Guard | None = None,
) -> int:
    """Publish versions after ``start``, up to ``goal``; say how far the log is published then.

    ``guard`` is given where storage does not keep conditions. Raises ``ForeignCommit`` if a file in the log
    is not what was ratified, ``InvalidLog`` if bytes to be published are gone, ``Unavailable`` if storage
    does not answer. What was published before stays so.
    """
    line = decode_branch_log(content)
    at, fruitless = max(start, line.published), 0
    while at < (goal := min(goal, line.fork_version)):
        entries = islice(line.read_entries_after(at, read), goal - at)
        batch = _take_readable(read_ratified_commits(place, content, next(group_versions(entries)), read))
        items = [
            (str(CommitName(ratified_commit.version)), ratified_commit.data) for ratified_commit in batch
        ]
        written = 0
        try:
            written = place.create_all(items) if guard is None else _put_all(place, items, guard)
        except OutcomeUnknown as unknown:
            if fruitless + 1 >= FRUITLESS_MAX:
                raise Unavailable(str(unknown), location=place.url, part="storage") from None
        same_count = _count_same(place, content, batch[written:]) if written < len(items) else 0
        fruitless = 0 if written + same_count else fruitless + 1
        if fruitless >= FRUITLESS_MAX:
            raise Unavailable(f"{place.url} reports that {items[0][0]} exists, but cannot read it")
        at += written + same_count
        progress(at, written)
    return at


class RatifiedCommit(NamedTuple):
    """A version of a line with the bytes of its file."""

    version: int
    entry: BranchLogEntry
    data: bytes


def read_ratified_commits(
    place: Place, content: DeltaTable, entries: Sequence[tuple[int, BranchLogEntry]], read: Read
) -> Iterator[RatifiedCommit]:
    """The bytes of some versions, each whole; ``InvalidLog`` if they are gone, or not what was ratified."""
    read_ahead(entries, read)
    heads = [read_commit_record(entry, read).head for _, entry in entries]
    names = [
        entry.get_staged_path(version) if head is None else entry.body
        for (version, entry), head in zip(entries, heads, strict=True)
    ]
    files = place.read(name for name in names if name)
    for (version, entry), head, name in zip(entries, heads, names, strict=True):
        rest = next(files) if name else b""
        if rest is None and head is None and not entry.line:
            # A staged file may go once its version is published; then those bytes are the only ones.
            (rest,) = place.read([str(CommitName(version))])
            rest = rest if rest is not None and len(rest) == entry.size else None
        if rest is None:
            raise _invalid_log_error(content, version, name, "is gone")
        data = (head or b"") + rest
        if len(data) != entry.size:
            raise _invalid_log_error(content, version, name, f"has {len(data)} bytes instead of {entry.size}")
        if head is not None and entry.body and not is_named_after(version, entry, head, rest):
            raise _invalid_log_error(content, version, name, "differs from the bytes that were ratified")
        yield RatifiedCommit(version, entry, data)


def _take_readable(versions: Iterator[RatifiedCommit]) -> list[RatifiedCommit]:
    """Versions up to the first whose bytes are gone; that is raised if there are none."""
    ratified_commits: list[RatifiedCommit] = []
    try:
        ratified_commits.extend(versions)
    except InvalidLog:
        if not ratified_commits:
            raise
    return ratified_commits


def group_versions(
    entries: Iterable[tuple[int, BranchLogEntry]],
) -> Iterator[list[tuple[int, BranchLogEntry]]]:
    """Versions in a row, as many at a time as are held in memory."""
    batch: list[tuple[int, BranchLogEntry]] = []
    size = 0
    for version, entry in entries:
        if batch and (len(batch) == BATCH_MAX or size + entry.size > BATCH_MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((version, entry))
        size += entry.size
    if batch:
        yield batch


def _put_all(place: Place, items: Sequence[tuple[str, bytes]], guard: Guard) -> int:
    """As ``create_all``, where only the guard keeps others away: look, then write."""
    for count, (name, data) in enumerate(items):
        guard()
        if place.size(name) is not None:
            return count
        place.put(name, data)
    return len(items)


def _count_same(place: Place, content: DeltaTable, ratified_commits: Sequence[RatifiedCommit]) -> int:
    """How many of the next versions are in the log already, compared byte by byte."""
    contents = place.read(str(CommitName(ratified_commit.version)) for ratified_commit in ratified_commits)
    for count, (ratified_commit, data) in enumerate(zip(ratified_commits, contents, strict=True)):
        if data is None:
            return count
        if data != ratified_commit.data:
            raise foreign_commit_error(content, ratified_commit.version)
    return len(ratified_commits)


def _find_foreign_version(
    place: Place, content: DeltaTable, entries: Sequence[tuple[int, BranchLogEntry]], read: Read
) -> int | None:
    """The first of some published versions whose file is not what was ratified."""
    for some in group_versions(entries):
        try:
            _count_same(place, content, list(read_ratified_commits(place, content, some, read)))
        except ForeignCommit as problem:
            return int(problem.details["version"])
    return None


class _ListedVersions(NamedTuple):
    commits: dict[int, int]
    """Published versions, in order, with their sizes."""
    is_past: bool
    """Whether the log goes on after the last version that was asked for, and has a checkpoint there."""
    is_empty: bool
    """Whether there is nothing at all."""
    newest: int
    """The newest commit after the last version that was asked for; -1 if there is none."""


def _list_log(place: Place, after: int, last: int) -> _ListedVersions:
    """What a log has of versions after one, up to another."""
    start = str(CommitName(after)) if after >= 0 else START_OF_VERSIONS
    commits: dict[int, int] = {}
    newest, has_checkpoint = -1, False
    is_empty = True
    for entry in place.list(LOG, start, END_OF_VERSIONS):
        is_empty = False
        match parse_name(entry.key):
            case CommitName(version) if version <= last:
                commits[version] = entry.size
            case CommitName(version):
                newest = max(newest, version)
            case ClassicName(version) | PartName(version) | UuidName(version) if version >= last:
                has_checkpoint = has_checkpoint or entry.size > 0
    return _ListedVersions(commits, newest >= 0 and has_checkpoint, is_empty, newest)


def _is_published(place: Place, version: int) -> bool:
    return version >= 0 and place.size(str(CommitName(version))) is not None


def _end_of_run(versions: dict[int, int]) -> int:
    """The last version before a gap. There is none unless somebody deletes from the middle; that old versions
    are missing is no gap: they go when a checkpoint stands for them."""
    first = next(iter(versions))
    return next(version for version in range(first, first + len(versions) + 1) if version not in versions) - 1


def foreign_commit_error(content: DeltaTable, version: int) -> ForeignCommit:
    """The alarm: somebody who does not ask the owner writes to a managed table."""
    name = str(CommitName(version))
    return ForeignCommit(
        f"{content.location}/{name} is not the commit that was ratified as version {version} of the table: "
        "another program writes to its log directly, or the lake was restored from an older copy.\n  Leave "
        "the file where it is: its rows may exist nowhere else. 'penstock resync' imports the versions of "
        "the log, and reports what happens to versions that only the lake has. Nothing is overwritten.",
        location=content.location,
        id=str(content.id),
        version=version,
        name=name,
    )


def _invalid_log_error(content: DeltaTable, version: int, name: str, subject: str) -> InvalidLog:
    return InvalidLog(
        f"version {version} of the table at {content.location} cannot be published: {name}, which its "
        f"writer put there, {subject}.\n  Restore that file from a backup or from an older version of the "
        "object, and publish again.",
        location=content.location,
        id=str(content.id),
        version=version,
        name=name,
    )
