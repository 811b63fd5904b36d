"""``write``: the rows of a DataFrame become rows of a table, in one commit.

What happens to the rows that are there is decided when the commit has its turn, by what the table holds then.
Before, the job has written files that nobody sees; after a refusal they are removed, as far as it is certain
that no commit names them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from penstock.errors import InvalidRequest, NotManaged, PenstockError
from penstock.model.keys import Key
from penstock.spark.arguments import check_frame
from penstock.spark.format import (
    SparkFormat,
    check_known,
    check_options,
    default_format,
    find_format,
    get_named_format,
    spark_formats,
)
from penstock.spark.requests import WriteOptions, WriteRequest, WriteResult
from penstock.spark.session_lakes import get_lake
from penstock.spark.settings import as_text
from penstock.spark.write_arguments import parse_mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.lake import Lake

_OF_ALL: Final = frozenset({"create", "options", "properties"})
"""The further arguments of a write that every format takes."""


def write(
    df: DataFrame,
    key: str | Key,
    *,
    format: str | None = None,  # noqa: A002 - as Spark's writer calls it
    mode: str = "append",
    branch: str | None = None,
    lake: Lake | None = None,
    message: str | None = None,
    author: str | None = None,
    idempotency_key: str | None = None,
    **more: Unpack[WriteOptions],
) -> WriteResult | None:
    """Write the rows of a DataFrame to a table, which is created if it does not exist and ``create`` is true.

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
    adds ``_SUCCESS``, with a summary, in the same commit. ``ConcurrentJobsWarning`` warns of other jobs that
    write the same table. ``JobOver`` if it was aborted, superseded or took too long.

    With ``format="lance"`` it is a Lance table, whose rows tasks write as fragments. ``overwrite`` keeps its
    columns unless ``overwrite_schema`` is given. ``options`` are Lance's ``max_rows_per_file``,
    ``max_bytes_per_file`` and ``data_storage_version``; and ``vector.<column>`` says how many numbers the
    vectors of a column have, in a table that is created. ``job_id`` and ``properties`` are as for files.
    """
    check_frame(df)
    chosen, source = _parse_format(format)
    request = WriteRequest(
        lake=get_lake(df.sparkSession, lake),
        key=Key.parse(key),
        branch=branch,
        source=source,
        mode=parse_mode(mode),
        message=message,
        author=author,
        idempotency_key=idempotency_key,
    )
    return write_request(df, chosen, request, more)


def write_request(
    df: DataFrame, chosen: SparkFormat, request: WriteRequest, more: WriteOptions
) -> WriteResult | None:
    """Do a write as ``request`` and further arguments say. Raises as ``write``."""
    check_write_options(chosen, request.source, more)
    request = replace(
        request,
        create=more.get("create", True),
        options=_option_texts(more.get("options")),
        properties=_option_texts(more.get("properties")),
        extra=cast("WriteOptions", {name: value for name, value in more.items() if name not in _OF_ALL}),
    )
    try:
        return chosen.write_rows(df, request)
    except NotManaged as problem:
        raise _wrong_format_error(problem, chosen, request) from None


def check_write_options(chosen: SparkFormat, source: str, write_options: WriteOptions) -> None:
    """``InvalidRequest`` for an argument that no write has, or that the format does not take."""
    check_known(
        write_options,
        _OF_ALL.union(*(spark_format.write_options for spark_format in spark_formats())),
        "a write",
    )
    check_options(write_options, _OF_ALL | chosen.write_options, chosen.others_options.format(source))


def _parse_format(name: Any) -> tuple[SparkFormat, str]:
    """The format that a write names, and its name as Spark spells it."""
    if name is None:
        return default_format(), ""
    if not isinstance(name, str) or not name.strip():
        raise InvalidRequest(f"'format' must be the name of a format, such as 'parquet', got {name!r}")
    source = name.strip()
    if "." not in source:  # else it is the name of a class
        source = source.lower()
    return get_named_format(source), source


def _wrong_format_error(problem: NotManaged, chosen: SparkFormat, request: WriteRequest) -> PenstockError:
    """What is said of a table of another format where a write names none."""
    if not chosen.is_default:
        return problem
    target_format = find_format(request.lake.table(request.key, request.branch_name).outside_read_set)
    if target_format is None or target_format is chosen:
        return problem
    return NotManaged(
        f"'{request.key}' is a {target_format.described}: {target_format.write_hint}", key=str(request.key)
    )


def _option_texts(given: Any) -> dict[str, str]:
    return {name: as_text(value) for name, value in (given or {}).items()}
