"""The actions that make a job's files part of a table."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake.file_actions import file_actions
from penstock.formats.delta.lake.job_outputs import ParquetOutput
from penstock.formats.delta.protocol.actions import Add, Cdc, Metadata
from penstock.formats.delta.protocol.lint_files import path_fault
from penstock.formats.delta.rows.stats import indexed_leaves
from penstock.formats.rows.schema import Field, StructType, write_schema


def test_addresses_are_percent_encoded_and_files_without_rows_are_left_out() -> None:
    metadata = _table(Field(name="p", type="string", nullable=True))
    files = [
        _file("p=a%2Fb c/ü-part.parquet", "p=a%2Fb c"),
        _file("p=x/empty.parquet", "p=x", rows=0),
        _file("_change_data/p=x/cdc.parquet", "p=x", is_change=True),
    ]
    first, second = file_actions(files, metadata, indexed_leaves(metadata))
    assert isinstance(first, Add)
    assert first.path == "p=a%252Fb%20c/%C3%BC-part.parquet"
    assert path_fault(first.path) is None
    assert first.partition_values == {"p": "a/b c"}
    assert (first.size, first.modification_time, first.data_change) == (10, 20, True)
    assert isinstance(second, Cdc)
    assert second.partition_values == {"p": "x"}
    assert not second.data_change


def test_nothing_in_a_column_that_must_have_something_is_refused() -> None:
    metadata = _table(Field(name="p", type="string", nullable=False))
    with pytest.raises(InvalidRequest, match="'p' is not nullable, but the data has nulls or empty strings"):
        file_actions([_file("x", "p=__HIVE_DEFAULT_PARTITION__")], metadata, ())


def _table(*partitions: Field) -> Metadata:
    fields = (Field(name="id", type="long", nullable=True), *partitions)
    return Metadata(
        id="t",
        schema_string=write_schema(StructType(fields)),
        partition_columns=tuple(one.name for one in partitions),
    )


def _file(name: str, partition: str, rows: int = 1, is_change: bool = False) -> ParquetOutput:
    return ParquetOutput(
        name=name, partition=partition, is_change=is_change, size=10, modified_ms=20, rows=rows, columns=()
    )
