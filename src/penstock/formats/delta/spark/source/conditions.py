"""Conditions of reads and writes by ``format("penstock")``."""

from __future__ import annotations

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.rows.predicate_text import parse_predicate
from penstock.formats.rows.predicates import columns_of
from penstock.formats.rows.schema import parse_schema


def check_condition(where: str | None, metadata: Metadata) -> None:
    """``InvalidRequest`` for a condition that cannot be understood, or might be understood in two ways.

    Conditions are given to Penstock as they are, which reads times in UTC. Spark has a time zone of its own,
    and does not tell it. So a condition on moments might choose other rows than whoever wrote it means.
    """
    if where is None:
        return
    for column in columns_of(parse_predicate(where, parse_schema(metadata.schema_string))):
        if column.kind == "timestamp":
            raise InvalidRequest(
                f"the condition {where!r} is on the timestamp '{column}', and its time zone is not known "
                "here\n  penstock.spark.read, penstock.spark.write and DataFrame.where accept such a "
                "condition.",
                column=str(column),
            )
