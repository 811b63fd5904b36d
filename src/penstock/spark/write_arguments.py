"""Arguments of a write that mean the same for every format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import InvalidRequest
from penstock.lake.write_jobs import SaveMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OVERWRITE_SETTING: Final = "spark.sql.sources.partitionOverwriteMode"


_SPARKS_ERROR: Final = frozenset({"errorifexists", "default"})


_OURS: Final = ("penstock.", "mapreduce.fileoutputcommitter.")


_COMMITTERS: Final = frozenset({
    "path",
    "spark.sql.sources.commitprotocolclass",
    "spark.sql.sources.outputcommitterclass",
    "spark.sql.parquet.output.committer.class",
})  # fmt: skip


def mode_of(text: str) -> SaveMode:
    """The mode of a name, which may be Spark's own. ``InvalidRequest`` if there is none."""
    name = str(text).lower()
    try:
        return SaveMode("error" if name in _SPARKS_ERROR else name)
    except ValueError:
        raise InvalidRequest(f"{text!r} is no mode; there are {', '.join(SaveMode)}") from None


def is_dynamic(text: str) -> bool:
    """Whether only partitions that get new rows are overwritten."""
    name = str(text).lower()
    if name not in {"static", "dynamic"}:
        raise InvalidRequest(f"'partition_overwrite' is 'static' or 'dynamic', not {text!r}")
    return name == "dynamic"


def is_dynamic_to(spark: SparkSession, mode: SaveMode, replace_where: str | None) -> bool:
    """Whether a session says so, for a write that does not say it itself.

    What the session says is for plain overwrites: others say what they replace.
    """
    if mode is not SaveMode.OVERWRITE or replace_where is not None:
        return False
    return is_dynamic(str(spark.conf.get(OVERWRITE_SETTING, "static")))


def check_columns(names: tuple[str, ...] | None) -> None:
    """``InvalidRequest`` for what names no columns to partition by."""
    for column in names or ():
        if not isinstance(column, str):
            raise InvalidRequest(
                f"'partition_by' names columns, as in partition_by='day', and is given a "
                f"{type(column).__name__}"
            )


def check_ours(name: str) -> None:
    """``InvalidRequest`` for an option by which a job would write elsewhere, or be committed by others."""
    small = str(name).lower()
    if small.startswith(_OURS) or small in _COMMITTERS:
        raise InvalidRequest(
            f"the option '{name}' is not yours to give: Penstock decides where a job writes and what commits "
            "it"
        )
