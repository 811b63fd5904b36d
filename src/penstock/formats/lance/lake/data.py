"""Data operations: what a namespace can be asked to do with the rows of its tables.

Most clients of Lance do this themselves and only commit through the namespace. Those that have no access to
the storage of the tables, or no Lance, ask the namespace instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from lance_namespace import (
    ConcurrentModificationError,
    CreateTableRequest,
    CreateTableResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DeleteFromTableRequest,
    DeleteFromTableResponse,
    DescribeTableRequest,
    GetTableStatsRequest,
    GetTableStatsResponse,
    InsertIntoTableRequest,
    InsertIntoTableResponse,
    InvalidInputError,
    MergeInsertIntoTableRequest,
    MergeInsertIntoTableResponse,
    RestoreTableRequest,
    RestoreTableResponse,
    TableAlreadyExistsError,
    TableExistsRequest,
    TableNotFoundError,
    UnsupportedOperationError,
    UpdateTableRequest,
    UpdateTableResponse,
)
from lance_namespace_urllib3_client.models.fragment_stats import FragmentStats
from lance_namespace_urllib3_client.models.fragment_summary import FragmentSummary

from penstock.errors import CommitConflict, PenstockError
from penstock.formats.lance.lake.data_arrow import read_rows
from penstock.formats.lance.lake.data_columns import ColumnOperations
from penstock.formats.lance.lake.data_errors import Watched, lance_work, shown
from penstock.formats.lance.lake.data_indexes import IndexOperations
from penstock.formats.lance.lake.data_queries import QueryOperations
from penstock.formats.lance.lake.data_requests import named, one_of, read_request
from penstock.formats.lance.lake.data_work import TableAbout
from penstock.formats.lance.lake.errors import in_lance
from penstock.model.transactions import PREFIX

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

TRIES_MAX: Final = 3

_DURATION: Final = re.compile(r"(\d{1,9})(ms|s|m|h)?")
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class DataOperations(QueryOperations, IndexOperations, ColumnOperations):
    """All of them, for a namespace that knows tables and their versions."""

    def create_table(self, request: Any, request_data: bytes) -> CreateTableResponse:
        """A table with its first rows, in one commit: nobody finds it without them.

        A table that was only declared gets its rows; ``overwrite`` makes a new version of one that has some.
        """
        asked = read_request(CreateTableRequest, request)
        rows = read_rows(request_data)
        mode = one_of(asked.mode, "create", "create", "exist_ok", "overwrite")
        if asked.storage_options:
            raise UnsupportedOperationError("storage options of a request are not supported")
        self.require_writable()
        for _ in range(TRIES_MAX):
            try:
                return self._created(asked, rows, mode)
            except TableAlreadyExistsError:
                if mode == "create":
                    raise
        raise ConcurrentModificationError(f"{shown(named(asked.id))} came and went all the time; try again")

    def _created(self, request: CreateTableRequest, rows: pa.Table, mode: str) -> CreateTableResponse:
        table = named(request.id)
        try:
            there = self.describe_table(DescribeTableRequest(id=table, check_declared=True))
        except TableNotFoundError:
            version: int | None = self._write_new(request, rows)
            there = self.describe_table(DescribeTableRequest(id=table))
        else:
            if there.is_only_declared:
                version = self._write_first(table, rows)
            elif mode == "create":
                raise _taken(table)
            else:
                version = self._write(request, rows, mode) if mode == "overwrite" else None
        return CreateTableResponse(location=there.location, version=version, properties=there.properties)

    def insert_into_table(self, request: Any, request_data: bytes) -> InsertIntoTableResponse:
        asked = read_request(InsertIntoTableRequest, request)
        mode = one_of(asked.mode, "append", "append", "overwrite")
        with self.of_table(asked):
            rows = read_rows(request_data)
        version = self._write(asked, rows, mode, asked.branch)
        return InsertIntoTableResponse(num_inserted_rows=rows.num_rows, version=version)

    def merge_insert_into_table(self, request: Any, request_data: bytes) -> MergeInsertIntoTableResponse:
        asked = read_request(MergeInsertIntoTableRequest, request)
        with self.of_table(asked):
            if not asked.on:
                raise InvalidInputError("'on' must name the columns by which rows are matched")
            rows, limit = read_rows(request_data), _duration(asked.timeout)
        with self.changed(asked, asked.branch) as dataset:
            merge = dataset.merge_insert(asked.on)
            if asked.when_matched_update_all:
                merge = merge.when_matched_update_all(asked.when_matched_update_all_filt)
            if asked.when_not_matched_insert_all:
                merge = merge.when_not_matched_insert_all()
            if asked.when_not_matched_by_source_delete:
                merge = merge.when_not_matched_by_source_delete(asked.when_not_matched_by_source_delete_filt)
            if limit is not None:
                merge = merge.retry_timeout(limit)
            done = merge.execute(rows)
            return MergeInsertIntoTableResponse(
                num_updated_rows=done["num_updated_rows"],
                num_inserted_rows=done["num_inserted_rows"],
                num_deleted_rows=done["num_deleted_rows"],
                version=dataset.version,
            )

    def update_table(self, request: Any) -> UpdateTableResponse:
        asked = read_request(UpdateTableRequest, request)
        updates = dict(asked.updates)
        if not updates or len(updates) != len(asked.updates):
            raise InvalidInputError("'updates' names a column twice, or none")
        with self.changed(asked, asked.branch) as dataset:
            done = dataset.update(updates, where=asked.predicate or None)
            return UpdateTableResponse(updated_rows=done["num_rows_updated"], version=dataset.version)

    def delete_from_table(self, request: Any) -> DeleteFromTableResponse:
        asked = read_request(DeleteFromTableRequest, request)
        with self.changed(asked, asked.branch) as dataset:
            dataset.delete(asked.predicate)
            return DeleteFromTableResponse(version=dataset.version)

    def restore_table(self, request: Any) -> RestoreTableResponse:
        """A new version with the rows of an old one."""
        asked = read_request(RestoreTableRequest, request)
        with self.changed(asked, asked.branch, asked.version) as dataset:
            dataset.restore()  # type: ignore[no-untyped-call]
        return RestoreTableResponse()

    def get_table_stats(self, request: Any) -> GetTableStatsResponse:
        asked = read_request(GetTableStatsRequest, request)
        with self.opened(asked, asked.branch) as dataset:
            fields: Any = dataset.stats.data_stats().fields
            lengths = sorted(one.physical_rows - one.num_deletions for one in dataset.get_fragments())
            return GetTableStatsResponse(
                total_bytes=sum(one.bytes_on_disk for one in fields),
                num_rows=sum(lengths),
                num_indices=len(dataset.describe_indices()),
                fragment_stats=FragmentStats(
                    num_fragments=len(lengths),
                    num_small_fragments=dataset.stats.dataset_stats()["num_small_files"],
                    lengths=_summary(lengths),
                ),
            )

    @contextmanager
    def of_table(self, request: TableAbout) -> Iterator[None]:
        """What a request gets wrong is told after that its table is not there, as by Lance's own server."""
        try:
            yield
        except InvalidInputError:
            self.table_exists(TableExistsRequest(id=named(request.id)))
            raise

    def _write(self, request: TableAbout, rows: pa.Table, mode: str, branch: str | None = None) -> int:
        """Rows into a table that is there; its new version."""
        with self.changed(request, branch) as dataset:
            dataset.insert(rows, mode=mode)
            return int(dataset.version)

    def _write_new(self, request: CreateTableRequest, rows: pa.Table) -> int:
        """The first rows of a table that is not there, in a transaction: all is there then, or nothing."""
        table = named(request.id)
        declaring = DeclareTableRequest(id=table, properties=request.properties)
        try:
            with self.at_once(f"create {shown(table)}") as inside:
                inside.declare_table(declaring)
                return inside._write_first(table, rows)
        except CommitConflict as conflict:
            raise _taken(table) from conflict
        except PenstockError as problem:
            raise in_lance(problem) from problem

    @contextmanager
    def at_once(self, message: str) -> Iterator[DataOperations]:
        """A namespace whose commits land as one at the end."""
        if self.branch is None or self.branch.startswith(PREFIX):
            yield self
            return
        with self.lake.transaction(self.branch, message=message) as transaction:
            yield transaction.lance

    def _write_first(self, table: list[str], rows: pa.Table) -> int:
        """The first rows of a table that is declared."""
        import lance

        with lance_work(self, table) as namespace:
            try:
                dataset = lance.write_dataset(
                    rows, namespace_client=_DeclaredTable(namespace), table_id=table, mode="create"
                )
            except OSError as error:
                if not str(error).startswith("Dataset already exists: "):
                    raise
                raise _taken(table) from error
            return int(dataset.version)


class _DeclaredTable(Watched):
    """A namespace with a table that is declared already, which Lance would declare before it writes."""

    def declare_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        asked = read_request(DeclareTableRequest, request)
        there = self.describe_table(DescribeTableRequest(id=asked.id))
        return DeclareTableResponse(location=there.location, managed_versioning=there.managed_versioning)


def _taken(table: list[str]) -> TableAlreadyExistsError:
    return TableAlreadyExistsError(f"there is a table {shown(table)} already")


def _duration(said: str | None) -> timedelta | None:
    """``30s``, ``500ms``, ``2m``; seconds if no unit is given."""
    if said is None:
        return None
    match = _DURATION.fullmatch(said.strip())
    if match is None:
        raise InvalidInputError(f"'{said}' is no time such as 30s, 500ms or 2m")
    return timedelta(seconds=int(match[1]) * _UNITS_S[match[2] or "s"])


def _summary(lengths: Sequence[int]) -> FragmentSummary:
    """How many rows fragments have; ``lengths`` are sorted."""

    def at(share: float) -> int:
        return lengths[min(len(lengths) - 1, int(share * len(lengths)))] if lengths else 0

    return FragmentSummary(
        min=at(0),
        max=at(1),
        mean=sum(lengths) // len(lengths) if lengths else 0,
        p25=at(0.25),
        p50=at(0.5),
        p75=at(0.75),
        p99=at(0.99),
    )
