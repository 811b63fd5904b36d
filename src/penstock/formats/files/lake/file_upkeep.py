"""Small Parquet files of a table of files are written together, folder by folder, with the same rows.

A file that somebody else replaced or removed meanwhile is in the way of the commit: then the folders are
looked at again, as they are by then. Only files of the same columns become one: what their footers say, also
to Spark, is said by the new file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

import msgspec

from penstock.errors import CommitConflict, FileNotFound, InvalidRequest, NotManaged
from penstock.formats.files.lake.answers import FileEntry
from penstock.formats.files.lake.calls import GetFilesTable
from penstock.formats.files.lake.data_files import is_data
from penstock.formats.files.lake.file_bytes import TableBytes
from penstock.formats.files.lake.pending_changes import PendingFileChanges, commit_pending_changes
from penstock.formats.rows.arrow_types import pa, pq
from penstock.lake.call import CommitDescription
from penstock.lake.upkeep import OptimizedTable, OptimizeProgress

if TYPE_CHECKING:
    from penstock.lake.table import Table

TARGET_FILE_BYTES: Final = 128 * 1024 * 1024
SMALL: Final = 0.75
"""A file below this share of the target size is put together with others."""
COMMIT_BYTES: Final = 4 * 1024 * 1024 * 1024
"""About how many bytes of files are replaced by one commit. They are on this machine's disk meanwhile."""
TRIES_MAX: Final = 5
PARQUET: Final = "parquet"
_SUFFIX: Final = ".parquet"


class _FileGroup(NamedTuple):
    """Files of a folder that become one."""

    path: str
    """Of the new file."""
    files: tuple[FileEntry, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def optimize_files(
    table: Table, target_file_bytes: int | None, description: CommitDescription, progress: OptimizeProgress
) -> OptimizedTable:
    """Put small files together. ``NotManaged`` if the table's files are not Parquet."""
    target_bytes = TARGET_FILE_BYTES if target_file_bytes is None else target_file_bytes
    if target_bytes <= 0:
        raise InvalidRequest(f"the target size of files must be 1 or more bytes: {target_bytes}")
    table.require_branch()
    table.lake.begin_write(makes_lake=False)
    _check_parquet(table)
    return _FilesOptimization(table.outside_read_set, target_bytes, description, progress).run_optimization()


def _check_parquet(table: Table) -> None:
    named = table.lake.do(GetFilesTable(key=table.key, at=table.ref)).layout.format.lower()
    if named in ("", PARQUET):
        return
    raise NotManaged(
        f"'{table.key}' is a table of {named} files: only Parquet files are rewritten", key=str(table.key)
    )


class _FilesOptimization:
    """A run over the files of a table."""

    def __init__(
        self, table: Table, target_bytes: int, description: CommitDescription, progress: OptimizeProgress
    ) -> None:
        self._table, self._target_bytes, self._progress = table, target_bytes, progress
        self._said = (
            description
            if description.message
            else msgspec.structs.replace(description, message=f"optimize {table.key}")
        )
        lake = table.lake
        self._bytes = TableBytes(lake.places, lake.warehouse, table.key)
        self._result = OptimizedTable(key=table.key)
        self._passed: set[str] = set()
        """Addresses of files that this run wrote, or gave up."""
        self._columns: dict[str, Any] = {}
        """What the footers of files say of their columns, by addresses."""

    def run_optimization(self) -> OptimizedTable:
        groups = [*self._group_files()]
        all_bytes, done_bytes, conflicts = sum(group.size for group in groups), 0, 0
        while groups:
            batch = _take_first_groups(groups)
            if self._rewrite_groups(batch):
                done_bytes, conflicts = done_bytes + sum(group.size for group in batch), 0
            else:
                conflicts += 1
            if conflicts >= TRIES_MAX:
                files = [file for group in batch for file in group.files]
                self._passed.update(file.address for file in files)
                self._count_work(files_skipped=len(files))
                conflicts = 0
            self._progress(min(done_bytes, all_bytes), all_bytes)
            groups = [*self._group_files()]
        return self._result

    def _group_files(self) -> Iterator[_FileGroup]:
        folders: dict[str, list[FileEntry]] = {}
        for file in self._table.files.walk():
            is_small = file.size < SMALL * self._target_bytes
            if is_small and file.path.endswith(_SUFFIX) and is_data(file.path):
                folders.setdefault(file.path.rpartition("/")[0], []).append(file)
        for folder, files in folders.items():
            chosen = [file for file in files if file.address not in self._passed]
            if len(chosen) > 1:
                yield from self._pack_into_groups(folder, chosen)

    def _pack_into_groups(self, folder: str, files: Sequence[FileEntry]) -> Iterator[_FileGroup]:
        """Files of a folder in groups that have the same columns and about the target size together."""
        open_groups: list[tuple[Any, list[FileEntry]]] = []
        full: list[list[FileEntry]] = []
        for file in sorted(files, key=lambda file: (file.size, file.path)):
            schema = self._read_columns(file)
            if schema is None:
                continue
            group = next((group for other, group in open_groups if other.equals(schema, True)), None)
            if group is None:
                open_groups.append((schema, [file]))
            elif sum(other.size for other in group) + file.size > self._target_bytes:
                full.append([*group])
                group[:] = [file]
            else:
                group.append(file)
        prefix = f"{folder}/" if folder else ""
        for group in [*full, *(group for _, group in open_groups)]:
            if len(group) > 1:
                yield _FileGroup(f"{prefix}part-{uuid4().hex}-0{_SUFFIX}", tuple(group))

    def _read_columns(self, file: FileEntry) -> Any:
        """The columns of a file; ``None`` if Arrow would write them otherwise than they are."""
        if file.address not in self._columns:
            with self._open_parquet_file(file) as parquet:
                kinds = {parquet.schema.column(at).physical_type for at in range(len(parquet.schema))}
                # Times as only old readers want them: there is no telling who reads them.
                self._columns[file.address] = None if "INT96" in kinds else parquet.schema_arrow
        return self._columns[file.address]

    def _open_parquet_file(self, file: FileEntry) -> Any:
        try:
            return pq.ParquetFile(self._bytes.open_file(file))
        except pa.ArrowException as problem:
            raise InvalidRequest(
                f"'{file.path}' of '{self._table.key}' cannot be read as Parquet: {problem}",
                table=str(self._table.key),
                path=file.path,
            ) from None

    def _rewrite_groups(self, groups: Sequence[_FileGroup]) -> bool:
        """Write groups as files and commit that; false if others changed one of the files first."""
        files = [file for group in groups for file in group.files]
        with TemporaryDirectory(prefix="penstock-") as folder:
            puts = {group.path: Path(folder, f"{number}") for number, group in enumerate(groups)}
            for group in groups:
                self._write_file(group.files, puts[group.path])
            bytes_added = sum(path.stat().st_size for path in puts.values())
            changes = PendingFileChanges(
                puts=puts,
                removed=tuple(file.path for file in files),
                absent=tuple(puts),
                matching=tuple(files),
            )
            try:
                commit_pending_changes(self._table, changes, self._said, None)
            except (CommitConflict, FileNotFound):
                return False
        self._passed.update(entry.address for entry in map(self._table.files.stat, puts))
        self._count_work(
            files_removed=len(files),
            files_added=len(puts),
            bytes_removed=sum(file.size for file in files),
            bytes_added=bytes_added,
        )
        return True

    def _write_file(self, files: Sequence[FileEntry], path: Path) -> None:
        schema = self._columns[files[0].address]
        with pq.ParquetWriter(path, schema) as writer:
            for file in files:
                with self._open_parquet_file(file) as parquet:
                    for batch in parquet.iter_batches():
                        writer.write_batch(batch.cast(schema) if batch.schema != schema else batch)

    def _count_work(self, **more: int) -> None:
        changes = {name: getattr(self._result, name) + count for name, count in more.items()}
        self._result = msgspec.structs.replace(self._result, **changes)


def _take_first_groups(groups: Sequence[_FileGroup]) -> Sequence[_FileGroup]:
    """The groups of one commit."""
    size = 0
    for number, group in enumerate(groups):
        size += group.size
        if size >= COMMIT_BYTES:
            return groups[: number + 1]
    return groups
