"""Conditions of reads and writes by ``format("penstock")``."""

from __future__ import annotations

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.rows.predicate_parser import parse_predicate
from penstock.formats.rows.predicates import list_columns
from penstock.formats.rows.schema import parse_schema


def check_condition(where: str | None, metadata: Metadata) -> None:
    """``InvalidRequest`` for a condition that cannot be understood, or might be understood in two ways.

    Penstock evaluates the text of a condition, and reads times in UTC. Spark has a time zone of its own, and
    does not pass it on. So a condition on timestamps might select other rows than its author expects.
    """
    if where is None:
        return
    for column in list_columns(parse_predicate(where, parse_schema(metadata.schema_string))):
        if column.kind == "timestamp":
            raise InvalidRequest(
                f"the condition {where!r} compares the timestamp '{column}', and its time zone is not "
                "known here\n  penstock.spark.read, penstock.spark.write and DataFrame.where accept this "
                "condition.",
                column=str(column),
            )
