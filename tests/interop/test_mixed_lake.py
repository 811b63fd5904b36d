"""A lake with tables of every format, made by Penstock and read by Nessie's clients, which know fewer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock import (
    DeltaTable,
    FilesTable,
    IcebergTable,
    IcebergView,
    Key,
    LanceTable,
    Namespace,
    Put,
    SqlView,
)
from tests.interop.java_programs import java_program
from tests.interop.nessie_program import installed_program
from tests.interop.penstock_server import serving

# Lance and files tables and Spark's views look like Delta tables: all of Nessie's clients know that type.
TYPES = {
    "formats": "NAMESPACE",
    "formats.delta": "DELTA_LAKE_TABLE",
    "formats.files": "DELTA_LAKE_TABLE",
    "formats.iceberg": "ICEBERG_TABLE",
    "formats.lance": "DELTA_LAKE_TABLE",
    "formats.sql_view": "DELTA_LAKE_TABLE",
    "formats.view": "ICEBERG_VIEW",
}


@pytest.fixture
def mixed_lake_uri(tmp_path: Path) -> Iterator[str]:
    """A server over a lake that has a table of each format, and a branch `empty` that has none."""
    directory = tmp_path / "lake"
    lake = penstock.init(str(directory))
    lake.branch("empty").create()
    at = lake.warehouse
    lake.commit(
        [
            # Spark gives every namespace an owner.
            Put(Key("formats"), Namespace(properties={"owner": "anna"})),
            Put(Key("formats", "iceberg"), IcebergTable(metadata_location=f"{at}/iceberg/1.json")),
            Put(Key("formats", "view"), IcebergView(metadata_location=f"{at}/view/1.json")),
            Put(Key("formats", "delta"), DeltaTable(location=f"{at}/delta")),
            Put(Key("formats", "lance"), LanceTable(location=f"{at}/lance")),
            Put(Key("formats", "files"), FilesTable(location=f"{at}/files")),
            Put(Key("formats", "sql_view"), SqlView(sql_text="SELECT 1 AS one")),
        ],
        message="one of each",
    )
    lake.close()
    with serving(str(directory)) as server:
        yield server.uri


def test_nessies_java_client_reads_it(mixed_lake_uri: str, tmp_path: Path) -> None:
    said = java_program("Reader", mixed_lake_uri, "main", directory=tmp_path)
    assert dict(line.split(" ") for line in said.splitlines()) == TYPES


def test_nessies_python_client_reads_it(mixed_lake_uri: str, tmp_path: Path) -> None:
    program = installed_program(mixed_lake_uri, tmp_path)
    entries = program.json("content", "list")
    assert {".".join(entry["name"]["elements"]): entry["type"] for entry in entries} == TYPES
    contents = program.json("content", "view", *TYPES)
    assert [content["type"] for content in contents] == list(TYPES.values())

    (commit,) = program.json("log", "-x")
    put = {".".join(each["key"]["elements"]): each["content"]["type"] for each in commit["operations"]}
    assert put == TYPES
    diffs = program.json("diff", "empty", "main")["diffs"]
    assert {".".join(each["key"]["elements"]): each["to"]["type"] for each in diffs} == TYPES
