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
from penstock.formats.lance.lake.data_errors import WatchedNamespace, format_table_name, watch_lance_work
from penstock.formats.lance.lake.data_indexes import IndexOperations
from penstock.formats.lance.lake.data_queries import QueryOperations
from penstock.formats.lance.lake.data_requests import normalise_mode, read_request, require_table_id
from penstock.formats.lance.lake.dataset_access import TableAbout
from penstock.formats.lance.lake.errors import to_lance_error
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
        parsed_request = read_request(CreateTableRequest, request)
        rows = read_rows(request_data)
        mode = normalise_mode(parsed_request.mode, "create", "create", "exist_ok", "overwrite")
        if parsed_request.storage_options:
            raise UnsupportedOperationError("storage options of a request are not supported")
        self.require_writable()
        for _ in range(TRIES_MAX):
            try:
                return self._create_or_overwrite(parsed_request, rows, mode)
            except TableAlreadyExistsError:
                if mode == "create":
                    raise
        raise ConcurrentModificationError(
            f"{format_table_name(require_table_id(parsed_request.id))} "
            "was created and dropped by others during "
            "every try; try again"
        )

    def _create_or_overwrite(
        self, request: CreateTableRequest, rows: pa.Table, mode: str
    ) -> CreateTableResponse:
        table = require_table_id(request.id)
        try:
            target_table = self.describe_table(DescribeTableRequest(id=table, check_declared=True))
        except TableNotFoundError:
            version: int | None = self._write_new(request, rows)
            target_table = self.describe_table(DescribeTableRequest(id=table))
        else:
            if target_table.is_only_declared:
                version = self._write_first(table, rows)
            elif mode == "create":
                raise _table_exists_error(table)
            else:
                version = self._write_rows(request, rows, mode) if mode == "overwrite" else None
        return CreateTableResponse(
            location=target_table.location, version=version, properties=target_table.properties
        )

    def insert_into_table(self, request: Any, request_data: bytes) -> InsertIntoTableResponse:
        parsed_request = read_request(InsertIntoTableRequest, request)
        mode = normalise_mode(parsed_request.mode, "append", "append", "overwrite")
        with self.check_table_first(parsed_request):
            rows = read_rows(request_data)
        version = self._write_rows(parsed_request, rows, mode, parsed_request.branch)
        return InsertIntoTableResponse(num_inserted_rows=rows.num_rows, version=version)

    def merge_insert_into_table(self, request: Any, request_data: bytes) -> MergeInsertIntoTableResponse:
        parsed_request = read_request(MergeInsertIntoTableRequest, request)
        with self.check_table_first(parsed_request):
            if not parsed_request.on:
                raise InvalidInputError("'on' must name the columns by which rows are matched")
            rows, limit = read_rows(request_data), _parse_duration(parsed_request.timeout)
        with self.open_to_write(parsed_request, parsed_request.branch) as dataset:
            merge = dataset.merge_insert(parsed_request.on)
            if parsed_request.when_matched_update_all:
                merge = merge.when_matched_update_all(parsed_request.when_matched_update_all_filt)
            if parsed_request.when_not_matched_insert_all:
                merge = merge.when_not_matched_insert_all()
            if parsed_request.when_not_matched_by_source_delete:
                merge = merge.when_not_matched_by_source_delete(
                    parsed_request.when_not_matched_by_source_delete_filt
                )
            if limit is not None:
                merge = merge.retry_timeout(limit)
            merged = merge.execute(rows)
            return MergeInsertIntoTableResponse(
                num_updated_rows=merged["num_updated_rows"],
                num_inserted_rows=merged["num_inserted_rows"],
                num_deleted_rows=merged["num_deleted_rows"],
                version=dataset.version,
            )

    def update_table(self, request: Any) -> UpdateTableResponse:
        parsed_request = read_request(UpdateTableRequest, request)
        updates = dict(parsed_request.updates)
        if not updates or len(updates) != len(parsed_request.updates):
            raise InvalidInputError("'updates' must have at least one column, and each column only once")
        with self.open_to_write(parsed_request, parsed_request.branch) as dataset:
            updated = dataset.update(updates, where=parsed_request.predicate or None)
            return UpdateTableResponse(updated_rows=updated["num_rows_updated"], version=dataset.version)

    def delete_from_table(self, request: Any) -> DeleteFromTableResponse:
        parsed_request = read_request(DeleteFromTableRequest, request)
        with self.open_to_write(parsed_request, parsed_request.branch) as dataset:
            dataset.delete(parsed_request.predicate)
            return DeleteFromTableResponse(version=dataset.version)

    def restore_table(self, request: Any) -> RestoreTableResponse:
        """A new version with the rows of an old one."""
        parsed_request = read_request(RestoreTableRequest, request)
        with self.open_to_write(parsed_request, parsed_request.branch, parsed_request.version) as dataset:
            dataset.restore()  # type: ignore[no-untyped-call]
        return RestoreTableResponse()

    def get_table_stats(self, request: Any) -> GetTableStatsResponse:
        parsed_request = read_request(GetTableStatsRequest, request)
        with self.open_dataset(parsed_request, parsed_request.branch) as dataset:
            fields: Any = dataset.stats.data_stats().fields
            lengths = sorted(
                fragment.physical_rows - fragment.num_deletions for fragment in dataset.get_fragments()
            )
            return GetTableStatsResponse(
                total_bytes=sum(field.bytes_on_disk for field in fields),
                num_rows=sum(lengths),
                num_indices=len(dataset.describe_indices()),
                fragment_stats=FragmentStats(
                    num_fragments=len(lengths),
                    num_small_fragments=dataset.stats.dataset_stats()["num_small_files"],
                    lengths=_summarize_lengths(lengths),
                ),
            )

    @contextmanager
    def check_table_first(self, request: TableAbout) -> Iterator[None]:
        """What a request gets wrong is told after that its table is not there, as by Lance's own server."""
        try:
            yield
        except InvalidInputError:
            self.table_exists(TableExistsRequest(id=require_table_id(request.id)))
            raise

    def _write_rows(self, request: TableAbout, rows: pa.Table, mode: str, branch: str | None = None) -> int:
        """Rows into a table that is there; its new version."""
        with self.open_to_write(request, branch) as dataset:
            dataset.insert(rows, mode=mode)
            return int(dataset.version)

    def _write_new(self, request: CreateTableRequest, rows: pa.Table) -> int:
        """The first rows of a table that is not there, in a transaction: all is there then, or nothing."""
        table = require_table_id(request.id)
        declaring = DeclareTableRequest(id=table, properties=request.properties)
        try:
            with self.commit_at_once(f"create {format_table_name(table)}") as inside:
                inside.declare_table(declaring)
                return inside._write_first(table, rows)
        except CommitConflict as conflict:
            raise _table_exists_error(table) from conflict
        except PenstockError as problem:
            raise to_lance_error(problem) from problem

    @contextmanager
    def commit_at_once(self, message: str) -> Iterator[DataOperations]:
        """A namespace whose commits land as one at the end."""
        if self.branch is None or self.branch.startswith(PREFIX):
            yield self
            return
        with self.lake.transaction(self.branch, message=message) as transaction:
            yield transaction.lance

    def _write_first(self, table: list[str], rows: pa.Table) -> int:
        """The first rows of a table that is declared."""
        import lance

        with watch_lance_work(self, table) as namespace:
            try:
                dataset = lance.write_dataset(
                    rows, namespace_client=_DeclaredTable(namespace), table_id=table, mode="create"
                )
            except OSError as error:
                if not str(error).startswith("Dataset already exists: "):
                    raise
                raise _table_exists_error(table) from error
            return int(dataset.version)


class _DeclaredTable(WatchedNamespace):
    """A namespace with a table that is declared already, which Lance would declare before it writes."""

    def declare_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        parsed_request = read_request(DeclareTableRequest, request)
        table = self.describe_table(DescribeTableRequest(id=parsed_request.id))
        return DeclareTableResponse(location=table.location, managed_versioning=table.managed_versioning)


def _table_exists_error(table: list[str]) -> TableAlreadyExistsError:
    return TableAlreadyExistsError(f"the table {format_table_name(table)} already exists")


def _parse_duration(text: str | None) -> timedelta | None:
    """``30s``, ``500ms``, ``2m``; seconds if no unit is given."""
    if text is None:
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidInputError(f"invalid duration '{text}'; write it like 30s, 500ms or 2m")
    return timedelta(seconds=int(match[1]) * _UNITS_S[match[2] or "s"])


def _summarize_lengths(lengths: Sequence[int]) -> FragmentSummary:
    """How many rows fragments have; ``lengths`` are sorted."""

    def find_percentile(share: float) -> int:
        return lengths[min(len(lengths) - 1, int(share * len(lengths)))] if lengths else 0

    return FragmentSummary(
        min=find_percentile(0),
        max=find_percentile(1),
        mean=sum(lengths) // len(lengths) if lengths else 0,
        p25=find_percentile(0.25),
        p50=find_percentile(0.5),
        p75=find_percentile(0.75),
        p99=find_percentile(0.99),
    )
