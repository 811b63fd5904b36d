"""A folder of Parquet files becomes a table: in place, with all rows, and read alike by everybody."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

import penstock
from penstock.errors import CommitConflict, InvalidRequest
from penstock.formats.delta.lake import erase
from penstock.formats.delta.lake.former_files import NOTE
from penstock.lake.lake import Lake
from tests.erase.tables import MARKER, alone, where_is

DAYS = (dt.date(2026, 11, 1), dt.date(2026, 11, 2))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(str(tmp_path / "lake"), create=True, author="ada") as opened:
        yield opened


@pytest.fixture
def folder(lake: Lake, tmp_path: Path) -> Path:
    """A folder below the lake's warehouse, for files of other programs."""
    folder = tmp_path / "lake" / "warehouse" / "clicks"
    folder.mkdir(parents=True)
    return folder


def save(path: Path, columns: dict[str, Any], **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)


def files_below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def sorted_rows(rows: Any, by: str = "id") -> list[dict[str, Any]]:
    return sorted(pa.table(rows).to_pylist(), key=lambda row: row[by])


def test_plain_files_become_a_table_where_they_are(lake: Lake, folder: Path) -> None:
    save(folder / "a.parquet", {"id": [1, 2], "amount": [1.5, float("nan")]})
    save(folder / "more" / "b.parquet", {"id": [3], "amount": [2.5], "note": ["late"]})
    (folder / "_SUCCESS").touch()
    before = files_below(folder)
    converted = lake.delta.convert(folder, "web.clicks")
    assert (converted.files, converted.rows, converted.partition_by) == (2, 3, ())
    table = lake.table("web.clicks")
    assert [row["id"] for row in sorted_rows(table)] == [1, 2, 3]
    assert [row["note"] for row in sorted_rows(table)] == [None, None, "late"]
    lake.finish_background()
    assert {
        name for name in files_below(folder) if not name.startswith(("_delta_log", "_penstock"))
    } == before
    assert sorted_rows(DeltaTable(folder).to_pyarrow_table())[2] == {"id": 3, "amount": 2.5, "note": "late"}
    assert table.history(limit=1)[0].operation == "CONVERT"


def test_folders_of_partitions_give_columns_with_types(lake: Lake, folder: Path) -> None:
    for number, day in enumerate(DAYS):
        save(folder / f"day={day}" / "region=a%20b" / "part-0.parquet", {"id": [number]})
    save(folder / "day=__HIVE_DEFAULT_PARTITION__" / "region=c" / "part-0.parquet", {"id": [9]})
    lake.delta.convert(folder, "web.clicks", partition_by={"day": "date"})
    table = lake.table("web.clicks")
    assert sorted_rows(table) == [
        {"id": 0, "day": DAYS[0], "region": "a b"},
        {"id": 1, "day": DAYS[1], "region": "a b"},
        {"id": 9, "day": None, "region": "c"},
    ]
    lake.finish_background()
    shown = DeltaTable(folder).to_pyarrow_table().select(["id", "day", "region"])
    assert sorted_rows(shown) == sorted_rows(table)


def test_the_table_lives_like_any_other(lake: Lake, folder: Path) -> None:
    """It is written, branched, merged and reverted."""
    save(folder / "day=1" / "clicks-of-monday.parquet", {"id": [1, 2]})
    lake.delta.convert(folder, "web.clicks", partition_by={"day": "int"})
    table = lake.table("web.clicks")
    table.append({"id": [3], "day": pa.array([2], pa.int32())})
    lake.branch("dev").create()
    lake.table("web.clicks", "dev").delete("id = 1")
    lake.merge("dev", "main")
    assert [row["id"] for row in sorted_rows(table)] == [2, 3]
    lake.revert("main")
    assert [row["id"] for row in sorted_rows(table)] == [1, 2, 3]


def test_a_revert_of_the_conversion_leaves_the_files(lake: Lake, folder: Path) -> None:
    save(folder / "a.parquet", {"id": [1]})
    converted = lake.delta.convert(folder, "t")
    reverted = lake.revert(converted.commit)
    assert not lake.table("t").exists
    lake.sweep_tables(remove_data=True)
    assert (folder / "a.parquet").exists()
    lake.revert(reverted.head)
    assert lake.table("t").count() == 1


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """A lake with a converted table whose files have names of their own, and deleted rows with a marker."""
    path = tmp_path / "lake"
    folder = path / "warehouse" / "clicks"
    with penstock.open(path, create=True) as lake:
        save(folder / "of=x" / "monday.parquet", {"id": [1, 2], "text": ["kept", MARKER]})
        save(folder / "of=x" / "tuesday.parquet", {"id": [3], "text": [MARKER]})
        lake.delta.convert(folder, "web.clicks")
        lake.table("web.clicks").delete("id > 1")
        lake.finish_background()
    return path


def test_deleted_rows_are_erased_from_files_of_any_name(marked: Path) -> None:
    with alone(marked) as lake:
        plan = lake.erase("web.clicks", dry_run=True)
        assert plan.data_files == 2
        assert lake.erase("web.clicks").finished
        assert where_is(marked) == []
        assert [row["id"] for row in sorted_rows(lake.table("web.clicks"))] == [1]
    assert not (marked / "warehouse" / "clicks" / NOTE).exists()


def test_an_erase_that_has_to_wait_knows_the_files_later(marked: Path) -> None:
    """The first one cuts the log, which alone said whose they are."""
    with penstock.open(marked) as lake:
        waiting = lake.erase("web.clicks")
        assert not waiting.finished
        assert waiting.until is not None
        assert where_is(marked) != []
    with alone(marked) as lake:
        assert lake.erase("web.clicks").finished
    assert where_is(marked) == []


@pytest.mark.parametrize("step", ["write_note", "end_log"])
def test_an_erase_that_dies_is_finished_by_the_next(
    marked: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = getattr(erase, step)

    def die(*args: Any, **options: Any) -> None:
        done(*args, **options)
        raise KeyboardInterrupt

    with alone(marked) as lake, monkeypatch.context() as patch:
        patch.setattr(erase, step, die)
        with pytest.raises(KeyboardInterrupt):
            lake.erase("web.clicks")
    with alone(marked) as lake:
        assert lake.erase("web.clicks").finished
        assert [row["id"] for row in sorted_rows(lake.table("web.clicks"))] == [1]
    assert where_is(marked) == []


def test_an_erase_takes_no_file_that_came_later(marked: Path) -> None:
    late = marked / "warehouse" / "clicks" / "wednesday.parquet"
    save(late, {"id": [4], "text": ["of somebody else"]})
    with alone(marked) as lake:
        erased = lake.erase("web.clicks")
    assert late.exists()
    assert "wednesday.parquet" in " ".join(erased.left)
    assert where_is(marked) == []


def test_types_of_files_are_those_of_the_table(lake: Lake, folder: Path) -> None:
    moment = dt.datetime(2026, 11, 1, 12, 30, tzinfo=dt.UTC)
    columns = {
        "id": pa.array([1, None], pa.int16()),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "at": pa.array([moment, None], pa.timestamp("ms", "UTC")),
        "local": pa.array([moment.replace(tzinfo=None), None], pa.timestamp("us")),
        "word": pa.array(["x", None], pa.large_string()).dictionary_encode(),
        "many": pa.array([[1, 2], None], pa.list_(pa.int64())),
        "inner": pa.array([{"a": True}, None], pa.struct([pa.field("a", pa.bool_())])),
        "pairs": pa.array([[("k", 1.5)], None], pa.map_(pa.string(), pa.float64())),
    }
    save(folder / "a.parquet", columns)
    converted = lake.delta.convert(folder, "t")
    types = {field["name"]: field["type"] for field in json.loads(converted.schema)["fields"]}
    assert {name: kind for name, kind in types.items() if isinstance(kind, str)} == {
        "id": "short",
        "price": "decimal(10,2)",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "word": "string",
    }
    first, second = pa.table(lake.table("t")).to_pylist()
    assert first == {
        "id": 1,
        "price": Decimal("1.50"),
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "word": "x",
        "many": [1, 2],
        "inner": {"a": True},
        "pairs": [("k", 1.5)],
    }
    assert set(second.values()) == {None}
    lake.finish_background()
    assert DeltaTable(folder).to_pyarrow_table().num_rows == 2


def test_times_of_96_bits_are_read(lake: Lake, folder: Path) -> None:
    moment = dt.datetime(2026, 11, 1, 12, 30, tzinfo=dt.UTC)
    times = {"at": pa.array([moment], pa.timestamp("ns", "UTC"))}
    save(folder / "a.parquet", times, use_deprecated_int96_timestamps=True)
    lake.delta.convert(folder, "t")
    assert pa.table(lake.table("t"))["at"].to_pylist() == [moment]


def test_statistics_come_from_footers_and_never_lose_a_row(lake: Lake, folder: Path) -> None:
    """To Spark NaN is the largest number, and Arrow leaves it out of a footer's bounds."""
    save(folder / "a.parquet", {"id": [1, 5], "x": [1.0, float("nan")], "word": ["a" * 100, None]})
    save(folder / "b.parquet", {"id": [10, 20], "x": [0.0, -0.0], "word": ["b", "c"]})
    lake.delta.convert(folder, "t")
    files = sorted(lake.table("t").snapshot().files(), key=lambda file: file.path)
    stats = [json.loads(file.stats or "") for file in files]
    assert [stat["numRecords"] for stat in stats] == [2, 2]
    assert [(stat["minValues"]["id"], stat["maxValues"]["id"]) for stat in stats] == [(1, 5), (10, 20)]
    assert all("x" not in stat["minValues"] and "x" not in stat["maxValues"] for stat in stats)
    assert [stat["nullCount"]["word"] for stat in stats] == [1, 0]
    assert stats[0]["maxValues"]["word"] > "a" * 100
    assert lake.table("t").count("id >= 10") == 2
    lake.table("t").analyze()
    files = sorted(lake.table("t").snapshot().files(), key=lambda file: file.path)
    assert json.loads(files[1].stats or "")["maxValues"]["x"] == 0.0
    assert "x" not in json.loads(files[0].stats or "")["maxValues"]


def test_a_plan_changes_nothing(lake: Lake, folder: Path) -> None:
    save(folder / "day=1" / "a.parquet", {"id": [1]})
    head, before = lake.branch("main").head, files_below(folder)
    plan = lake.delta.convert(folder, "t", dry_run=True)
    assert (plan.dry_run, plan.files, plan.rows, plan.partition_by, plan.commit) == (True, 1, 1, ("day",), "")
    assert lake.branch("main").head == head
    assert files_below(folder) == before


def test_under_a_key_it_is_done_once(lake: Lake, folder: Path) -> None:
    save(folder / "a.parquet", {"id": [1]})
    first = lake.delta.convert(folder, "t", idempotency_key="nightly")
    again = lake.delta.convert(folder, "t", idempotency_key="nightly")
    assert again.repeated
    assert again.commit == first.commit
    with pytest.raises(CommitConflict):
        lake.delta.convert(folder, "t")
    with pytest.raises(InvalidRequest, match="there is already a Delta table"):
        lake.delta.convert(folder, "u")


REFUSED: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "nothing there": ({}, "there are no Parquet files"),
    "two types": (
        {"a.parquet": {"x": [1]}, "b.parquet": {"x": ["1"]}},
        "'x' is long in a.parquet, but 'x' is string",
    ),
    "two spellings": ({"a.parquet": {"x": [1]}, "b.parquet": {"X": [1]}}, "have incompatible columns"),
    "some partitioned": (
        {"d=1/a.parquet": {"x": [1]}, "b.parquet": {"x": [1]}},
        "partitioned differently: b.parquet by nothing, d=1/a.parquet by d",
    ),
    "folders of both kinds": ({"d=1/old/a.parquet": {"x": [1]}}, "name a partition, and others that do not"),
    "unsigned": ({"a.parquet": {"x": pa.array([1], pa.uint32())}}, "the column 'x' has the type uint32"),
    "nanoseconds": ({"a.parquet": {"x": pa.array([1], pa.timestamp("ns"))}}, "nanoseconds"),
    "only partitions": ({"d=1/a.parquet": {"d": ["1"]}}, "no columns besides partition columns"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_a_table_is_refused_before_anything_is_written(
    lake: Lake, folder: Path, case: str
) -> None:
    files, words = REFUSED[case]
    for name, columns in files.items():
        save(folder / name, columns)
    before, head = files_below(folder), lake.branch("main").head
    with pytest.raises(InvalidRequest) as refused:
        lake.delta.convert(folder, "t")
    assert words in str(refused.value)
    assert (files_below(folder), lake.branch("main").head) == (before, head)


def test_advice_about_a_folder_leads_to_a_table_with_all_rows(lake: Lake, folder: Path) -> None:
    """Step by step, as each refusal says."""

    def convert() -> str:
        with pytest.raises(InvalidRequest) as refused:
            lake.delta.convert(folder, "t")
        return str(refused.value)

    save(folder / "a.parquet", {"id": [1]})
    save(folder / "d=1" / "b.parquet", {"id": ["2"]})
    save(folder / "d=1" / "old" / "c.parquet", {"id": [3]})
    (folder / "d=1" / "notes.csv").write_text("4")
    assert "partitioned differently" in convert()
    (folder / "a.parquet").rename(folder / "d=1" / "a.parquet")
    assert "d=1/old/c.parquet has folders" in convert()
    (folder / "d=1" / "old" / "c.parquet").rename(folder / "d=1" / "c.parquet")
    assert "notes.csv cannot be a file of a Delta table" in convert()
    (folder / "d=1" / "notes.csv").rename(folder.parent / "notes.csv")
    assert "have incompatible columns" in convert()
    save(folder / "d=1" / "b.parquet", {"id": [2]})
    lake.delta.convert(folder, "t")
    assert [row["id"] for row in sorted_rows(lake.table("t"))] == [1, 2, 3]


def test_a_file_that_is_not_parquet_is_named(lake: Lake, folder: Path) -> None:
    save(folder / "a.parquet", {"id": [1]})
    (folder / "notes.csv").write_text("id\n2\n")
    with pytest.raises(InvalidRequest, match=r"notes\.csv cannot be a file of a Delta table"):
        lake.delta.convert(folder, "t")
    (folder / "notes.csv").rename(folder / "_notes.csv")
    assert lake.delta.convert(folder, "t").rows == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partition_by": {"d": "nonsense"}}, "'nonsense' is not a type"),
        (
            {"partition_by": {"e": "date"}},
            "no folder has the partition column 'e'; the partition columns are: d",
        ),
        (
            {"partition_by": {"d": "date"}},
            "the column 'd' has the value '1', which cannot be a partition value",
        ),
        ({"properties": {"delta.columnMapping.mode": "name"}}, "delta.columnMapping.mode cannot be set"),
        ({"properties": {"delta.constraints.c": "x > 0"}}, "delta.constraints.c cannot be set"),
    ],
)
def test_wrong_options_are_refused(lake: Lake, folder: Path, options: dict[str, Any], words: str) -> None:
    save(folder / "d=1" / "a.parquet", {"x": [1]})
    with pytest.raises(InvalidRequest) as refused:
        lake.delta.convert(folder, "t", **options)
    assert words in str(refused.value)
    assert not (folder / "_delta_log").exists()
