"""Statistics of data files: never too narrow, and what others make of them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidRequest
from penstock.formats.delta.rows.stats import Statistics, cut_largest, cut_smallest, indexed_leaves
from penstock.formats.rows.arrow_types import make_schema
from tests.formats.delta.rows import metadata_for

NAN, INF = float("nan"), float("inf")
INNER = pa.struct([("x", pa.int64()), ("y", pa.string())])


def stats_of(data: pa.Table, *partitioned_by: str, **properties: str) -> dict[str, Any]:
    metadata = metadata_for(
        make_schema(data.schema),
        partitioned_by,
        {f"delta.{name}": value for name, value in properties.items()},
    )
    statistics = Statistics(indexed_leaves(metadata))
    for batch in data.to_batches(max_chunksize=2):
        statistics.add_batch(batch)
    found: dict[str, Any] = json.loads(statistics.encode_stats())
    return found


def test_rows_nulls_and_bounds_are_noted_as_the_protocol_has_them() -> None:
    data = pa.table(
        {
            "whole": pa.array([3, None, -1], pa.int64()),
            "money": pa.array([Decimal("1.10"), Decimal(-(10**26)), None], pa.decimal128(38, 2)),
            "text": ["b", "", None],
            "day": pa.array([date(1969, 12, 31), date(2026, 11, 14), None]),
            "moment": pa.array(
                [
                    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
                    datetime(2026, 1, 1, 0, 0, 0, 1999, tzinfo=UTC),
                    None,
                ],
                pa.timestamp("us", "UTC"),
            ),
            "wall": pa.array([datetime(2026, 1, 1, 12), None, None], pa.timestamp("us")),  # noqa: DTZ001
            "flag": [True, False, None],
            "raw": pa.array([b"a", None, None]),
            "list": pa.array([[1], None, []]),
            "inner": pa.array([{"x": 1, "y": None}, None, {"x": 2, "y": "z"}], INNER),
            "nothing": pa.array([None, None, None], pa.int32()),
        }
    )
    assert stats_of(data) == {
        "numRecords": 3,
        "minValues": {
            "whole": -1,
            "money": -1e26,
            "text": "",
            "day": "1969-12-31",
            "moment": "1969-12-31T23:59:59.999Z",
            "wall": "2026-01-01T12:00:00.000",
            "inner": {"x": 1, "y": "z"},
        },
        "maxValues": {
            "whole": 3,
            "money": 1.1,
            "text": "b",
            "day": "2026-11-14",
            "moment": "2026-01-01T00:00:00.001Z",
            "wall": "2026-01-01T12:00:00.000",
            "inner": {"x": 2, "y": "z"},
        },
        "nullCount": {
            "whole": 1,
            "money": 1,
            "text": 1,
            "day": 1,
            "moment": 1,
            "wall": 2,
            "flag": 1,
            "raw": 2,
            "list": 1,
            # A part is null where the whole is.
            "inner": {"x": 1, "y": 2},
            "nothing": 3,
        },
    }


def test_decimals_are_written_with_all_their_digits() -> None:
    value = Decimal("12345678901234567890123456.78")
    data = pa.table({"money": pa.array([value], pa.decimal128(38, 2))})
    statistics = Statistics(indexed_leaves(metadata_for(make_schema(data.schema))))
    statistics.add_batch(data.to_batches()[0])
    assert json.loads(statistics.encode_stats(), parse_float=Decimal)["maxValues"] == {"money": value}


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([1.0, NAN, 2.0], 1.0, None),
        ([NAN], None, None),
        ([1.0, INF], 1.0, None),
        ([-INF, 1.0], None, 1.0),
        ([INF, -INF], None, None),
        ([-0.0, 0.0], 0.0, 0.0),
    ],
)
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=["float", "double"])
def test_a_bound_that_json_or_other_readers_would_get_wrong_is_left_out(
    kind: Any, values: list[float], low: float | None, high: float | None
) -> None:
    found = stats_of(pa.table({"x": pa.array(values, kind)}))
    assert found["minValues"].get("x") == low
    assert found["maxValues"].get("x") == high
    assert found["nullCount"] == {"x": 0}


def test_times_that_nobody_can_write_have_no_bounds() -> None:
    far = pa.array([2**62, -(2**62)], pa.int64()).cast(pa.timestamp("us", "UTC"))
    found = stats_of(pa.table({"moment": far}))
    assert found == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"moment": 0}}


@given(st.text(min_size=0, max_size=80) | st.text("x\x7f\U0010ffff", min_size=30, max_size=80))
def test_a_text_that_is_cut_stays_a_bound(text: str) -> None:
    assert cut_smallest(text) <= text
    assert len(cut_smallest(text)) <= 32
    largest = cut_largest(text)
    assert largest is None or (largest >= text and len(largest) <= 65)
    # The same by bytes, which is how files are compared.
    if largest is not None and not any("\ud800" <= one <= "\udfff" for one in text):
        assert largest.encode() >= text.encode()


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("a" * 32, "a" * 32),
        ("a" * 33, "a" * 32 + "\x7f"),
        ("a" * 32 + "\x7f", "a" * 32 + "\U0010ffff"),
        ("a" * 32 + "ü", "a" * 32 + "\U0010ffff"),
        ("a" * 32 + "\U0010ffff" + "b" * 9, "a" * 32 + "\U0010ffff\x7f"),
        ("\U0010ffff" * 70, None),
    ],
)
def test_the_largest_text_is_cut_where_it_can_be(text: str, cut: str | None) -> None:
    assert cut_largest(text) == cut


def wide(columns: int) -> pa.Table:
    return pa.table(
        {"part": ["p"], "s": pa.array([{"x": 1, "y": "a"}], INNER)}
        | {f"c{at}": [at] for at in range(columns)}
    )


def test_the_first_columns_are_indexed_counted_by_their_parts_and_without_partitions() -> None:
    counted = stats_of(wide(40), "part")["nullCount"]
    assert list(counted) == ["s", *(f"c{at}" for at in range(30))]
    assert list(stats_of(wide(4), "part", dataSkippingNumIndexedCols="1")["nullCount"]) == ["s"]
    assert stats_of(wide(4), "part", dataSkippingNumIndexedCols="1")["nullCount"]["s"] == {"x": 0}
    assert stats_of(wide(4), "part", dataSkippingNumIndexedCols="0") == {
        "numRecords": 1,
        "minValues": {},
        "maxValues": {},
        "nullCount": {},
    }
    assert len(stats_of(wide(40), "part", dataSkippingNumIndexedCols="-1")["nullCount"]) == 41


def test_columns_are_indexed_by_their_names() -> None:
    named = stats_of(wide(40), "part", dataSkippingStatsColumns="c35, `C1`,s.y , part,gone")["nullCount"]
    assert named == {"s": {"y": 0}, "c1": 0, "c35": 0}
    assert stats_of(wide(2), dataSkippingStatsColumns="s")["nullCount"] == {"s": {"x": 0, "y": 0}}
    odd = pa.table({"a,b": [1], "c`d.e": [2], "f": [3]})
    assert stats_of(odd, dataSkippingStatsColumns="`a,b`,`c``d.e`")["nullCount"] == {"a,b": 0, "c`d.e": 0}


@pytest.mark.parametrize(
    "properties",
    [{"dataSkippingNumIndexedCols": "many"}, {"dataSkippingStatsColumns": "a,,`b"}],
    ids=["number", "names"],
)
def test_properties_that_make_no_sense_are_told(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=r"the property delta\.dataSkipping"):
        stats_of(wide(1), **properties)
