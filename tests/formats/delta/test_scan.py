"""The rows of a table, as deltalake and DuckDB read them too."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import InvalidLog, UnsupportedFeature
from penstock.formats.delta.log import scan
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import Add, DeletionVector, write_commit
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.rows.file_writer import write_files
from penstock.formats.rows import parquet_batches
from penstock.formats.rows.arrow_types import make_schema
from penstock.formats.rows.schema import Field, StructType
from penstock.storage.places import Place, Places
from tests.formats.delta.logs import Table, add, protocol, remove
from tests.formats.delta.rows import (
    VECTOR_ID,
    as_rows,
    deltalake,
    duckdb_rows,
    filled,
    inline_vector,
    metadata_for,
    ours,
    vector_data,
    vector_file_data,
    z85,
)
from tests.servers.s3 import S3Place

UTC_US, LOCAL_US = pa.timestamp("us", "UTC"), pa.timestamp("us")
NAN, INF = float("nan"), float("inf")


def everything() -> pa.Table:
    """Rows with values of every type, at the edges of what each can hold."""
    point = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
    columns: dict[str, tuple[Any, list[Any]]] = {
        "id": (pa.int64(), [0, 1, -(2**63), 2**63 - 1, None]),
        "small": (pa.int8(), [-128, 127, 0, 1, None]),
        "short": (pa.int16(), [-(2**15), 2**15 - 1, 0, 1, None]),
        "whole": (pa.int32(), [-(2**31), 2**31 - 1, 0, 1, None]),
        "single": (pa.float32(), [0.1, -0.0, NAN, INF, None]),
        "real": (pa.float64(), [0.1, -0.0, NAN, -INF, None]),
        "money": (
            pa.decimal128(38, 10),
            [Decimal("-0.0000000001"), Decimal(10) ** 27, Decimal(0), Decimal(1), None],
        ),
        "cents": (pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("0.01"), Decimal(0), Decimal(1), None]),
        "text": (pa.string(), ["", "ä\U0001f600", "a\x00b", "it's", None]),
        "raw": (pa.binary(), [b"", b"\x00\xff", b"a", b"b", None]),
        "flag": (pa.bool_(), [True, False, True, False, None]),
        "day": (
            pa.date32(),
            [date(1, 1, 1), date(1969, 12, 31), date(2026, 2, 28), date(9999, 12, 31), None],
        ),
        "moment": (
            UTC_US,
            [
                datetime(1500, 1, 1, tzinfo=UTC),
                datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
                datetime(2026, 11, 14, 1, 2, 3, 4, tzinfo=UTC),
                datetime(9999, 1, 1, tzinfo=UTC),
                None,
            ],
        ),
        "list": (pa.list_(pa.int64()), [[], [1, None], None, [2], [3]]),
        "map": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], None, [("b", None)], [("c", 3)]]),
        "point": (
            point,
            [{"x": 1, "tags": ["a"]}, {"x": None, "tags": None}, None, {"x": 2, "tags": []}, None],
        ),
        "points": (pa.list_(point), [[], [{"x": 1, "tags": None}, None], None, [], []]),
    }
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


def local_times() -> pa.Table:
    times = [datetime(1969, 1, 1), datetime(2026, 11, 14, 1, 2, 3, 4), None]  # noqa: DTZ001
    return pa.table({"id": pa.array([1, 2, 3]), "local": pa.array(times, LOCAL_US)})


@pytest.mark.parametrize("data", [everything(), local_times()], ids=["every-type", "local-times"])
def test_rows_come_back_as_they_were_and_as_others_read_them(
    table: Table, duckdb: Any, data: pa.Table
) -> None:
    filled(table, data)
    found = ours(table)
    found.validate(full=True)
    assert found.column_names == data.column_names
    assert as_rows(found) == as_rows(data)
    assert as_rows(deltalake(table)) == as_rows(data)
    assert as_rows(duckdb_rows(duckdb, table)) == as_rows(data)


ODD = [
    "plain",
    "a b",
    "ü/%=:?#&",
    "100%",
    "%20",
    "'\"\\",
    "a\nb",
    "{x}[y]^",
    ".",
    "+",
]


@pytest.mark.parametrize("name", ["text", "day", "moment", "cents", "money", "whole", "flag", "small"])
def test_partition_values_are_read_as_others_read_them(table: Table, duckdb: Any, name: str) -> None:
    data = everything().select(["id", name])
    if name == "text":
        data = pa.table({"id": range(len(ODD) + 1), "text": [*ODD, None]})
    filled(table, data, name)
    assert as_rows(ours(table)) == as_rows(data)
    assert ours(table).schema == data.schema
    assert as_rows(deltalake(table)) == as_rows(data)
    assert as_rows(duckdb_rows(duckdb, table)) == as_rows(data)


def test_an_empty_partition_value_is_null(table: Table) -> None:
    data = pa.table({"id": [1, 2, 3], "part": ["", None, "a"]})
    filled(table, data, "part")
    assert sorted(ours(table).to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "part": None},
        {"id": 2, "part": None},
        {"id": 3, "part": "a"},
    ]


def test_columns_come_in_the_order_that_was_asked_for(table: Table) -> None:
    filled(table, pa.table({"a": [1], "b": ["x"], "part": ["p"]}), "part")
    assert ours(table, columns=["part", "A"]).to_pylist() == [{"part": "p", "a": 1}]
    assert ours(table, columns=["part"]).to_pylist() == [{"part": "p"}]
    assert ours(table, columns=["b"], where="a = 1 and part = 'p'").to_pylist() == [{"b": "x"}]
    with pytest.raises(InvalidRequest, match="no column 'c'; there are a, b, part"):
        ours(table, columns=["c"])
    for columns in ([], ["a", "b", "A"]):
        with pytest.raises(InvalidRequest, match="at least one column to read, and each only once"):
            ours(table, columns=columns)


@pytest.mark.parametrize(
    "where",
    [
        "id > 0",
        "real > 1 or real is null",
        "not real > 1",
        "single = 0.1",
        "money between -1 and 1",
        "text in ('', 'it''s')",
        "day < '1970-01-01' and flag = true",
        "moment >= '1969-12-31 23:59:59.999999'",
        "text like '%a%'",
        "whole != 0",
    ],
)
def test_a_condition_means_what_it_means_to_duckdb(table: Table, duckdb: Any, where: str) -> None:
    data = everything()
    filled(table, data)
    # To DuckDB a literal is not a value of 32 bits; to us it is one of the column's type.
    theirs = where.replace("single = 0.1", "single = 0.1::FLOAT")
    assert as_rows(ours(table, where=where)) == as_rows(duckdb_rows(duckdb, table, theirs))


def test_files_are_left_out_by_partition_and_statistics(table: Table) -> None:
    data = pa.table({"id": range(100), "part": [f"p{number // 10}" for number in range(100)]})
    filled(table, data, "part")
    snapshot = load_snapshot(table.files)
    assert len([*scan.find_files(snapshot)]) == 10
    assert {
        one.partition_values["part"] for one in scan.find_files(snapshot, "part in ('p3', 'p4') and id < 40")
    } == {"p3"}
    assert [*scan.find_files(snapshot, "id > 100")] == []
    assert ours(table, where="id > 100").num_rows == 0
    assert ours(table, where="id > 100").schema == data.schema
    assert sorted(ours(table, where="id >= 38 and id <= 41")["id"].to_pylist()) == [38, 39, 40, 41]


@pytest.mark.parametrize(
    "where",
    [
        f"text = '{'x' * 32}b'",
        f"text > '{'x' * 32}a'",
        f"text like '{'x' * 32}%'",
        "moment > '2026-01-01 00:00:00.000998'",
        "moment < '1970-01-01'",
        "real > 1e308",
        "money >= 0.05",
    ],
)
def test_others_leave_out_no_file_that_they_need(table: Table, duckdb: Any, where: str) -> None:
    """A file for each row, with bounds that are cut, missing, or exact to the last digit."""
    moments = [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 0, 999, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=UTC),
        None,
    ]
    data = pa.table(
        {
            "file": [1, 2, 3, 4],
            "text": ["x" * 32 + "a", "x" * 32 + "b", "x" * 31, "\U0010ffff" * 70],
            "moment": pa.array(moments, UTC_US),
            "real": [NAN, INF, 1e308, -INF],
            "money": pa.array([Decimal("0.05"), Decimal("0.04"), Decimal(0), None], pa.decimal128(10, 2)),
        }
    )
    filled(table, data, "file")
    # As a table of its own: of Arrow's, DuckDB lets Arrow choose the rows, which thinks otherwise of NaN.
    duckdb.execute("CREATE OR REPLACE TEMP TABLE given AS SELECT * FROM data")
    expected = as_rows(duckdb.sql(f"SELECT * FROM given WHERE {where}").to_arrow_table())
    assert expected
    assert as_rows(ours(table, where=where)) == expected
    assert as_rows(duckdb_rows(duckdb, table, where)) == expected


def vectored(table: Table, data: pa.Table, vector: DeletionVector) -> None:
    schema = make_schema(data.schema)
    metadata = metadata_for(schema, properties={"delta.enableDeletionVectors": "true"})
    (file,) = write_files(table.place, metadata, data)
    with_vector = msgspec.structs.replace(file, deletion_vector=vector)
    table.commit(0, protocol(reader=("deletionVectors",)), metadata, with_vector)


@pytest.mark.parametrize("storage", ["inline", "file", "absolute"])
@pytest.mark.parametrize("shape", ["arrays", "runs"])
def test_rows_of_a_deletion_vector_are_left_out(table: Table, duckdb: Any, storage: str, shape: str) -> None:
    rows = 200_000
    deleted = {row for row in range(rows) if row % 7 == 0 or row // 50_000 == 2}
    if storage == "inline":
        deleted = {0, 65_535, 65_536, rows - 1}
    data = vector_data(deleted, shape)
    vector = inline_vector(data, len(deleted))
    if storage != "inline":
        name = f"deletion_vector_{VECTOR_ID}.bin"
        content, (_, start) = vector_file_data(b"another", data)
        (table.root / "ab").mkdir()
        table.write(f"ab/{name}", content)
        vector = DeletionVector(
            storage_type="u" if storage == "file" else "p",
            path_or_inline_dv=f"ab{z85(VECTOR_ID.bytes)}"
            if storage == "file"
            else f"file://{table.root}/ab/{name}",
            offset=start,
            size_in_bytes=len(data),
            cardinality=len(deleted),
        )
    vectored(table, pa.table({"id": range(rows)}), vector)
    expected = [row for row in range(rows) if row not in deleted]
    assert ours(table)["id"].to_pylist() == expected
    assert ours(table, where="id >= 140000")["id"].to_pylist() == [row for row in expected if row >= 140_000]
    assert sorted(deltalake(table)["id"].to_pylist()) == expected
    assert sorted(duckdb_rows(duckdb, table)["id"].to_pylist()) == expected


def test_a_broken_deletion_vector_is_an_error_and_not_more_rows(table: Table) -> None:
    vectored(table, pa.table({"id": range(10)}), inline_vector(vector_data({1, 12}), 2))
    with pytest.raises(
        InvalidLog, match=r"part-00000.* of the table .* names rows beyond the end of the file, which has 10"
    ):
        ours(table)


def mapped_schema(*, nested: str) -> StructType:
    """Columns that were renamed: their files know them by other names, and by ids."""

    def field(name: str, kind: Any, physical: str, number: int) -> Field:
        notes = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
        return Field(name=name, type=kind, nullable=True, metadata=notes)

    inner = StructType((field(nested, "string", "col-3", 3), field("added", "long", "col-4", 4)))
    return StructType(
        (
            field("id", "long", "col-1", 1),
            field("inner", inner, "col-2", 2),
            field("part", "string", "col-5", 5),
            field("new", "double", "col-6", 6),
        )
    )


def with_id(name: str, kind: Any, number: int) -> Any:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


def mapped(table: Table, mode: str, names: Sequence[str]) -> None:
    """A table whose only file has its columns under some names, with the ids of the schema."""
    inner = pa.struct([with_id(names[2], pa.string(), 3)])
    written = pa.schema([with_id(names[0], pa.int64(), 1), with_id(names[1], inner, 2)])
    rows = [{names[0]: 1, names[1]: {names[2]: "x"}}, {names[0]: 2, names[1]: None}]
    pq.write_table(pa.Table.from_pylist(rows, schema=written), table.root / "a.parquet")
    stats = {"numRecords": 2, "minValues": {"col-1": 1}, "maxValues": {"col-1": 2}, "nullCount": {"col-1": 0}}
    file = add(
        "a.parquet",
        size=(table.root / "a.parquet").stat().st_size,
        partition_values={"col-5": "p"},
        stats=json.dumps(stats),
    )
    schema = mapped_schema(nested="renamed")
    properties = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "6"}
    table.commit(0, protocol(reader=("columnMapping",)), metadata_for(schema, ["part"], properties), file)


RENAMED: list[dict[str, Any]] = [
    {"id": 1, "inner": {"renamed": "x", "added": None}, "part": "p", "new": None},
    {"id": 2, "inner": None, "part": "p", "new": None},
]


def test_in_the_mode_id_names_in_files_mean_nothing(table: Table) -> None:
    mapped(table, "id", ["col-2", "strange", "col-1"])
    assert ours(table).to_pylist() == RENAMED


@pytest.mark.parametrize("mode", ["name", "id"])
def test_renamed_columns_are_found_in_old_files(table: Table, duckdb: Any, mode: str) -> None:
    mapped(table, mode, ["col-1", "col-2", "col-3"])
    assert ours(table).to_pylist() == RENAMED
    assert deltalake(table).to_pylist() == RENAMED
    # DuckDB loses the values of partition columns that are mapped.
    unpartitioned = [{name: row[name] for name in row if name != "part"} for row in RENAMED]
    assert duckdb_rows(duckdb, table).drop_columns("part").to_pylist() == unpartitioned
    assert ours(table, where="inner.renamed = 'x' and part = 'p'", columns=["id"]).to_pylist() == [{"id": 1}]
    snapshot = load_snapshot(table.files)
    assert [*scan.find_files(snapshot, "id = 3")] == []
    assert [*scan.find_files(snapshot, "part = 'q'")] == []
    (written,) = write_files(table.place, snapshot.metadata, pa.table({"id": [1], "part": ["r"]}))
    assert "r" in written.partition_values.values()


def put_file(table: Table, name: str, data: pa.Table, **options: Any) -> Add:
    pq.write_table(data, table.root / name, **options)
    return add(name, size=(table.root / name).stat().st_size)


def test_files_that_lack_columns_or_hold_narrower_types_are_read_as_the_table_is_now(table: Table) -> None:
    inner = pa.struct([("x", pa.int64()), ("y", pa.string())])
    now = pa.schema(
        [
            ("whole", pa.int64()),
            ("real", pa.float64()),
            ("money", pa.decimal128(20, 4)),
            ("local", LOCAL_US),
            ("text", pa.string()),
            ("inner", inner),
            ("inners", pa.list_(inner)),
            ("by_name", pa.map_(pa.string(), inner)),
        ]
    )
    narrow = pa.struct([("x", pa.int32())])
    old = pa.table(
        {
            "whole": pa.array([1, None], pa.int8()),
            "real": pa.array([0.5, None], pa.float32()),
            "money": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
            "local": pa.array([date(1969, 12, 31), None], pa.date32()),
            "text": pa.array(["a", None], pa.large_string()).dictionary_encode(),
            "inner": pa.array([{"x": 1}, None], narrow),
            "inners": pa.array([[{"x": 2}, None], None], pa.list_(narrow)),
            "by_name": pa.array([[("k", {"x": 3})], None], pa.map_(pa.string(), narrow)),
            "dropped": pa.array([1, 2]),
        }
    )
    older = put_file(table, "older.parquet", pa.table({"whole": pa.array([7], pa.int16())}))
    first = put_file(table, "old.parquet", old)
    table.commit(0, protocol(reader=("timestampNtz",)), metadata_for(make_schema(now)), first, older)
    found = ours(table)
    found.validate(full=True)
    assert found.schema == pa.schema([pa.field(one.name, ours_type(one.type)) for one in now])
    nothing = dict.fromkeys(now.names)
    assert sorted(found.to_pylist(maps_as_pydicts="strict"), key=lambda row: row["whole"] or 0) == [
        nothing,
        {
            "whole": 1,
            "real": 0.5,
            "money": Decimal("1.2500"),
            "local": datetime(1969, 12, 31),  # noqa: DTZ001
            "text": "a",
            "inner": {"x": 1, "y": None},
            "inners": [{"x": 2, "y": None}, None],
            "by_name": {"k": {"x": 3, "y": None}},
        },
        nothing | {"whole": 7},
    ]


def ours_type(kind: Any) -> Any:
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", kind.value_type))
    return kind


def test_a_name_with_a_dot_is_no_part_of_a_struct(table: Table) -> None:
    data = pa.table({"a.b": [1], "a": pa.array([{"b": 2, "c": 3}]), "a.b.c": [4]})
    filled(table, data)
    assert ours(table).to_pylist() == data.to_pylist()
    assert ours(table, columns=["a.b"], where="a.b = 2 and `a.b` = 1").to_pylist() == [{"a.b": 1}]
    assert ours(table, columns=["a.b.c", "a"]).to_pylist() == [{"a.b.c": 4, "a": {"b": 2, "c": 3}}]


def test_times_of_older_engines_are_read(table: Table) -> None:
    """Spark used to write times as numbers of 96 bits, without a zone."""
    times = [datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime(2400, 1, 1, tzinfo=UTC), None]
    data = pa.table({"moment": pa.array(times, UTC_US)})
    file = put_file(table, "a.parquet", data, use_deprecated_int96_timestamps=True)
    table.commit(0, protocol(), metadata_for(make_schema(data.schema)), file)
    assert ours(table)["moment"].to_pylist() == times


def test_a_file_whose_values_do_not_fit_the_table_is_named(table: Table) -> None:
    file = put_file(table, "a.parquet", pa.table({"id": ["x"]}))
    table.create(file)
    with pytest.raises(InvalidLog, match=r"a\.parquet of the table .* the column 'id' has the type string"):
        ours(table)


def test_a_column_that_must_not_be_null_cannot_be_missing(table: Table) -> None:
    schema = StructType(
        (Field(name="id", type="long", nullable=True), Field(name="b", type="long", nullable=False))
    )
    file = put_file(table, "a.parquet", pa.table({"id": [1]}))
    table.commit(0, protocol(), metadata_for(schema), file)
    with pytest.raises(InvalidLog, match="the file lacks the column 'b', which is not nullable"):
        ours(table)


@pytest.mark.parametrize("size", [1, scan.WHOLE_MAX_BYTES + 1], ids=["small", "large"])
def test_a_missing_or_broken_file_is_named(table: Table, size: int) -> None:
    table.create(add("a%20b.parquet", size=size))
    with pytest.raises(InvalidLog, match=r"a%20b\.parquet of the table .* there is no such file"):
        ours(table)
    table.write("a b.parquet", b"PAR1 this is no such thing PAR1")
    with pytest.raises(InvalidLog, match=r"a%20b\.parquet of the table"):
        ours(table)
    reader = scan.read_rows(load_snapshot(table.files), table.place)
    with pytest.raises(InvalidLog, match=r"a%20b\.parquet of the table"):
        reader.read_all()


def test_a_file_outside_of_the_table_is_refused(table: Table, tmp_path: Path) -> None:
    data = pa.table({"id": [1]})
    pq.write_table(data, tmp_path / "outside.parquet")
    pq.write_table(data, table.root / "inside.parquet")
    for path in (
        f"{tmp_path}/outside.parquet",
        f"file://{tmp_path}/outside.parquet",
        f"{table.root}/../outside.parquet",
        "s3://elsewhere/a.parquet",
        "../outside.parquet",
        "%2e%2e/outside.parquet",
    ):
        table.create(add(path))
        with pytest.raises(UnsupportedFeature, match="is outside the table"):
            ours(table)
    (table.root / "p=a:").mkdir()
    pq.write_table(data, table.root / "p=a:" / "b.parquet")
    for path in (f"{table.root}/inside.parquet", f"file://{table.root}/inside.parquet", "p=a:/b.parquet"):
        table.create(add(path))
        assert ours(table).to_pylist() == [{"id": 1}]


def test_a_type_that_no_reader_has_is_refused_by_its_name(table: Table) -> None:
    schema = StructType(
        (Field(name="id", type="long", nullable=True), Field(name="v", type="interval", nullable=True))
    )
    table.commit(0, protocol(), metadata_for(schema), put_file(table, "a.parquet", pa.table({"id": [1]})))
    with pytest.raises(InvalidRequest, match="the column 'v' is of the type interval"):
        ours(table)
    assert ours(table, columns=["id"]).to_pylist() == [{"id": 1}]


def test_large_files_are_fetched_in_parts(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WHOLE_MAX_BYTES", 100)
    monkeypatch.setattr(parquet_batches, "BATCH_ROWS", 1000)
    columns = {f"c{number}": [f"{number}-{row}" for row in range(20_000)] for number in range(10)}
    filled(table, pa.table(columns))
    fetched: list[int] = []
    place = CountingPlace(table.place, fetched)
    found = scan.to_arrow(load_snapshot(table.files), place, columns=["c3"], where="c3 = '3-19999'")  # type: ignore[arg-type]
    assert found.to_pylist() == [{"c3": "3-19999"}]
    (file,) = load_snapshot(table.files).read_files()
    assert 0 < sum(fetched) < file.size / 2


class CountingPlace:
    """Notes how much is fetched of a place."""

    def __init__(self, place: Place, fetched: list[int]) -> None:
        self.url, self.roots, self.size = place.url, place.roots, place.size
        self._place, self._fetched = place, fetched

    def read_range(self, name: str, start: int, length: int) -> bytes | None:
        self._fetched.append(length)
        return self._place.read_range(name, start, length)


def test_a_reader_takes_only_what_it_is_asked_for(table: Table) -> None:
    """Of many files only a few are begun before somebody reads on, and those who stop leave no threads."""
    data = pa.table({"id": range(50), "part": range(50)})
    filled(table, data, "part")
    fetched: list[str] = []

    class Noting:
        url, roots = table.place.url, table.place.roots

        def read(self, names: list[str]) -> Any:
            fetched.extend(names)
            return table.place.read(names)

    reader = scan.read_rows(load_snapshot(table.files), Noting())  # type: ignore[arg-type]
    assert fetched == []
    first = reader.read_next_batch()
    assert first.num_rows == 1
    assert len(fetched) <= scan.FILES_AHEAD + 1
    reader.close()
    del reader
    assert not [one for one in threading.enumerate() if one.name.startswith("penstock-scan")]
    whole = scan.read_rows(load_snapshot(table.files), table.place)
    assert whole.read_all().sort_by("id").to_pylist() == data.to_pylist()


@pytest.mark.verify
def test_a_table_in_a_bucket_is_written_and_read(s3_place: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_place.endpoint or "")
    monkeypatch.setattr(scan, "WHOLE_MAX_BYTES", 100)
    places = Places()
    place = places.open_place(f"s3://{s3_place.bucket}/{s3_place.prefix}/some/table")
    data = pa.table({"id": range(len(ODD)), "part": ODD})
    metadata = metadata_for(make_schema(data.schema), ["part"])
    adds = write_files(place, metadata, data)
    assert place.create(str(CommitName(0)), write_commit([protocol(), metadata, *adds]))
    found = scan.to_arrow(load_snapshot(PlaceFiles(place)), place, where="id >= 0")
    assert found.sort_by("id").to_pylist() == data.to_pylist()
    # Spark's word for the same bucket, in addresses that need not be relative.
    absolute = place.url.replace("s3://", "s3a://")
    moved = [msgspec.structs.replace(one, path=f"{absolute}/{one.path}") for one in adds]
    removed = [remove(one.path) for one in adds]
    assert place.create(str(CommitName(1)), write_commit([*removed, *moved]))
    found = scan.to_arrow(load_snapshot(PlaceFiles(place)), place)
    assert found.sort_by("id").to_pylist() == data.to_pylist()
    places.close()
