"""Values of partition columns, from how a table's log spells them to what they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.protocol.predicate_outcomes import partition_value
from penstock.formats.rows.partition_values import Value
from penstock.formats.rows.schema import Field, Type
from penstock.storage.places import Place


def are_log_values(fields: Sequence[Field], files: Iterable[Add]) -> bool:
    """Whether all values that files have of partition columns are of the columns' types."""
    try:
        for values in {tuple(file.partition_values.get(field.name) for field in fields) for file in files}:
            for field, text in zip(fields, values, strict=True):
                partition_value(field.type, text)
    except ValueError:
        return False
    return True


def log_value(place: Place, kind: Type, text: str | None) -> Value:
    """What a text of the log stands for. ``InvalidLog`` names the table if it is not a value of the type."""
    try:
        return partition_value(kind, text)
    except ValueError as problem:
        raise InvalidLog(
            f"{place.url} has partition values that do not match the type of their column: {text!r} is "
            f"{problem}",
            table=place.url,
        ) from None
