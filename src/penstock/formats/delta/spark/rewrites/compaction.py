"""Rows of a Delta table's files are written to others by Spark: together, or along a curve.

Which files become which others is decided before (``file_upkeep``). Files that are put together are read by
the task that writes the new file: no row goes from one task to another. Where rows are sorted, and where that
would take too long or too much, every row is sent to the task that writes its file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from math import isnan
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.formats.delta.lake.file_changes import count_rows
from penstock.formats.delta.lake.file_upkeep import FileBin, FileLayout, RewriteEngine
from penstock.formats.delta.lake.scan_plan import FILE
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.rows.deletion_words import BROADCAST_MAX_WORDS
from penstock.formats.delta.spark.job.files import write_files
from penstock.formats.delta.spark.rewrites.outcome_rows import KEEP, make_row_id_columns
from penstock.formats.delta.spark.scan.scans import read_rows
from penstock.formats.rows.schema import StructType, Type
from penstock.spark.job.parquet_settings import hold_settings
from penstock.spark.schemas import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COMMIT_BYTES: Final = 16 * 1024 * 1024 * 1024
SAMPLED_ROWS: Final = 20_000
"""Of how many rows the curve and its cuts are made."""
ROW_BYTES: Final = 64
"""How large a row is in a file that does not tell how many it has."""
RANK_BITS: Final = 8
"""Into how many ranges a column is cut, as a power of two."""
SCANS_MAX: Final = 256
"""How many tasks read files and write the new ones themselves: each has a scan of its own in Spark's plan."""
TASKS_MIN: Final = 8
TASK_BYTES: Final = 32 * 1024 * 1024
"""Where bins are more than a few, small ones of different partitions are written by one task, up to about so
many bytes."""
FAR_FILES_MAX: Final = 100
"""How many files of a bucket a task opens, one after the other, if there are fewer tasks than a few."""
TASK_EACH: Final = {"spark.sql.unionOutputPartitioning": "false"}
"""Of the session: otherwise Spark makes one task of several that have all rows of their scans."""
ROUTE: Final = "__penstock_route"
POSITION: Final = "__penstock_position"


def spark_engine(spark: SparkSession) -> RewriteEngine:
    """Rewriting files by a session of Spark."""

    def rewrite_bins(job: DeltaJob, bins: Sequence[FileBin], layout: FileLayout) -> list[Add]:
        return _rewrite_bins(spark, job, bins, layout)

    return RewriteEngine(rewrite_bins, commit_bytes=COMMIT_BYTES, sorted_max_bytes=COMMIT_BYTES)


def _rewrite_bins(
    spark: SparkSession, job: DeltaJob, bins: Sequence[FileBin], layout: FileLayout
) -> list[Add]:
    in_place = None if layout.sorted_by else _read_bins(spark, job, bins)
    placed = _send_to_tasks(spark, job, bins, layout) if in_place is None else in_place
    with hold_settings(spark, TASK_EACH):
        written = write_files(
            placed,
            job.lake,
            job.location,
            job.metadata,
            branch=job.branch,
            clustering=job.clustering,
            are_checked=True,
        )
    return [action for action in written if isinstance(action, Add)]


# -- without a shuffle ---------------------------------------------------------------------------------------


def _read_bins(spark: SparkSession, job: DeltaJob, bins: Sequence[FileBin]) -> DataFrame | None:
    """The rows of bins, those of a bin in one task; ``None`` if that takes too many scans or too much memory,
    or too long because few tasks would open very many files of a bucket.

    A task may have several bins, of different partitions: then it writes a file for each.
    """
    files = [file for each in bins for file in each.files]
    most = max(Counter(tuple(sorted(each.files[0].partition.items())) for each in bins).values())
    deleted = sum(file.deletion_vector.cardinality for file in files if file.deletion_vector)
    if most > SCANS_MAX or deleted > BROADCAST_MAX_WORDS:
        return None
    if _is_far(job) and len(bins) < TASKS_MIN and len(files) > FAR_FILES_MAX * len(bins):
        return None
    # Those of a partition are next to one another, so that no two of them are in one task.
    by_size = max(TASKS_MIN, sum(each.size for each in bins) // TASK_BYTES)
    count = max(most, min(len(bins), by_size, SCANS_MAX))
    tasks = [[file for each in bins[start::count] for file in each.files] for start in range(count)]
    row_ids, columns = job.final_row_ids(files), _kept_columns(job)
    scans = [
        read_rows(spark, job.snapshot, files, row_ids=row_ids).select(*columns).coalesce(1) for files in tasks
    ]
    while len(scans) > 1:  # in pairs: Spark analyses each union anew
        scans = [
            scans[at].union(scans[at + 1]) if at + 1 < len(scans) else scans[at]
            for at in range(0, len(scans), 2)
        ]
    return scans[0]


def _is_far(job: DeltaJob) -> bool:
    """Whether a file is opened by requests."""
    return "://" in job.place.url


def _kept_columns(job: DeltaJob) -> list[Column]:
    """The columns of a row that is written as it is, with its id and version where the table tracks them."""
    from pyspark.sql import functions as f

    names = [quote_name(field.name) for field in job.schema.fields]
    row_ids = make_row_id_columns(job, f.lit(KEEP))
    return [*map(f.col, names), *(column.alias(name) for name, column in row_ids.items())]


# -- with one ------------------------------------------------------------------------------------------------


def _send_to_tasks(
    spark: SparkSession, job: DeltaJob, bins: Sequence[FileBin], layout: FileLayout
) -> DataFrame:
    """The rows of bins, each in the task that writes its file, in the order of the curve if there is one."""
    from pyspark.sql import functions as f

    files = [file for each in bins for file in each.files]
    numbers = [number for number, each in enumerate(bins) for _ in each.files]
    curve = _plan_curve(spark, job, bins, layout) if layout.sorted_by else None
    count = len(bins) if curve is None else curve.file_count
    df = read_rows(spark, job.snapshot, files, numbered=True, row_ids=job.final_row_ids(files))
    number = f.element_at(_make_integer_array(numbers), f.col(FILE) + 1)
    if curve is None:
        routed = df.select(*_kept_columns(job), number.alias(ROUTE))
    else:
        position = curve.make_position_column()
        routed = df.select(*_kept_columns(job), position.alias(POSITION), number.alias(ROUTE))
        routed = routed.withColumn(ROUTE, curve.make_file_column(f.col(ROUTE), f.col(POSITION)))
    routes = f.element_at(_make_integer_array(_find_routes(spark, count)), f.col(ROUTE) + 1)
    placed = routed.withColumn(ROUTE, routes).repartition(count, ROUTE)
    if curve is not None:
        placed = placed.sortWithinPartitions(POSITION)
    return placed.drop(ROUTE, POSITION)


def _make_integer_array(numbers: Sequence[int]) -> Column:
    """An array, as text: an expression for each number would take longer than the job."""
    from pyspark.sql import functions as f

    return f.expr(f"array({', '.join(map(str, numbers))})")


def _find_routes(spark: SparkSession, count: int) -> list[int]:
    """For each of so many tasks, a number that Spark sends there: it sends rows by a hash."""
    routes: dict[int, int] = {}
    start, step = 0, 16 * count
    while len(routes) < count:
        hashes = f"transform(sequence({start}, {start + step - 1}), number -> pmod(hash(number), {count}))"
        (row,) = spark.sql(f"SELECT {hashes}").collect()
        for number, task in enumerate(row[0], start):
            routes.setdefault(task, number)
        start += step
    return [routes[task] for task in range(count)]


# -- the curve ---------------------------------------------------------------------------------------------


class _ZOrderColumn(NamedTuple):
    """A column of the curve: a value that can be compared here as Spark compares it."""

    value: Column
    bounds: list[Any]
    """Between its ranges, in ascending order."""

    def rank_value(self, value: Any) -> int:
        """The range of a value; nulls come first."""
        if value is None:
            return 0
        return 1 + (len(self.bounds) if _is_nan(value) else bisect_right(self.bounds, value))

    def rank_column(self) -> Column:
        from pyspark.sql import functions as f

        ranks = _choose_by_range(
            self.value, self.bounds, [f.lit(1 + at) for at in range(len(self.bounds) + 1)]
        )
        return f.when(self.value.isNull(), 0).otherwise(ranks)


class _ZOrderCurve(NamedTuple):
    """Where rows lie on a Z-order curve of some columns, and where it is cut into files.

    A curve of one column is the column itself.
    """

    columns: list[_ZOrderColumn]
    cuts: list[list[Any]]
    """Of each bin, between its files."""

    @property
    def file_count(self) -> int:
        return sum(len(cuts) + 1 for cuts in self.cuts)

    def compute_positions(self, values: Sequence[Any]) -> Any:
        if len(self.columns) == 1:
            return values[0]
        ranks = [column.rank_value(value) for column, value in zip(self.columns, values, strict=True)]
        return sum(
            ((rank >> bit) & 1) << (bit * len(ranks) + at)
            for at, rank in enumerate(ranks)
            for bit in range(RANK_BITS)
        )

    def make_position_column(self) -> Column:
        """The same for Spark."""
        from pyspark.sql import functions as f

        if len(self.columns) == 1:
            return self.columns[0].value
        ranks = [column.rank_column().cast("long") for column in self.columns]
        position = f.lit(0).cast("long")
        for at, rank in enumerate(ranks):
            for bit in range(RANK_BITS):
                one_bit = f.shiftright(rank, bit).bitwiseAND(f.lit(1).cast("long"))
                position = position.bitwiseOR(f.shiftleft(one_bit, bit * len(ranks) + at))
        return position

    def make_file_column(self, number: Column, position: Column) -> Column:
        """The file of a row, counted over all bins, by its bin and its position."""
        from pyspark.sql import functions as f

        starts = [0, *accumulate(len(cuts) + 1 for cuts in self.cuts)]
        files = f.element_at(_make_integer_array(starts), number + 1)
        for at, cuts in enumerate(self.cuts):
            if cuts:
                inside = _choose_by_range(
                    position, cuts, [f.lit(starts[at] + part) for part in range(len(cuts) + 1)]
                )
                inside = f.when(position.isNull(), f.lit(starts[at])).otherwise(inside)
                files = f.when(number == at, inside).otherwise(files)
        return files


def _plan_curve(
    spark: SparkSession, job: DeltaJob, bins: Sequence[FileBin], layout: FileLayout
) -> _ZOrderCurve:
    """Choose the ranges of columns, and the cuts between files, by a sample of the rows."""
    files = [file for each in bins for file in each.files]
    values = [_comparable_column(path, job) for path in layout.sorted_by]
    all_rows = sum(count_rows(file) or file.size // ROW_BYTES for file in files)
    df = read_rows(spark, job.snapshot, files, numbered=True)
    chosen = df.select(FILE, *(value.alias(f"value{at}") for at, value in enumerate(values)))
    if all_rows > SAMPLED_ROWS:
        chosen = chosen.sample(fraction=SAMPLED_ROWS / all_rows, seed=all_rows)
    sample = chosen.collect()
    columns = [
        _ZOrderColumn(value, _cut_into_ranges([row[at] for row in sample], (1 << RANK_BITS) - 1))
        for at, value in enumerate(values, 1)
    ]
    curve = _ZOrderCurve(columns, [])
    numbers = [number for number, each in enumerate(bins) for _ in each.files]
    positions: list[list[Any]] = [[] for _ in bins]
    for row in sample:
        positions[numbers[row[0]]].append(curve.compute_positions(row[1:]))
    cuts = [
        _cut_into_ranges(positions_of_bin, layout.count_files(each))
        for positions_of_bin, each in zip(positions, bins, strict=True)
    ]
    return curve._replace(cuts=cuts)


def _cut_into_ranges(values: Sequence[Any], parts: int) -> list[Any]:
    """The bounds between parts of values that are about equally many; equal values stay together."""
    ordered = sorted(value for value in values if value is not None and not _is_nan(value))
    bounds = (ordered[len(ordered) * part // parts] for part in range(1, parts)) if ordered else ()
    return [bound for bound in dict.fromkeys(bounds) if bound != ordered[0]]


def _choose_by_range(value: Column, bounds: Sequence[Any], results: Sequence[Column]) -> Column:
    """The result for the range that a value is in, found in as many steps as a search in a sorted list."""
    from pyspark.sql import functions as f

    if not bounds:
        return results[0]
    half = len(bounds) // 2
    below = _choose_by_range(value, bounds[:half], results[: half + 1])
    above = _choose_by_range(value, bounds[half + 1 :], results[half + 1 :])
    return f.when(value < f.lit(bounds[half]), below).otherwise(above)


def _comparable_column(path: Sequence[str], job: DeltaJob) -> Column:
    """A column, as values that come to Python as they are: times as numbers."""
    from pyspark.sql import functions as f

    column = f.col(".".join(map(quote_name, path)))
    kind: Type = job.schema
    for step in path:
        assert isinstance(kind, StructType)
        field = kind.field(step)
        assert field is not None
        kind = field.type
    match kind:
        case "date":
            return f.unix_date(column)
        case "timestamp" | "timestamp_ntz":
            return f.unix_micros(column.cast("timestamp"))
        case _:
            return column


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and isnan(value)
