"""Which tables, at which commits, a DataFrame reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark import jar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.table import Table


def list_origins(rows: DataFrame) -> list[str]:
    """The tables that a DataFrame reads, as ``key@commit``, each once; as far as it can be told.

    Only what was read by ``penstock.spark`` with Penstock's jar can be told; what was cut off from where it
    came from, as by a checkpoint, cannot. Nothing is asked of the lake, or of storage.
    """
    spark = rows.sparkSession
    if not jar.has_classes(spark):
        return []
    plan = rows._jdf.queryExecution().analyzed()
    origins = spark._jvm.io.penstock.spark.TableFiles.origins(plan)  # type: ignore[union-attr]
    return list(dict.fromkeys(map(str, origins)))


def origin_of(table: Table) -> str:
    """What ``list_origins`` tells of a table at a commit."""
    return f"{table.key}@{table.ref}"
