"""What becomes of the files of a Delta table whose rows change, batch by batch.

Where the table has deletion vectors, a file stays and its changed rows are marked as deleted; otherwise its
other rows are written anew. Changed and new rows go into new files, and into the table's change data feed if
it has one. However large the files, only so many batches are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from penstock.formats.delta.lake.marked_files import FileDeletionMarks, mark_rows, uses_deletion_vectors
from penstock.formats.delta.lake.row_rewrite import has_feed, make_removes
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.log.scan import FILE_NUMBER, ROW_NUMBER
from penstock.formats.delta.protocol.actions import Action, Add, Metadata
from penstock.formats.delta.protocol.change_feed import CHANGE_TYPE
from penstock.formats.delta.protocol.row_ids import get_row_tracking_columns
from penstock.formats.delta.rows.file_writer import DataFileWriter
from penstock.formats.delta.rows.row_checks import conform_batch
from penstock.formats.rows.arrow_types import pa, pc
from penstock.formats.rows.positions import make_mask, number_rows
from penstock.formats.rows.schema import parse_schema
from penstock.lake.job_files import remove_files


class RowOutcomes(NamedTuple):
    """What becomes of the rows of a batch."""

    deleted: Any
    """Of each whether it goes."""
    updated: Any
    """Of each whether it changes."""
    new: Any
    """The rows that the changed ones become, in their order."""


Decide = Callable[[Any], RowOutcomes]


class ChangedFiles:
    """Files of a table that are changed by a job. As a context: if anything fails in it, nothing is left."""

    def __init__(self, table: DeltaJob, metadata: Metadata | None = None) -> None:
        """``metadata`` is what the table is to become, if it is to have other columns."""
        self._table, self._place = table, table.place
        self.metadata = table.metadata if metadata is None else metadata
        self.has_feed = has_feed(table)
        self.has_vectors = uses_deletion_vectors(table)
        self.deleted = self.updated = self.inserted = 0
        self._folder = table.data_folder
        clustering = table.clustering
        self._data = DataFileWriter(
            self._place, self.metadata, prefix=self._folder, clustering=clustering, with_row_ids=True
        )
        self._feed = (
            DataFileWriter(self._place, self.metadata, prefix=self._folder, is_feed=True)
            if self.has_feed
            else None
        )
        self._schema = parse_schema(self.metadata.schema_string)
        self._names = [field.name for field in table.schema.fields]
        self._row_columns = get_row_tracking_columns(table.metadata)
        self._vector_files: list[str] = []
        self._actions: list[Action] = []
        self._refused = ExitStack()

    def __enter__(self) -> ChangedFiles:
        self._refused.enter_context(self._data)
        if self._feed is not None:
            self._refused.enter_context(self._feed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            remove_files(self._place, self._vector_files)
        self._refused.__exit__(kind, error, trace)

    def rewrite_files(
        self, files: Sequence[Add], read: Callable[[Sequence[Add]], Iterable[Any]], decide_change: Decide
    ) -> None:
        """Change rows of files. ``read`` gives their rows in batches that are numbered by file and row."""
        self._actions += make_removes(files)
        if self.has_vectors:
            self._mark_rows(files, read(files), decide_change)
            return
        for batch in read(files):
            rows = batch.drop_columns([FILE_NUMBER, ROW_NUMBER])
            outcomes = self._decide_outcomes(rows, decide_change)
            self._data.write_rows(_rows_to_write(rows, outcomes), are_checked=True)

    def _mark_rows(self, files: Sequence[Add], batches: Iterable[Any], decide_change: Decide) -> None:
        gone = [_GoneRows() for _ in files]
        for batch in batches:
            outcomes = self._decide_outcomes(batch.drop_columns([FILE_NUMBER, ROW_NUMBER]), decide_change)
            numbers = batch.select([FILE_NUMBER, ROW_NUMBER])
            _note_gone(gone, numbers, pc.or_(outcomes.deleted, outcomes.updated))
            if outcomes.new.num_rows:
                self._data.write_rows(outcomes.new, are_checked=True)
        marks = [FileDeletionMarks(file, rows.bits) for file, rows in zip(files, gone, strict=True)]
        self._actions += mark_rows(self._table, marks, self._create_vectors)

    def _decide_outcomes(self, rows: Any, decide_change: Decide) -> RowOutcomes:
        outcomes = self._with_row_ids(rows, decide_change(rows))
        self.deleted += pc.sum(outcomes.deleted).as_py() or 0
        self.updated += outcomes.new.num_rows
        if outcomes.new.num_rows:
            self._data.check_constraints(outcomes.new)
        self._write_feed(rows, outcomes)
        return outcomes

    def insert_rows(self, rows: Any, *, in_feed: bool = True) -> None:
        """Add rows; the feed tells of them, unless nothing else changes: then it is told by the new files."""
        self.inserted += rows.num_rows
        self._data.write_rows(rows)
        if self._feed is not None and in_feed:
            self._feed.write_rows(
                _add_change_type(conform_batch(rows, self._schema), "insert"), are_checked=True
            )

    def finish_actions(self) -> list[Action]:
        """The actions of the change. No file is part of the table before they are committed."""
        actions = [*self._actions, *self._data.finish_files()]
        return actions if self._feed is None else [*actions, *self._feed.finish_files()]

    def _with_row_ids(self, rows: Any, outcomes: RowOutcomes) -> RowOutcomes:
        """A row that is updated keeps its id, if it has one, and gets the version of the commit."""
        if self._row_columns is None:
            return outcomes
        ids = rows.column(self._row_columns.row_id).filter(outcomes.updated)
        columns = [outcomes.new.column(name) for name in self._names]
        return outcomes._replace(
            new=pa.RecordBatch.from_arrays(
                [*columns, ids, pa.nulls(len(ids), pa.int64())], names=[*self._names, *self._row_columns]
            )
        )

    def _write_feed(self, rows: Any, outcomes: RowOutcomes) -> None:
        if self._feed is None:
            return
        for mask, change in ((outcomes.deleted, "delete"), (outcomes.updated, "update_preimage")):
            before = rows.select(self._names).filter(mask)
            if before.num_rows:
                self._feed.write_rows(_add_change_type(before, change), are_checked=True)
        if outcomes.new.num_rows:
            after = outcomes.new.select(self._names)
            self._feed.write_rows(_add_change_type(after, "update_postimage"), are_checked=True)

    def _create_vectors(self, name: str, data: bytes) -> None:
        self._vector_files.append(name)
        self._place.create(name, data)


class _GoneRows:
    """Rows of one file, by their numbers."""

    def __init__(self) -> None:
        self.bits = 0

    def add_row_numbers(self, numbers: Any) -> None:
        """Add numbers in ascending order."""
        first, count = numbers[0].as_py(), numbers[-1].as_py() - numbers[0].as_py() + 1
        mask = make_mask(pc.subtract(numbers, first), count)
        packed = int.from_bytes(mask.buffers()[1].to_pybytes(), "little") & ((1 << count) - 1)
        self.bits |= packed << first


def _note_gone(gone: Sequence[_GoneRows], numbers: Any, mask: Any) -> None:
    chosen = numbers.filter(mask)
    files = chosen.column(FILE_NUMBER)
    for file in pc.unique(files).to_pylist():
        gone[file].add_row_numbers(chosen.column(ROW_NUMBER).filter(pc.equal(files, file)))


def _rows_to_write(rows: Any, outcomes: RowOutcomes) -> Any:
    """The rows that are left, in their places, with what the changed ones become."""
    if not outcomes.new.num_rows:
        return rows.filter(pc.invert(outcomes.deleted))
    positions = number_rows(rows.num_rows)
    ranks = pc.subtract(pc.cumulative_sum(outcomes.updated.cast(pa.int64())), 1)
    places = pc.if_else(outcomes.updated, pc.add(ranks, rows.num_rows), positions)
    places = places.filter(pc.invert(outcomes.deleted))
    arrays = [
        pa.concat_arrays([before, after]).take(places)
        for before, after in zip(rows.columns, outcomes.new.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def _add_change_type(rows: Any, change: str) -> Any:
    kind = pa.repeat(pa.scalar(change, pa.string()), rows.num_rows)
    return pa.RecordBatch.from_arrays([*rows.columns, kind], names=[*rows.schema.names, CHANGE_TYPE])


def count_rows(file: Add) -> int | None:
    """How many rows a file has, deleted ones too; ``None`` if its statistics do not tell."""
    try:
        stats: Any = msgspec.json.decode(file.stats or "{}")
        count = stats.get("numRecords")
    except (msgspec.MsgspecError, AttributeError):
        return None
    return count if isinstance(count, int) else None


def count_live_rows(files: Iterable[Add]) -> int | None:
    """How many rows files have, but for deleted ones; ``None`` if one of them does not tell."""
    total = 0
    for file in files:
        count = count_rows(file)
        if count is None:
            return None
        total += count - (0 if file.deletion_vector is None else file.deletion_vector.cardinality)
    return total


def make_empty_mask(rows: Any) -> Any:
    """A mask that is true for none of some rows."""
    return pa.repeat(pa.scalar(False), rows.num_rows)
