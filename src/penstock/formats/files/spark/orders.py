"""What a job that writes files is to do, from what its caller asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import InvalidRequest
from penstock.formats.files.lake.answers import TableLayout
from penstock.formats.files.lake.save_job import FilesJob
from penstock.lake.write_jobs import SaveMode, check_properties
from penstock.spark.job.applications import application_of
from penstock.spark.requests import WriteRequest
from penstock.spark.write_arguments import check_reserved_option, overwrites_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def job_of(spark: SparkSession, request: WriteRequest) -> FilesJob:
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
    application = application_of(spark)
    return FilesJob(
        key=request.key,
        branch=request.branch,
        mode=request.mode,
        is_dynamic=is_dynamic,
        layout=TableLayout(format=request.source),
        create=request.create,
        own_branch=request.extra.get("job_branch", False),
        success_file=request.extra.get("success_file", False),
        timeout_s=_timeout_s(request),
        application=application.id,
        application_name=application.name,
        message=request.message,
        author=request.author,
        properties=request.properties,
    )


def _timeout_s(request: WriteRequest) -> float | None:
    timeout_s = request.extra.get("timeout_s")
    if timeout_s is not None and (not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool)):
        raise InvalidRequest(f"'timeout_s' must be a number of seconds, got {timeout_s!r}")
    return timeout_s
