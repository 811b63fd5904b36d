"""Whose a table is, and the commits that change it, as values."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from penstock.errors import InvalidRequest, InvalidTable, ManagedElsewhere, UnsupportedFeature
from penstock.formats.delta.branch_log.ownership import (
    PROTECTED,
    NewTable,
    OwnerIdentity,
    TableBeforeCommit,
    TableOwner,
    check_adoptable,
    encode_adoption_commit,
    encode_release_commit,
    find_owner,
    first_commit,
    is_timed,
    protected_changes,
)
from penstock.formats.delta.protocol.actions import CommitInfo, Metadata, Protocol, parse_commit, write_commit
from penstock.formats.delta.protocol.clones import OWNER_CONF
from penstock.formats.delta.protocol.features import protocol_faults, supported_features
from penstock.formats.delta.protocol.lint import OWNER_NAME, LintRules, LintState, check_bytes
from tests.formats.delta.logs import SCHEMA, metadata, protocol

LAKE = OwnerIdentity("0f5c", "https://lake.example.org")
TABLE = UUID("00000000-0000-4000-8000-0000000000aa")
ATTEMPT = UUID("00000000-0000-4000-8000-0000000000bb")
NOW_MS = 1_800_000_000_000


def before(
    was: Protocol, about: Metadata | None = None, version: int = 4, time_ms: int = 5
) -> TableBeforeCommit:
    return TableBeforeCommit(
        version=version, protocol=was, metadata=about or metadata(), timestamp_ms=time_ms
    )


def parts(data: bytes) -> tuple[CommitInfo, Protocol, Metadata]:
    info, becomes, about = (line.action for line in parse_commit(data))
    assert isinstance(info, CommitInfo)
    assert isinstance(becomes, Protocol)
    assert isinstance(about, Metadata)
    return info, becomes, about


def state(one: TableBeforeCommit) -> LintState:
    return LintState(
        version=one.version, protocol=one.protocol, metadata=one.metadata, timestamp_ms=one.timestamp_ms
    )


LEGACY = [
    Protocol(min_reader_version=1, min_writer_version=1),
    Protocol(min_reader_version=1, min_writer_version=2),
    Protocol(min_reader_version=1, min_writer_version=4),
    Protocol(min_reader_version=2, min_writer_version=5),
    Protocol(min_reader_version=2, min_writer_version=6),
    protocol("appendOnly"),
    protocol("appendOnly", reader=["deletionVectors"]),
    protocol("inCommitTimestamp"),
]


@pytest.mark.parametrize(
    "was", LEGACY, ids=lambda one: f"{one.min_reader_version}-{one.min_writer_version}-{one.writer_features}"
)
def test_a_conversion_keeps_every_feature_that_a_version_stood_for(was: Protocol) -> None:
    data = encode_adoption_commit(before(was), LAKE, TABLE, ATTEMPT, NOW_MS)
    _, becomes, about = parts(data)
    assert supported_features(becomes) == supported_features(was) | {"managedCommits", "inCommitTimestamp"}
    assert becomes.min_reader_version == was.min_reader_version
    assert becomes.min_writer_version == 7
    assert list(protocol_faults(becomes, was)) == []
    assert check_bytes(data, state(before(was))) == ()
    assert is_timed(becomes, about)


def test_a_conversion_says_from_which_version_on_there_are_timestamps() -> None:
    info, _, about = parts(encode_adoption_commit(before(protocol()), LAKE, TABLE, ATTEMPT, NOW_MS))
    assert info.in_commit_timestamp == NOW_MS
    assert about.configuration["delta.inCommitTimestampEnablementVersion"] == "5"
    assert about.configuration["delta.inCommitTimestampEnablementTimestamp"] == str(NOW_MS)


def test_r38_a_conversion_is_later_than_the_version_before_it_though_the_clock_is_behind() -> None:
    ahead = before(protocol(), time_ms=NOW_MS + 60_000)
    info, _, about = parts(encode_adoption_commit(ahead, LAKE, TABLE, ATTEMPT, NOW_MS))
    assert info.in_commit_timestamp == NOW_MS + 60_001
    assert about.configuration["delta.inCommitTimestampEnablementTimestamp"] == str(NOW_MS + 60_001)
    assert info.transaction_id == str(ATTEMPT)


def test_a_table_that_has_timestamps_already_is_not_said_to_get_them() -> None:
    timed = metadata(delta_enableInCommitTimestamps="true")
    _, _, about = parts(
        encode_adoption_commit(before(protocol("inCommitTimestamp"), timed), LAKE, TABLE, ATTEMPT, NOW_MS)
    )
    assert not [name for name in about.configuration if "Enablement" in name]


def test_a_conversion_changes_nothing_else_of_the_metadata() -> None:
    about = metadata(delta_appendOnly="true")
    _, _, converted = parts(encode_adoption_commit(before(protocol(), about), LAKE, TABLE, ATTEMPT, NOW_MS))
    kept = {name: value for name, value in converted.configuration.items() if name not in PROTECTED}
    assert msgspec.structs.replace(converted, configuration=kept) == about


@pytest.mark.parametrize(
    ("was", "about"),
    [
        (protocol(), metadata()),
        (protocol("inCommitTimestamp"), metadata()),
        (protocol("inCommitTimestamp"), metadata(delta_enableInCommitTimestamps="true")),
    ],
    ids=["without timestamps", "with the feature", "with timestamps"],
)
def test_a_table_that_is_handed_back_has_what_it_had_before(was: Protocol, about: Metadata) -> None:
    _, managed, owned_about = parts(encode_adoption_commit(before(was, about), LAKE, TABLE, ATTEMPT, NOW_MS))
    owned = before(managed, owned_about, version=5, time_ms=NOW_MS)
    data = encode_release_commit(owned, ATTEMPT, NOW_MS)
    info, becomes, after = parts(data)
    assert info.in_commit_timestamp == NOW_MS + 1
    assert supported_features(becomes) == supported_features(was)
    assert after == about
    assert find_owner(becomes, after) is None
    droppable = frozenset({"managedCommits", "inCommitTimestamp"})
    assert check_bytes(data, state(owned), LintRules(droppable=droppable)) == ()


def test_a_released_table_can_be_adopted_again() -> None:
    _, managed, about = parts(encode_adoption_commit(before(protocol()), LAKE, TABLE, ATTEMPT, NOW_MS))
    _, back, again = parts(encode_release_commit(before(managed, about, time_ms=NOW_MS), ATTEMPT, NOW_MS))
    check_adoptable(back, again, "the table")
    data = encode_adoption_commit(
        before(back, again, version=6, time_ms=NOW_MS + 1), LAKE, TABLE, ATTEMPT, NOW_MS
    )
    assert check_bytes(data, state(before(back, again, version=6, time_ms=NOW_MS + 1))) == ()
    assert find_owner(*parts(data)[1:]) is not None


def test_r37_the_property_without_the_feature_is_an_invalid_table() -> None:
    with pytest.raises(
        InvalidTable, match=r"the property 'delta.managedCommitOwnerName', but not the feature"
    ):
        find_owner(protocol(), metadata(delta_managedCommitOwnerName="penstock"), "sales")


def test_r37_the_feature_without_the_property_is_an_invalid_table() -> None:
    with pytest.raises(InvalidTable, match="sales is invalid: it has the feature 'managedCommits', but not"):
        find_owner(protocol("managedCommits"), metadata(), "sales")


@pytest.mark.parametrize("conf", ["", "[]", '{"lake": 1}', "{", '{"a": {}}'])
def test_the_owners_settings_are_a_map_of_text(conf: str) -> None:
    about = metadata(delta_managedCommitOwnerName="penstock", delta_managedCommitOwnerConf=conf)
    with pytest.raises(InvalidTable, match="managedCommitOwnerConf"):
        find_owner(protocol("managedCommits"), about)


def test_a_table_of_the_file_system_has_no_owner() -> None:
    assert find_owner(protocol(), metadata()) is None


def test_an_owner_need_not_have_settings() -> None:
    about = metadata(delta_managedCommitOwnerName="commit-owner-1")
    assert find_owner(protocol("managedCommits"), about) == TableOwner("commit-owner-1", {})


def test_a_table_names_its_lake_and_which_table_of_it_it_is() -> None:
    owner = find_owner(*parts(encode_adoption_commit(before(protocol()), LAKE, TABLE, ATTEMPT, NOW_MS))[1:])
    assert owner is not None
    assert (owner.lake, owner.table, owner.lake_address) == ("0f5c", TABLE, "https://lake.example.org")
    assert LAKE.is_owner(owner)
    assert not OwnerIdentity("other").is_owner(owner)
    assert not LAKE.is_owner(TableOwner("commit-owner-1", {"lake": "0f5c"}))
    assert not LAKE.is_owner(None)


@pytest.mark.parametrize(
    ("url", "at"),
    [
        ("postgresql://etl:hunter2@db.example.org/lake", "postgresql://…@db.example.org/lake"),
        ("s3://bucket/lake?secret=hunter2", "s3://bucket/lake"),
        ("memory:", None),
        ("", None),
    ],
)
def test_r39_what_a_table_says_of_its_owner_holds_no_secrets(url: str, at: str | None) -> None:
    said = OwnerIdentity("0f5c", url).make_owner_properties(TABLE)
    conf = msgspec.json.decode(said[OWNER_CONF], type=dict[str, str])
    assert conf.get("at") == at
    assert "hunter2" not in str(said)


def test_r31_a_table_of_another_owner_is_refused_and_the_way_out_is_told() -> None:
    _, managed, about = parts(encode_adoption_commit(before(protocol()), LAKE, TABLE, ATTEMPT, NOW_MS))
    with pytest.raises(ManagedElsewhere, match=r"belongs to lake 0f5c at https://lake.example.org") as caught:
        check_adoptable(managed, about, "/data/sales")
    assert "penstock delta release" in caught.value.message
    assert caught.value.details["lake"] == "0f5c"
    foreign = metadata(delta_managedCommitOwnerName="dynamo")
    with pytest.raises(ManagedElsewhere, match="belongs to 'dynamo'"):
        check_adoptable(protocol("managedCommits"), foreign, "/data/sales")


def test_a_table_that_cannot_be_written_is_not_adopted_and_all_reasons_are_told() -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        check_adoptable(
            protocol("redirectWriterOnly-preview", "managed-commit-preview"), metadata(), "/data/sales"
        )
    assert caught.value.details["features"] == ("managed-commit-preview", "redirectWriterOnly-preview")
    serves_iceberg = metadata(**{"delta_universalFormat.enabledFormats": "iceberg"})
    with pytest.raises(UnsupportedFeature, match="UNSET TBLPROPERTIES"):
        check_adoptable(protocol(), serves_iceberg, "/data/sales")


def test_r37_only_the_owner_changes_the_properties_that_say_who_it_is() -> None:
    _, _, about = parts(encode_adoption_commit(before(protocol()), LAKE, TABLE, ATTEMPT, NOW_MS))
    other = msgspec.structs.replace(about, configuration={**about.configuration, OWNER_CONF: "{}"})
    gone = {name: value for name, value in about.configuration.items() if name != OWNER_NAME}
    more = {**about.configuration, "delta.appendOnly": "true"}
    assert protected_changes(about, other) == (OWNER_CONF,)
    assert protected_changes(about, msgspec.structs.replace(about, configuration=gone)) == (OWNER_NAME,)
    assert protected_changes(about, msgspec.structs.replace(about, configuration=more)) == ()


def test_a_new_table_has_the_features_that_every_writer_knows_and_that_it_uses_and_no_others() -> None:
    schema = SCHEMA.replace("long", "timestamp_ntz")
    new = NewTable(
        schema_string=schema,
        properties={"delta.appendOnly": "true", "delta.feature.domainMetadata": "supported"},
        description="orders",
    )
    actions = first_commit(new, LAKE, TABLE, ATTEMPT, NOW_MS)
    assert check_bytes(write_commit(actions), LintState()) == ()
    info, becomes, about = actions
    assert info.in_commit_timestamp == NOW_MS
    used = {"appendOnly", "invariants", "domainMetadata", "timestampNtz"}
    assert supported_features(becomes) == used | {"managedCommits", "inCommitTimestamp"}
    assert becomes.reader_features == ("timestampNtz",)
    assert "delta.feature.domainMetadata" not in about.configuration
    assert find_owner(becomes, about) is not None


def test_a_plain_new_table_can_be_read_by_the_oldest_readers() -> None:
    new = NewTable(schema_string=SCHEMA, partition_columns=())
    _, becomes, _ = first_commit(new, LAKE, TABLE, ATTEMPT, NOW_MS)
    assert (becomes.min_reader_version, becomes.reader_features) == (1, None)


@pytest.mark.parametrize(
    "properties",
    [
        *({name: "x"} for name in PROTECTED),
        {"delta.feature.magic": "supported"},
        {"delta.feature.rowTracking": "on"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_r37_whoever_creates_a_table_does_not_set_the_owners_properties(properties: dict[str, str]) -> None:
    new = NewTable(schema_string=SCHEMA, properties=properties)
    with pytest.raises(InvalidRequest, match=r"leave it out|or be left out"):
        first_commit(new, LAKE, TABLE, ATTEMPT, NOW_MS)
