"""Values that have several spellings, in tables of a lake: what is compared is what they stand for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

import penstock
from penstock.errors import InvalidRequest
from penstock.formats.delta.lake import snapshot as delta_snapshot
from penstock.formats.delta.lake import view as delta_view
from penstock.formats.delta.rows import stats
from penstock.lake.lake import Lake

KEY = "shop.values"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path / "tables"))
        yield lake


def ids(found: Any) -> list[int]:
    return sorted(found["id"].to_pylist())


# -- zeros -------------------------------------------------------------------------------------------------

ZEROS: list[list[float | None]] = [
    [-0.0],
    [0.0],
    [-0.0, 0.0],
    [0.0, -0.0],
    [-0.0, 1.0],
    [-1.0, 0.0],
    [-1.0, -0.0],
    [0.0, None],
]
SIGNS = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=["double", "float"])
def test_a_zero_of_either_sign_is_found_by_every_reader(lake: Lake, duckdb: Any, kind: Any) -> None:
    table = lake.create_table(KEY, schema=pa.schema([("id", pa.int64()), ("f", kind)]))
    held: dict[int, Any] = {}
    for values in ZEROS:
        new = dict(enumerate(values, len(held)))
        held |= new
        table.append(pa.table({"id": [*new], "f": pa.array(values, kind)}))
    table.backfill_to_version()
    for sign, zero in product(SIGNS, ("0.0", "-0.0")):
        wanted = [one for one, value in held.items() if value is not None and SIGNS[sign](value, 0)]
        scan = f"SELECT id FROM delta_scan('{table.location}') WHERE f {sign} CAST('{zero}' AS {kind})"
        assert sorted(row[0] for row in duckdb.execute(scan).fetchall()) == wanted
        assert ids(table.to_arrow(where=f"f {sign} {zero}")) == wanted


def test_zeros_are_noted_with_the_sign_that_makes_room_for_both(lake: Lake) -> None:
    data = pa.table({"f": [-0.0], "g": [0.0], "s": pa.array([{"f": -0.0}]), "d": [Decimal("0.00")]})
    (file,) = lake.create_table(KEY, data=data).snapshot().files()
    found = json.loads(file.stats or "")
    assert repr(found["minValues"]) == "{'f': -0.0, 'g': -0.0, 's': {'f': -0.0}, 'd': 0.0}"
    assert repr(found["maxValues"]) == "{'f': 0.0, 'g': 0.0, 's': {'f': 0.0}, 'd': 0.0}"


@pytest.mark.parametrize(("low", "high"), [(-0.0, -0.0), (0.0, 0.0), (-1.0, -0.0), (0.0, 1.0)])
def test_a_foreign_file_with_zeros_of_one_sign_as_bounds_is_never_left_out(
    lake: Lake, tmp_path: Path, low: float, high: float
) -> None:
    """What a writer notes that knows one zero only."""
    root = tmp_path / "tables" / "foreign"
    write_deltalake(root, pa.table({"id": [1, 2], "f": [low, high]}))
    log = root / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            noted = {
                "numRecords": 2,
                "minValues": {"f": low},
                "maxValues": {"f": high},
                "nullCount": {"f": 0},
            }
            line["add"]["stats"] = json.dumps(noted)
    log.write_text("\n".join(map(json.dumps, lines)))
    lake.delta.adopt(root, KEY)
    table = lake.table(KEY)
    for where in ("f = 0.0", "f = -0.0", "f in (-0.0)", "f in (0.0)", "f <= -0.0 and f >= 0.0"):
        assert ids(table.to_arrow(where=where)) == [one for one, f in ((1, low), (2, high)) if f == 0], where


def test_statistics_of_the_first_release_are_mended_by_one_command(lake: Lake, duckdb: Any) -> None:
    table = lake.create_table(KEY, schema=pa.schema([("id", pa.int64()), ("f", pa.float64())]))
    with patch.object(stats, "_is_zero", lambda _: False):  # as Penstock 0.1 noted them
        for number, values in enumerate([[-0.0], [-1.5, -0.0], [1.5]]):
            table.append(pa.table({"id": range(number * 10, number * 10 + len(values)), "f": values}))
    before = {one.path: one for one in table.snapshot().files()}

    def found() -> list[int]:
        table.backfill_to_version()
        scan = f"SELECT id FROM delta_scan('{table.location}') WHERE f >= 0.0"
        return sorted(row[0] for row in duckdb.execute(scan).fetchall())

    assert found() == [20]
    done = lake.delta.repair(KEY)
    assert done is not None
    assert found() == [0, 11, 20] == ids(table.to_arrow(where="f >= 0.0"))
    after = {one.path: one for one in table.snapshot().files()}
    assert before.keys() == after.keys()
    unchanged = {"numRecords", "minValues", "nullCount"}
    for path, one in after.items():
        was, now = json.loads(before[path].stats or ""), json.loads(one.stats or "")
        assert {name: was[name] for name in unchanged} == {name: now[name] for name in unchanged}
    assert lake.delta.repair(KEY) is None


def test_a_repair_does_not_bring_back_a_file_that_went_meanwhile(lake: Lake) -> None:
    with patch.object(stats, "_is_zero", lambda _: False):
        table = lake.create_table(KEY, data=pa.table({"id": [1], "f": [-0.0]}))
    load, others = (
        delta_snapshot.load_table_snapshot,
        [lambda: table.overwrite(pa.table({"id": [2], "f": [1.0]}))],
    )

    def then(*given: Any) -> Any:
        snapshot = load(*given)
        if others:
            others.pop()()
        return snapshot

    with patch.object(delta_view, "load_table_snapshot", then):
        assert lake.delta.repair(KEY) is None
    assert ids(table.to_arrow()) == [2]


# -- nulls of nested columns -------------------------------------------------------------------------------


def test_nested_columns_can_be_asked_whether_they_are_null(lake: Lake) -> None:
    inner = pa.struct([pa.field("a", pa.int64(), metadata={"comment": "a"})])
    nested = {
        "s": pa.array([{"a": 1}, None, {"a": None}], inner),
        "of_structs": pa.array([[{"a": 1}], None, []], pa.list_(inner)),
        "of_arrays": pa.array([[[1]], None, []], pa.list_(pa.list_(pa.int64()))),
        "m": pa.array([[("k", {"a": 1})], None, []], pa.map_(pa.string(), inner)),
        "deep": pa.array([{"s": {"a": 1}}, None, {"s": None}], pa.struct([("s", inner)])),
    }
    table = lake.create_table(KEY, data=pa.table({"id": [1, 2, 3], **nested}))
    table.append(pa.table({"id": [4], **{name: one.slice(0, 1) for name, one in nested.items()}}))
    for name in nested:
        assert ids(table.to_arrow(where=f"{name} is null")) == [2]
        assert ids(table.to_arrow(where=f"{name} is not null and id < 4")) == [1, 3]
        assert ids(table.to_arrow(where=f"not {name} is null or id = 2")) == [1, 2, 3, 4]
    assert ids(table.to_arrow(where="deep.s is null")) == [2, 3]


# -- partition values ---------------------------------------------------------------------------------------

EAST = timezone(timedelta(hours=2))
KINDS: dict[str, tuple[Any, Any, Any, list[Any]]] = {
    "decimal": (
        pa.decimal128(10, 3), Decimal("1.100"), Decimal("2.000"), [Decimal("1.1"), "1.1", "01.100"],
    ),
    "whole decimal": (
        pa.decimal128(10, 3), Decimal("100.000"), Decimal("0.000"), [100, "100", Decimal("1E+2")],
    ),
    "long": (pa.int64(), 7, 8, [7, "7", "007", "+7"]),
    "double": (pa.float64(), 1.0, 2.0, [1, 1.0, "1", "1.0", "1e0"]),
    "nan": (pa.float64(), float("nan"), 2.0, [float("nan"), "NaN"]),
    "zero": (pa.float64(), -0.0, 2.0, [0.0, -0.0, 0, "-0"]),
    "float": (pa.float32(), 0.10000000149011612, 0.25, [0.1, 0.10000000149011612, "0.1"]),
    "boolean": (pa.bool_(), True, False, [True, "true"]),
    "date": (pa.date32(), date(2026, 11, 1), date(2026, 11, 2), [date(2026, 11, 1), "2026-11-01"]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        datetime(2026, 11, 1, tzinfo=UTC),
        datetime(2026, 11, 1, 2, tzinfo=UTC),
        [
            datetime(2026, 11, 1, tzinfo=UTC),
            datetime(2026, 11, 1, 2, tzinfo=EAST),
            "2026-11-01 00:00:00",
            "2026-11-01T02:00:00+02:00",
        ],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        datetime(2026, 11, 1),  # noqa: DTZ001
        datetime(2026, 11, 2),  # noqa: DTZ001
        [datetime(2026, 11, 1), "2026-11-01 00:00:00", "2026-11-01T00:00:00.000"],  # noqa: DTZ001
    ),
    "string": (pa.string(), "a", "b", ["a"]),
    "null": (pa.string(), None, "b", [None, ""]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_is_overwritten_by_its_value_however_it_is_spelled(lake: Lake, kind: str) -> None:
    arrow, value, other, spellings = KINDS[kind]

    def rows(*numbered: tuple[int, Any]) -> pa.Table:
        return pa.table(
            {"id": [one for one, _ in numbered], "p": pa.array([value for _, value in numbered], arrow)}
        )

    table = lake.create_table(KEY, data=rows((1, value), (2, other)), partition_by="p")
    for number, spelling in enumerate(spellings, 10):
        table.overwrite(rows((number, value)), partitions={"p": spelling})
        assert ids(table.to_arrow()) == [2, number]
        with pytest.raises(InvalidRequest, match="not one of the partitions"):
            table.overwrite(rows((0, other)), partitions={"p": spelling})
    table.overwrite(rows().slice(0, 0), partitions={"p": spellings[0]})
    table.backfill_to_version()
    assert ids(table.to_arrow()) == [2] == ids(DeltaTable(table.location).to_pyarrow_table())


def test_times_of_partitions_without_a_zone_are_utc_when_they_are_overwritten_too(
    lake: Lake, tmp_path: Path
) -> None:
    """Other partitions stay: a time without a zone is not any time."""
    root = tmp_path / "tables" / "unzoned"
    times = [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2, 3)]
    data = {"id": [1, 2, 3], "p": pa.array(times, pa.timestamp("us", "UTC"))}
    write_deltalake(root, pa.table(data), partition_by=["p"])
    log = root / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        for name, text in line.get("add", {}).get("partitionValues", {}).items():
            line["add"]["partitionValues"][name] = text[: len("2026-11-01 00:00:00")].replace("T", " ")
    log.write_text("\n".join(map(json.dumps, lines)))
    lake.delta.adopt(root, KEY)
    table = lake.table(KEY)
    new = pa.table({"id": [10], "p": pa.array(times[:1], pa.timestamp("us", "UTC"))})
    table.overwrite(new, partitions={"p": times[0]})
    assert ids(table.to_arrow()) == [2, 3, 10]


def test_a_partition_value_that_cannot_be_understood_is_not_taken_for_another(
    lake: Lake, tmp_path: Path
) -> None:
    root = tmp_path / "tables" / "broken"
    write_deltalake(root, pa.table({"id": [1, 2], "p": [7, 8]}), partition_by=["p"])
    log = root / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('"p":"8"', '"p":"eight"'))
    lake.delta.adopt(root, KEY)
    with pytest.raises(InvalidRequest, match="p=eight, and it cannot be determined"):
        lake.table(KEY).overwrite(pa.table({"id": [9], "p": [7]}), partitions={"p": 7})
