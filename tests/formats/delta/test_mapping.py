"""Column mapping: a schema that says too little is refused, and not guessed at."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.protocol.column_mapping import ColumnMapping, get_column_mapping
from penstock.formats.rows.schema import Field, StructType
from tests.formats.delta.rows import metadata_for

FIELD = Field(
    name="shown",
    type="long",
    nullable=True,
    metadata={"delta.columnMapping.id": 7, "delta.columnMapping.physicalName": "col-7"},
)


@pytest.mark.parametrize(
    ("properties", "mapping"),
    [
        ({}, ColumnMapping.NONE),
        ({"delta.columnMapping.mode": "none"}, ColumnMapping.NONE),
        ({"delta.columnMapping.mode": "name"}, ColumnMapping.NAME),
        ({"delta.columnMapping.mode": "ID"}, ColumnMapping.ID),
    ],
    ids=["nothing", "none", "name", "id"],
)
def test_the_mode_is_a_property_of_the_table(properties: dict[str, str], mapping: ColumnMapping) -> None:
    assert get_column_mapping(metadata_for(StructType((FIELD,)), properties=properties)) is mapping


def test_a_mode_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidLog, match="must be 'none', 'name' or 'id', got 'guess'"):
        get_column_mapping(
            metadata_for(StructType((FIELD,)), properties={"delta.columnMapping.mode": "guess"})
        )


@pytest.mark.parametrize(
    ("mapping", "place", "physical"),
    [(ColumnMapping.NONE, 0, "shown"), (ColumnMapping.NAME, 1, "col-7"), (ColumnMapping.ID, 2, "col-7")],
)
def test_a_column_is_found_by_what_the_mode_says(mapping: ColumnMapping, place: int, physical: str) -> None:
    there: list[Any] = [
        pa.field("shown", pa.int64(), metadata={b"PARQUET:field_id": b"1"}),
        pa.field("col-7", pa.int64(), metadata={b"PARQUET:field_id": b"2"}),
        pa.field("other", pa.int64(), metadata={b"PARQUET:field_id": b"7"}),
        pa.field("without", pa.int64()),
    ]
    assert mapping.locate_fields(there, [FIELD]) == [place]
    assert mapping.locate_fields(there[3:], [FIELD]) == [None]
    assert mapping.get_physical_name(FIELD) == physical


@pytest.mark.parametrize("mapping", [ColumnMapping.NAME, ColumnMapping.ID])
def test_a_column_without_its_notes_is_refused(mapping: ColumnMapping) -> None:
    bare = Field(name="bare", type="long", nullable=True)
    with pytest.raises(InvalidLog, match="the column 'bare' lacks"):
        mapping.locate_fields([], [bare])
