"""The table of features: what is read, what is written, and what is said about the rest."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import PenstockError
from penstock.formats.delta.protocol.actions import Metadata, Protocol, parse_commit
from penstock.formats.delta.protocol.feature_table import FEATURES, FeatureSupport
from penstock.formats.delta.protocol.features import (
    binds_writers,
    find_unlisted_features,
    find_unreadable_features,
    find_unwritable_features,
    protocol_faults,
    select_features_in_use,
    supported_features,
)
from tests.formats.delta.legal_commits import schema_string

PLAIN = Metadata(id="t", schema_string=schema_string({"id": "long"}), partition_columns=())


def legacy(reader: int, writer: int) -> Protocol:
    return Protocol(min_reader_version=reader, min_writer_version=writer)


def listed(*writer: str, reader: tuple[str, ...] = ()) -> Protocol:
    return Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=reader, writer_features=(*reader, *writer)
    )


def column(**notes: object) -> Metadata:
    field = {"name": "id", "type": "long", "nullable": True, "metadata": notes}
    outer = {
        "name": "o",
        "type": {"type": "struct", "fields": [field]},
        "nullable": True,
        "metadata": {},
    }
    schema = json.dumps({"type": "struct", "fields": [outer]})
    return msgspec.structs.replace(PLAIN, schema_string=schema)


def configured(**properties: str) -> Metadata:
    return msgspec.structs.replace(PLAIN, configuration=properties)


@pytest.mark.parametrize(
    ("protocol", "names"),
    [
        (legacy(1, 1), ""),
        (legacy(1, 2), "appendOnly invariants"),
        (legacy(1, 3), "appendOnly checkConstraints invariants"),
        (legacy(1, 4), "appendOnly changeDataFeed checkConstraints generatedColumns invariants"),
        (
            legacy(2, 5),
            "appendOnly changeDataFeed checkConstraints columnMapping generatedColumns invariants",
        ),
        (listed("appendOnly"), "appendOnly"),
        (listed("x", reader=("y",)), "x y"),
        (Protocol(min_reader_version=2, min_writer_version=7, writer_features=()), "columnMapping"),
    ],
)
def test_versions_stand_for_features_until_these_are_listed(protocol: Protocol, names: str) -> None:
    assert sorted(supported_features(protocol)) == names.split()


@pytest.mark.parametrize("writer", range(1, 7))
def test_an_old_table_that_uses_nothing_special_is_read_and_written(writer: int) -> None:
    assert find_unreadable_features(legacy(1, writer)) == ()
    assert find_unwritable_features(legacy(2 if writer > 4 else 1, writer), PLAIN) == ()


@pytest.mark.parametrize(
    ("feature", "metadata"),
    [
        ("icebergWriterCompatV1", configured(**{"delta.enableIcebergWriterCompatV1": "true"})),
    ],
)
def test_a_feature_is_refused_on_write_only_once_the_table_makes_use_of_it(
    feature: str, metadata: Metadata
) -> None:
    protocol = listed(feature)
    assert find_unreadable_features(protocol) == ()
    assert find_unwritable_features(protocol, PLAIN) == ()
    assert feature in select_features_in_use(metadata)
    assert [one.feature for one in find_unwritable_features(protocol, metadata)] == [feature]


def test_mapped_columns_are_read_and_written() -> None:
    mapped = configured(**{"delta.columnMapping.mode": "name"})
    for protocol in (legacy(2, 5), listed(reader=("columnMapping",))):
        assert find_unreadable_features(protocol) == ()
        assert find_unwritable_features(protocol, mapped) == ()
    assert find_unwritable_features(legacy(2, 5), configured(**{"delta.columnMapping.mode": "none"})) == ()


def test_what_is_not_known_is_refused_by_its_name() -> None:
    (refusal,) = find_unreadable_features(listed(reader=("bogus",)))
    assert refusal.feature == "bogus"
    assert "newer Penstock" in str(refusal)
    assert find_unreadable_features(listed("bogus")) == ()
    assert [one.feature for one in find_unwritable_features(listed("bogus"), PLAIN)] == ["bogus"]
    assert [one.feature for one in find_unreadable_features(legacy(4, 7))] == ["reader version 4"]
    assert [one.feature for one in find_unwritable_features(legacy(1, 8), PLAIN)] == ["writer version 8"]


@pytest.mark.parametrize(
    ("feature", "metadata"),
    [
        (
            "variantType-preview",
            msgspec.structs.replace(PLAIN, schema_string=schema_string({"v": "variant"})),
        ),
        ("variantType", msgspec.structs.replace(PLAIN, schema_string=schema_string({"v": "variant"}))),
        (
            "variantShredding",
            msgspec.structs.replace(PLAIN, configuration={"delta.enableVariantShredding": "true"}),
        ),
    ],
)
def test_tables_with_variants_are_read_and_written(feature: str, metadata: Metadata) -> None:
    protocol = listed(reader=(feature,))
    assert find_unreadable_features(protocol) == find_unreadable_features(protocol, metadata) == ()
    assert find_unwritable_features(protocol, metadata) == ()
    missing = {"variantType"} if feature == "variantShredding" else set()
    assert find_unlisted_features(protocol, metadata) == missing


def test_every_feature_that_is_ever_refused_says_why_and_what_to_do() -> None:
    for feature in FEATURES.values():
        restricted = {feature.reading, feature.writing} != {FeatureSupport.ALWAYS}
        assert bool(feature.why) is restricted, feature.name
        assert bool(feature.advice) is restricted, feature.name
        assert feature.reader or feature.reading is FeatureSupport.ALWAYS, feature.name
        # A feature that is fine while unused needs a way to tell that it is.
        telling = bool(feature.properties or feature.marks or feature.column)
        assert telling or FeatureSupport.UNUSED not in {feature.reading, feature.writing}, feature.name


def test_a_type_deep_in_a_column_makes_use_of_its_feature() -> None:
    inner = {"type": "map", "keyType": "string", "valueType": "timestamp_ntz", "valueContainsNull": True}
    array = {"type": "array", "elementType": inner, "containsNull": True}
    schema = {"type": "struct", "fields": [{"name": "a", "type": array, "nullable": True, "metadata": {}}]}
    metadata = msgspec.structs.replace(PLAIN, schema_string=json.dumps(schema))
    assert select_features_in_use(metadata) == {"timestampNtz"}


def test_a_schema_that_is_none_is_told_as_such() -> None:
    with pytest.raises(PenstockError, match="schema"):
        select_features_in_use(msgspec.structs.replace(PLAIN, schema_string="nonsense"))


def test_features_that_writers_need_not_know_are_few_and_the_unknown_are_not_among_them() -> None:
    assert {name for name in FEATURES if not binds_writers(name)} == {
        "inCommitTimestamp",
        "domainMetadata",
        "timestampNtz",
        "vacuumProtocolCheck",
        "v2Checkpoint",
        "deletionVectors",
        "checkpointProtection",
        "invariants",
        "rowTracking",
        "typeWidening",
        "typeWidening-preview",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
    assert binds_writers("bogus")


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        (legacy(0, 2), "must be at least 1"),
        (legacy(1, 7), "'writerFeatures'"),
        (Protocol(min_reader_version=1, min_writer_version=2, writer_features=()), "'writerFeatures'"),
        (Protocol(min_reader_version=3, min_writer_version=7, writer_features=()), "'readerFeatures'"),
        (Protocol(min_reader_version=3, min_writer_version=6, reader_features=()), "writer version 7"),
        (listed("deletionVectors"), "missing from 'readerFeatures'"),
        (listed(reader=("appendOnly",)), "a writer feature only"),
    ],
)
def test_a_protocol_that_contradicts_itself_is_told(protocol: Protocol, words: str) -> None:
    (reason,) = protocol_faults(protocol)
    assert words in reason


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (legacy(1, 2), legacy(1, 4), None),
        (legacy(1, 2), listed("appendOnly", "invariants"), None),
        (legacy(1, 2), listed("appendOnly"), "lose the feature 'invariants'"),
        (legacy(1, 4), legacy(1, 3), "lose the feature"),
        (listed("appendOnly", "invariants"), legacy(1, 2), "decrease from 3 and 7 to 1 and 2"),
        (listed(reader=("v2Checkpoint",)), listed(), "lose the feature 'v2Checkpoint'"),
    ],
)
def test_a_table_keeps_its_features_and_its_versions(
    before: Protocol, after: Protocol, words: str | None
) -> None:
    reasons = list(protocol_faults(after, before))
    assert bool(reasons) is (words is not None)
    assert words is None or all(words in reason for reason in reasons)


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({}, set()),
        ({"delta.enableChangeDataFeed": "true"}, {"changeDataFeed"}),
        ({"delta.appendOnly": "true"}, {"appendOnly"}),
        ({"delta.enableDeletionVectors": "true"}, {"deletionVectors"}),
    ],
)
def test_the_features_that_deltalake_gives_a_table_are_the_ones_it_uses(
    tmp_path: Path, properties: dict[str, str], names: set[str]
) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"id": [1]}), configuration=properties)
    actions = [line.action for line in parse_commit(next(tmp_path.glob("_delta_log/*.json")).read_bytes())]
    (protocol,) = (action for action in actions if isinstance(action, Protocol))
    (metadata,) = (action for action in actions if isinstance(action, Metadata))
    assert select_features_in_use(metadata) == names
    assert names <= supported_features(protocol)
    assert list(protocol_faults(protocol)) == []
    assert find_unwritable_features(protocol, metadata) == ()
