"""Rows in a transaction: written by any library that gives Arrow's stream, to tables of any format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import CommitConflict, InvalidRequest, NotManaged
from penstock.formats.files.lake.answers import TableLayout
from penstock.formats.files.lake.calls import WriteFiles
from penstock.lake.lake import Lake
from penstock.model.nessie import IcebergTable
from tests.transactions.pipelines import FORMATS, ids, opened, rows

LIBRARIES: dict[str, Callable[..., Any]] = {
    "arrow": rows,
    "stream": lambda *ids: rows(*ids).to_reader(),
    "pandas": lambda *ids: pd.DataFrame({"id": pd.array(ids, "int64")}),
    "polars": lambda *ids: pl.DataFrame({"id": ids}),
    "duckdb": lambda *ids: duckdb.from_arrow(rows(*ids)),
    "a dict of columns": lambda *ids: {"id": list(ids)},
    "dicts, one a row": lambda *ids: [{"id": each} for each in ids],
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with opened("embedded", tmp_path / "lake") as found:
        yield found


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_of_any_library_land_in_a_table_of_any_format(lake: Lake, library: str, kind: str) -> None:
    made = LIBRARIES[library]
    with lake.transaction() as tx:
        tx.write(made(1, 2), "sales.orders", format=kind)
        tx.write(made(3), "sales.orders")
        assert ids(lake, "sales.orders", tx.branch) == [1, 2, 3]
        assert not lake.table("sales.orders").exists
    assert ids(lake, "sales.orders") == [1, 2, 3]
    assert tx.commit is not None
    assert lake.at(tx.commit).table("sales.orders").to_arrow().num_rows == 3


@pytest.mark.parametrize("where", ["embedded", "remote"])
@pytest.mark.parametrize("library", ["a dict of columns", "dicts, one a row"])
def test_dicts_are_rows_wherever_rows_are_taken(tmp_path: Path, where: str, library: str) -> None:
    made = LIBRARIES[library]
    with opened(where, tmp_path / "lake") as lake:
        lake.create_table("created", data=made(1, 2))
        lake.create_table("typed", schema=pa.schema([("id", pa.int32())]))
        lake.table("items").write(made(1, 2), format="lance")
        lake.table("files").write(made(1, 2), format="parquet")
        for key in ("created", "typed", "items", "files"):
            assert lake.table(key).append(made(3)).commit.id == lake.branch().head
        assert [ids(lake, key) for key in ("created", "typed", "items")] == [[1, 2, 3], [3], [1, 2, 3]]
        assert ids(lake, "files") == [1, 2, 3]
        assert lake.table("typed").to_arrow().schema.field("id").type == pa.int32()
        for key in ("created", "items", "files"):
            lake.table(key).overwrite(made(4))
            assert ids(lake, key) == [4]
        lake.delta.append({"created": made(5), "typed": made(6)})
        assert (ids(lake, "created"), ids(lake, "typed")) == ([4, 5], [3, 6])


def test_rows_are_added_to_a_table_of_files_as_to_others(lake: Lake) -> None:
    table = lake.table("t")
    table.write(rows(1), format="parquet")
    table.append(rows(2), idempotency_key="two", message="two")
    assert table.append(rows(2), idempotency_key="two", message="two").commit.id == lake.branch().head
    assert ids(lake, "t") == [1, 2], "under its key, once"
    head = lake.branch().head
    assert table.append(rows()).commit.id == lake.branch().head == head, "nothing is no commit"
    with pytest.raises(NotManaged, match="'t' is a table of files: an overwrite replaces all of its rows"):
        table.overwrite(rows(3), where="id = 1")
    with pytest.raises(InvalidRequest, match="commit"):
        lake.at().table("t").append(rows(3))
    with lake.transaction() as tx:
        tx.table("t").append(rows(3))
        assert ids(lake, "t") == [1, 2]
    assert ids(lake, "t") == [1, 2, 3]


def test_what_a_row_lacks_is_null_and_no_column_is_lost(lake: Lake) -> None:
    lake.table("t").write([{"id": 1}, {"id": 2, "name": "bolt"}])
    assert lake.table("t").to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "name": None},
        {"id": 2, "name": "bolt"},
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"id": 1}, "cannot be converted to Arrow"),
        ({"id": [1], "name": "bolt"}, "'name' is a str, not a list"),
        ({"id": {"a": 1}}, "'id' is a dict, not a list"),
        ({"id": [1, 2], "name": ["bolt"]}, "cannot be converted to Arrow"),
        ([], "got an empty list"),
        ([1, 2], "got a list"),
        ("rows", "got a str"),
        (None, "got a NoneType"),
    ],
)
@pytest.mark.parametrize("kind", FORMATS)
def test_what_are_no_rows_is_refused_for_every_format(lake: Lake, kind: str, data: Any, why: str) -> None:
    table = lake.table("t")
    with pytest.raises(InvalidRequest, match=why):
        table.write(data, format=kind)
    table.write(rows(1), format=kind)
    with pytest.raises(InvalidRequest, match=why):
        table.write(data)
    if kind in ("delta", "lance"):
        with pytest.raises(InvalidRequest, match=why):
            table.append(data)
    assert ids(lake, "t") == [1]


@pytest.mark.parametrize("kind", FORMATS)
def test_the_modes_mean_the_same_for_every_format(lake: Lake, kind: str) -> None:
    table = lake.table("t")
    assert table.write(rows(1), mode="error", format=kind) is not None
    assert table.write(rows(2), mode="ignore") is None
    assert ids(lake, "t") == [1]
    with pytest.raises(CommitConflict, match="t"):
        table.write(rows(3), mode="error")
    assert table.write(rows(4), mode="overwrite") is not None
    assert ids(lake, "t") == [4]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("kind", FORMATS)
def test_rows_are_written_once_under_a_key(lake: Lake, kind: str, inside: bool) -> None:
    tx = lake.transaction()
    table = tx.table("t") if inside else lake.table("t")
    first = table.write(rows(1), format=kind, idempotency_key="first")
    assert table.write(rows(1), format=kind, idempotency_key="first") is not None
    table.write(rows(2), idempotency_key="second")
    again = table.write(rows(2), idempotency_key="second")
    assert first is not None
    assert again is not None
    tx.land()
    assert ids(lake, "t") == [1, 2]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_key_of_one_transaction_is_not_that_of_another(lake: Lake, kind: str) -> None:
    lake.table("t").write(rows(0), format=kind)
    one, other = lake.transaction(), lake.transaction()
    one.write(rows(1, 2), "t", idempotency_key="batch")
    other.write(rows(3), "t", idempotency_key="batch")
    one.land()
    other.land()
    lake.table("t").write(rows(4), idempotency_key="batch")
    assert ids(lake, "t") == [0, 1, 2, 3, 4]


def test_writers_with_the_same_key_at_once_write_once(lake: Lake) -> None:
    lake.table("t").write(rows(0), format="parquet")
    start = Barrier(4)

    def write() -> None:
        start.wait(30)
        lake.table("t").write(rows(1), idempotency_key="batch")

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(write) for _ in range(4)]:
            done.result(60)
    assert ids(lake, "t") == [0, 1]


def test_csv_does_not_lose_rows_that_are_empty_lines(lake: Lake) -> None:
    nulls = pa.table({"a": [1, None, 3]})
    for told, by in ((nulls, None), (nulls.append_column("day", pa.array(["x", "y", "z"])), "day")):
        with pytest.raises(InvalidRequest, match="cannot store a null in 'a'"):
            lake.table("t").write(told, format="csv", partition_by=by)
    assert not lake.table("t").exists
    lake.table("t").write(pa.table({"a": ["", "x"]}), format="csv")
    assert lake.table("t").to_arrow().to_pylist() == [{"a": ""}, {"a": "x"}]


@pytest.mark.parametrize("kind", ["delta", "parquet", "csv"])
def test_rows_are_written_by_partition(lake: Lake, kind: str) -> None:
    told = pa.table({"id": [1, 2, 3], "day": ["a/b", None, "ü = %"], "x": [1.5, None, 0.5]})
    lake.table("t").write(told, format=kind, partition_by="day")
    lake.table("t").write(told)
    found = lake.table("t").to_arrow(["id", "day", "x"]).sort_by("id").to_pylist()
    assert found == [one for one in told.to_pylist() for _ in range(2)]
    some = lake.table("t").to_arrow(["id"], where="day = 'a/b' or x < 1").sort_by("id")
    assert some["id"].to_pylist() == [1, 1, 3, 3]


def test_a_file_table_tells_others_how_it_is_read(lake: Lake) -> None:
    lake.table("t").write(pa.table({"id": [1], "day": ["a"]}), format="csv", partition_by=["day"])
    layout = lake.table("t").files.about().layout
    assert (layout.format, layout.partition_by, layout.options) == ("csv", ("day",), {"header": "true"})
    assert '"name":"id","type":"long"' in layout.schema.replace(" ", "")


def test_files_that_somebody_put_are_read_once_their_format_is_said(lake: Lake) -> None:
    table = lake.table("raw")
    table.files.write({"day=1/a.json": b'{"id": 7}\n{"id": 8}\n', "_SUCCESS": b"", "day=2/b.json": b""})
    assert table.to_arrow(where="id > 7").to_pylist() == [{"id": 8, "day": 1}], "names of files tell it"
    with pytest.raises(InvalidRequest, match="format='parquet'"):
        table.write(rows(1))
    lake.do(WriteFiles(key=table.key, layout=TableLayout(format="json")))
    assert table.to_arrow(where="id > 7").to_pylist() == [{"id": 8, "day": 1}]
    with pytest.raises(InvalidRequest, match="only Spark"):
        table.write(rows(1))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"mode": "upsert"}, "unknown mode"),
        ({"format": "avro"}, "not as 'avro'"),
        ({"format": "lance"}, "leave out 'format'"),
        ({"partition_by": "id"}, "partitioned by nothing"),
    ],
)
def test_what_cannot_be_written_is_told(lake: Lake, how: dict[str, Any], message: str) -> None:
    lake.table("t").write(rows(1))
    with pytest.raises(InvalidRequest, match=message):
        lake.table("t").write(rows(2), **how)
    assert ids(lake, "t") == [1]


def test_what_is_no_rows_or_no_table_is_told(lake: Lake) -> None:
    lake.branch().put("ice", IcebergTable(metadata_location="s3://b/1"))
    with pytest.raises(NotManaged, match="ice"):
        lake.table("ice").write(rows(1))
    with pytest.raises(InvalidRequest, match="got a list"):
        lake.table("t").write([1])
    with pytest.raises(InvalidRequest, match="commit"):
        lake.at().table("t").write(rows(1))
    with pytest.raises(InvalidRequest, match="no column 'day'"):
        lake.table("t").write(rows(1), format="parquet", partition_by="day")
    assert not lake.table("t").exists


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_writers_that_create_the_same_table_at_once_all_write(lake: Lake, kind: str) -> None:
    start = Barrier(4)

    def write(number: int) -> None:
        start.wait(30)
        lake.table("t").write(rows(number), format=kind)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(write, number) for number in range(4)]:
            done.result(60)
    assert ids(lake, "t") == [0, 1, 2, 3]
