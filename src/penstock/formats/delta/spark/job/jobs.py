"""Jobs: Spark writes the rows of a DataFrame to files below a table, and tells which files these are.

The files are durable, and no part of the table: that takes a commit, which the caller makes. Files of
attempts that lost, and of jobs that failed, are in nobody's list, so no commit can name them.

Where the session has Penstock's jar, tasks write straight to the files' final names and their names come to
the driver in the tasks' messages. Where it has not, the job writes into a folder of its own, Spark's own
committer decides which files are in it, and what is there afterwards is the list (``job_without_jar``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake.job_outputs import CHANGES, JobTarget, ParquetOutput
from penstock.formats.delta.spark.job import job_without_jar
from penstock.spark import jar
from penstock.spark.addresses import spark_address
from penstock.spark.job.parquet_settings import MICROSECONDS, UNSHREDDED, hold_settings
from penstock.spark.job.task_files import take_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

SETTINGS: Final = {
    **MICROSECONDS,
    **UNSHREDDED,
    # Lists and decimals as only old readers want them.
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "true",
}
"""Of the session, while it writes files of a Delta table."""
CALENDARS: Final = (
    "spark.sql.parquet.datetimeRebaseModeInWrite",
    "spark.sql.parquet.int96RebaseModeInWrite",
)
"""In which calendar a session counts the days that it writes."""


def write_rows(df: DataFrame, target: JobTarget, job: UUID) -> list[ParquetOutput]:
    """Write all rows, and return the files that hold them, each row once.

    ``job`` is new for every run. Whatever Spark raises comes through; no list is given then.
    ``InvalidRequest`` where the session would write days that others read as other days.
    """
    _check_calendar(df)
    with hold_settings(df.sparkSession, SETTINGS):
        return _write_rows(df, target, job)


def _write_rows(df: DataFrame, target: JobTarget, job: UUID) -> list[ParquetOutput]:
    if not jar.has_protocol(df.sparkSession):
        return job_without_jar.write_rows(df, target, job)
    columns = msgspec.json.encode(target.columns).decode()
    settings = {
        "penstock.attempt": job.hex,
        "penstock.columns": columns,
        "penstock.subdirectory": target.subdirectory,
        "penstock.prefix.length": str(target.prefix_length),
        "penstock.changes": str(target.has_changes).lower(),
    }
    by = ((CHANGES,) if target.has_changes else ()) + target.partition_by
    writer = df.write.mode("append").options(**target.options, **settings)
    if by:
        writer = writer.partitionBy(*by)
    writer.parquet(spark_address(target.place.url))
    files = take_files(df.sparkSession, job, ParquetOutput)
    if files is None:
        setting = jar.COMMIT_PROTOCOL_SETTING
        used = df.sparkSession.conf.get(setting, None) or "its own"
        raise InvalidRequest(
            f"Spark used the commit protocol {used} instead of Penstock's; nothing was committed\n  Set it "
            f"back: spark.conf.set('{setting}', '{jar.COMMIT_PROTOCOL}').",
            setting=setting,
        )
    return files


def _check_calendar(df: DataFrame) -> None:
    """Spark has no option of a single write for this: what the session is told holds for all that it writes.

    In the old calendar days before 1582 get other numbers. Only Spark counts these back again, and bounds of
    files would be those of other days.
    """
    settings = {name: str(df.sparkSession.conf.get(name)).upper() for name in CALENDARS}
    old = [name for name, mode in settings.items() if mode == "LEGACY"]
    if old and _has_days(df.schema):
        raise InvalidRequest(
            "the session writes dates and times in the legacy calendar, which tables do not support: "
            f"{old[0]} is LEGACY\n  Set it to CORRECTED: spark.conf.set('{old[0]}', 'CORRECTED').",
            setting=old[0],
        )


def _has_days(kind: DataType) -> bool:
    from pyspark.sql import types as t

    match kind:
        case t.StructType():
            return any(_has_days(field.dataType) for field in kind.fields)
        case t.ArrayType():
            return _has_days(kind.elementType)
        case t.MapType():
            return _has_days(kind.keyType) or _has_days(kind.valueType)
        case _:
            return isinstance(kind, t.DateType | t.TimestampType)
