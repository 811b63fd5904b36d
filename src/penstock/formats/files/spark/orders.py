"""How files are to be written: what a caller may ask for, and what of it goes together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import InvalidRequest
from penstock.lake.write_jobs import SaveMode, check_properties
from penstock.spark.requests import WriteRequest
from penstock.spark.write_arguments import (
    check_reserved_option,
    choose_job_id,
    overwrites_partitions,
    partition_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FilesOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How rows are to be written as files."""

    format: str
    mode: SaveMode
    partition_by: tuple[str, ...] | None
    """``None`` for the columns that the table is partitioned by."""
    is_dynamic: bool
    options: dict[str, str]
    create: bool
    success_file: bool
    job_branch: bool
    job: str
    """32 hexadecimal digits."""
    timeout_s: float | None
    message: str | None
    author: str | None
    properties: dict[str, str]
    """Of the commit."""


def order_of(spark: SparkSession, request: WriteRequest) -> FilesOrder:
    """What a caller asks for; ``InvalidRequest`` for what does not go together, or is not the caller's to
    say."""
    extra = request.extra
    order = FilesOrder(
        format=request.source,
        mode=request.mode,
        partition_by=partition_columns(request),
        is_dynamic=overwrites_partitions(spark, request),
        options=request.options,
        create=request.create,
        success_file=extra.get("success_file", False),
        job_branch=extra.get("job_branch", False),
        job=choose_job_id(request),
        timeout_s=extra.get("timeout_s"),
        message=request.message,
        author=request.author,
        properties=request.properties,
    )
    check(order)
    return order


def check(order: FilesOrder) -> None:
    """``InvalidRequest`` for what does not go together, or is not the caller's to say."""
    if order.is_dynamic and order.mode is not SaveMode.OVERWRITE:
        raise InvalidRequest(f"'partition_overwrite' goes with mode='overwrite', not with '{order.mode}'")
    check_properties(order.properties)
    if order.timeout_s is not None and (
        not isinstance(order.timeout_s, int | float) or isinstance(order.timeout_s, bool)
    ):
        raise InvalidRequest(f"'timeout_s' is a number of seconds, and is given {order.timeout_s!r}")
    for name in order.options:
        if str(name).lower() == "partitionoverwritemode":
            raise InvalidRequest(f"give '{name}' as the argument 'partition_overwrite'")
        check_reserved_option(name)
