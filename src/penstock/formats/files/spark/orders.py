"""How files are to be written: what a caller may ask for, and what of it goes together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.errors import InvalidRequest
from penstock.lake.write_jobs import SaveMode, check_properties, job_id
from penstock.model.keys import Key
from penstock.spark.write_arguments import check_columns, check_ours

DELTA: Final = "delta"


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


def format_of(name: Any) -> str | None:
    """A format of files, as Spark spells it; ``None`` for tables of rows."""
    if name is None or name == DELTA:
        return None
    if not isinstance(name, str) or not name.strip():
        raise InvalidRequest(f"'format' is the name of one, such as 'parquet', and is given {name!r}")
    found = name.strip()
    # A name with a dot is that of a class.
    return format_of(found.lower()) if found != found.lower() and "." not in found else found


def chosen_job(job: str | UUID | None, idempotency_key: str | None, key: Key, branch: str) -> str:
    """The id of a job: a new one unless its caller names it. ``InvalidRequest`` if it is named twice."""
    if job is not None and idempotency_key is not None:
        raise InvalidRequest("'job_id' and 'idempotency_key' are the same for files; give one of them")
    given = job if job is not None else idempotency_key
    return job_id(None if given is None else str(given), key, branch)


def check(order: FilesOrder) -> None:
    """``InvalidRequest`` for what does not go together, or is not the caller's to say."""
    if order.is_dynamic and order.mode is not SaveMode.OVERWRITE:
        raise InvalidRequest(f"'partition_overwrite' goes with mode='overwrite', not with '{order.mode}'")
    check_columns(order.partition_by)
    check_properties(order.properties)
    if order.timeout_s is not None and (
        not isinstance(order.timeout_s, int | float) or isinstance(order.timeout_s, bool)
    ):
        raise InvalidRequest(f"'timeout_s' is a number of seconds, and is given {order.timeout_s!r}")
    for name in order.options:
        if str(name).lower() == "partitionoverwritemode":
            raise InvalidRequest(f"give '{name}' as the argument 'partition_overwrite'")
        check_ours(name)


def check_not_given(given: Mapping[str, Any], why: str) -> None:
    """``InvalidRequest`` for the first argument that was given and means nothing here."""
    for name, value in given.items():
        if value is None or value is False or value == "" or value == {}:
            continue
        raise InvalidRequest(f"'{name}' {why}")
