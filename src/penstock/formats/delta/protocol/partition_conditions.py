"""Conditions on partition columns alone: they hold for all rows of a file or for none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from penstock.errors import InvalidRequest, MalformedAction
from penstock.formats.delta.protocol.column_mapping import stored_name
from penstock.formats.delta.protocol.predicate_outcomes import (
    KnownValue,
    Outcomes,
    evaluate_predicate,
    make_known_partition_value,
)
from penstock.formats.delta.protocol.predicate_sql import write_predicate
from penstock.formats.rows.predicate_parser import parse_predicate
from penstock.formats.rows.predicates import And, Column, Predicate, list_columns
from penstock.formats.rows.schema import parse_schema


def check_condition(where: str, schema_string: str, partition_columns: Sequence[str]) -> None:
    """``InvalidRequest`` for what is no condition, or names a column that the table is not partitioned by."""
    predicate = parse_predicate(where, parse_schema(schema_string))
    for column in list_columns(predicate):
        if not _is_partition(column, partition_columns):
            column_names = ", ".join(f"'{name}'" for name in partition_columns) or "none"
            raise InvalidRequest(
                f"the condition {where!r} names '{column}', which is not a partition column of the table; "
                f"the partition columns are {column_names}",
                column=str(column),
            )


def partition_part(where: str, schema_string: str, partition_columns: Sequence[str]) -> str | None:
    """What a condition says of partition columns alone, as a condition: it is true wherever the whole is.

    It is made of those of the parts joined by ``and`` that name nothing else; ``None`` if there are none.
    ``InvalidRequest`` if the condition cannot be understood.
    """
    parts = [
        and_part
        for and_part in _split_and_parts(parse_predicate(where, parse_schema(schema_string)))
        if all(_is_partition(column, partition_columns) for column in list_columns(and_part))
    ]
    if not parts:
        return None
    return write_predicate(parts[0] if len(parts) == 1 else And(tuple(parts)))


def evaluate_condition(where: str, schema_string: str, values: Mapping[str, str | None]) -> Outcomes:
    """What a condition comes to for files with partition values, as the log spells these.

    It may come to anything if a value is missing or cannot be understood, or if the schema has no such
    columns any more.
    """
    return _find_outcomes(where, schema_string, tuple(values.items()))


def condition_columns(where: str, schema_string: str) -> frozenset[str]:
    """The columns that a condition names, in small letters; none if it cannot be understood."""
    predicate = _parse_condition(where, schema_string)
    return (
        frozenset() if predicate is None else frozenset(map(_partition_column_name, list_columns(predicate)))
    )


@lru_cache(maxsize=4096)
def _find_outcomes(where: str, schema_string: str, values: tuple[tuple[str, str | None], ...]) -> Outcomes:
    predicate = _parse_condition(where, schema_string)
    if predicate is None:
        return _ANYTHING
    texts = {name.lower(): text for name, text in values}

    def known_value(column: Column) -> KnownValue:
        stored = stored_name(column.fields[0]).lower() if len(column.path) == 1 else ""
        if stored in texts:
            return make_known_partition_value(column.kind, texts[stored])
        return KnownValue(may_be_nan=column.kind in {"float", "double"})

    return evaluate_predicate(predicate, known_value)


@lru_cache(maxsize=256)
def _parse_condition(where: str, schema_string: str) -> Predicate | None:
    try:
        return parse_predicate(where, parse_schema(schema_string))
    except (InvalidRequest, MalformedAction):
        return None


def _split_and_parts(predicate: Predicate) -> Iterator[Predicate]:
    """The parts that must all be true."""
    if isinstance(predicate, And):
        for part in predicate.parts:
            yield from _split_and_parts(part)
    else:
        yield predicate


def _partition_column_name(column: Column) -> str:
    """A column's name in small letters; a part of a struct has none that a partition column could have."""
    return column.path[0].lower() if len(column.path) == 1 else ""


def _is_partition(column: Column, partition_columns: Sequence[str]) -> bool:
    return any(_partition_column_name(column) == name.lower() for name in partition_columns)


_ANYTHING: Outcomes = frozenset({True, False, None})
