"""Arguments of a write that mean the same for several formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import InvalidRequest
from penstock.lake.write_jobs import SaveMode, make_job_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.requests import WriteRequest

OVERWRITE_SETTING: Final = "spark.sql.sources.partitionOverwriteMode"
_SPARKS_ERROR: Final = frozenset({"errorifexists", "default"})
_OURS: Final = ("penstock.", "mapreduce.fileoutputcommitter.")
_COMMITTERS: Final = frozenset({
    "path",
    "spark.sql.sources.commitprotocolclass",
    "spark.sql.sources.outputcommitterclass",
    "spark.sql.parquet.output.committer.class",
})  # fmt: skip


def parse_mode(text: str) -> SaveMode:
    """The mode of a name, which may be Spark's own. ``InvalidRequest`` if there is none."""
    name = str(text).lower()
    try:
        return SaveMode("error" if name in _SPARKS_ERROR else name)
    except ValueError:
        raise InvalidRequest(f"unknown mode {text!r}; the modes are {', '.join(SaveMode)}") from None


def is_dynamic(text: str) -> bool:
    """Whether only partitions that get new rows are overwritten."""
    name = str(text).lower()
    if name not in {"static", "dynamic"}:
        raise InvalidRequest(f"'partition_overwrite' must be 'static' or 'dynamic', got {text!r}")
    return name == "dynamic"


def overwrites_partitions(spark: SparkSession, request: WriteRequest) -> bool:
    """Whether only partitions that get new rows are overwritten: as the write says, or else its session.

    What the session says is for plain overwrites: others say what they replace.
    """
    extra = request.extra
    if (chosen := extra.get("partition_overwrite")) is not None:
        return is_dynamic(chosen)
    if request.mode is not SaveMode.OVERWRITE or extra.get("replace_where") is not None:
        return False
    return is_dynamic(str(spark.conf.get(OVERWRITE_SETTING, "static")))


def partition_columns(request: WriteRequest) -> tuple[str, ...] | None:
    """The columns that a write partitions by. ``InvalidRequest`` for what names no columns."""
    columns = request.extra.get("partition_by")
    names = (columns,) if isinstance(columns, str) else None if columns is None else tuple(columns)
    check_partition_columns(names)
    return names


def choose_job_id(request: WriteRequest) -> str:
    """The id of a job: a new one unless its caller names it. ``InvalidRequest`` if it is named twice."""
    job = request.extra.get("job_id")
    if job is not None and request.idempotency_key is not None:
        raise InvalidRequest("'job_id' and 'idempotency_key' mean the same for files; give one of them")
    id_given = job if job is not None else request.idempotency_key
    return make_job_id(None if id_given is None else str(id_given), request.key, request.branch_name)


def check_partition_columns(names: tuple[str, ...] | None) -> None:
    """``InvalidRequest`` for what names no columns to partition by."""
    for column in names or ():
        if not isinstance(column, str):
            raise InvalidRequest(
                "'partition_by' must be names of columns, as in partition_by='day', got "
                f"{type(column).__name__}"
            )


def check_reserved_option(name: str) -> None:
    """``InvalidRequest`` for an option by which a job would write elsewhere, or be committed by others."""
    small = str(name).lower()
    if small.startswith(_OURS) or small in _COMMITTERS:
        raise InvalidRequest(
            f"the option '{name}' is reserved: Penstock chooses the output path and the committer"
        )
