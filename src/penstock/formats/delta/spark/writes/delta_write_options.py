"""How rows are to be written: what a caller may ask for, and what of it goes together."""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Txn
from penstock.lake.call import CommitDescription
from penstock.lake.own_reads import OwnReads
from penstock.lake.write_jobs import SaveMode
from penstock.spark.requests import WriteRequest
from penstock.spark.write_arguments import (
    OVERWRITE_SETTING,
    check_reserved_option,
    overwrites_partitions,
    partition_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


class DeltaWriteOptions(msgspec.Struct, frozen=True, kw_only=True):
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
    said: CommitDescription
    idempotency_key: str | None
    own_reads: OwnReads = ()
    """What the rows are made of that the table has."""

    @property
    def batches(self) -> list[Txn]:
        """What a commit notes of the application's batch, if there is one."""
        if self.app_id is None or self.batch is None:
            return []
        return [Txn(app_id=self.app_id, version=self.batch, last_updated=time_ns() // 1_000_000)]

    @property
    def parameters(self) -> dict[str, str]:
        """What the table's history tells of it."""
        parameters = {"mode": "Overwrite" if self.mode is SaveMode.OVERWRITE else "Append"}
        if self.replace_where is not None:
            parameters["predicate"] = self.replace_where
        return parameters


def read_write_options(spark: SparkSession, request: WriteRequest) -> DeltaWriteOptions:
    """What a caller asks for; ``InvalidRequest`` for what does not go together."""
    extra = request.extra
    order = DeltaWriteOptions(
        mode=request.mode,
        partition_by=partition_columns(request),
        replace_where=extra.get("replace_where"),
        is_dynamic=overwrites_partitions(spark, request),
        merge_schema=extra.get("merge_schema", False),
        overwrite_schema=extra.get("overwrite_schema", False),
        properties=request.properties,
        description=extra.get("description", ""),
        options=request.options,
        app_id=extra.get("app_id"),
        batch=extra.get("batch"),
        said=request.commit_meta,
        idempotency_key=request.idempotency_key,
        own_reads=request.own_reads,
    )
    check_options(order)
    return order


def check_options(order: DeltaWriteOptions) -> None:
    """``InvalidRequest`` for what does not go together."""
    ways = {
        "replace_where": order.replace_where is not None,
        "partition_overwrite": order.is_dynamic,
        "overwrite_schema": order.overwrite_schema,
    }
    chosen = [name for name, is_chosen in ways.items() if is_chosen]
    if chosen and order.mode is not SaveMode.OVERWRITE:
        raise InvalidRequest(f"'{chosen[0]}' can only be used with mode='overwrite', not with '{order.mode}'")
    if order.merge_schema and order.overwrite_schema:
        chosen = ["merge_schema", "overwrite_schema"]
    if len(chosen) > 1:
        named = f" ({OVERWRITE_SETTING} of the session applies as well)" if order.is_dynamic else ""
        raise InvalidRequest(f"'{chosen[0]}' and '{chosen[1]}' cannot be used together{named}")
    if (order.app_id is None) != (order.batch is None):
        raise InvalidRequest("'app_id' and 'batch' must be given together")
    for name in order.options:
        _check_option(name)


def _check_option(name: str) -> None:
    """``InvalidRequest`` for an option that Spark's Parquet writer would pass over, or that is Penstock's."""
    small = str(name).lower()
    if (argument := _ARGUMENTS.get(small)) is not None:
        raise InvalidRequest(
            f"'{name}' is not an option of Spark's Parquet writer; give it as the argument '{argument}'"
        )
    check_reserved_option(name)
