"""Rewriting files of a Delta table with the same rows: fewer files, in an order, or complete.

Small files of a partition are put together up to a target size, deleted rows are left out, and rows may be
sorted along a Z-order curve of some columns. Every commit says that no row changed (``dataChange`` false): it
is no conflict for appends, and streams and the change data feed pass over it. A file that somebody else
changed meanwhile is taken again as it has become.

The work is cut into commits, so that a run that dies has done what it committed, and the next goes on.
Which files are rewritten, and what is committed, is decided here for every engine. How rows are read and
written is the engine's part: Arrow in this process (``bin_rewrites``), or Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heapreplace
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from penstock.errors import InvalidRequest, TableConflict
from penstock.formats.delta.lake.row_rewrite import make_removes
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.log.scan import read_rows_of_files
from penstock.formats.delta.protocol.actions import Action, Add
from penstock.formats.delta.protocol.clustering import find_columns, find_columns_without_statistics
from penstock.formats.delta.protocol.column_mapping import stored_name
from penstock.formats.delta.protocol.partition_conditions import check_condition
from penstock.formats.delta.rows.file_writer import TARGET_FILE_BYTES, check_features
from penstock.formats.delta.rows.pruning import read_stats
from penstock.formats.delta.rows.stats import Statistics, indexed_leaves
from penstock.lake.call import CommitDescription
from penstock.lake.upkeep import AnalyzedTable, OptimizedTable, OptimizeOrder

if TYPE_CHECKING:
    from penstock.lake.table import Table

TARGET_SIZE: Final = "delta.targetFileSize"
AUTO_FILES_MIN: Final = 50
"""How many files a partition has to have for a writer to rewrite them by itself."""
SMALL: Final = 0.75
"""A file below this share of the target size is put together with others."""
TRIES_MAX: Final = 5
CUTS_MAX: Final = 4
"""How often a batch that others were faster than is cut to a fourth of its files."""
ANALYZED_MAX: Final = 1000
"""Of how many files statistics are completed by one commit."""
PROVIDER: Final = "liquid"
"""How other engines note that a file is clustered by the table's columns."""

_SIZE: Final = re.compile(r"([0-9]{1,18})\s*(b|kb?|mb?|gb?|)", re.IGNORECASE)
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class FileBin(NamedTuple):
    """Files of one partition that become others together."""

    files: tuple[Add, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class FileLayout(NamedTuple):
    """What files are to become."""

    target_bytes: int
    sorted_by: tuple[tuple[str, ...], ...] = ()
    """The columns of the curve that rows are sorted along, as paths of names; none if they stay in order."""

    def count_files(self, each: FileBin) -> int:
        """How many files a bin becomes."""
        return max(1, -(-each.size // self.target_bytes)) if self.sorted_by else 1


class RewriteEngine(NamedTuple):
    """What rewrites files, and how much of it at once."""

    rewrite: Callable[[DeltaJob, Sequence[FileBin], FileLayout], list[Add]]
    """Writes the rows of bins to new files, without those that are deleted. If it fails, no file is left, as
    far as possible."""
    commit_bytes: int
    """After about how many bytes of files that are rewritten these are committed."""
    sorted_max_bytes: int
    """How many bytes of files are sorted together."""


def optimize_files(
    table: Table,
    order: OptimizeOrder,
    description: CommitDescription,
    engine: RewriteEngine,
    *,
    is_auto: bool = False,
) -> OptimizedTable:
    """Rewrite files of a table. See ``Table.optimize``.

    ``is_auto`` limits it to partitions with many such files, by one commit, and without another try.
    """
    table.lake.begin_write(makes_lake=False)
    return _FileOptimization(table, order, description, engine, is_auto).run_optimization()


class _FileOptimization:
    """A run over the files of a table."""

    def __init__(
        self,
        table: Table,
        order: OptimizeOrder,
        description: CommitDescription,
        engine: RewriteEngine,
        is_auto: bool,
    ) -> None:
        self._order, self._said, self._engine, self._is_auto = order, description, engine, is_auto
        self._open = partial(DeltaJob, table.lake, table.key, table.require_branch())
        self._job = self._open()
        check_features(self._job.metadata)
        if order.where is not None:
            check_condition(order.where, self._job.metadata.schema_string, self._job.partition_columns)
        self._clustering = () if order.zorder_by else self._job.clustering
        target_bytes = order.target_file_bytes
        if target_bytes is None:
            target_bytes = target_size(self._job.metadata.configuration)
        if target_bytes <= 0:
            raise InvalidRequest(f"the target size of files must be 1 or more bytes: {target_bytes}")
        self._layout = FileLayout(target_bytes, self._find_sorted_by())
        self._result = OptimizedTable(key=table.key)
        self._passed: set[str] = set()
        """Files that this run wrote, or gave up."""
        self._chosen_at_start: set[str] | None = None

    def run_optimization(self) -> OptimizedTable:
        bins = self._group_into_bins()
        all_bytes, done_bytes, conflicts, cuts = sum(each.size for each in bins), 0, 0, 0
        while bins:
            batch = _take_first_bins(bins, self._engine.commit_bytes)
            if self._is_auto:
                self._rewrite_bins(batch)
                break
            # What others keep changing is taken in smaller parts: fewer files, for a shorter time.
            part = _take_smaller_part(batch, cuts)
            if self._rewrite_bins(part):
                done_bytes += sum(each.size for each in part)
                conflicts, cuts = 0, max(0, cuts - 1)
            else:
                cuts = min(cuts + 1, CUTS_MAX) if conflicts else cuts
                conflicts += 1
            if conflicts >= TRIES_MAX:
                files = [file for each in batch for file in each.files]
                self._passed.update(file.key.path for file in files)
                self._count_work(files_skipped=len(files))
                conflicts = 0
            self._order.progress(min(done_bytes, all_bytes), all_bytes)
            if done_bytes >= all_bytes:  # what came meanwhile is left to the next run
                break
            self._job = self._open()  # as it is by now, and with time of its own
            bins = self._group_into_bins()
        return self._result

    def _group_into_bins(self) -> list[FileBin]:
        """The files that are worth rewriting, in groups that become one file each or are sorted together."""
        current_files = self._job.snapshot.outside_read_set.files(self._order.where)
        chosen = list(filter(self._is_chosen, current_files))
        if self._chosen_at_start is None:
            self._chosen_at_start = {file.key.path for file in chosen}
        partitions: dict[tuple[tuple[str, str | None], ...], list[Add]] = {}
        for file in chosen:
            partitions.setdefault(tuple(sorted(file.partition.items())), []).append(file)
        layout = self._layout
        limit = self._engine.sorted_max_bytes if layout.sorted_by else layout.target_bytes
        bins: list[FileBin] = []
        for files in partitions.values():
            if self._is_auto and len(files) < AUTO_FILES_MIN:
                continue
            groups = [
                group
                for group in _pack_into_groups(sorted(files, key=self._get_rewriting_order), limit)
                if len(group) > 1 or group[0].deletion_vector is not None or layout.sorted_by
            ]
            if not layout.sorted_by and all(map(self._was_chosen_at_start, files)):
                groups = even_out(groups, limit)
            bins += (FileBin(tuple(group)) for group in groups)
        return bins

    def _get_rewriting_order(self, file: Add) -> tuple[bool, int, str]:
        """Files that others have written or changed during the run come last: a writer that changes rows all
        the time changes those again, and would keep the others of a part from being committed."""
        return not self._was_chosen_at_start(file), file.size, file.path

    def _was_chosen_at_start(self, file: Add) -> bool:
        return self._chosen_at_start is None or file.key.path in self._chosen_at_start

    def _is_chosen(self, file: Add) -> bool:
        if file.key.path in self._passed:
            return False
        if file.deletion_vector is not None or self._order.zorder_by:
            return True
        if self._layout.sorted_by:  # by the table's own columns: what is clustered stays
            return file.clustering_provider is None
        return file.size < SMALL * self._layout.target_bytes

    def _rewrite_bins(self, bins: Sequence[FileBin]) -> bool:
        """Rewrite files and commit that; false if others changed one of them first."""
        job, replace = self._job, msgspec.structs.replace
        provider = PROVIDER if self._clustering else None
        added = [
            replace(file, data_change=False, clustering_provider=provider)
            for file in self._engine.rewrite(job, bins, self._layout)
        ]
        removed = make_removes(file for each in bins for file in each.files)
        actions: list[Action] = [*(replace(removal, data_change=False) for removal in removed), *added]
        try:
            ratified = job.commit_actions(
                actions,
                operation="OPTIMIZE",
                parameters=self._make_operation_parameters(),
                description=self._said,
            )
        except TableConflict:
            return False
        self._count_work(
            files_removed=len(removed),
            files_added=len(added),
            bytes_removed=sum(each.size for each in bins),
            bytes_added=sum(file.size for file in added),
        )
        self._result = replace(self._result, version=ratified.tables[0].version)
        self._passed.update(file.key.path for file in added)
        return True

    def _find_sorted_by(self) -> tuple[tuple[str, ...], ...]:
        """The columns of the curve, as paths of names."""
        schema, partitions = self._job.schema, self._job.partition_columns
        if self._order.zorder_by:
            columns = find_columns(schema, self._order.zorder_by)
            for fields in columns:
                if fields[0].name in partitions:
                    raise InvalidRequest(
                        f"'{fields[0].name}' is a partition column: all rows of a file have the same value"
                    )
            return tuple(tuple(field.name for field in fields) for fields in columns)
        return tuple(_find_logical_path(schema, path) for path in self._clustering)

    def _make_operation_parameters(self) -> dict[str, str]:
        columns = [".".join(path) for path in self._layout.sorted_by]
        return {
            "predicate": f"[{msgspec.json.encode(self._order.where).decode()}]"
            if self._order.where
            else "[]",
            "zOrderBy": msgspec.json.encode(columns if self._order.zorder_by else []).decode(),
            "clusterBy": msgspec.json.encode([] if self._order.zorder_by else columns).decode(),
            "auto": str(self._is_auto).lower(),
        }

    def _count_work(self, **more: int) -> None:
        changes = {name: getattr(self._result, name) + count for name, count in more.items()}
        self._result = msgspec.structs.replace(self._result, **changes)


def analyze_files(table: Table, description: CommitDescription) -> AnalyzedTable:
    """Complete the statistics of files that lack any of the columns that the table wants them of."""
    table.lake.begin_write(makes_lake=False)
    open_job = partial(DeltaJob, table.lake, table.key, table.require_branch())
    result, conflicts = AnalyzedTable(key=table.key), 0
    while True:
        job = open_job()
        check_features(job.metadata)
        leaves = indexed_leaves(job.metadata, job.clustering)
        wanting = [
            file
            for file in job.snapshot.outside_read_set.files()
            if file.deletion_vector is None and _lacks_statistics(file, [leaf.stored for leaf in leaves])
        ][:ANALYZED_MAX]
        if not wanting:
            return result
        actions: list[Action] = []
        for file in wanting:
            statistics = Statistics(leaves)
            for batch in read_rows_of_files(job.snapshot.log_snapshot, job.place, [file]):
                statistics.add_batch(batch)
            actions.append(msgspec.structs.replace(file, stats=statistics.encode_stats(), data_change=False))
        try:
            ratified = job.commit_actions(
                actions,
                operation="COMPUTE STATS",
                parameters={},
                description=description,
                keep_files=True,
            )
        except TableConflict:
            conflicts += 1
            if conflicts >= TRIES_MAX:
                raise
            continue
        result = AnalyzedTable(
            key=table.key, version=ratified.tables[0].version, files=result.files + len(actions)
        )


def target_size(properties: dict[str, str]) -> int:
    """How large files of a table are to become. ``InvalidRequest`` if its property makes no sense."""
    text = properties.get(TARGET_SIZE)
    if text is None:
        return TARGET_FILE_BYTES
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise InvalidRequest(f"the property {TARGET_SIZE} must be a size such as '128mb', got {text!r}")
    return int(match[1]) * _UNITS[match[2].lower()[:1]]


def _find_logical_path(schema: Any, stored: Sequence[str]) -> tuple[str, ...]:
    """The names of a column that files call otherwise."""
    names: list[str] = []
    inside = schema
    for step in stored:
        field = next(field for field in inside.fields if stored_name(field) == step)
        names.append(field.name)
        inside = field.type
    return tuple(names)


def _pack_into_groups(files: Sequence[Add], limit: int) -> Iterator[list[Add]]:
    """Files, small ones first, in groups of about one size."""
    group: list[Add] = []
    size = 0
    for file in files:
        if group and size + file.size > limit:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield group


def even_out(groups: list[list[Add]], limit: int) -> list[list[Add]]:
    """The same files in as many groups of about one size: several are written at once, and the largest is
    waited for. As they were where that takes groups beyond the limit, or of one file."""
    several = [group for group in groups if len(group) > 1]
    evened: list[list[Add]] = [[] for _ in several]
    sizes = [(0, number) for number in range(len(several))]
    for file in sorted(chain.from_iterable(several), key=attrgetter("size", "path"), reverse=True):
        size, number = sizes[0]
        heapreplace(sizes, (size + file.size, number))
        evened[number].append(file)
    if any(size > limit for size, _ in sizes) or any(len(group) == 1 for group in evened):
        return groups
    return [*(group[::-1] for group in evened), *(group for group in groups if len(group) == 1)]


def _take_first_bins(bins: Sequence[FileBin], commit_bytes: int) -> Sequence[FileBin]:
    """The bins of one commit."""
    size = 0
    for number, each in enumerate(bins):
        size += each.size
        if size >= commit_bytes:
            return bins[: number + 1]
    return bins


def _take_smaller_part(bins: Sequence[FileBin], cuts: int) -> Sequence[FileBin]:
    """The first bins of a batch, or a part of one, with a fourth of its files for each cut."""
    if not cuts:
        return bins
    count = max(2, sum(len(each.files) for each in bins) // 4**cuts)
    part: list[FileBin] = []
    for each in bins:
        if part and count < len(each.files):
            break
        part.append(FileBin(each.files[:count]))
        count -= len(each.files)
    return part


def _lacks_statistics(file: Add, columns: Sequence[tuple[str, ...]]) -> bool:
    rows = read_stats(file).get("numRecords")
    return not isinstance(rows, int) or any(True for _ in find_columns_without_statistics(file, columns))
