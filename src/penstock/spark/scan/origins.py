"""Which tables, at which commits, a DataFrame reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.lake.query_pins import PinnedCommit
from penstock.lake.sql_catalog.requests import TableFacts
from penstock.spark import jar
from penstock.spark.scan.frames import ScannedVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.table import Table


class TableOrigin(msgspec.Struct, frozen=True):
    """Where the rows of a DataFrame come from."""

    text: str = ""
    """What ``list_origins`` tells."""
    table: ScannedVersion | None = None
    """The version of a table, if its files can be left out by filters."""


UNTOLD: Final = TableOrigin()


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


def version_origin(table: Table, version: int) -> TableOrigin:
    """The origin of a version of a table, whose files filters leave out."""
    facts = TableFacts(
        key=table.key.elements, pin=PinnedCommit(commit=table.ref, via=table.via), version=version
    )
    return TableOrigin(describe_origin(table), ScannedVersion(lake=table.lake.id, facts=facts))


def describe_origin(table: Table) -> str:
    """What ``list_origins`` tells of a table at a commit."""
    return f"{table.key}@{table.ref}"
