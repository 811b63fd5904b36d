"""Writes files with Spark: output in any format becomes files of a table, all of them in one commit.

A job tells the lake that it begins, writes into a folder of its own that nobody sees, and sends one commit.
What becomes of the files that the table has is decided when that commit has its turn, by what is there then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import CommitConflict, InvalidRequest, KeyNotFound
from penstock.formats.files.lake import job_markers as files_beside
from penstock.formats.files.lake import save_job as files_save_job
from penstock.formats.files.lake.answers import FilesTableInfo, TableLayout
from penstock.formats.files.lake.calls import GetFilesTable
from penstock.formats.files.lake.save_job import FilesJob
from penstock.formats.files.spark import output
from penstock.formats.files.spark.attempts import JobAttempt
from penstock.lake.write_jobs import SaveMode, check_new_key, check_properties
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.spark.job.applications import get_application
from penstock.spark.job.concurrent_jobs import warn_of_others
from penstock.spark.requests import WriteRequest, WriteResult
from penstock.spark.scan.origins import list_origins
from penstock.spark.schemas import is_case_sensitive
from penstock.spark.write_arguments import (
    check_reserved_option,
    choose_job_id,
    overwrites_partitions,
    partition_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.lake import Lake


AS_THE_TABLE: Final = (
    "\n  The table is partitioned in this way; partition_by=() overwrites it with files without partitions."
)


def write_files(df: DataFrame, request: WriteRequest) -> WriteResult | None:
    """Write the rows of a DataFrame as files of a table; ``None`` if that changes nothing.

    ``CommitConflict`` if the table is not as the mode wants it when the commit has its turn, ``JobOver`` if
    the job was aborted, superseded or took too long. Whatever it fails for, the table stays as it was, and
    the job can never land afterwards; only after ``OutcomeUnknown`` it may have, and asking again tells.
    """
    lake, key = request.lake, request.key
    job, by = make_job(df.sparkSession, request), partition_columns(request)
    job_id = choose_job_id(request)
    lake.begin_write(makes_lake=job.create)
    attempt = JobAttempt(lake, job, job_id)
    if attempt.is_over:
        return attempt.find_landed_result()
    with attempt.abort_on_failure():
        warn_of_others(attempt.others)
        table = _find_table(lake, key, request.branch)
        if table is None:
            _check_new(attempt)
        elif table.files and job.mode is SaveMode.IGNORE:
            attempt.abort(f"'{key}' already has files, so nothing was written")
            return None
        elif table.files and job.mode is SaveMode.ERROR:
            why = f"already has files: {table.files}; nothing was written"
            raise CommitConflict([Conflict(ConflictKind.FORMAT, key, why=why)])
        layout = _make_layout(df, request, by, table)
        job = msgspec.structs.replace(job, layout=layout, read=tuple(list_origins(df)))
        if table is not None:
            files_save_job.check_fits(job, table)
        return _write_and_commit(df, attempt, job, request.options)


def _write_and_commit(
    df: DataFrame, attempt: JobAttempt, job: FilesJob, options: dict[str, str]
) -> WriteResult | None:
    target = output.OutputTarget(
        pool=attempt.pool,
        folder=attempt.folder,
        format=job.layout.format,
        partition_by=job.layout.partition_by,
        options=options,
    )
    finished_output = output.write_output(df, target, attempt.fence)
    marker = None
    if job.success_file:
        marker = files_beside.put_marker(
            attempt.pool, attempt.folder, job, attempt.job, finished_output, attempt.began
        )
    written = attempt.commit(
        files_save_job.make_commit_call(
            job, attempt.job, attempt.fence.hex, attempt.folder, finished_output, marker
        )
    )
    if written.commit is None:
        return None
    return WriteResult(
        key=job.key, branch=attempt.branch, commit=written.commit, rows=finished_output.rows, job=attempt.job
    )


def _find_table(lake: Lake, key: Key, branch: str | None) -> FilesTableInfo | None:
    """The table, or ``None``. ``NotManaged`` if the key holds something else: fails before rows are
    written."""
    try:
        return lake.do(GetFilesTable(key=key, at=branch))
    except KeyNotFound:
        return None


def _check_new(attempt: JobAttempt) -> None:
    key = attempt.order.key
    check_new_key(key)
    if not attempt.order.create:
        raise KeyNotFound(
            f"there is no '{key}' on '{attempt.branch}', and create is False",
            key=str(key),
            ref=attempt.branch,
        )


def _make_layout(
    df: DataFrame, request: WriteRequest, chosen: tuple[str, ...] | None, table: FilesTableInfo | None
) -> TableLayout:
    """How the files are to be read. Partition columns that are not named are those that the table has."""
    if chosen is not None or table is None:
        by = _check_partition_columns(df, chosen or ())
    else:
        by = _check_partition_columns(df, table.layout.partition_by, AS_THE_TABLE)
    return TableLayout(
        format=request.source,
        partition_by=by,
        schema=df.schema.json(),
        options=files_save_job.select_reader_options(request.options),
    )


def _check_partition_columns(df: DataFrame, names: tuple[str, ...], hint: str = "") -> tuple[str, ...]:
    """Columns to partition by, as the data spells them; ``InvalidRequest`` if they cannot be."""
    folded = str if is_case_sensitive(df.sparkSession) else str.lower
    columns = {folded(column): column for column in df.columns}
    for name in names:
        if folded(name) not in columns:
            shown_columns = ", ".join(df.columns)
            raise InvalidRequest(
                f"there is no column '{name}' to partition by; the columns are {shown_columns}{hint}"
            )
    chosen = tuple(columns[folded(name)] for name in names)
    if len(set(chosen)) < len(chosen):
        raise InvalidRequest(f"a column is given twice as a partition column: {', '.join(names)}")
    if chosen and len(chosen) == len(columns):
        raise InvalidRequest("the data has no columns besides the partition columns")
    return chosen


def make_job(spark: SparkSession, request: WriteRequest) -> FilesJob:
    """What is known of a job before anything is asked of the lake.

    ``InvalidRequest`` for what does not go together, or is not the caller's to say.
    """
    is_dynamic = overwrites_partitions(spark, request)
    if is_dynamic and request.mode is not SaveMode.OVERWRITE:
        raise InvalidRequest(
            f"'partition_overwrite' can only be used with mode='overwrite', not with '{request.mode}'"
        )
    check_properties(request.properties)
    for name in request.options:
        if name.lower() == "partitionoverwritemode":
            raise InvalidRequest(f"give '{name}' as the argument 'partition_overwrite'")
        check_reserved_option(name)
    application = get_application(spark)
    return FilesJob(
        key=request.key,
        branch=request.branch,
        mode=request.mode,
        is_dynamic=is_dynamic,
        layout=TableLayout(format=request.source),
        create=request.create,
        own_branch=request.extra.get("job_branch", False),
        success_file=request.extra.get("success_file", False),
        timeout_s=_get_timeout_s(request),
        application=application.id,
        application_name=application.name,
        message=request.message,
        author=request.author,
        properties=request.properties,
    )


def _get_timeout_s(request: WriteRequest) -> float | None:
    timeout_s = request.extra.get("timeout_s")
    if timeout_s is not None and (not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool)):
        raise InvalidRequest(f"'timeout_s' must be a number of seconds, got {timeout_s!r}")
    return timeout_s
