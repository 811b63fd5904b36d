"""Data files: what is written is what was given, or nothing is."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest, OutcomeUnknown, StorageFull, Unavailable
from penstock.formats.delta.protocol.actions import Add, decode_path
from penstock.formats.delta.protocol.lint_files import path_fault
from penstock.formats.delta.rows.file_writer import partition_folder, partition_text, write_files
from penstock.formats.rows.arrow_types import allow_nulls, make_arrow_schema, make_schema
from penstock.formats.rows.schema import ArrayType, Field, StructType, Type
from penstock.storage.places import Place
from tests.formats.delta.logs import Table
from tests.formats.delta.rows import as_rows, deltalake, filled, metadata_for, ours, protocol_for
from tests.outages.conftest import SmallDisk, small_disk

__all__ = ["small_disk"]


def schema(nullable: bool = True, **types: Type) -> StructType:
    return StructType(tuple(Field(name=name, type=kind, nullable=nullable) for name, kind in types.items()))


def data_files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.parquet"))


def written(table: Table, of: StructType, data: Any, *partitioned_by: str, **options: Any) -> pa.Table:
    """The rows that come back from a table after they were written into it."""
    metadata = metadata_for(of, partitioned_by)
    table.commit(0, protocol_for(of), metadata, *write_files(table.place, metadata, data, **options))
    return ours(table)


def test_a_file_is_named_and_noted_as_the_protocol_has_it(table: Table) -> None:
    metadata = metadata_for(schema(id="long", day="date"), ["day"])
    data = pa.table({"id": [1, 2], "day": pa.array([date(2026, 11, 14)] * 2)})
    (file,) = write_files(table.place, metadata, data)
    assert file.path.startswith("day=2026-11-14/part-00000-")
    assert file.path.endswith("-c000.zstd.parquet")
    assert file.partition_values == {"day": "2026-11-14"}
    assert file.data_change
    assert file.modification_time > 1_700_000_000_000
    on_disk = table.root / file.path
    assert file.size == on_disk.stat().st_size
    footer = pq.ParquetFile(on_disk)
    assert footer.schema_arrow.names == ["id"]
    assert footer.metadata.row_group(0).column(0).compression == "ZSTD"
    assert json.loads(file.stats or "") == {
        "numRecords": 2,
        "minValues": {"id": 1},
        "maxValues": {"id": 2},
        "nullCount": {"id": 0},
    }


def test_files_go_below_a_prefix(table: Table) -> None:
    (file,) = write_files(
        table.place, metadata_for(schema(id="long")), pa.table({"id": [1]}), prefix="some/folder/"
    )
    assert file.path.startswith("some/folder/part-00000-")
    assert (table.root / file.path).exists()


def test_no_rows_are_no_files(table: Table) -> None:
    of = metadata_for(schema(id="long"))
    assert write_files(table.place, of, pa.table({"id": pa.array([], pa.int64())})) == []
    assert data_files(table.root) == []


ODD = ["a b", "ü/%=:?#&", "100%", "%20", "'\"\\", "a\nb", "{x}[y]^`|<>", ".", "..", "~", "x" * 400, "ü" * 300]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_any_partition_value_makes_a_path_that_every_reader_finds(table: Table, value: str) -> None:
    data = pa.table({"id": [1], "part": [value]})
    filled(table, data, "part")
    (file,) = data_files(table.root)
    assert file.parent.parent == table.root
    found = json.loads((table.root / "_delta_log" / f"{0:020}.json").read_text().splitlines()[2])["add"]
    assert path_fault(found["path"]) is None
    assert table.root / decode_path(found["path"]) == file
    assert ours(table).to_pylist() == deltalake(table).to_pylist() == data.to_pylist()


def test_long_values_that_begin_alike_get_folders_of_their_own() -> None:
    assert partition_folder({"p": "x" * 400}) != partition_folder({"p": "x" * 401})
    assert partition_folder({"p": None, "q/r": "a=b"}) == "p=__HIVE_DEFAULT_PARTITION__/q%2Fr=a%3Db"


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("boolean", True, "true"),
        ("boolean", False, "false"),
        ("long", 0, "0"),
        ("double", 0.1, "0.1"),
        ("double", 1e300, "1e+300"),
        ("double", float("nan"), "NaN"),
        ("double", float("-inf"), "-Infinity"),
        ("decimal(10,2)", Decimal("1E+2"), "100"),
        ("decimal(38,10)", Decimal("1E-10"), "0.0000000001"),
        ("date", date(1, 2, 3), "0001-02-03"),
        ("timestamp", datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-01-02T03:04:05.000006Z"),
        ("timestamp_ntz", datetime(2026, 1, 2, 3, 4, 5), "2026-01-02 03:04:05.000000"),  # noqa: DTZ001
        ("string", "", None),
        ("string", " ", " "),
        ("string", None, None),
    ],
)
def test_a_partition_value_is_written_as_the_protocol_has_it(kind: str, value: Any, text: str | None) -> None:
    assert partition_text(kind, value) == text


WIDER: list[tuple[Type, Any, list[Any], list[Any]]] = [
    ("long", pa.int8(), [1, None], [1, None]),
    ("byte", pa.int64(), [127, -128], [127, -128]),
    ("long", pa.uint64(), [2**63 - 1], [2**63 - 1]),
    ("double", pa.int64(), [2**53], [2.0**53]),
    ("double", pa.float32(), [0.5], [0.5]),
    ("decimal(5,2)", pa.int64(), [999], [Decimal("999.00")]),
    ("decimal(10,4)", pa.decimal128(5, 2), [Decimal("1.25")], [Decimal("1.2500")]),
    ("decimal(5,2)", pa.decimal128(38, 10), [Decimal("1.25")], [Decimal("1.25")]),
    ("string", pa.large_string(), ["ü"], ["ü"]),
    ("string", pa.dictionary(pa.int8(), pa.string()), ["a", "a", None], ["a", "a", None]),
    ("binary", pa.binary(2), [b"ab"], [b"ab"]),
    ("timestamp", pa.timestamp("s", "Europe/Berlin"), [0], [datetime(1970, 1, 1, tzinfo=UTC)]),
    ("timestamp", pa.timestamp("ns", "UTC"), [1000], [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
    ("timestamp_ntz", pa.timestamp("ms"), [1], [datetime(1970, 1, 1, 0, 0, 0, 1000)]),  # noqa: DTZ001
    ("date", pa.date64(), [date(2026, 1, 1)], [date(2026, 1, 1)]),
    ("long", pa.null(), [None], [None]),
    (StructType((Field(name="x", type="long", nullable=False),)), pa.null(), [None], [None]),
    (ArrayType(element_type="long", contains_null=False), pa.null(), [None], [None]),
    ("binary", pa.uuid(), [UUID(int=7)], [UUID(int=7).bytes]),
]


@pytest.mark.parametrize(("kind", "given", "values", "expected"), WIDER, ids=range(len(WIDER)))
def test_what_loses_nothing_is_cast(
    table: Table, kind: Type, given: Any, values: list[Any], expected: list[Any]
) -> None:
    array = (
        pa.array(values, pa.int64()).cast(given) if pa.types.is_timestamp(given) else pa.array(values, given)
    )
    found = written(table, schema(c=kind), pa.table({"c": array}))
    assert found["c"].to_pylist() == expected
    assert found.schema == make_arrow_schema(schema(c=allow_nulls(kind)).fields)


LOSSY: list[tuple[Type, Any, list[Any]]] = [
    ("byte", pa.int64(), [128]),
    ("long", pa.uint64(), [2**63]),
    ("double", pa.int64(), [2**53 + 1]),
    ("float", pa.float64(), [0.1]),
    ("long", pa.float64(), [1.0]),
    ("decimal(5,2)", pa.int64(), [1000]),
    ("decimal(5,2)", pa.decimal128(10, 3), [Decimal("1.255")]),
    ("long", pa.string(), ["1"]),
    ("string", pa.int64(), [1]),
    ("string", pa.binary(), [b"a"]),
    ("boolean", pa.int8(), [1]),
    ("timestamp", pa.timestamp("ns", "UTC"), [1]),
    ("timestamp", pa.timestamp("us"), [1]),
    ("timestamp_ntz", pa.timestamp("us", "UTC"), [1]),
    ("date", pa.timestamp("us"), [1]),
    ("date", pa.int32(), [1]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "values"), LOSSY, ids=[f"{one[1]}-as-{one[0]}" for one in LOSSY])
def test_what_would_lose_something_is_refused(
    table: Table, kind: Type, given: Any, values: list[Any]
) -> None:
    data = pa.table({"id": [0] * len(values), "c": pa.array(values, given)})
    with pytest.raises(InvalidRequest, match=f"the column 'c' (has|is of) the type {kind.split('(')[0]}"):  # type: ignore[union-attr]
        write_files(table.place, metadata_for(schema(id="long", c=kind)), data)
    assert data_files(table.root) == []


def test_a_missing_column_is_null_and_order_and_case_do_not_matter(table: Table) -> None:
    of = schema(a="long", b="string", c="double")
    found = written(table, of, pa.table({"B": ["x"], "a": [1]}))
    assert found.to_pylist() == [{"a": 1, "b": "x", "c": None}]


INNER = StructType(
    (Field(name="x", type="long", nullable=False), Field(name="y", type="long", nullable=True))
)


@pytest.mark.parametrize(
    ("of", "data", "told"),
    [
        (schema(a="long"), {"a": [1], "z": [2]}, "the table has no column 'z'; there are a"),
        (
            schema(a="long", nullable=False),
            {"a": [1, None]},
            "the column 'a' is not nullable, but the data has nulls",
        ),
        (
            schema(a="long", b="long", nullable=False),
            {"a": [1]},
            "the data lacks the column 'b', which is not",
        ),
        (schema(s=INNER), {"s": [{"x": None, "y": 1}]}, r"the column 's\.x' is not nullable"),
        (schema(s=INNER), {"s": [{"y": 1}]}, r"the column 's\.x' is not nullable"),
        (schema(s=INNER), {"s": [{"x": 1, "z": 1}]}, r"the table has no column 's\.z'; there are s\.x, s\.y"),
        (schema(s=INNER), {"s": [7]}, "the column 's' has values of the type int64"),
        (schema(s="long"), {"s": [{"x": 1}]}, "the column 's' has the type long"),
    ],
    ids=["extra", "null", "missing", "nested-null", "nested-missing", "nested-extra", "not-nested", "nested"],
)
def test_data_that_is_not_the_tables_is_refused_and_leaves_nothing(
    table: Table, of: StructType, data: dict[str, list[Any]], told: str
) -> None:
    with pytest.raises(InvalidRequest, match=told):
        write_files(table.place, metadata_for(of), pa.table(data))
    assert data_files(table.root) == []


def test_what_is_null_needs_no_parts(table: Table) -> None:
    found = written(
        table, schema(s=INNER), pa.table({"s": pa.array([None, {"x": 1}], pa.struct([("x", pa.int8())]))})
    )
    assert found.to_pylist() == [{"s": None}, {"s": {"x": 1, "y": None}}]


def test_slices_of_nested_data_are_written_as_they_are(table: Table) -> None:
    inner = pa.struct([("x", pa.int32())])
    nothing: dict[str, Any] = {"list": None, "map": None, "fixed": None}
    rows: list[dict[str, Any]] = [
        {"list": [{"x": at}, None], "map": [("k", {"x": at})], "fixed": [at, at]} if at % 3 else nothing
        for at in range(20)
    ]
    given = pa.schema(
        [
            ("list", pa.large_list(inner)),
            ("map", pa.map_(pa.string(), inner)),
            ("fixed", pa.list_(pa.int8(), 2)),
        ]
    )
    wanted = pa.schema(
        [
            ("list", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.string())]))),
            ("map", pa.map_(pa.string(), pa.struct([("x", pa.int64())]))),
            ("fixed", pa.list_(pa.int64())),
        ]
    )
    data = pa.Table.from_pylist(rows, schema=given).slice(5, 9)
    found = written(table, make_schema(wanted), data)
    assert found.to_pylist() == [
        row if row is nothing else row | {"list": [row["list"][0] | {"y": None}, None]} for row in rows[5:14]
    ]


def test_constraints_are_not_written_past(table: Table) -> None:
    of = metadata_for(schema(id="long"), properties={"delta.constraints.positive": "id > 0"})
    with pytest.raises(InvalidRequest, match="the constraint 'positive'"):
        write_files(table.place, of, pa.table({"id": [1, -1]}))


def test_what_is_no_data_is_told(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="not a list"):
        write_files(table.place, metadata_for(schema(id="long")), [{"id": 1}])
    with pytest.raises(InvalidRequest, match="no columns besides"):
        write_files(table.place, metadata_for(schema(id="long"), ["id"]), pa.table({"id": [1]}))
    of = metadata_for(schema(id="long", part="string", nullable=False), ["part"])
    with pytest.raises(InvalidRequest, match="an empty partition value means null"):
        write_files(table.place, of, pa.table({"id": [1], "part": [""]}))


def stream(batches: int, rows: int = 1000, partitions: int = 1) -> pa.RecordBatchReader:
    """Batches that are made as they are asked for, of rows that compress badly."""
    of = pa.schema([("id", pa.int64()), ("part", pa.int64())])

    def made() -> Iterator[Any]:
        for batch in range(batches):
            first = batch * rows
            ids = [(first + row) * 2654435761 % 2**61 for row in range(rows)]
            yield pa.record_batch([ids, [row % partitions for row in range(rows)]], schema=of)

    return pa.RecordBatchReader.from_batches(of, made())


def test_a_stream_becomes_files_of_about_the_wanted_size(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.formats.delta.rows.file_writer.GROUP_BYTES", 32_000)
    of = make_schema(stream(1).schema)
    found = written(table, of, stream(40), target_file_bytes=64_000)
    assert as_rows(found) == as_rows(stream(40).read_all())
    sizes = [one.stat().st_size for one in data_files(table.root)]
    assert len(sizes) > 3
    assert max(sizes) < 130_000
    assert sum(size > 40_000 for size in sizes) >= len(sizes) - 1


def test_a_table_in_one_piece_becomes_files_of_about_the_wanted_size(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.formats.delta.rows.file_writer.GROUP_BYTES", 32_000)
    data = stream(40).read_all().combine_chunks()
    found = written(table, make_schema(data.schema), data, target_file_bytes=64_000)
    assert as_rows(found) == as_rows(data)
    assert max(one.stat().st_size for one in data_files(table.root)) < 130_000


def test_many_partitions_keep_a_bounded_amount_in_memory(table: Table) -> None:
    of = make_schema(stream(1).schema)
    found = written(table, of, stream(20, partitions=50), "part", waiting_max_bytes=50_000)
    assert as_rows(found) == as_rows(stream(20, partitions=50).read_all())
    # More files than partitions: some were finished early.
    assert len(data_files(table.root)) > 50


def test_a_large_file_waits_on_the_disk_and_stays_one_file(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"GROUP_BYTES": 32_000, "HELD_MAX_BYTES": 50_000, "PIECE_BYTES": 20_000}.items():
        monkeypatch.setattr(f"penstock.formats.delta.rows.file_writer.{name}", size)
    of = make_schema(stream(1).schema)
    found = written(table, of, stream(40), target_file_bytes=1_000_000, waiting_max_bytes=100_000)
    assert as_rows(found) == as_rows(stream(40).read_all())
    (file,) = data_files(table.root)
    assert file.stat().st_size > 100_000


def test_a_full_disk_for_temporary_files_is_named(
    table: Table, monkeypatch: pytest.MonkeyPatch, small_disk: SmallDisk, tmp_path: Path
) -> None:
    monkeypatch.setattr("penstock.formats.delta.rows.file_writer.HELD_MAX_BYTES", 50_000)
    monkeypatch.setattr("penstock.formats.delta.rows.file_writer.GROUP_BYTES", 32_000)
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk.path))
    small_disk.fill()
    with pytest.raises(StorageFull, match="set TMPDIR") as refused:
        write_files(table.place, metadata_for(make_schema(stream(1).schema)), stream(40))
    assert str(small_disk.path) in refused.value.message
    assert data_files(table.root) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert len(write_files(table.place, metadata_for(make_schema(stream(1).schema)), stream(40))) == 1


class FailingPlace:
    """Writes some files and then no more; may lose the answer to one that it wrote."""

    def __init__(self, place: Place, *, fails_at: int = -1, lost: int = -1) -> None:
        self.url = place.url
        self._place, self._fails_at, self._lost = place, fails_at, lost
        self.created = 0

    def create(self, name: str, data: bytes) -> bool:
        at, self.created = self.created, self.created + 1
        if at == self._fails_at:
            raise Unavailable("the disk is gone")
        found = self._place.create(name, data)
        if at == self._lost:
            raise OutcomeUnknown("the answer is lost")
        return found

    def delete(self, names: list[str]) -> None:
        self._place.delete(names)


def test_a_write_that_fails_half_way_leaves_no_files(table: Table) -> None:
    place: Any = FailingPlace(table.place, fails_at=3)
    data = pa.table({"id": range(10), "part": range(10)})
    with pytest.raises(Unavailable):
        write_files(place, metadata_for(make_schema(data.schema), ["part"]), data)
    assert place.created == 4
    assert data_files(table.root) == []


def test_data_that_ends_in_an_error_leaves_no_files(table: Table) -> None:
    of = pa.schema([("id", pa.int64())])

    def broken() -> Iterator[Any]:
        yield pa.record_batch([pa.array(range(50_000))], schema=of)
        assert data_files(table.root)
        raise ValueError("the source is gone")

    data = pa.RecordBatchReader.from_batches(of, broken())
    with pytest.raises(ValueError, match="the source is gone"):
        write_files(table.place, metadata_for(make_schema(of)), data, waiting_max_bytes=1000)
    assert data_files(table.root) == []


def test_a_file_whose_answer_was_lost_is_written_once(table: Table) -> None:
    place: Any = FailingPlace(table.place, lost=1)
    data = pa.table({"id": range(3), "part": range(3)})
    adds: list[Add] = write_files(place, metadata_for(make_schema(data.schema), ["part"]), data)
    assert sorted(table.root / one.path for one in adds) == data_files(table.root)
    assert len(adds) == 3


def test_rows_of_several_partition_columns_keep_their_order(table: Table) -> None:
    data = pa.table(
        {
            "id": range(120),
            "a": [None if at % 5 == 0 else f"a{at % 5}" for at in range(120)],
            "b": [at % 3 for at in range(120)],
            "c": [at % 2 == 0 for at in range(120)],
        }
    )
    adds = write_files(table.place, metadata_for(make_schema(data.schema), ["a", "b", "c"]), data)
    assert len(adds) == 30
    for one in adds:
        ids = pq.ParquetFile(table.root / decode_path(one.path)).read()["id"].to_pylist()
        at = ids[0]
        a = None if at % 5 == 0 else f"a{at % 5}"
        assert one.partition_values == {"a": a, "b": str(at % 3), "c": "true" if at % 2 == 0 else "false"}
        assert ids == list(range(at, 120, 30))
