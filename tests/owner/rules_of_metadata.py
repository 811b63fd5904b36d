"""R37 to R40: what a table says of its owner, and of its times."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from deltalake import DeltaTable as ForeignTable
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from penstock.errors import InvalidContent, InvalidRequest
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.owner.orders import (
    actions_in,
    add,
    created,
    foreign_version,
    left_unpublished,
    log_file,
    root_of,
    rows,
)

NAME, CONF = "delta.managedCommitOwnerName", "delta.managedCommitOwnerConf"
TIMESTAMPS = "delta.enableInCommitTimestamps"


def metadata_of(table: Table) -> dict[str, Any]:
    """The action, to be changed and committed."""
    found: dict[str, Any] = json.loads(table.get_commits().metadata)
    return found


def properties_of(table: Table) -> dict[str, str]:
    found: dict[str, str] = metadata_of(table)["metaData"]["configuration"]
    return found


class RulesOfMetadata:
    def test_r37_the_owners_name_stands_beside_its_feature(self, lake: Lake, table: Table) -> None:
        protocol = json.loads(table.get_commits().protocol)["protocol"]
        assert {"managedCommits", "inCommitTimestamp"} <= set(protocol["writerFeatures"])
        assert protocol["minWriterVersion"] == 7
        properties = properties_of(table)
        assert (properties[NAME], properties[TIMESTAMPS]) == ("penstock", "true")
        assert json.loads(properties[CONF])["lake"] == lake.id

    @pytest.mark.parametrize("name", [NAME, CONF, TIMESTAMPS])
    def test_r37_a_writer_can_neither_set_nor_unset_the_owners_properties(
        self, lake: Lake, table: Table, name: str
    ) -> None:
        head = lake.branch().head
        for becomes in ({}, {name: "another"}):
            metadata = metadata_of(table)
            del metadata["metaData"]["configuration"][name]
            metadata["metaData"]["configuration"] |= becomes
            with pytest.raises(InvalidContent, match=re.escape(name)):
                table.commit(1, [metadata])
        assert lake.branch().head == head

    def test_r37_a_writer_cannot_take_the_feature_away(self, table: Table) -> None:
        protocol = json.loads(table.get_commits().protocol)
        protocol["protocol"]["writerFeatures"].remove("managedCommits")
        with pytest.raises(InvalidContent, match="managedCommits"):
            table.commit(1, [protocol])

    def test_r37_replacing_a_table_keeps_the_owners_properties(self, table: Table) -> None:
        was = properties_of(table)
        table.append(rows(1))
        table.overwrite(rows(2))
        assert properties_of(table) == was
        metadata = metadata_of(table)
        metadata["metaData"]["configuration"]["own"] = "word"
        table.commit(3, [metadata])
        assert properties_of(table) == {**was, "own": "word"}

    @pytest.mark.parametrize("name", [NAME, CONF])
    def test_r37_they_are_not_copied_to_another_table(self, lake: Lake, table: Table, name: str) -> None:
        copied = {name: properties_of(table)[name]}
        with pytest.raises(InvalidRequest, match=re.escape(name)):
            created(lake, root_of(table).parent / "copy", f"{table.key}_copy", properties=copied)
        assert not lake.table(f"{table.key}_copy").exists

    def test_r38_timestamps_grow_and_stand_first_in_each_commit_as_the_owner_recorded_them(
        self, table: Table
    ) -> None:
        table.commit(1, [add("a")])
        got = left_unpublished(table, 4)
        recorded = {one.version: one.timestamp_ms for one in got.commits}
        table.commit(6, [add("b")])
        table.backfill_to_version()
        infos = [actions_in(log_file(table, version).read_bytes())[0]["commitInfo"] for version in range(7)]
        times = [info["inCommitTimestamp"] for info in infos]
        assert times == sorted(set(times))
        assert {version: times[version] for version in recorded} == recorded
        assert len({info["txnId"] for info in infos}) == 7

    def test_r38_a_writers_own_time_is_later_than_the_version_before(self, table: Table) -> None:
        first = table.append_actions([add("a")]).tables[0].timestamp_ms
        info = {"inCommitTimestamp": first, "operation": "WRITE", "txnId": "mine"}
        with pytest.raises(InvalidContent, match="inCommitTimestamp"):
            table.commit(2, [{"commitInfo": info}, add("b")])
        info["inCommitTimestamp"] = first + 1
        made = table.commit(2, [{"commitInfo": info}, add("b")])
        assert made.tables[0].timestamp_ms == first + 1
        assert table.append_actions([add("c")]).tables[0].timestamp_ms > first + 1

    def test_r39_what_a_table_says_of_its_owner_holds_no_secrets(self, lake: Lake, table: Table) -> None:
        conf = json.loads(properties_of(table)[CONF])
        assert conf.keys() <= {"lake", "table", "at", "timestamps"}
        assert (conf["lake"], conf["table"]) == (lake.id, str(table.get_commits().id))
        at = urlsplit(conf.get("at", ""))
        assert (at.password, at.query) == (None, "")
        secret = urlsplit(lake.url).password
        assert secret is None or secret not in log_file(table, 0).read_text()

    def test_r40_without_the_owner_the_published_part_is_read_and_nothing_is_written(
        self, table: Table
    ) -> None:
        table.append(rows(1, 2))
        table.backfill_to_version()
        root = root_of(table)
        assert sorted(ForeignTable(root).to_pyarrow_table()["id"].to_pylist()) == [1, 2]
        with pytest.raises(DeltaError):
            write_deltalake(root, rows(3), mode="append")
        assert (foreign_version(table), table.get_commits().latest_version) == (1, 1)
