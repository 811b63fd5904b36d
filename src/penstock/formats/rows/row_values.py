"""Values of rows as people and JSON see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def list_rows(batch: Any) -> list[tuple[Any, ...]]:
    """The rows of a batch or table, each as a tuple of Python's values."""
    return list(zip(*(_list_values(column) for column in batch.columns), strict=True))


def _list_values(column: Any) -> Sequence[Any]:
    """The values of a column: as text if Python has none of them, as of times in far years."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        from penstock.formats.rows.arrow_types import pa

        try:
            values = column.cast(pa.string()).to_pylist()
        except pa.ArrowException:
            values = [f"({column.type})" for _ in column]
    return values


def to_json_value(value: Any) -> Any:
    """A value as JSON has it. What JSON has no word for is text."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(name): to_json_value(item) for name, item in value.items()}
    return str(value)


def to_text(value: Any) -> str:
    """A value as text; that of no value is empty."""
    return "" if value is None else str(value)
