"""Contents as JSON and as fields: what is printed can be put again."""

from __future__ import annotations

import inspect
import re
from typing import Any
from uuid import UUID

import pytest

from penstock.cli.commands.tables import put
from penstock.cli.contents import SHORT_NAMES, parse_content_fields, parse_content_json
from penstock.errors import InvalidContent
from penstock.formats.files.content import FilesTable
from penstock.formats.lance.content import LanceTable
from penstock.model.content import AnyContent, Namespace, SqlView, Unknown, load_content_types
from penstock.model.nessie import DeltaTable, IcebergTable, IcebergView, Udf
from penstock.wire import json

ID = UUID("0fe8c327-11a7-4fef-86c7-e203fe2790f7")
CONTENTS: list[AnyContent] = [
    Namespace(id=ID, properties={"owner": "ada"}),
    IcebergTable(id=ID, metadata_location="s3://b/v1.json", snapshot_id=2**62),
    IcebergView(metadata_location="s3://b/v1.json", sql_text="select 'größe'", dialect="spark"),
    Udf(sql_text="x + 1"),
    DeltaTable(location="/w/t", state=b"\x00\xff", metadata_location_history=("a", "b")),
    LanceTable(held=(b"\x01" * 32, b"\x02" * 32)),
    FilesTable(location="/w/f"),
    SqlView(id=ID, sql_text="SELECT 'größe'", namespace=("a", "b"), settings={"x": "1"}, comment="c"),
    Unknown(id=ID, type_name="HUDI", payload=b"anything"),
    Unknown(type_name="", payload=b"\x92\x63\xc0"),
]


@pytest.mark.parametrize("content", CONTENTS, ids=lambda one: type(one).__name__)
def test_what_is_printed_can_be_put_again(content: AnyContent) -> None:
    assert parse_content_json(json.encode(content, AnyContent)) == content


def test_every_type_is_covered() -> None:
    assert {type(one) for one in CONTENTS} == set(load_content_types().values())


def test_an_object_has_its_type_first_and_plain_values() -> None:
    content = IcebergTable(id=ID, metadata_location="s3://x")
    assert json.to_json_value(content, AnyContent) == {
        "type": "ICEBERG_TABLE",
        "id": ID,
        "metadata_location": "s3://x",
        "snapshot_id": -1,
        "schema_id": 0,
        "spec_id": 0,
        "sort_order_id": 0,
    }


@pytest.mark.parametrize("name", ["iceberg", "ICEBERG_TABLE", "iceberg_table", "Iceberg-Table"])
def test_a_type_may_be_written_in_several_ways(name: str) -> None:
    assert parse_content_fields(name, ["metadata_location=s3://x=y", "snapshot_id=-5"]) == IcebergTable(
        metadata_location="s3://x=y", snapshot_id=-5
    )


def test_fields_that_are_lists_may_be_repeated() -> None:
    found = parse_content_fields(
        "delta", ["metadata_location_history=a", "metadata_location_history=b", "state=AAE="]
    )
    assert found == DeltaTable(metadata_location_history=("a", "b"), state=b"\x00\x01")


def test_short_names_stand_for_types_that_there_are() -> None:
    assert set(SHORT_NAMES.values()) < set(load_content_types())


def test_the_help_of_put_names_the_fields_that_there_are() -> None:
    listed = dict(re.findall(r"^(\w+) {2,}(.+)$", inspect.cleandoc(put.help or ""), re.MULTILINE))
    for short, names in listed.items():
        kind = load_content_types()[SHORT_NAMES[short]]
        told = set(names.split(", "))
        # A format's own state, and what it holds, are for programs.
        assert told == set(kind.__struct_fields__) - {"id", "state", "held"}
    assert set(listed) == set(SHORT_NAMES) - {"namespace"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "a JSON object"),
        ("{}", 'has no "type"'),
        ('{"type": 5}', 'has no "type"'),
        ('{"type": "ICEBERG_TABLE"}', "needs the field metadata_location"),
        ('{"type": "ICEBERG_TABLE", "metadata_location": 5}', "'metadata_location'"),
        ('{"type": "ICEBERG_TABLE", "metadata_location": "x", "snapshot_id": "5"}', "'snapshot_id'"),
        ('{"type": "ICEBERG_TABLE", "metadata_location": "x", "id": "no"}', "'id'"),
        ('{"type": "LANCE_TABLE", "state": "not base64!"}', "'state'"),
        ('{"type": "LANCE_TABLE", "held": ["xyz"]}', "'held'"),
        ('{"type": "LANCE_TABLE", "colour": "red"}', "no field 'colour'; its fields are id, location"),
        ('{"type": "NAMESPACE", "properties": {"a": 1}}', "'properties'"),
    ],
)
def test_a_wrong_object_is_refused_with_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InvalidContent, match=re.escape(message)):
        parse_content_json(text)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("iceberg", ["metadata_location"], "write it as name=value"),
        ("iceberg", ["metadata_location=a", "metadata_location=b"], "given twice"),
        ("iceberg", ["metadata_location=a", "snapshot_id=five"], "'snapshot_id'"),
        ("iceberg", ["metadata_location=a", "snapshot_id=²"], "'snapshot_id'"),
        ("namespace", ["properties=a"], "'properties'"),
    ],
)
def test_wrong_fields_are_refused_with_what_is_wrong(kind: str, given: list[Any], message: str) -> None:
    with pytest.raises(InvalidContent, match=re.escape(message)):
        parse_content_fields(kind, given)
