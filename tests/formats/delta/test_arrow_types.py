"""Types of Arrow and of Delta tables: which is which, there and back."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.formats.rows.arrow_types import find_arrow_type, make_arrow_schema, make_schema
from penstock.formats.rows.schema import parse_schema, write_schema

PLAIN: list[tuple[Any, str]] = [
    (pa.int8(), "byte"),
    (pa.int16(), "short"),
    (pa.int32(), "integer"),
    (pa.int64(), "long"),
    (pa.uint8(), "short"),
    (pa.uint16(), "integer"),
    (pa.uint32(), "long"),
    (pa.uint64(), "decimal(20,0)"),
    (pa.float16(), "float"),
    (pa.float32(), "float"),
    (pa.float64(), "double"),
    (pa.bool_(), "boolean"),
    (pa.string(), "string"),
    (pa.large_string(), "string"),
    (pa.string_view(), "string"),
    (pa.dictionary(pa.int8(), pa.string()), "string"),
    (pa.binary(), "binary"),
    (pa.binary(16), "binary"),
    (pa.uuid(), "binary"),
    (pa.date32(), "date"),
    (pa.date64(), "date"),
    (pa.timestamp("ns", "Europe/Berlin"), "timestamp"),
    (pa.timestamp("s"), "timestamp_ntz"),
    (pa.decimal128(38, 38), "decimal(38,38)"),
    (pa.decimal256(10, 2), "decimal(10,2)"),
]


@pytest.mark.parametrize(("arrow", "delta"), PLAIN, ids=[str(arrow) for arrow, _ in PLAIN])
def test_a_plain_type_becomes_the_one_that_holds_it(arrow: Any, delta: str) -> None:
    (field,) = make_schema(pa.schema([("c", arrow)])).fields
    assert (field.type, field.nullable) == (delta, True)


def test_a_schema_comes_back_as_it_was() -> None:
    point = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string())])
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("money", pa.decimal128(10, 2)),
            pa.field("moment", pa.timestamp("us", "UTC")),
            pa.field("points", pa.list_(pa.field("element", point, nullable=False))),
            pa.field(
                "by_name", pa.map_(pa.string(), pa.field("value", pa.list_(pa.field("element", point))))
            ),
        ]
    )
    delta = parse_schema(write_schema(make_schema(schema)))
    assert make_arrow_schema(delta.fields) == schema
    assert make_schema(make_arrow_schema(delta.fields)) == delta


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ([("c", pa.null())], "the column 'c' contains only nulls"),
        ([("c", pa.time64("us"))], "the column 'c' has the Arrow type time64"),
        ([("c", pa.duration("s"))], "duration"),
        ([("c", pa.decimal256(50, 2))], "decimal256"),
        (
            [("s", pa.struct([("a", pa.list_(pa.null()))]))],
            "the column 's.a.element' contains only nulls",
        ),
        ([("a", pa.int8()), ("A", pa.int8())], "differ only in upper and lower case"),
    ],
    ids=["null", "time", "duration", "digits", "nested", "case"],
)
def test_what_no_table_can_hold_is_refused_by_its_name(fields: list[Any], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        make_schema(pa.schema(fields))


@pytest.mark.parametrize("kind", ["void", "interval", "decimal"])
def test_a_type_that_is_not_read_is_refused_by_its_name(kind: str) -> None:
    with pytest.raises(InvalidRequest, match=f"the column 'c' is of the type {kind}"):
        find_arrow_type(kind, "c")


def test_whoever_lacks_arrow_is_told_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from penstock.errors import InvalidRequest\n"
        "try:\n import penstock.formats.delta.log.scan\n"
        "except InvalidRequest as problem: print(problem)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install 'penstock[delta]'" in found.stdout
