"""Figures of a lake, put together by other calls: who asks learns only what these calls tell them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from penstock.errors import NotManaged
from penstock.formats.plugin import DescribedTable, FileFacts, PastTableSize, VersionFacts
from penstock.formats.registry import load_member
from penstock.lake.answers import (
    DayCount,
    Figures,
    PublishingLag,
    RequestCounts,
    SizeCount,
    TableFigures,
    VersionSize,
)
from penstock.lake.call import PAGE_MAX
from penstock.lake.catalogue import Catalogue
from penstock.lake.plugins import find_plugin
from penstock.lake.read_calls import CountRequests, FigureKind, GetFigures, ListCommits
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table

COMMITS_COUNTED: Final = 500
"""Commits of the days that are counted."""
DAYS_MAX: Final = 60
VERSIONS_MAX: Final = 30
FILES_COUNTED_MAX: Final = 100_000
"""Of a table with more files, only so many are counted."""
SIZE_BOUNDS: Final = (64 * 1024, 1024**2, 16 * 1024**2, 128 * 1024**2, 1024**3)
"""Sizes of files that are counted together: those below each of these, and those above."""

ReadRequests = Callable[[], "tuple[RequestCounts, ...] | None"]
OpenLake = Callable[[Catalogue], "Lake"]


def gather_figures(
    catalogue: Catalogue, call: GetFigures, open_lake: OpenLake, read_requests: ReadRequests | None = None
) -> Figures:
    """The figures that a call asks for. ``read_requests`` tells what requests came to, if not the lake.

    ``open_lake`` makes a lake over the calls, through which a table is read.
    """
    call.check_sendable()
    days: tuple[DayCount, ...] = ()
    if call.includes_kind(FigureKind.COMMITS):
        commits = catalogue.do(ListCommits(ref=call.ref, via=call.via, limit=COMMITS_COUNTED))
        days = count_days([commit.time for commit in commits], is_cut=len(commits) == COMMITS_COUNTED)
    requests: tuple[RequestCounts, ...] | None = None
    if call.includes_kind(FigureKind.REQUESTS):
        requests = read_requests() if read_requests is not None else catalogue.do(CountRequests())
    waiting: tuple[PublishingLag, ...] = ()
    published = 0
    if call.includes_kind(FigureKind.PUBLISHING):
        statuses = catalogue.do(load_member("lake.publishing")(limit=PAGE_MAX))
        published = len(statuses)
        waiting = tuple(
            PublishingLag(
                key=status.key,
                latest_version=status.latest_version,
                published=status.published,
                backlog=status.backlog,
                oldest_s=status.oldest_s,
                alarm=status.alarm,
            )
            for status in statuses
            if status.backlog or status.alarm
        )
    table = call.table if call.includes_kind(FigureKind.SIZES) else None
    return Figures(
        commits=days,
        requests=requests,
        publishing=waiting,
        published_tables=published,
        table=None if table is None else _measure_table(open_lake(catalogue), call, table),
    )


def count_days(times: Sequence[datetime], *, is_cut: bool) -> tuple[DayCount, ...]:
    """How many things happened on each of the last days. The first day of a list that is cut is left out."""
    counts = Counter(time.date() for time in times)
    if is_cut and len(counts) > 1:
        del counts[min(counts)]
    if not counts:
        return ()
    last = max(counts)
    first = max(min(counts), last - timedelta(days=DAYS_MAX - 1))
    days = (first + timedelta(days=number) for number in range((last - first).days + 1))
    return tuple(DayCount(day=day.isoformat(), commits=counts[day]) for day in days)


def _measure_table(lake: Lake, call: GetFigures, key: Key) -> TableFigures:
    ref = call.ref if call.via is None else f"{call.via}@{call.ref}"
    return measure_table(lake.at(ref or lake.default_branch).outside_read_set.table(key))


def measure_table(table: Table) -> TableFigures:
    """How large a table is where it is looked at, and was at its latest versions."""
    described = describe_managed_table(table)
    counter = SizeCounter()
    are_all = all(counter.count_file(file) for file in described.list_files())
    versions, sizes = described.list_versions(VERSIONS_MAX), described.list_sizes(VERSIONS_MAX)
    return counter.make_figures(table.key, versions, sizes, are_all=are_all)


def describe_managed_table(table: Table) -> DescribedTable:
    """What the format of a table says of it; ``NotManaged`` if the lake only points at the table."""
    plugin = find_plugin(table.content)
    if plugin is None:
        raise NotManaged(f"the lake does not manage the files of '{table.key}'", key=str(table.key))
    return plugin.describe_table(table)


class SizeCounter:
    """Counts the files of a table by size."""

    def __init__(self) -> None:
        self.files = self.size_bytes = 0
        self._counts = [0] * (len(SIZE_BOUNDS) + 1)

    def count_file(self, file: FileFacts) -> bool:
        """Count a file; ``False`` if so many were counted that it is left out."""
        if self.files == FILES_COUNTED_MAX:
            return False
        self.files += 1
        if file.size_bytes is not None:
            self.size_bytes += file.size_bytes
            self._counts[sum(file.size_bytes >= bound for bound in SIZE_BOUNDS)] += 1
        return True

    def make_figures(
        self, key: Key, versions: Iterable[VersionFacts], sizes: Iterable[PastTableSize], *, are_all: bool
    ) -> TableFigures:
        """What was counted, with the sizes of the past, of which the newest comes first."""
        times = {version.version: version.time for version in versions}
        growth = [
            VersionSize(
                version=past.version,
                commit=past.commit,
                time=past.time if past.version is None else times.get(past.version),
                size_bytes=past.size_bytes,
            )
            for past in sizes
        ]
        return TableFigures(
            key=key,
            files=self.files,
            size_bytes=self.size_bytes,
            are_all=are_all,
            sizes=tuple(
                SizeCount(below_bytes=bound, files=count)
                for bound, count in zip((*SIZE_BOUNDS, None), self._counts, strict=True)
            ),
            growth=tuple(reversed(growth)),
        )
