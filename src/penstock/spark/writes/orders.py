"""How rows are to be written: what a caller may ask for, and what of it goes together."""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Txn
from penstock.lake.call import Said
from penstock.lake.write_jobs import SaveMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OVERWRITE_SETTING: Final = "spark.sql.sources.partitionOverwriteMode"

_SPARKS_ERROR: Final = frozenset({"errorifexists", "default"})
_ARGUMENTS: Final = {
    "replacewhere": "replace_where",
    "mergeschema": "merge_schema",
    "overwriteschema": "overwrite_schema",
    "partitionoverwritemode": "partition_overwrite",
    "txnappid": "app_id",
    "txnversion": "batch",
    "usermetadata": "message",
}
"""Delta's names of what is an argument here, in small letters. Left to Spark they would do nothing."""
_OURS: Final = ("penstock.", "mapreduce.fileoutputcommitter.")
_COMMITTERS: Final = frozenset({
    "path",
    "spark.sql.sources.commitprotocolclass",
    "spark.sql.sources.outputcommitterclass",
    "spark.sql.parquet.output.committer.class",
})  # fmt: skip


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """How rows are to be written."""

    mode: SaveMode
    partition_by: tuple[str, ...] | None
    replace_where: str | None
    is_dynamic: bool
    merge_schema: bool
    overwrite_schema: bool
    properties: dict[str, str]
    description: str
    options: dict[str, str]
    app_id: str | None
    batch: int | None
    said: Said
    idempotency_key: str | None

    @property
    def batches(self) -> list[Txn]:
        """What a commit notes of the application's batch, if there is one."""
        if self.app_id is None or self.batch is None:
            return []
        return [Txn(app_id=self.app_id, version=self.batch, last_updated=time_ns() // 1_000_000)]

    @property
    def parameters(self) -> dict[str, str]:
        """What the table's history tells of it."""
        found = {"mode": "Overwrite" if self.mode is SaveMode.OVERWRITE else "Append"}
        if self.replace_where is not None:
            found["predicate"] = self.replace_where
        return found


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


def check(order: Order) -> None:
    """``InvalidRequest`` for what does not go together."""
    ways = {
        "replace_where": order.replace_where is not None,
        "partition_overwrite": order.is_dynamic,
        "overwrite_schema": order.overwrite_schema,
    }
    chosen = [name for name, is_chosen in ways.items() if is_chosen]
    if chosen and order.mode is not SaveMode.OVERWRITE:
        raise InvalidRequest(f"'{chosen[0]}' goes with mode='overwrite', not with '{order.mode}'")
    if order.merge_schema and order.overwrite_schema:
        chosen = ["merge_schema", "overwrite_schema"]
    if len(chosen) > 1:
        named = f" ({OVERWRITE_SETTING} of the session counts, too)" if order.is_dynamic else ""
        raise InvalidRequest(f"'{chosen[0]}' and '{chosen[1]}' do not go together{named}")
    if (order.app_id is None) != (order.batch is None):
        raise InvalidRequest("'app_id' and 'batch' go together")
    check_columns(order.partition_by)
    for name in order.options:
        _check_option(name)


def check_columns(names: tuple[str, ...] | None) -> None:
    """``InvalidRequest`` for what names no columns to partition by."""
    for column in names or ():
        if not isinstance(column, str):
            raise InvalidRequest(
                f"'partition_by' names columns, as in partition_by='day', and is given a "
                f"{type(column).__name__}"
            )


def _check_option(name: str) -> None:
    """``InvalidRequest`` for an option that Spark's Parquet writer would pass over, or that is Penstock's."""
    small = str(name).lower()
    if (argument := _ARGUMENTS.get(small)) is not None:
        raise InvalidRequest(
            f"'{name}' is none of the options of Spark's Parquet writer; give it as the argument '{argument}'"
        )
    check_ours(name)


def check_ours(name: str) -> None:
    """``InvalidRequest`` for an option by which a job would write elsewhere, or be committed by others."""
    small = str(name).lower()
    if small.startswith(_OURS) or small in _COMMITTERS:
        raise InvalidRequest(
            f"the option '{name}' is not yours to give: Penstock decides where a job writes and what commits "
            "it"
        )
