"""Files of a Delta table whose rows are marked as deleted: they stay, with another deletion vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.lake.written_files import list_added_names
from penstock.formats.delta.protocol.actions import Action, Add
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.delta.protocol.properties import is_on
from penstock.formats.delta.rows.deletion_words import count_rows
from penstock.formats.delta.rows.file_addresses import name_inside
from penstock.formats.delta.rows.vectors import DeletedRows, read_deleted_rows, write_vectors
from penstock.lake.job_files import remove_files
from penstock.model.decoders import get_json_decoder

DELETION_VECTORS: Final = "delta.enableDeletionVectors"
BRANCH_VECTORS: Final = "vectors"
"""Below the folder of a branch's data: its deletion vectors."""


class FileDeletionMarks(NamedTuple):
    """A file of the table, and rows of it that go: a number with a bit for each, the first row in the
    lowest."""

    file: Add
    bits: int


def uses_deletion_vectors(table: DeltaJob) -> bool:
    """Whether rows of the table are deleted by deletion vectors: its property says so."""
    is_enabled = is_on(table.metadata.configuration, DELETION_VECTORS)
    return is_enabled and "deletionVectors" in supported_features(table.protocol)


def mark_rows(
    table: DeltaJob, marks: Iterable[FileDeletionMarks], create: Callable[[str, bytes], object]
) -> list[Add]:
    """Name files again, with further rows deleted. One of which no row is left is not among them.

    Vectors that are too large for the log go into a file, which ``create`` writes.
    """
    place = table.place
    files: dict[str, Add] = {}
    deleted: dict[str, DeletedRows] = {}
    for mark in marks:
        count = count_rows(place, mark.file)
        file = replace(mark.file, stats=_mark_bounds_as_wide(mark.file.stats, count), data_change=True)
        before = read_deleted_rows(
            file, file.deletion_vector, place.read_range, lambda path: name_inside(path, place)
        )
        bits = before.bits | mark.bits
        if bits.bit_count() < before.total:
            files[file.path], deleted[file.path] = file, DeletedRows(bits, before.total)
    folder = f"{table.data_folder}{BRANCH_VECTORS}" if table.data_folder else ""
    vectors = write_vectors(deleted, create, folder)
    return [replace(file, deletion_vector=vectors[path]) for path, file in files.items()]


def mark_beside(table: DeltaJob, marks: Iterable[FileDeletionMarks], written: Iterable[Action]) -> list[Add]:
    """As ``mark_rows``, beside files that were written for the same change. If it fails, none is left."""
    created: list[str] = []

    def create_file(name: str, data: bytes) -> None:
        created.append(name)
        table.place.create(name, data)

    try:
        return mark_rows(table, marks, create_file)
    except BaseException:
        remove_files(table.place, [*created, *list_added_names(written)])
        raise


def _mark_bounds_as_wide(stats: str | None, rows: int) -> str:
    """Statistics of a file some of whose rows are deleted: its bounds may be wider than what is left.

    They tell how many rows the file has, as the protocol asks of files with deletion vectors.
    """
    changed = {"numRecords": rows, "tightBounds": False}
    return msgspec.json.encode({**changed, **_split_top_level(stats), **changed}).decode()


def _split_top_level(stats: str | None) -> dict[str, Any]:
    """The parts of statistics as they are spelled, so that no number loses digits; none of broken ones."""
    try:
        return get_json_decoder(dict[str, msgspec.Raw]).decode(stats or "{}")
    except msgspec.MsgspecError:
        return {}
