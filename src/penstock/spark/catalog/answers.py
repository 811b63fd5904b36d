"""What Spark's JVM asks of a lake's catalog, and who answers.

Questions about names are answered by the lake alone. Tables are described, read and changed by
``penstock.spark``: SQL and its functions are two doors to the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.lake.sql_catalog.procedure import CALL, MAINTAIN
from penstock.lake.sql_catalog.procedures import call_procedure, end_if_over
from penstock.lake.sql_catalog.requests import CatalogRequest
from penstock.lake.sql_catalog.steps import BY_NAME, CREATIONS
from penstock.model.decoders import get_json_decoder
from penstock.spark.catalog import changes, table_streams, tables
from penstock.spark.upkeep import optimize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lake.lake import Lake

Parts: TypeAlias = Sequence[Any]
"""DataFrames and columns of the JVM, which a request names by their places."""
_REQUEST: Final = get_json_decoder(CatalogRequest)

BY_SPARK: Final[dict[str, Callable[[tables.SessionOf, Lake, CatalogRequest], Any]]] = {
    "table": tables.describe_table,
    "plan": tables.plan_read,
    "changes": tables.read_changes,
    "widen": tables.widen_table,
    "create": tables.create_table,
    "alter": tables.alter_table,
    "truncate": lambda spark, lake, request: changes.truncate_table(spark(), lake, request),
    "stream": lambda spark, lake, request: table_streams.follow_table(spark(), lake, request),
    "begin_stream": lambda spark, lake, request: table_streams.begin_stream(spark(), lake, request),
}
OF_ROWS: Final[dict[str, Callable[[SparkSession, Lake, CatalogRequest, Parts], Any]]] = {
    "write": changes.write_rows,
    "batch": table_streams.write_batch,
    "delete": changes.delete_rows,
    "update": changes.update_rows,
    "merge": changes.merge_rows,
}


def answer_question(
    spark: tables.SessionOf, lake: Lake, step: str, asked: str, parts: Callable[[], Parts]
) -> Any:
    """The answer to a question, as JSON has it; a DataFrame for a read."""
    request = _REQUEST.decode(asked)
    if step in CREATIONS:
        lake.begin_write()  # which makes the lake, if there is none yet
    if step in (CALL, MAINTAIN):
        by_spark = partial(optimize, spark(), lake=lake)
        return call_procedure(lake, request, is_in_driver=True, optimize=by_spark)
    if step in BY_NAME:
        return BY_NAME[step](lake, request)
    if step in BY_SPARK:
        return BY_SPARK[step](spark, lake, request)
    return OF_ROWS[step](spark(), lake, request, parts())


def state_after_failure(lake: Lake, asked: str) -> dict[str, Any]:
    """What a session has to know after a statement failed: whether its transaction is still open."""
    request = _REQUEST.decode(asked)
    return {"transaction": ""} if end_if_over(lake, request) else {}
