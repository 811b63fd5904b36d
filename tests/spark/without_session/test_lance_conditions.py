"""Conditions that Lance and Spark understand alike."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.formats.lance.spark.conditions import write_lance_condition
from penstock.formats.lance.spark.schemas import make_readable_schema

NUMBERS = pa.schema([("b", pa.int8()), ("u", pa.uint8()), ("id", pa.int64()), ("a`b", pa.string())])


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("b < 127", "(`b` < 127)"),
        ("b < 128", None),
        ("b >= -128", "(`b` >= -128)"),
        ("b > -129", None),
        ("b IN (1, 400)", None),
        ("u > -1", None),
        ("u <= 255", "(`u` <= 255)"),
        ("NOT (u = 256)", None),
        ("id > -9223372036854775807", "(`id` > -9223372036854775807)"),
        ("id > -9223372036854775808", None),
        ("b < 300 OR id = 1", None),
    ],
)
def test_lance_compares_numbers_only_with_those_that_a_column_can_have(where: str, told: str | None) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    shown = from_arrow_schema(make_readable_schema(pa.schema([*NUMBERS][:3])))
    assert write_lance_condition(where, shown, NUMBERS, "UTC") == told
