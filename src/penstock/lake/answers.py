"""Answers: the values that calls come back with, beside those of the model."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Final

import msgspec

from penstock.kernel.description import HistoryRule
from penstock.model.clock import to_utc_datetime
from penstock.model.commits import Commit
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.objects import LogEntry
from penstock.storage.moved_roots import MovedRoot

NAMES_MAX: Final = 100
"""How many removed files are named."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a lake."""

    location_fields: ClassVar[tuple[str, ...]] = ("warehouse", "roots")

    id: str
    """The lake's own id, which stays when it moves to another store."""
    url: str
    """Where it is, without secrets."""
    default_branch: str
    created: datetime
    warehouse: str = ""
    """The location in which tables are created by default."""
    roots: tuple[str, ...] = ()
    """All locations where tables may be, the warehouse first."""
    forked_from: str = ""
    """The id of the lake from which this one was forked; empty if it is not a fork."""
    moving_to: str = ""
    """The address to which the lake is moving or has moved, so that it is read-only here; otherwise empty."""
    history_rules: tuple[HistoryRule, ...] = ()
    """How much history is kept, by patterns of names. Of several that match, the last one holds."""
    grace_s: float = 86_400.0
    """How long objects stay that no reference leads to: a write that takes as long as half of it is lost."""
    data_grace_days: float = 7.0
    """How long data files stay that no commit names: a job commits within half of it, or not at all."""
    moved_roots: tuple[MovedRoot, ...] = ()
    """Roots whose files were moved, each with the place where they are now: addresses in the tables' own logs
    may still name the old one."""
    page_max: int | None = None
    """Behind a server: how many items a list gives at once."""
    settle_s: float | None = None
    """Behind a server: how long a request without an answer may still be carried out."""


class ResolvedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that a revision names."""

    commit: str
    """The id of the commit."""
    name: str | None = None
    """The reference that the revision starts from, if it names one."""


class CatalogEntry(msgspec.Struct, frozen=True):
    """A key and what it holds."""

    key: Key
    content: AnyContent


class Difference(msgspec.Struct, frozen=True):
    """A key that differs: what it held before and what it holds after, ``None`` for nothing."""

    key: Key
    before: AnyContent | None
    after: AnyContent | None

    @property
    def sign(self) -> str:
        """``+`` added, ``-`` removed, ``~`` changed."""
        return "+" if self.before is None else "-" if self.after is None else "~"

    @property
    def type(self) -> str:
        content = self.after if self.after is not None else self.before
        assert content is not None
        return content.type

    def __repr__(self) -> str:
        return f"<{self.sign} {self.key} {self.type}>"


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a reference's log: one change of the reference."""

    position: int
    time: datetime
    event: str
    name: str
    before: str
    after: str
    who: str
    requests: int
    """How many requests were applied by this change."""

    @classmethod
    def from_entry(cls, entry: LogEntry) -> LogLine:
        return cls(
            position=entry.position,
            time=to_utc_datetime(entry.time_us),
            event=entry.kind,
            name=entry.name,
            before=entry.before.hex(),
            after=entry.after.hex(),
            who=entry.who,
            requests=sum(1 for landed in entry.landed if landed.count),
        )


class LogSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search of a log, as far as it has read."""

    commits: tuple[Commit, ...]
    """The matching commits, newest first."""
    searched: int
    """How many commits were read."""
    reached: str | None = None
    """The last commit that was read: continue after it. Null if the log ends there."""
    reached_time: datetime | None = None
    """When that commit was made."""


class DayCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many commits were made on one day."""

    day: str
    """In UTC, as in `2026-11-01`."""
    commits: int


class RequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes of requests to change one branch, since the server was started."""

    branch: str
    total: int = 0
    conflicts: int = 0
    other_errors: int = 0

    @property
    def conflict_share(self) -> float:
        """Of all requests."""
        return self.conflicts / self.total if self.total else 0.0


class PublishingLag(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the default branch whose latest versions are not in its own log or folder yet."""

    key: Key
    latest_version: int
    published: int
    backlog: int
    """How many versions wait."""
    oldest_s: float | None = None
    """How long the oldest of them waits."""
    alarm: str = ""
    """Why it is not published."""


class VersionSize(msgspec.Struct, frozen=True, kw_only=True):
    """How large a table was at a version; of a table of files, after a commit."""

    version: int | None = None
    """Nothing for a table of files, which has no versions."""
    commit: str = ""
    """Of a table of files: the id of the commit."""
    time: datetime | None = None
    size_bytes: int


class SizeCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many files of a table are of a size."""

    below_bytes: int | None = None
    """The upper bound of their size; the lower bound is that of the count before. Null for the largest."""
    files: int


class TableFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How large a table is, and how it grew."""

    key: Key
    files: int = 0
    size_bytes: int = 0
    are_all: bool = True
    """Whether all files were counted."""
    sizes: tuple[SizeCount, ...] = ()
    """Files by size, the smallest first."""
    growth: tuple[VersionSize, ...] = ()
    """The latest versions whose sizes are known, or commits of a table of files; the oldest first."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a lake: those that were requested."""

    commits: tuple[DayCount, ...] = ()
    """By day, the oldest first, without gaps: of the last 500 commits, and of 60 days at most."""
    requests: tuple[RequestCounts, ...] | None = None
    """By branch, those with the most requests first; empty if no server counts them."""
    publishing: tuple[PublishingLag, ...] = ()
    """Tables with versions that are not published to their log yet, or cannot be, among
    `published_tables`."""
    published_tables: int = 0
    """How many tables are published, those that wait included; 1,000 at most."""
    table: TableFigures | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How one revision is related to another."""

    base: str
    """Their common ancestor; the empty lake's id if there is no other."""
    ahead: int
    """How many commits only the first one has."""
    behind: int
    """How many commits only the second one has."""


class LandedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a request: its commits, oldest first, and the head after them."""

    commits: tuple[str, ...]
    head: str
    commit: Commit | None = None
    """The commit at the head, if the caller may read all of it; null if there is none, or it has expired."""


class SweptTable(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found among the files of a Delta or Lance table, and did."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key
    location: str
    data_files: int
    """Data files that no kept commit names: removed, or to be removed (see `data_removed`)."""
    data_bytes: int
    scratch_files: int
    """Files beside the log, and staged commits or manifests, that nothing needs: removed, unless it was a dry
    run."""
    scratch_bytes: int
    waiting: int
    """Data files that no commit names, but too young to be removed."""
    kept: int
    """Data files that are needed."""
    forked: int = 0
    """Files that stay because a fork of the lake may need them."""
    names: tuple[str, ...] = ()
    """The first hundred of the data files that were removed, or would be, below the table's root."""
    problem: str = ""
    """Why the removal of this table's files stopped, if it did."""
    data_removed: bool = False
    """Whether data files were removed and not only counted."""
    dry_run: bool = False
    """Whether nothing was removed."""


class ErasedTable(msgspec.Struct, frozen=True, kw_only=True):
    """What an erase of a table found and did."""

    key: Key
    id: str
    """Of the table."""
    first_version: int
    """The first version that exists from now on, of a table of files how often it was erased; -1 in a dry
    run, and of a table that was dropped."""
    begun: datetime
    """When the erase began, which may have been in an earlier run."""
    older_than: datetime | None = None
    """History from this time on stays; without `older_than`, the time at which the erase began."""
    who: str = ""
    finished: bool = False
    """Whether everything that was to be erased is gone, as far as the lake knows."""
    until: datetime | None = None
    """If it is not finished: when the next run can remove the rest."""
    rewritten_files: int = 0
    """Data files that held deleted rows beside others and were rewritten, by all runs of the erase."""
    log_files: int = 0
    """Files of the table's log that all runs of the erase removed, or that this one would remove."""
    data_files: int = 0
    """Data files that all runs of the erase removed, or that this one would remove."""
    data_bytes: int = 0
    objects: int = 0
    """Objects of the lake's database that all runs removed: of this table, and other expired ones."""
    left: tuple[str, ...] = ()
    """What still holds rows, or may hold some, and what to do about it: one sentence each."""
    dry_run: bool = False
    """Whether nothing was changed."""


def join_swept(swept: Sequence[SweptFiles]) -> SweptFiles:
    """What sweeps of several formats found and did, as one."""
    first, *others = swept
    for other_swept in others:
        counts = {
            field: getattr(first, field) + getattr(other_swept, field)
            for field in first.__struct_fields__
            if type(getattr(first, field)) is int
        }
        first = msgspec.structs.replace(
            first,
            names=(*first.names, *other_swept.names)[:NAMES_MAX],
            problem="\n".join(filter(None, (first.problem, other_swept.problem))),
            **counts,
        )
    return first


class SweptFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found among the files of tables of files, and the jobs that write them, and did."""

    data_files: int = 0
    """Files that no kept commit names: removed, or to be removed (see `data_removed`)."""
    data_bytes: int = 0
    waiting: int = 0
    """Files that no commit names, but too young to be removed, or of a job that may yet commit."""
    kept: int = 0
    """Files that are needed, among those that were checked; recently written ones are not."""
    forked: int = 0
    """Files that stay because a fork of the lake may need them."""
    missing: int = 0
    """Files that commits reference, but that do not exist. If one is missing, nothing more is removed."""
    names: tuple[str, ...] = ()
    """The first hundred of the files that were removed, or would be, below the lake's pool."""
    jobs_settled: int = 0
    """Jobs whose process ended during their commit, and whose outcome was now read from the branch."""
    jobs_forgotten: int = 0
    """Jobs that ended long ago."""
    branches: int = 0
    """Branches of ended jobs that were dropped."""
    problem: str = ""
    """Why the removal stopped, if it did."""
    data_removed: bool = False
    """Whether files were removed and not only counted."""
    dry_run: bool = False
    """Whether nothing was removed or noted."""


class CommittedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A version that a table got."""

    key: Key
    version: int
    name: str
    """The file that contains it, relative to the table's root; empty while only the lake has it."""
    timestamp_ms: int
    """When it was committed; 0 for an earlier commit whose time is no longer known."""
    repeated: bool = False
    """Whether the table had it already: this attempt, or this batch of an application, was committed
    before."""


class TableCommitResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a commit to Delta tables."""

    commit: Commit
    """The lake's commit that contains all of them."""
    tables: tuple[CommittedTable, ...]
    """In the order of the request."""

    @property
    def version(self) -> int:
        """Of the only table."""
        (only,) = self.tables
        return only.version
