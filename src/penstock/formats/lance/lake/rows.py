"""Rows of Lance tables for programs: read and written by Lance itself, through the lake's namespace.

What fails is told as Penstock tells it, whether Lance or the lake refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from penstock.errors import (
    CommitConflict,
    IdempotencyKeyReused,
    InvalidRequest,
    PenstockError,
    VersionNotFound,
)
from penstock.formats.lance.lake.calls import GetLanceTable, ListLanceVersions
from penstock.formats.lance.lake.failures import own_errors
from penstock.formats.lance.lake.jobs import CommittedJob, JobNamespace, LanceJob, find_landing
from penstock.formats.rows.arrow_types import pa
from penstock.lake.answers import CommittedTable, TableCommitResult
from penstock.lake.calls import CommitDescription
from penstock.lake.row_input import is_stream, open_row_reader
from penstock.model.commits import Commit
from penstock.model.transactions import is_transaction

if TYPE_CHECKING:
    from penstock.lake.table import Table

TRIES_MAX: Final = 3
"""How often rows are written in a transaction whose target moves while they are."""


def open_lance_dataset(table: Table, **options: Any) -> Any:
    """A table as Lance's own dataset, at the version that it has now, or that the options name."""
    table.lake.do(GetLanceTable(key=table.key, at=table.ref, via=table.via))  # or it is said what it is
    if isinstance(version := options.get("version"), int):
        require_version(table, version)
    namespace = table.lake.lance(table.ref, via=table.via)
    if not table.is_noted:
        namespace = namespace.outside_read_set
    import lance

    with own_errors(namespace, table.key):
        # What is done with it later is between Lance and the namespace itself.
        return lance.dataset(namespace_client=namespace, table_id=[*table.key], **options)


def to_arrow(table: Table, columns: Sequence[str] | None, where: str | None) -> Any:
    """The rows as a ``pyarrow.Table``. ``where`` is a condition as Lance reads it."""
    dataset = open_lance_dataset(table)
    with own_errors(table.lake.lance(table.ref, via=table.via), table.key):
        return dataset.to_table(columns=None if columns is None else list(columns), filter=where)


def require_version(table: Table, wanted: int | None = None) -> int:
    """The newest version of a table, or the requested one. ``VersionNotFound`` if it does not exist."""
    call = ListLanceVersions(key=table.key, at=table.ref, via=table.via, version=wanted, limit=1)
    for version in table.lake.do(call):
        return version.version
    if wanted is None:
        raise VersionNotFound(f"'{table.key}' has no version yet, so it has no columns", table=str(table.key))
    raise VersionNotFound(f"'{table.key}' has no version {wanted}", table=str(table.key), version=wanted)


# -- writing -----------------------------------------------------------------------------------------------


def write_rows(
    table: Table, data: Any, mode: str, description: CommitDescription, idempotency_key: str | None
) -> TableCommitResult:
    """Append rows, or put them in the place of all that there are, as one version and one commit."""
    if table.via is not None:
        raise InvalidRequest(f"{table!r} was opened at a commit, which cannot change; write to a branch")
    if (
        idempotency_key is not None
        and (earlier_write := find_earlier_write(table, idempotency_key)) is not None
    ):
        return earlier_write
    table.lake.begin_write(makes_lake=False)
    job = LanceJob(
        key=table.key,
        branch=table.ref,
        id=idempotency_key or uuid4().hex,
        id_name="idempotency_key",
        said=description,
    )
    try:
        committed = _write_and_commit(table, data, mode, job)
    except IdempotencyKeyReused:
        # Under that key the same may have been written by somebody else at the same time.
        if (earlier_write := find_earlier_write(table, job.id)) is None:
            raise
        return earlier_write
    return make_commit_result(table, committed.head, committed.commit, committed.version)


def _write_and_commit(table: Table, data: Any, mode: str, job: LanceJob) -> CommittedJob:
    """Have Lance write rows and commit them; in a transaction once more if its target moved meanwhile.

    Lance finds the target's new versions in the folder that both share, and wants to come after them. Opened
    again, the table has a folder of the transaction's own.
    """
    import lance

    def write_dataset(client: Any) -> Any:
        return lance.write_dataset(source.rows, namespace_client=client, table_id=[*table.key], mode=mode)

    tries = TRIES_MAX if is_transaction(table.ref) and not is_stream(data) else 1
    for tries_left in reversed(range(tries)):
        source = LanceRowSource(data)
        try:
            with source.source_errors_raised():
                return JobNamespace(table.lake, job).run_lance_job(write_dataset)
        except CommitConflict:
            if not tries_left:
                raise
    raise AssertionError("unreachable: the last attempt neither returned nor raised an error")


class LanceRowSource:
    """Rows on their way to Lance, which knows of whatever their source raises only that it did."""

    def __init__(self, data: Any) -> None:
        self.rows = _to_arrow_rows(data)
        self._problem: Exception | None = None
        if isinstance(self.rows, pa.RecordBatchReader):
            self.rows = pa.RecordBatchReader.from_batches(self.rows.schema, self._read_batches(self.rows))

    def _read_batches(self, rows: Any) -> Iterator[Any]:
        try:
            yield from rows
        except Exception as problem:
            self._problem = problem
            raise

    @contextmanager
    def source_errors_raised(self) -> Iterator[None]:
        """A block that writes these rows. If the source of the rows failed, its error is raised."""
        try:
            yield
        except PenstockError:
            if self._problem is None:
                raise
        else:
            return
        raise self._problem


def _to_arrow_rows(data: Any) -> Any:
    """Rows as Lance takes them; ``InvalidRequest`` for what are none, or have a column twice."""
    rows = open_row_reader(data)
    names = rows.schema.names
    repeated_names = sorted({name for name in names if names.count(name) > 1})
    if repeated_names:
        raise InvalidRequest(f"the rows have duplicate columns: {', '.join(map(repr, repeated_names))}")
    return rows


def find_earlier_write(table: Table, idempotency_key: str) -> TableCommitResult | None:
    """The result of an earlier write with the same idempotency key: its files have new names each time."""
    landing = find_landing(table.lake, idempotency_key, table.key, table.ref)
    if landing is None:
        return None
    call = ListLanceVersions(key=table.key, at=landing.head, via=table.ref, limit=1)
    (version,) = table.lake.do(call)
    return make_commit_result(table, landing.head, landing.commit, version.version, is_repeated=True)


def make_commit_result(
    table: Table, head: str, commit: Commit | None, version: int, *, is_repeated: bool = False
) -> TableCommitResult:
    call = ListLanceVersions(key=table.key, at=head, via=table.ref, version=version)
    (found_version,) = table.lake.do(call)
    time_ms = 0 if found_version.created is None else round(found_version.created.timestamp() * 1000)
    name = found_version.manifest.rpartition("/")[2]
    ratified_table = CommittedTable(
        key=table.key, version=version, name=name, timestamp_ms=time_ms, repeated=is_repeated
    )
    return TableCommitResult(
        commit=commit or table.lake.show(f"{table.ref}@{head}"), tables=(ratified_table,)
    )
