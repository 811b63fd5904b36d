"""Writing: the rows of a DataFrame become rows of a table, in one commit.

What happens to the rows that are there is decided when the commit has its turn, by what the table holds then.
Before, the job has written files that nobody sees; after a refusal they are removed, as far as it is certain
that no commit names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import CommitConflict, IdempotencyKeyReused, KeyNotFound
from penstock.lake import calls
from penstock.lake.delta import done_before
from penstock.lake.delta_answers import Ratified
from penstock.lake.delta_creating import EXISTS
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.spark.arguments import check_frame
from penstock.spark.job.tables import JobTable
from penstock.spark.sessions import lake_of
from penstock.spark.settings import as_text
from penstock.spark.writes import creating, filling
from penstock.spark.writes.orders import Mode, Order, check, is_dynamic, is_dynamic_to, mode_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.lake import Lake

TRIES_MAX: Final = 5
"""How often a job is run because somebody else created the table while it ran."""


def write(
    df: DataFrame,
    key: str | Key,
    *,
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
    message: str | None = None,
    author: str | None = None,
    idempotency_key: str | None = None,
) -> Ratified | None:
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
    """
    check_frame(df)
    chosen = mode_of(mode)
    order = Order(
        mode=chosen,
        partition_by=(partition_by,) if isinstance(partition_by, str) else _tuple(partition_by),
        replace_where=replace_where,
        is_dynamic=is_dynamic_to(df.sparkSession, chosen, replace_where)
        if partition_overwrite is None
        else is_dynamic(partition_overwrite),
        merge_schema=merge_schema,
        overwrite_schema=overwrite_schema,
        properties={name: as_text(value) for name, value in (properties or {}).items()},
        description=description,
        options={name: as_text(value) for name, value in (options or {}).items()},
        app_id=app_id,
        batch=batch,
        said=calls.said(message, author),
        idempotency_key=idempotency_key,
    )
    check(order)
    home = lake_of(df.sparkSession, lake)
    where = branch if branch is not None else home.default_branch
    try:
        return _written(df, home, Key.parse(key), where, order, create=create)
    except IdempotencyKeyReused:
        # Under that key the same may have been written by somebody else while this job ran.
        known = done_before(home, [Key.parse(key)], where, idempotency_key)
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
        if table is not None and order.mode is Mode.IGNORE:
            return None
        if table is not None and order.mode is Mode.ERROR:
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
            if order.mode is Mode.ERROR or not left:
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


def _tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
