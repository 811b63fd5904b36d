"""Values of partition columns, from how a table's log spells them to what they stand for."""

from __future__ import annotations

from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.protocol.outcomes import partition_value
from penstock.formats.rows.partition_values import Value
from penstock.formats.rows.schema import Type
from penstock.storage.places import Place


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
