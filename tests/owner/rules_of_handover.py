"""R24 to R33: how a table comes to a lake, and how it leaves it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable as ForeignTable
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

import penstock
from penstock.errors import (
    CommitConflict,
    KeyNotFound,
    ManagedElsewhere,
    PenstockError,
    RequestError,
    TableConflict,
)
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.testing.threads import at_once
from tests.owner.orders import (
    SCHEMA,
    actions_in,
    add,
    left_unpublished,
    paths,
    root_of,
    rows,
)


def ids(table: pa.Table) -> list[int]:
    found: list[int] = sorted(table["id"].to_pylist())
    return found


class RulesOfHandover:
    @pytest.fixture
    def free(self, tmp_path: Path) -> Path:
        """A table of the file system with the versions 0 and 1."""
        place = tmp_path / "free"
        for number in (1, 2):
            write_deltalake(place, rows(number), mode="append")
        return place

    def test_r24_of_many_who_create_at_one_place_exactly_one_wins(
        self, lake: Lake, another: Lake, key: str, tmp_path: Path
    ) -> None:
        place = str(tmp_path / "contested")
        lakes = [lake, another]

        def create(number: int) -> str | None:
            mine = f"{key}.by{number}"
            try:
                lakes[number % len(lakes)].create_table(mine, schema=SCHEMA, location=place)
            except (CommitConflict, RequestError):  # whoever comes late may see whose it is
                return None
            return mine

        made = at_once(*(partial(create, number) for number in range(6)))
        (winner,) = [one for one in made if one is not None]
        assert [str(one.key) for one in lake.tables(key)] == [winner]
        table = lake.table(winner)
        assert table.append_actions([add("a")]).version == 1
        table.backfill_to_version()
        assert ForeignTable(place).version() == 1

    def test_r24_a_table_is_not_created_over_another_one(self, lake: Lake, key: str, free: Path) -> None:
        with pytest.raises(TableConflict, match="adopt"):
            lake.create_table(key, schema=SCHEMA, location=str(free))
        assert not lake.table(key).exists
        assert ForeignTable(free).version() == 1

    def test_r26_an_adopted_table_is_the_lakes_from_the_version_after_its_last(
        self, lake: Lake, key: str, free: Path
    ) -> None:
        made = lake.delta.adopt(str(free), key)
        table = lake.table(key)
        assert made.version == table.get_commits().latest_version == ForeignTable(free).version() == 2
        assert (lake.delta.status(key)[0].phase, ids(table.to_arrow())) == ("owned", [1, 2])
        # The promise is a commit of its own, before the one that notes how it ended.
        newest, promise, *_ = table.log()
        assert promise.id == made.commit
        assert newest.parents == (promise.id,)

    def test_r28_the_version_after_the_conversion_is_taken(
        self, lake: Lake, another: Lake, key: str, free: Path
    ) -> None:
        lake.delta.adopt(str(free), key)
        assert another.table(key).commit(3, [add("a")]).version == 3
        assert lake.table(key).backfill_to_version() == 3

    def test_r29_of_adopters_and_writers_at_once_nobody_loses_an_acknowledged_row(
        self, lake: Lake, key: str, free: Path
    ) -> None:
        def write(number: int) -> int | None:
            try:
                write_deltalake(free, rows(number), mode="append")
            except (CommitFailedError, DeltaError, OSError):
                return None
            return number

        def adopt() -> int | None:
            try:
                lake.delta.adopt(str(free), key)
            except TableConflict:
                assert not lake.table(key).exists
            return None

        told = at_once(adopt, *(partial(write, number) for number in (10, 11, 12)))
        wanted = sorted([1, 2, *(one for one in told if one is not None)])
        assert ids(ForeignTable(free).to_pyarrow_table()) == wanted
        if not lake.table(key).exists:  # for the caller to try again
            lake.delta.adopt(str(free), key)
        assert ids(lake.table(key).to_arrow()) == wanted

    def test_r30_a_writer_of_the_file_system_that_was_under_way_is_stopped(
        self, lake: Lake, key: str, free: Path
    ) -> None:
        under_way = ForeignTable(free)
        lake.delta.adopt(str(free), key)
        with pytest.raises((CommitFailedError, DeltaError)):
            write_deltalake(under_way, rows(9), mode="append")
        assert ids(lake.table(key).to_arrow()) == [1, 2]

    def test_r31_a_table_of_another_lake_is_refused_until_that_one_hands_it_back(
        self, lake: Lake, key: str, free: Path
    ) -> None:
        lake.delta.adopt(str(free), key)
        lake.table(key).append(rows(3))
        with penstock.open("memory:") as other:
            other.add_root(str(free.parent))
            with pytest.raises(ManagedElsewhere, match=lake.id):
                other.delta.adopt(str(free), key)
            assert not other.table(key).exists
            lake.delta.release(key)
            other.delta.adopt(str(free), key)
            other.table(key).append(rows(4))
            assert ids(other.table(key).to_arrow()) == [1, 2, 3, 4]
        with pytest.raises(KeyNotFound):
            lake.table(key).get_commits()

    def test_r32_a_released_table_is_published_to_its_end_and_the_file_systems_again(
        self, lake: Lake, table: Table
    ) -> None:
        left_unpublished(table, 2)
        root, seen = root_of(table), paths(table)
        made = lake.delta.release(table.key)
        assert (made.version, table.exists) == (3, False)
        after = ForeignTable(root)
        assert after.version() == 3
        assert sorted(pa.table(after.get_add_actions())["path"].to_pylist()) == seen
        assert "managedCommits" not in (after.protocol().writer_features or ())
        assert not any("managedCommit" in name for name in after.metadata().configuration)
        conversion = actions_in((root / "_delta_log" / f"{3:020}.json").read_bytes())
        assert [next(iter(one)) for one in conversion] == ["commitInfo", "protocol", "metaData"]
        assert lake.delta.adopt(str(root), table.key).version == 4

    def test_r32_an_engine_that_knows_nothing_of_owners_goes_on_with_a_released_table(
        self, lake: Lake, key: str, free: Path
    ) -> None:
        before = ForeignTable(free)
        lake.delta.adopt(str(free), key)
        lake.table(key).append(rows(3))
        lake.delta.release(key)
        write_deltalake(free, rows(4), mode="append")
        after = ForeignTable(free)
        assert ids(after.to_pyarrow_table()) == [1, 2, 3, 4]
        assert after.metadata().configuration == before.metadata().configuration
        assert after.protocol().min_writer_version == before.protocol().min_writer_version
        assert after.protocol().writer_features == before.protocol().writer_features
        lake.delta.adopt(str(free), key)
        assert ids(lake.table(key).to_arrow()) == [1, 2, 3, 4]

    def test_r32_so_it_does_with_one_that_was_created_in_the_lake(self, lake: Lake, table: Table) -> None:
        table.append(rows(1))
        root = root_of(table)
        lake.delta.release(table.key)
        write_deltalake(root, rows(2), mode="append")
        assert ids(ForeignTable(root).to_pyarrow_table()) == [1, 2]

    def test_r32_timestamps_that_a_table_had_before_it_was_adopted_stay(
        self, lake: Lake, key: str, free: Path
    ) -> None:
        (about,) = [
            one["metaData"]
            for one in actions_in((free / "_delta_log" / f"{0:020}.json").read_bytes())
            if "metaData" in one
        ]
        timed = {
            "delta.enableInCommitTimestamps": "true",
            "delta.inCommitTimestampEnablementVersion": "2",
            "delta.inCommitTimestampEnablementTimestamp": "1700000000000",
        }
        features = ["appendOnly", "inCommitTimestamp", "invariants"]
        version = [
            {"commitInfo": {"inCommitTimestamp": 1_700_000_000_000}},
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
            {"metaData": about | {"configuration": timed}},
        ]
        text = "".join(json.dumps(one) + "\n" for one in version)
        (free / "_delta_log" / f"{2:020}.json").write_text(text)
        lake.delta.adopt(str(free), key)
        lake.table(key).append(rows(3))
        lake.delta.release(key)
        after = ForeignTable(free)
        assert sorted(after.protocol().writer_features or ()) == features
        assert after.metadata().configuration == timed

    def test_r32_a_feature_that_was_asked_for_stays_without_its_use(
        self, lake: Lake, key: str, tmp_path: Path
    ) -> None:
        place = tmp_path / "asked"
        asked = {"delta.feature.inCommitTimestamp": "supported"}
        lake.create_table(key, schema=SCHEMA, location=str(place), properties=asked)
        lake.delta.release(key)
        features = ForeignTable(place).protocol().writer_features or ()
        assert sorted(features) == ["appendOnly", "inCommitTimestamp", "invariants"]
        assert ForeignTable(place).metadata().configuration == {}

    def test_r32_versions_are_found_by_time_before_and_after_a_release(
        self, lake: Lake, key: str, free: Path
    ) -> None:
        lake.delta.adopt(str(free), key)
        lake.table(key).append(rows(3))
        taken = lake.delta.release(key).version
        write_deltalake(free, rows(4), mode="append")
        for version in range(taken + 2):
            at_s = 1_700_000_000 + 60 * version
            os.utime(free / "_delta_log" / f"{version:020}.json", (at_s, at_s))
        lake.delta.adopt(str(free), key)
        table = lake.table(key)
        for version in range(taken + 2):
            then = datetime.fromtimestamp(1_700_000_000 + 60 * version + 30, UTC)
            assert table.snapshot(timestamp=then).version == version

    def test_r32_whoever_comes_after_a_release_is_refused_however_many_race_it(
        self, lake: Lake, table: Table
    ) -> None:
        def write(number: int) -> str | None:
            try:
                lake.table(table.key).append_actions([add(f"{number}")])
            except PenstockError:
                return None
            return f"{number}"

        def release() -> str | None:
            lake.delta.release(table.key)
            return None

        root = root_of(table)
        told = at_once(release, *(partial(write, number) for number in range(4)))
        landed = sorted(one for one in told if one is not None)
        after = ForeignTable(root)
        assert after.version() == len(landed) + 1
        assert sorted(pa.table(after.get_add_actions())["path"].to_pylist()) == landed
        with pytest.raises(PenstockError):
            table.append_actions([add("late")])

    def test_r33_a_release_that_is_stopped_takes_nothing_more_and_is_finished_by_anybody(
        self, lake: Lake, table: Table, another: Lake
    ) -> None:
        table.append_actions([add("a")])
        root = root_of(table)
        table.backfill_to_version()
        foreign = root / "_delta_log" / f"{2:020}.json"
        foreign.write_bytes(b"{}\n")
        with pytest.raises(PenstockError, match=foreign.name):
            lake.delta.release(table.key)
        assert lake.delta.status(table.key)[0].phase == "released"
        with pytest.raises(PenstockError):
            table.append_actions([add("late")])
        foreign.unlink()
        assert another.delta.release(table.key).version == 2
        assert not table.exists
        assert ForeignTable(root).version() == 2
