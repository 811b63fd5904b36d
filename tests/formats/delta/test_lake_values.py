"""Values that have several spellings, in tables of a lake: what is compared is what they stand for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake

import penstock
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

ZEROS = [[-0.0], [0.0], [-0.0, 0.0], [0.0, -0.0], [-0.0, 1.0], [-1.0, 0.0], [-1.0, -0.0], [0.0, None]]
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
            stats = {
                "numRecords": 2,
                "minValues": {"f": low},
                "maxValues": {"f": high},
                "nullCount": {"f": 0},
            }
            line["add"]["stats"] = json.dumps(stats)
    log.write_text("\n".join(map(json.dumps, lines)))
    lake.delta.adopt(root, KEY)
    table = lake.table(KEY)
    for where in ("f = 0.0", "f = -0.0", "f in (-0.0)", "f in (0.0)", "f <= -0.0 and f >= 0.0"):
        assert ids(table.to_arrow(where=where)) == [one for one, f in ((1, low), (2, high)) if f == 0], where


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
