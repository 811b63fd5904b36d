"""Every feature that a table's metadata enables is listed: Delta Spark opens no other table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

import penstock
from penstock.errors import InvalidContent, TableConflict, UnsupportedFeature
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import Metadata, Protocol
from penstock.formats.delta.protocol.features import (
    enabled_features,
    find_unlisted_features,
    oldest_protocol,
    supported_features,
    with_features,
)
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.storage.places import Places
from tests.formats.delta.older import as_the_first_release

KEY = "shop.orders"
STRICT = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
NESTED = pa.schema([("id", pa.int64()), ("s", pa.struct([pa.field("a", pa.int64(), nullable=False)]))])
PROPERTIES = {
    "delta.appendOnly": ("true", "appendOnly"),
    "delta.enableChangeDataFeed": ("true", "changeDataFeed"),
    "delta.enableDeletionVectors": ("true", "deletionVectors"),
    "delta.enableTypeWidening": ("true", "typeWidening"),
    "delta.checkpointPolicy": ("v2", "v2Checkpoint"),
    "delta.constraints.positive": ("id > 0", "checkConstraints"),
    "delta.columnMapping.mode": ("name", "columnMapping"),
    "delta.enableIcebergCompatV1": ("true", "icebergCompatV1"),
    "delta.enableIcebergCompatV2": ("true", "icebergCompatV2"),
    "delta.enableIcebergCompatV3": ("true", "icebergCompatV3"),
    "delta.enableRowTracking": ("true", "rowTracking"),
    "delta.enableVariantShredding": ("true", "variantShredding"),
    "delta.enableMaterializePartitionColumnsFeature": ("true", "materializePartitionColumns"),
    "delta.coordinatedCommits.commitCoordinator-preview": ("dynamodb", "coordinatedCommits-preview"),
    "delta.redirectReaderWriter-preview": ("{}", "redirectReaderWriter-preview"),
    "delta.redirectWriterOnly-preview": ("{}", "redirectWriterOnly-preview"),
}
"""Properties that enable a feature, as Delta Spark has it (``metadataRequiresFeatureToBeEnabled``)."""
WRITTEN = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "icebergCompatV1",
    "icebergCompatV2",
    "icebergCompatV3",
    "materializePartitionColumns",
    "rowTracking",
    "typeWidening",
    "v2Checkpoint",
    "variantShredding",
}
"""Those that a table of a lake may enable."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path / "tables"))
        yield lake


def protocol_of(table: Table) -> Protocol:
    return table.snapshot().protocol


def agrees(table: Table) -> bool:
    found = table.snapshot()
    return not find_unlisted_features(found.protocol, found.metadata)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "text": [str(one) for one in ids]}, schema=STRICT)


def ids(table: Table) -> list[int]:
    """By the lake and by deltalake, which agree."""
    table.backfill_to_version()
    found: list[int] = sorted(table.to_arrow()["id"].to_pylist())
    assert found == sorted(DeltaTable(table.location).to_pyarrow_table()["id"].to_pylist())
    return found


@pytest.mark.parametrize("schema", [STRICT, NESTED], ids=["a column", "a part of a struct"])
def test_a_table_with_a_column_that_is_not_null_lists_invariants(lake: Lake, schema: pa.Schema) -> None:
    for table in (
        lake.create_table("a.data", data=schema.empty_table()),
        lake.create_table("a.schema", schema=schema),
    ):
        assert "invariants" in supported_features(protocol_of(table))
        assert protocol_of(table).min_reader_version == 1
        assert agrees(table)


@pytest.mark.parametrize("name", PROPERTIES)
def test_what_a_property_enables_is_listed_or_the_table_is_refused_for_it(lake: Lake, name: str) -> None:
    value, feature = PROPERTIES[name]
    asked = {name: value}
    about = Metadata(
        id="t", schema_string='{"type":"struct","fields":[]}', partition_columns=(), configuration=asked
    )
    assert feature in enabled_features(about)
    if feature in WRITTEN:
        table = lake.create_table(KEY, schema=STRICT, properties=asked)
        assert feature in supported_features(protocol_of(table))
        assert agrees(table)
        table.append(rows(1))
    else:
        with pytest.raises(InvalidContent, match=f"'{feature}'"):
            lake.create_table(KEY, schema=STRICT, properties=asked)


def test_a_commit_that_enables_a_feature_lists_it(lake: Lake) -> None:
    table = lake.create_table(KEY, schema=pa.schema([("id", pa.int64())]))
    about = table.snapshot().metadata
    widened = msgspec.structs.replace(
        about, configuration={**about.configuration, "delta.enableTypeWidening": "true"}
    )
    with pytest.raises(InvalidContent, match="'typeWidening', but its protocol lacks"):
        table.commit(1, [widened])
    table.commit(1, [with_features(protocol_of(table), {"typeWidening"}), widened])
    assert agrees(table)


def test_a_table_of_the_first_release_is_repaired_by_one_command(lake: Lake) -> None:
    with as_the_first_release():
        table = lake.create_table(KEY, data=rows(1))
    assert not agrees(table)
    table.append(rows(2))
    done = lake.delta.repair(KEY, message="for Delta Spark")
    assert done is not None
    assert done.version == 2
    assert agrees(table)
    assert ids(table) == [1, 2]
    assert lake.delta.repair(KEY) is None
    table.append(rows(3))
    assert ids(table) == [1, 2, 3]


def test_what_is_under_way_while_a_table_is_repaired_lands(lake: Lake) -> None:
    """An append that was written before, a branch that is merged afterwards, and a repair on both sides."""
    with as_the_first_release():
        table = lake.create_table(KEY, data=rows(1))
    lake.branch("dev").create()
    lake.table(KEY, "dev").append(rows(2))
    before = table.snapshot()
    lake.delta.repair(KEY)
    lake.merge("dev")
    assert ids(table) == [1, 2]
    assert agrees(table)
    line = {"add": {"path": "x", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}}
    with pytest.raises(TableConflict):
        table.commit(before.version + 1, [line])


def test_a_table_of_the_first_release_that_is_released_lists_what_it_enables(lake: Lake) -> None:
    with as_the_first_release():
        place = lake.create_table(KEY, data=rows(1)).location
    lake.delta.release(KEY)
    found = DeltaTable(place)
    assert (found.protocol().min_reader_version, found.protocol().min_writer_version) == (1, 2)
    write_deltalake(place, rows(2), mode="append")
    assert DeltaTable(place).to_pyarrow_table().num_rows == 2


def test_a_table_that_was_created_on_a_branch_of_the_first_release_is_repaired_by_its_merge(
    lake: Lake,
) -> None:
    lake.branch("dev").create()
    with as_the_first_release():
        lake.create_table(KEY, data=rows(1), branch="dev")
    lake.merge("dev")
    assert agrees(lake.table(KEY))
    assert ids(lake.table(KEY)) == [1]


def test_a_table_of_the_first_release_can_be_reverted_to_columns_that_are_not_null(lake: Lake) -> None:
    with as_the_first_release():
        table = lake.create_table(KEY, data=rows(1))
    about = table.snapshot().metadata
    loose = msgspec.structs.replace(about, schema_string=about.schema_string.replace("false", "true"))
    table.commit(1, [loose])
    lake.revert("main")
    assert not table.schema.fields[0].nullable
    assert agrees(table)


# -- adopting ------------------------------------------------------------------------------------------------


def foreign(root: Path, *, version: tuple[int, int] = (1, 2), marks: Any = (), **properties: str) -> Path:
    """A table with one row whose protocol names versions, with these words in a column's metadata."""
    write_deltalake(root, pa.table({"id": [1], "text": ["1"]}))
    log = root / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": version[0], "minWriterVersion": version[1]}
        if "metaData" in line:
            schema = json.loads(line["metaData"]["schemaString"])
            schema["fields"][0]["metadata"] = dict(marks)
            line["metaData"]["schemaString"] = json.dumps(schema)
            line["metaData"]["configuration"] = {
                name.replace("_", "."): one for name, one in properties.items()
            }
    log.write_text("\n".join(map(json.dumps, lines)))
    return root


@pytest.mark.parametrize(
    "mark", ["delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT", "delta.typeChanges"]
)
def test_marks_that_are_not_in_force_do_not_come_into_force_with_the_lake(
    lake: Lake, tmp_path: Path, mark: str
) -> None:
    root = foreign(tmp_path / "tables" / "old", marks={mark: "1", "comment": "an id"})
    lake.delta.adopt(root, KEY)
    table = lake.table(KEY)
    assert agrees(table)
    assert table.schema.fields[0].metadata == {"comment": "an id"}
    table.append(pa.table({"id": [2], "text": ["2"]}))
    assert ids(table) == [1, 2]
    lake.delta.release(KEY)
    write_deltalake(root, pa.table({"id": [3], "text": ["3"]}), mode="append")
    assert DeltaTable(root).to_pyarrow_table().num_rows == 3


def test_properties_that_would_come_into_force_are_told_before_the_table_is_taken(
    lake: Lake, tmp_path: Path
) -> None:
    root = foreign(tmp_path / "tables" / "old", delta_constraints_positive="id > 0")
    with pytest.raises(UnsupportedFeature, match=r"unset 'delta\.constraints\.positive'"):
        lake.delta.adopt(root, KEY)
    assert DeltaTable(root).version() == 0


def test_what_a_property_enables_is_listed_when_a_table_is_adopted(lake: Lake, tmp_path: Path) -> None:
    root = foreign(tmp_path / "tables" / "old", version=(1, 1), delta_appendOnly="true")
    lake.delta.adopt(root, KEY)
    assert agrees(lake.table(KEY))


@pytest.mark.parametrize("version", [(1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6)])
def test_a_table_that_is_handed_back_has_the_versions_that_it_had(
    lake: Lake, tmp_path: Path, version: tuple[int, int]
) -> None:
    root = foreign(tmp_path / "tables" / "old", version=version)
    lake.delta.adopt(root, KEY)
    lake.delta.release(KEY)
    with_places = Places()
    found = load_snapshot(PlaceFiles(with_places.open_place(str(root)))).protocol
    with_places.close()
    assert found == Protocol(min_reader_version=version[0], min_writer_version=version[1])


def test_only_features_that_no_version_stands_for_stay_listed() -> None:
    plain = Protocol(min_reader_version=1, min_writer_version=1)
    assert oldest_protocol(with_features(plain, {"invariants"})).min_writer_version == 2
    for names in ({"changeDataFeed"}, {"domainMetadata"}, {"deletionVectors"}):
        listed = with_features(plain, names)
        assert oldest_protocol(listed) == listed
