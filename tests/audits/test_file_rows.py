"""Rows of tables of files, whatever format they have, and what only their paths tell."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.files.lake.answers import TableLayout
from penstock.formats.files.lake.audit_rows import FileRows
from penstock.formats.rows.arrow_types import pa, pq
from penstock.lake.audits.rows import open_rows_at
from penstock.lake.lake import Lake
from penstock.model.keys import Key

EVENTS = Key.parse("raw.events")
ROWS = [{"n": 1, "kind": "x"}, {"n": 2, "kind": "y"}]


def written(ending: str) -> bytes:
    """The rows as a file of a format."""
    table, sink = pa.Table.from_pylist(ROWS), io.BytesIO()
    if ending == "csv":
        return b"n,kind\n1,x\n2,y\n"
    if ending == "json":
        return b'{"n": 1, "kind": "x"}\n{"n": 2, "kind": "y"}\n'
    if ending == "parquet":
        pq.write_table(table, sink)
    elif ending == "orc":
        import_module("pyarrow.orc").write_table(table, sink)
    else:
        with import_module("pyarrow.ipc").new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def read(lake: Lake) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = open_rows_at(lake.table("raw.events")).to_arrow().to_pylist()
    return found


@pytest.mark.parametrize("ending", ["csv", "json", "parquet", "orc", "arrow"])
def test_files_of_a_format_are_read_with_what_their_paths_tell(lake: Lake, ending: str) -> None:
    files = lake.table("raw.events").files
    files.put(f"day=3/part.{ending}", written(ending))
    files.put(f"day=__HIVE_DEFAULT_PARTITION__/part.{ending}", written(ending))
    files.put("_SUCCESS", b"")
    files.put(f"day=3/.part.{ending}.crc", b"?")
    assert read(lake) == [{**row, "day": day} for day in (3, None) for row in ROWS]


def test_columns_that_only_some_files_have_are_null_in_the_others(lake: Lake) -> None:
    files = lake.table("raw.events").files
    files.put("a.json", b'{"n": 1, "kind": "x"}\n')
    files.put("b.json", b'{"n": 2}\n')
    assert read(lake) == [{"n": 1, "kind": "x"}, {"n": 2, "kind": None}]


def test_columns_have_types_that_hold_the_values_of_all_files(lake: Lake) -> None:
    files = lake.table("raw.events").files
    files.put("a.csv", b"n\n1\n")
    files.put("b.csv", b"n,kind\n2.5,x\n")
    files.put("c.csv", b"")
    files.put("d.json", b'{"n": 4}\n')
    assert read(lake) == [
        {"n": 1.0, "kind": None},
        {"n": 2.5, "kind": "x"},
        {"n": 4.0, "kind": None},
    ]


def test_files_that_do_not_go_together_are_told(lake: Lake) -> None:
    files = lake.table("raw.events").files
    files.put("a.json", b'{"n": 1}\n')
    files.put("b.json", b'{"n": "x"}\n')
    with pytest.raises(
        InvalidRequest, match=r"the files of 'raw\.events' have incompatible schemas: .*\bn\b"
    ):
        read(lake)


def test_a_file_that_cannot_be_read_is_told_and_nothing_of_the_program(lake: Lake) -> None:
    lake.table("raw.events").files.put("a.json", b"{]")
    with pytest.raises(InvalidRequest, match=r"a\.json of 'raw\.events' cannot be read: ") as told:
        read(lake)
    assert "Traceback" not in told.value.message


def test_values_of_paths_are_text_unless_all_are_whole_numbers(lake: Lake) -> None:
    files = lake.table("raw.events").files
    files.put("day=1/a.csv", b"n\n1\n")
    files.put("day=last%20one/a.csv", b"n\n2\n")
    assert [row["day"] for row in read(lake)] == ["1", "last one"]


def test_what_a_job_said_of_its_files_is_heeded(lake: Lake) -> None:
    files = lake.table("raw.events").files
    files.put("day=1/a", b"007;x\n8;\n")
    schema = (
        '{"type":"struct","fields":[{"name":"code","type":"string","nullable":true,"metadata":{}},'
        '{"name":"kind","type":"string","nullable":true,"metadata":{}},'
        '{"name":"day","type":"string","nullable":true,"metadata":{}}]}'
    )
    layout = TableLayout(format="csv", partition_by=("day",), schema=schema, options={"sep": ";"})
    found = FileRows(EVENTS, files, layout).begin_reading().read_all().to_pylist()
    assert found == [
        {"code": "007", "kind": "x", "day": "1"},
        {"code": "8", "kind": None, "day": "1"},
    ]


def test_a_format_that_is_not_read_is_told(lake: Lake) -> None:
    lake.table("raw.events").files.put("a.txt", b"hello")
    with pytest.raises(InvalidRequest, match="of a format whose rows cannot be read here \\('txt'\\)"):
        read(lake)


def test_a_table_without_files_has_no_rows(lake: Lake) -> None:
    files = lake.table("raw.events").files
    files.put("a.csv", b"n\n1\n")
    files.delete("a.csv")
    assert read(lake) == []
