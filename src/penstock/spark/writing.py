"""Writing: the rows of a DataFrame become rows of a table, in one commit.

What happens to the rows that are there is decided when the commit has its turn, by what the table holds then.
Before, the job has written files that nobody sees; after a refusal they are removed, as far as it is certain
that no commit names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, overload
from uuid import UUID

from penstock.errors import CommitConflict, IdempotencyKeyReused, KeyNotFound, NotManaged
from penstock.formats.delta.lake.table import done_before
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.writes import creating, filling
from penstock.formats.delta.spark.writes.orders import Order, check
from penstock.formats.files.content import FilesTable
from penstock.formats.files.lake.answers import FilesWritten
from penstock.formats.files.spark import writing as files
from penstock.formats.files.spark.orders import FilesOrder, check_not_given, chosen_job, format_of
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.installed import require_lance
from penstock.formats.lance.spark.orders import LANCE, NOT_LANCE, LanceOrder, LanceWritten, order_of
from penstock.lake import calls
from penstock.lake.answers import Ratified
from penstock.lake.table_writing import EXISTS
from penstock.lake.write_jobs import SaveMode
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.spark.arguments import check_frame
from penstock.spark.sessions import lake_of
from penstock.spark.settings import as_text
from penstock.spark.write_arguments import is_dynamic, is_dynamic_to, mode_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.lake import Lake

TRIES_MAX: Final = 5
"""How often a job is run because somebody else created the table while it ran."""
FILES: Final = "is for tables of rows, and does not go with format='{}'"
ROWS: Final = "is for jobs that write files, and goes with a format of files, such as 'parquet'"


@overload
def write(
    df: DataFrame,
    key: str | Key,
    *,
    format: None = None,
    mode: str = ...,
    branch: str | None = ...,
    lake: Lake | None = ...,
    partition_by: str | Sequence[str] | None = ...,
    replace_where: str | None = ...,
    partition_overwrite: str | None = ...,
    merge_schema: bool = ...,
    overwrite_schema: bool = ...,
    create: bool = ...,
    properties: Mapping[str, str] | None = ...,
    description: str = ...,
    options: Mapping[str, Any] | None = ...,
    app_id: str | None = ...,
    batch: int | None = ...,
    message: str | None = ...,
    author: str | None = ...,
    idempotency_key: str | None = ...,
) -> Ratified | None: ...


@overload
def write(  # type: ignore[overload-overlap]
    df: DataFrame,
    key: str | Key,
    *,
    format: Literal["lance"],
    mode: str = ...,
    branch: str | None = ...,
    lake: Lake | None = ...,
    overwrite_schema: bool = ...,
    create: bool = ...,
    properties: Mapping[str, str] | None = ...,
    options: Mapping[str, Any] | None = ...,
    job_id: str | UUID | None = ...,
    message: str | None = ...,
    author: str | None = ...,
    idempotency_key: str | None = ...,
) -> LanceWritten | None: ...


@overload
def write(
    df: DataFrame,
    key: str | Key,
    *,
    format: str,
    mode: str = ...,
    branch: str | None = ...,
    lake: Lake | None = ...,
    partition_by: str | Sequence[str] | None = ...,
    partition_overwrite: str | None = ...,
    create: bool = ...,
    properties: Mapping[str, str] | None = ...,
    options: Mapping[str, Any] | None = ...,
    job_id: str | UUID | None = ...,
    job_branch: bool = ...,
    success_file: bool = ...,
    timeout_s: float | None = ...,
    message: str | None = ...,
    author: str | None = ...,
    idempotency_key: str | None = ...,
) -> FilesWritten | None: ...


def write(
    df: DataFrame,
    key: str | Key,
    *,
    format: str | None = None,  # noqa: A002
    mode: str = "append",
    branch: str | None = None,
    lake: Lake | None = None,
    partition_by: str | Sequence[str] | None = None,
    replace_where: str | None = None,
    partition_overwrite: str | None = None,
    merge_schema: bool = False,
    overwrite_schema: bool = False,
    create: bool = True,
    properties: Mapping[str, str] | None = None,
    description: str = "",
    options: Mapping[str, Any] | None = None,
    app_id: str | None = None,
    batch: int | None = None,
    job_id: str | UUID | None = None,
    job_branch: bool = False,
    success_file: bool = False,
    timeout_s: float | None = None,
    message: str | None = None,
    author: str | None = None,
    idempotency_key: str | None = None,
) -> Ratified | FilesWritten | LanceWritten | None:
    """Write the rows of a DataFrame to a table, which is created if it is not there and ``create`` says so.

    ``append`` adds them. ``overwrite`` puts them in the place of all rows; with ``partition_overwrite=
    "dynamic"`` of those in the partitions that the new rows are in, with ``replace_where`` of those for which
    a condition is true, as it must be for every new row. Where ``partition_overwrite`` is left out, the
    session's ``spark.sql.sources.partitionOverwriteMode`` holds, but not for ``replace_where``. ``error`` and
    ``ignore`` only create a table: ``CommitConflict`` if there is one, or nothing.

    Columns are found by name. ``merge_schema`` adds those that the table lacks, ``overwrite_schema`` puts the
    data's in the place of all of them. ``partition_by``, ``properties`` and ``description`` are for a table
    that is created; another partitioning of one that is there is refused. ``options`` are for Spark's Parquet
    writer. ``app_id`` and ``batch`` number what an application writes: a batch is written once, and none
    after a later one. What is written under an ``idempotency_key`` is written once, too. An append without
    rows is no commit, whatever its number.

    Returns what the commit came to, ``None`` if there was nothing to be done. ``InvalidRequest`` lists what
    does not fit. ``TableConflict`` if the table was changed meanwhile in a way that the rows do not fit, or,
    under a condition on other than partition columns, if others changed rows that it is true for.
    ``OutcomeUnknown`` if it cannot be known whether it was done: asking again under the same key tells.

    With a ``format`` such as ``parquet``, ``orc``, ``csv``, ``json``, ``text`` or ``avro`` the table is one
    of files in that format, as Spark writes them, ``options`` are that writer's, and ``properties`` are told
    by the commit, beside those that tell of the job: any names but theirs. Files of earlier jobs
    go as a whole, or by partition: what of the above is about rows and columns does not go with it.
    ``error`` is refused and ``ignore`` does nothing if the table has any file. Without rows there are no
    files: an overwrite then empties the table, and nothing else changes it; one that is not there comes with
    its columns alone. Appends have the partition columns that the table has.

    Such a write is a job, which the lake knows while it runs (``penstock jobs list``). ``job_id``, a UUID or
    any text, is the name of one that is done once however often it is tried; an ``idempotency_key`` is the
    same. A later attempt takes the place of one that still runs. After ``timeout_s`` it cannot commit any
    more. With ``job_branch`` it works on a branch of its own, which is merged at its end; ``success_file``
    adds ``_SUCCESS``, with a summary, in the same commit. ``JobsMeet`` warns of other jobs that write the
    same table. ``JobOver`` if it was aborted, superseded or took too long.

    With ``format="lance"`` it is a Lance table, whose rows tasks write as fragments. ``overwrite`` keeps its
    columns unless ``overwrite_schema`` is given. ``options`` are Lance's ``max_rows_per_file``,
    ``max_bytes_per_file`` and ``data_storage_version``; and ``vector.<column>`` says how many numbers the
    vectors of a column have, in a table that is created. ``job_id`` and ``properties`` are as for files.
    """
    check_frame(df)
    spark, chosen = df.sparkSession, mode_of(mode)
    by = (partition_by,) if isinstance(partition_by, str) else _tuple(partition_by)
    dynamic = (
        is_dynamic_to(spark, chosen, replace_where)
        if partition_overwrite is None
        else is_dynamic(partition_overwrite)
    )
    texts = {name: as_text(value) for name, value in (options or {}).items()}
    told = {name: as_text(value) for name, value in (properties or {}).items()}
    if (files_format := format_of(format)) == LANCE:
        of_others: dict[str, Any] = {"partition_by": by, "partition_overwrite": partition_overwrite}
        of_others |= {"replace_where": replace_where, "merge_schema": merge_schema, "app_id": app_id}
        of_others |= {"batch": batch, "description": description, "job_branch": job_branch}
        of_others |= {"success_file": success_file, "timeout_s": timeout_s}
        check_not_given(of_others, NOT_LANCE)
        found, table = lake_of(spark, lake), Key.parse(key)
        job = chosen_job(job_id, idempotency_key, table, branch or found.default_branch)
        is_named = job_id is not None or idempotency_key is not None
        of_lance = {"is_named": is_named, "create": create, "overwrite_schema": overwrite_schema}
        to_lance = order_of(chosen, texts, told, job, message, author, **of_lance)
        return _written_to_lance(df, found, table, branch, to_lance)
    if files_format is not None:
        of_rows: dict[str, Any] = {"replace_where": replace_where, "merge_schema": merge_schema}
        of_rows |= {"overwrite_schema": overwrite_schema, "app_id": app_id, "batch": batch}
        check_not_given(of_rows | {"description": description}, FILES.format(files_format))
        found, table = lake_of(spark, lake), Key.parse(key)
        wanted = FilesOrder(
            format=files_format,
            mode=chosen,
            partition_by=by,
            is_dynamic=dynamic,
            options=texts,
            create=create,
            success_file=success_file,
            job_branch=job_branch,
            job=chosen_job(job_id, idempotency_key, table, branch or found.default_branch),
            timeout_s=timeout_s,
            message=message,
            author=author,
            properties=told,
        )
        return files.write(df, found, table, branch, wanted)
    of_jobs = {"job_id": job_id, "job_branch": job_branch}
    check_not_given(of_jobs | {"success_file": success_file, "timeout_s": timeout_s}, ROWS)
    order = Order(
        mode=chosen,
        partition_by=by,
        replace_where=replace_where,
        is_dynamic=dynamic,
        merge_schema=merge_schema,
        overwrite_schema=overwrite_schema,
        properties=told,
        description=description,
        options=texts,
        app_id=app_id,
        batch=batch,
        said=calls.said(message, author),
        idempotency_key=idempotency_key,
    )
    check(order)
    return _written_once(df, lake_of(spark, lake), Key.parse(key), branch, order, create=create)


def _written_to_lance(
    df: DataFrame, lake: Lake, key: Key, branch: str | None, order: LanceOrder
) -> LanceWritten | None:
    require_lance()
    from penstock.formats.lance.spark import writing as lance

    return lance.write(df, lake, key, branch, order)


def _written_once(
    df: DataFrame, lake: Lake, key: Key, branch: str | None, order: Order, *, create: bool
) -> Ratified | None:
    lake.begin_write(makes_lake=create)
    where = branch if branch is not None else lake.default_branch
    try:
        return _written(df, lake, key, where, order, create=create)
    except IdempotencyKeyReused:
        # Under that key the same may have been written by somebody else while this job ran.
        known = done_before(lake, [key], where, order.idempotency_key)
        if known is None:
            raise
        return known


def _written(
    df: DataFrame, lake: Lake, key: Key, branch: str, order: Order, *, create: bool
) -> Ratified | None:
    if (known := done_before(lake, [key], branch, order.idempotency_key)) is not None:
        return known
    table = _found(lake, key, branch, order)
    for left in reversed(range(TRIES_MAX)):
        if table is not None and order.mode is SaveMode.IGNORE:
            return None
        if table is not None and order.mode is SaveMode.ERROR:
            raise CommitConflict(
                [Conflict(ConflictKind.FORMAT, key, why="exists already")], EXISTS.format(key=key)
            )
        if table is not None:
            return filling.fill(df, table, order)
        if not create:
            raise KeyNotFound(
                f"there is no '{key}' on '{branch}', and it is not to be created", key=str(key), ref=branch
            )
        try:
            return creating.create(df, lake, key, branch, order)
        except CommitConflict:
            if order.mode is SaveMode.ERROR or not left:
                raise
            # If somebody else has created it, what that means for this job is decided by what is there now.
            # Nothing else would become better by another job.
            table = _found(lake, key, branch, order)
            if table is None:
                raise
    raise AssertionError("the last try returns or raises")


def _found(lake: Lake, key: Key, branch: str, order: Order) -> JobTable | None:
    try:
        return JobTable(lake, key, branch, order.options)
    except KeyNotFound:
        return None
    except NotManaged:
        kind = lake.table(key, branch).unnoted.type
        if kind == LanceTable().type:
            raise NotManaged(
                f"'{key}' is a Lance table: write to it by format='lance'", key=str(key)
            ) from None
        if kind != FilesTable().type:
            raise
        raise NotManaged(
            f"'{key}' is a table of files: say in which format to write, as in format='parquet'",
            key=str(key),
        ) from None


def _tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
